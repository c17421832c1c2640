package purser_test

import (
	"os"
	"regexp"
	"testing"
)

// edge is one edge of the product: a fault of a dependency, or a sentence of the contract, that an
// examination found broken or unproved. tests are "file TestName"; the test fails
// without the mend. left names the decision of docs/decisions that says why an edge stays.
type edge struct {
	what  string
	tests []string
	left  string
}

// storeEdges are about half-dead dependencies: disks, databases, leases, processes.
var storeEdges = []edge{
	{what: "full disk: refused within 1 s, ready again by itself", tests: []string{
		"internal/ledger/store/admission_test.go TestHoldsStopAfterAFailedWrite",
		"internal/server/nodes/dependency_test.go TestFullDisk",
	}},
	{what: "full disk: whole answers and streams under way", tests: []string{
		"internal/server/nodes/dependency_test.go TestFullDisk",
	}},
	{what: "PostgreSQL hangs: callers, /readyz and SIGTERM", tests: []string{
		"internal/server/nodes/hang_test.go TestDatabaseHangs",
		"internal/server/nodes/dependency_test.go TestFrozenPostgres",
		"internal/server/nodes/dependency_test.go TestStopWhilePostgresIsFrozen",
	}},
	{what: "PostgreSQL: black-holed connections", tests: []string{
		"internal/server/nodes/dependency_test.go TestBlackHoledConnections",
	}},
	{what: "PostgreSQL: out of connections", tests: []string{
		"internal/server/nodes/dependency_test.go TestNoConnectionsLeft",
	}},
	{what: "a batch that cannot be saved is answered as a whole", tests: []string{
		"internal/ledger/store/admission_test.go TestBatchFailsAsAWhole",
	}},
	{what: "a node without its lease admits nothing", tests: []string{
		"internal/server/nodes/dependency_test.go TestNodeWithoutLease",
	}},
	{what: "a node whose row is gone joins again", tests: []string{
		"internal/ledger/store/node_test.go TestDeletedNodeJoinsAgain",
		"internal/server/nodes/dependency_test.go TestNodeRowIsGone",
	}},
	{what: "a node never sweeps its own running calls", tests: []string{
		"internal/ledger/store/node_test.go TestOwnHoldsAreNotOrphans",
	}},
	{what: "a database that was away for everybody kills nobody's calls", tests: []string{
		"internal/ledger/store/node_test.go TestLeaseDecides",
	}},
	{what: "a dead owner is noticed within 15 s", tests: []string{
		"internal/server/nodes/dependency_test.go TestDeadOwnerIsNoticed",
	}},
	{what: "a failed flush or a lost log ends the process", tests: []string{
		"internal/server/nodes/stop_test.go TestLostFileEndsTheProcess",
		"internal/server/nodes/dependency_test.go TestLostLogEndsTheProcess",
	}},
	{what: "a corrupted page turns /readyz", tests: []string{
		"internal/server/nodes/stop_test.go TestDamagedFileIsNotReady",
	}},
	{what: "a file copied without its log is noticed", tests: []string{
		"internal/ledger/audit/run_test.go TestRunOnACopyWithoutTheLog",
	}},
	{what: "every job has a deadline", tests: []string{
		"internal/server/start_test.go TestJobsHaveDeadlines",
	}},
	{what: "purges in slices", tests: []string{
		"internal/base/db/edges_test.go TestDeleteSlices",
	}},
	{what: "retention as settings", tests: []string{
		"internal/config/config_test.go TestLoad",
		"internal/ledger/store/node_test.go TestDeleteExpiredObeysTheRetention",
	}},
	{what: "one broken hold does not block the sweep", tests: []string{
		"internal/gateway/inference/recover_test.go TestBrokenHoldDoesNotBlockTheSweep",
	}},
	{what: "drain before shutdown", tests: []string{
		"internal/server/nodes/stop_test.go TestDrain",
	}},
	{what: "a stream that outlasts the grace is settled, exit 0", tests: []string{
		"internal/server/nodes/stop_test.go TestStopCutsCalls",
	}},
	{what: "metrics of holds, lease, jobs, writer, deliveries", tests: []string{
		"internal/models/metrics/metrics_test.go TestText",
	}},
	{what: "clock samples that took long are not used (V-6)", tests: []string{
		"internal/base/db/clock_test.go TestSlowSamplesDoNotCount",
	}},
	{what: "a node waits for a PostgreSQL that is starting", tests: []string{
		"internal/server/start_test.go TestWaitsForAStartingDatabase",
	}},
	{what: "purser.db deleted under a running node", tests: []string{
		"internal/server/nodes/stop_test.go TestLostFileEndsTheProcess",
	}},
}

// callsEdges are about calls: what clients see at the gateway.
var callsEdges = []edge{
	{what: "F2 retry advice: x-should-retry and Retry-After", tests: []string{
		"internal/server/calls_edges_test.go TestACallLargerThanAWindow",
		"internal/base/web/advice_test.go TestRetryAdvice",
		"internal/ledger/store/script_test.go TestScripts",
	}},
	{what: "F4 a waiter runs the call of a dead owner", tests: []string{
		"internal/gateway/inference/owner_test.go TestWaiterRunsTheCallOfADeadOwner",
	}},
	{what: "F5 structured output on Claude", tests: []string{
		"internal/server/calls_edges_test.go TestStructuredOutputOnEveryModel",
		"internal/models/provider/anthropic/encode_test.go TestMembers",
	}},
	{what: "F7 keep-alives in silent streams", tests: []string{
		"internal/gateway/inference/keepalive_test.go TestSilentStreamsAreKeptOpen",
		"internal/gateway/inference/keepalive_test.go TestCommentsAreNotReplayed",
		"internal/models/provider/openai/stream_test.go TestSilenceInAStream",
	}},
	{what: "F8 ignored members and near misses", tests: []string{
		"internal/gateway/inference/plan/request_test.go TestUnknownMembers",
		"internal/server/calls_edges_test.go TestRequestsAreToldWhatIsIgnored",
	}},
	{what: "F9 refusals say whence the output cap came", tests: []string{
		"internal/gateway/inference/plan/refusal_test.go TestRefusalsSayWhenceTheCapCame",
	}},
	{what: "F11 provider failures name provider and kind", tests: []string{
		"internal/gateway/inference/failure_test.go TestFailuresNameProviderAndKind",
		"internal/server/calls_edges_test.go TestProviderFailuresTellTheApp",
	}},
	{what: "F12 deprecation headers", tests: []string{
		"internal/server/calls_edges_test.go TestRequestsAreToldWhatIsIgnored",
	}},
	{what: "F13 502 and Retry-After in the API description", tests: []string{
		"internal/testkit/apitest/streamevent_test.go TestProviderErrorsDocumentTheirHeaders",
	}},
	{what: "F14 StreamEvent matches one branch or more", tests: []string{
		"internal/testkit/apitest/streamevent_test.go TestStreamEventMayMatchTwo",
	}},
	{what: "F15 error events name the connection", tests: []string{
		"internal/gateway/inference/keepalive_test.go TestSilentStreamsAreKeptOpen",
		"internal/server/calls_edges_test.go TestProviderFailuresTellTheApp",
	}},
	{what: "F16 revoked by whom", tests: []string{
		"internal/gateway/callers/callers_test.go TestRevokedByWhomIsNotClaimed",
	}},
	{what: "F17 a recovered stream says that it was cut", tests: []string{
		"internal/gateway/inference/owner_test.go TestNodesNeverReplayDifferentAnswers",
	}},
	{what: "F18 role developer", tests: []string{
		"internal/gateway/inference/plan/request_test.go TestUnknownMembers",
	}},
	{what: "F19 wrong idempotency keys", tests: []string{
		"internal/server/calls_edges_test.go TestRequestsAreToldWhatIsIgnored",
	}},
	{what: "F20 durations in messages", tests: []string{
		"internal/ledger/rules/message_test.go TestDurationsInMessages",
	}},
	{what: "F21 other addresses of OpenAI's and Anthropic's APIs", tests: []string{
		"internal/server/calls_edges_test.go TestRequestsAreToldWhatIsIgnored",
	}},
	{what: "F22 pace in the sandbox is documented", tests: []string{
		"internal/gateway/inference/plan/demand_test.go TestDemand",
	}},
	{what: "F23 replays after a revoke", left: "008-order-of-checks.md"},
	{what: "F24 PURSER_PRICES in dev", tests: []string{
		"internal/dev/configure_test.go TestDevTakesSettings",
	}},
	{what: "U10 a provider without a key", tests: []string{
		"internal/gateway/inference/load_test.go TestAProviderWithoutAKeyIsNotCalled",
		"internal/models/catalog/catalog_test.go TestModels",
	}},
	{what: "calls in flight are bounded", tests: []string{
		"internal/gateway/inference/load_test.go TestCallsInFlightAreBounded",
		"internal/gateway/inference/load_test.go TestBoundsOfANode",
	}},
	{what: "the mock's memory is bounded", tests: []string{
		"internal/models/provider/mock/mock_test.go TestScriptsAreBounded",
		"internal/gateway/inference/load_test.go TestBoundsOfANode",
	}},
	{what: "a provider that sends no headers", tests: []string{
		"internal/gateway/inference/keepalive_test.go TestSilentOrphanIsFreed",
		"internal/models/provider/openai/openai_test.go TestSilenceIsBounded",
	}},
	{what: "the breaker counts the provider's faults only", tests: []string{
		"internal/models/provider/upstream/reliable_test.go TestBreakerKeepsAppsAndModelsApart",
		"internal/models/provider/upstream/reliable_test.go TestBreakerMindsOnlyTheProvider",
	}},
	{what: "joined streams carry the true X-Request-Id", tests: []string{
		"internal/gateway/inference/keepalive_test.go TestSilentStreamsAreKeptOpen",
	}},
	{what: "two nodes never replay different answers", tests: []string{
		"internal/gateway/inference/owner_test.go TestNodesNeverReplayDifferentAnswers",
	}},
}

// voiceEdges are about voice sessions.
var voiceEdges = []edge{
	{what: "V-1 no speech while the database hangs", tests: []string{
		"internal/gateway/voice/silence_test.go TestSilentDatabase",
		"internal/server/nodes/voice_storm_test.go TestVoiceStorm",
	}},
	{
		what: "V-2 a stall moves no session",
		tests: []string{"internal/gateway/voice/silence_test.go TestOutageMovesNoSession",
			"internal/gateway/voice/silence_test.go TestLostSession"},
	},
	{
		what: "V-3 refused hang-ups",
		tests: []string{"internal/gateway/voice/silence_test.go TestRefusedHangUps",
			"internal/gateway/voice/silence_test.go TestHangUpsInParallel"},
	},
	{
		what: "V-4 ends act at once",
		tests: []string{"internal/gateway/voice/silence_test.go TestEndDuringSilence",
			"internal/gateway/voice/silence_test.go TestEndElsewhereDuringSilence"},
	},
	{
		what: "V-5 events are dated when received",
		tests: []string{"internal/gateway/voice/silence_test.go TestEventsAreDated",
			"internal/gateway/voice/session/step_test.go TestDeadlinesWaitForEvents"},
	},
	{what: "V-7 an end that waits for a lost reply", tests: []string{
		"internal/gateway/voice/session/step_test.go TestSteps",
	}},
	{what: "V-8 SQLite adopts its sessions at start", tests: []string{
		"internal/gateway/voice/silence_test.go TestSQLiteAdoptsAtStart",
	}},
	{
		what:  "V-9 unmetered speech is a figure",
		tests: []string{"internal/gateway/voice/session/step_test.go TestSteps"},
	},
	{
		what:  "V-10 receipts of replies without a hold",
		tests: []string{"internal/gateway/voice/silence_test.go TestUnheldReply"},
	},
	{what: "V-11 calls that the provider forgot", tests: []string{
		"internal/gateway/voice/session/step_test.go TestSteps",
	}},
	{what: "V-12 a node killed between offer and answer", tests: []string{
		"internal/gateway/voice/session/step_test.go TestAdoptedOffer",
	}},
	{
		what: "S2-3 max_cost_mc is a cap",
		tests: []string{"internal/gateway/voice/live_test.go TestBudget",
			"internal/gateway/voice/session/step_test.go TestOutputLimit"},
	},
	{
		what:  "S3-5 failed replies reach the app",
		tests: []string{"internal/gateway/voice/session/step_test.go TestFailedReply"},
	},
	{
		what:  "S3-7 svc.session.started once",
		tests: []string{"internal/gateway/voice/mock_test.go TestStartedOnce"},
	},
	{
		what:  "S3-9 revoke acts on voice at once",
		tests: []string{"internal/gateway/voice/live_test.go TestRevokedConnection"},
	},
	{
		what:  "S3-10 a 429 names the sessions, and a list of them",
		tests: []string{"internal/gateway/voice/mock_test.go TestPendingEnds"},
	},
	{
		what:  "S4 control channels close with 1012",
		tests: []string{"internal/gateway/voice/nodes_test.go TestTwoNodes"},
	},
}

// ledgerEdges are about books, risk and refunds.
var ledgerEdges = []edge{
	{what: "M1 the audit judges a row by the mode of its call", tests: []string{
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "M2 an exhausted connection answers 402 before free credit", tests: []string{
		"internal/gateway/voice/mock_test.go TestExhaustedRefusesVoice",
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
	}},
	{what: "M3 a refund leaves the windows", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "M4 a refunded call says so", tests: []string{
		"internal/server/golive_test.go TestAppGoesLive",
		"internal/pages/dashboard/people_test.go TestReceipts",
		"internal/pages/console/console_test.go TestFigures",
		"internal/ledger/rules/model_test.go TestInvariants",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "M5 events follow within a second", left: "039-webhook-body-and-signature.md"},
	{what: "F12b 402 before 429", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
	}},
	{what: "S2-1 resuming forgives the pace", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
	}},
	{what: "S2-2 risk acts in the tiers that exist", tests: []string{
		"internal/gateway/inference/plan/demand_test.go TestDemand",
	}},
	{what: "S2-4 a freeze keeps its cause", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/pages/dashboard/dashboard_test.go TestReviewSaysWhoPaused",
		"internal/apps/notices/ledger_test.go TestWhatTheLedgerNotices",
		"internal/server/golive_test.go TestAppGoesLive",
	}},
	{what: "S3-8 exhausted by a lowered cap", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
	}},
	{what: "S3-11 increase_url only where a raise helps", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
	}},
	{what: "connection.updated when the user changes the cap", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "charge.reversed when a charge is refunded", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/server/golive_test.go TestAppGoesLive",
	}},
	{what: "S4 requests below the cap, or of revoked connections", tests: []string{
		"internal/ledger/store/script_test.go TestScripts",
		"internal/ledger/rules/model_test.go TestInvariants",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "the audit after a clock that stepped back", tests: []string{
		"internal/ledger/limits/limits_test.go TestClockStepsBack",
		"internal/ledger/store/script_test.go TestScripts",
	}},
}

// peopleEdges are about OAuth, pages and the command line.
var peopleEdges = []edge{
	{
		what: "F1 form-encoded client credentials",
		tests: []string{"internal/base/web/credentials_test.go TestBasicClient",
			"internal/apps/apps/store_test.go TestFormEncodedCredentials"},
	},
	{
		what:  "F3 features with descriptions on consent",
		tests: []string{"internal/apps/oauth/pages_test.go TestConsentListsFeatures"},
	},
	{what: "F6 model lists of OpenAI's clients", left: "063-openai-model-list.md"},
	{
		what:  "F10 invalid_grant says why",
		tests: []string{"internal/apps/oauth/reasons_test.go TestInvalidGrantSaysWhy"},
	},
	{
		what: "F25 OAuth errors and libraries",
		tests: []string{
			"e2e/oauth_clients_test.go TestOAuthClients",
			"e2e/oauth_clients_test.go TestOAuth2Library",
		},
	},
	{
		what:  "S3-6 one redirect to the newest request",
		tests: []string{"internal/pages/dashboard/dashboard_test.go TestSupersededLeadsOn"},
	},
	{
		what:  "U3 settings of the command line's own",
		tests: []string{"internal/commands/cli_test.go TestEveryDocumentedVariableIsAccepted"},
	},
	{what: "U5 an unpaid top-up that blocks closing an account", left: "064-unpaid-top-ups.md"},
	{
		what: "U5 whom to ask about stuck money",
		tests: []string{
			"internal/base/ui/site_test.go TestPagesSayWhomToAsk",
			"internal/config/config_test.go TestSite",
		},
	},
	{
		what: "U7 amounts add up",
		tests: []string{
			"internal/base/ui/amounts_test.go TestPartsAddUp",
			"internal/base/ui/amounts_test.go TestAmountsAreWrittenForPeople",
			"internal/pages/dashboard/amounts_test.go TestAmountsAddUp",
		},
	},
	{
		what: "U8 labels of the chart",
		tests: []string{
			"internal/base/ui/chart_test.go TestChartLabelsStandBelowTheirBars",
		},
	},
	{
		what:  "U9 the logo's requirement",
		tests: []string{"internal/pages/console/console_test.go TestGoLiveKnowsTheLogo"},
	},
	{what: "U11 unknown addresses in a browser", tests: []string{
		"internal/base/ui/site_test.go TestUnknownAddresses",
	}},
	{what: "U15 who paused", tests: []string{
		"internal/pages/dashboard/dashboard_test.go TestReviewSaysWhoPaused",
	}},
	{
		what:  "U18 serve names all missing settings",
		tests: []string{"internal/config/config_test.go TestAllMissingAreNamed"},
	},
	{
		what: "U25 destructive buttons ask",
		tests: []string{
			"internal/pages/console/console_test.go TestDestructiveButtonsAsk",
		},
	},
	{
		what: "client secrets overlap for 24 h",
		tests: []string{
			"internal/apps/apps/store_test.go TestReplacedSecretsOverlap",
			"internal/pages/console/console_test.go TestReplacedSecretOverlaps",
		},
	},
	{
		what:  "purser listen prints a place before an undelivered event",
		tests: []string{"internal/commands/listen_test.go TestListenStopsBeforeAnUndeliveredEvent"},
	},
	{
		what: "openid-client, oauth4webapi, Auth.js, x/oauth2",
		tests: []string{
			"e2e/oauth_clients_test.go TestOAuthClients",
			"e2e/oauth_clients_test.go TestOAuth2Library",
		},
	},
}

// borderEdges are about the borders of the contract, of payments, of an operator's work and of settings, which the
// examination of November 2026 found.
var borderEdges = []edge{
	// Money.
	{what: "while a payment is disputed its user connects, resumes and raises nothing", tests: []string{
		"internal/apps/oauth/token_test.go TestNoConnectionInADispute",
		"internal/ledger/rules/payment_test.go TestRaisesInADispute",
		"internal/pages/operator/accounts_test.go TestPausesEndApart",
	}},
	{what: "a payment whose dispute was won can be returned", tests: []string{
		"internal/people/topups/refunds_test.go TestRefundIsRefused",
		"internal/people/topups/levels_test.go TestReturnThatADisputeNeedsNow",
	}},
	{what: "rows of top-ups say what paid them, and until when they clear", tests: []string{
		"internal/pages/privacy/privacy_test.go TestExport",
	}},
	{what: "durations for people are days and hours", tests: []string{
		"internal/base/ui/duration_test.go TestDurations",
		"internal/people/topups/topups_test.go TestClearance",
	}},
	{what: "large events of Stripe about what is not ours are acknowledged", tests: []string{
		"internal/people/topups/twice_test.go TestLargeEventOfAnother",
	}},
	{what: "a switch whether goodwill earns margin", left: "200-goodwill-earns-margin.md"},
	{what: "what a dispute takes of margin comes back when its calls are refunded", tests: []string{
		"internal/apps/payouts/payouts_test.go TestMarginOfARefundedCallComesBack",
		"internal/apps/payouts/payouts_test.go TestRandomDisputes",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "a repeated request answers the same after settings have changed", tests: []string{
		"internal/gateway/holds/holds_test.go TestRepeatedUnderOtherSettings",
		"internal/gateway/children/children_test.go TestRepeatedUnderOtherSettings",
		"internal/server/nodes/repeats_test.go TestSettingsChangeNoAnswer",
	}},
	{what: "a refund by an app while margin is disputed", left: "106-refunds-by-apps.md"},
	{what: "the verification goes by the ledger's clock", tests: []string{
		"internal/ledger/audit/run_test.go TestRunGoesByTheLedgersClock",
	}},
	{what: "no check of the verification lets old versions pass, and each is seen to fail", tests: []string{
		"internal/ledger/audit/audit_test.go TestEveryCheckIsSeenToFail",
		"internal/ledger/audit/audit_test.go TestEachCorruptionTurnsItsCheckRed",
	}},
	{what: "a hold of own work that can never fit is 400", tests: []string{
		"internal/gateway/holds/holds_test.go TestConsent",
	}},
	{what: "what a call of a child costs beyond its budget", left: "107-children.md"},

	// Limits.
	{what: "a new app is not suspended within its tier's day, and its owner is told", tests: []string{
		"internal/apps/watch/rules/rules_test.go TestNewAppFloor",
		"internal/apps/watch/watch_test.go TestSpendAnomaly",
	}},
	{what: "risk_throttled says what was spent, and what is held", tests: []string{
		"internal/ledger/rules/fit_test.go TestFitLeavesOtherRefusals",
	}},
	{what: "the hold of the call that asks does not count for risk_throttled", left: "025-risk-thresholds.md"},
	{what: "no feature has the label of unregistered slugs", tests: []string{
		"internal/apps/features/http_test.go TestFeatureLife",
	}},
	{what: "voice sessions refuse bounds without their unit, and an empty on_control_lost", tests: []string{
		"internal/gateway/voice/live_test.go TestCreation",
	}},
	{what: "a voice session's cap can be spent, and the warning comes before its last reply", tests: []string{
		"internal/gateway/voice/growth_test.go TestGrowth",
		"internal/gateway/voice/live_test.go TestBudget",
	}},
	{what: "svc.session.started comes once the session is live", tests: []string{
		"internal/gateway/voice/mock_test.go TestStartedOnce",
	}},
	{what: "the mock voice refuses truncations as the provider does", tests: []string{
		"internal/gateway/voice/mock_test.go TestMockTruncates",
	}},

	// HTTP, lists, errors.
	{what: "a refusal is heard although its body is not read", tests: []string{
		"internal/base/web/drain_test.go TestRefusalIsHeard",
		"internal/base/web/drain_test.go TestDrainIsBounded",
	}},
	{what: "every list ends, and one that grows says where to go on", tests: []string{
		"internal/apps/webhooks/http_test.go TestEventsAreReadInOrder",
		"internal/server/requests_test.go TestCallsAreFollowed",
		"internal/commands/listen_test.go TestListenGoesOn",
	}},
	{what: "unlisted members take time linear in their bytes, and are bounded", tests: []string{
		"internal/gateway/shapes/bounds_test.go TestUnlistedMembers",
	}},
	{what: "what net/http answers by itself is an envelope", tests: []string{
		"internal/base/web/router_test.go TestMalformedHTTPNeverReachesAHandler",
		"internal/server/raw_test.go TestRawSockets",
	}},
	{what: "a slash too many is named", tests: []string{
		"internal/base/web/router_test.go TestSlashesAreNamed",
	}},
	{what: "targets in absolute form are served", tests: []string{
		"internal/base/web/router_test.go TestAbsoluteTargets",
	}},
	{what: "unknown parameters of lists, and ids of other rows, are refused by name", tests: []string{
		"internal/base/web/body_test.go TestReadPage",
	}},
	{what: "errors name the connection of their token", tests: []string{
		"internal/server/refusals_test.go TestRefusals",
	}},
	{what: "all members of the discovery document are described", tests: []string{
		"internal/apps/oauth/token_test.go TestDiscovery",
	}},
	{what: "members of a refunded charge that are computed", left: "022-spend-rows-and-reversals.md"},
	{what: "handlers of webhooks lose no late event", left: "039-webhook-body-and-signature.md"},
	{what: "addresses that are this machine in another spelling are refused when an endpoint is made", tests: []string{
		"internal/apps/webhooks/http_test.go TestEndpointRules",
	}},
	{what: "answers in flight are bounded, in dev too", tests: []string{
		"internal/gateway/inference/load_test.go TestBoundsOfANode",
	}},
	{what: "who joined a call gets its answer though its leader left", tests: []string{
		"internal/server/nodes/nodes_test.go TestNodesJoinerOutlivesLeader",
	}},
	{what: "a node that stood still past its lease relays nothing more", tests: []string{
		"internal/server/nodes/nodes_test.go TestNodesPausedOwner",
	}},

	// Settings and commands.
	{what: "a setting that is there and empty is unset", tests: []string{
		"internal/config/config_test.go TestEmptyIsUnset",
	}},
	{what: "a setting counts in dev, or is refused by name", tests: []string{
		"internal/dev/configure_test.go TestDevTakesSettings",
		"internal/dev/configure_test.go TestDevRefusesSettings",
	}},
	{what: "files with a byte order mark, and files that are not UTF-8", tests: []string{
		"internal/config/config_test.go TestByteOrderMark",
		"internal/config/config_test.go TestRefused",
	}},
	{what: "doctor checks what is sound beside what is wrong, and says how short a key is", tests: []string{
		"internal/commands/doctor_test.go TestDoctorFaults",
	}},
	{what: "verbs of operators take their subject and a reason alike", tests: []string{
		"internal/commands/operator_accounts_test.go TestOperatorActsOnAccounts",
	}},

	// The operator.
	{what: "a file without its log is refused each time, also beside an empty log", tests: []string{
		"internal/base/db/edges_test.go TestCopyWithoutLog",
	}},
	{what: "what root restores is the service's", tests: []string{
		"internal/base/db/disk_unix_test.go TestRootGivesFilesToTheirOwner",
	}},
	{what: "a verification that could not run is tried again, and is no finding", tests: []string{
		"internal/pages/operatorpages/overview_test.go TestFailedVerification",
	}},
	{what: "answers of the proxies themselves, by HTTP/2 and to browsers", tests: []string{
		"internal/server/nodes/proxy_test.go TestProxies",
	}},
	{what: "a migration never changes, and says whence it leads", tests: []string{
		"internal/base/db/migrate_test.go TestChangedMigrationIsRefused",
		"internal/base/db/migrate_test.go TestNewerSchemaIsRefused",
	}},
	{what: "a drill says that it is one, and changes nothing", tests: []string{
		"internal/base/ui/site_test.go TestDrillIsNamed",
		"internal/base/web/router_test.go TestReadOnly",
		"internal/commands/drill_test.go TestDrill",
	}},
	{what: "the operator's pages show what of a payment is disputed", tests: []string{
		"internal/pages/operatorpages/overview_test.go TestQueue",
	}},
	{what: "doctor looks at the limit of open files", tests: []string{
		"internal/commands/doctor_test.go TestDoctorChecks",
	}},
}

func TestEveryEdgeHasATest(t *testing.T) {
	t.Parallel()
	for _, list := range [][]edge{storeEdges, callsEdges, voiceEdges, ledgerEdges, peopleEdges, borderEdges} {
		for _, e := range list {
			if len(e.tests) == 0 && e.left == "" {
				t.Errorf("%s: has neither a test nor a decision", e.what)
			}
			if e.left != "" {
				if _, err := os.Stat("docs/decisions/" + e.left); err != nil {
					t.Errorf("%s: %v", e.what, err)
				}
			}
			for _, place := range e.tests {
				m := regexp.MustCompile(`^(\S+) (\w+)$`).FindStringSubmatch(place)
				if m == nil {
					t.Errorf("%s: %q is not a file and a test", e.what, place)
					continue
				}
				text, err := os.ReadFile(m[1])
				if err != nil {
					t.Errorf("%s: %v", e.what, err)
				} else if !regexp.MustCompile(`(?m)^func ` + m[2] + `\(`).Match(text) {
					t.Errorf("%s: no test %s in %s", e.what, m[2], m[1])
				}
			}
		}
	}
}
