package audit

import (
	"context"
	"time"

	"github.com/purserhq/purser/internal/base/id"
)

// A check verifies one invariant, or one side of it, in one of three ways: by a
// statement, by a rule for each ledger row, or by a function.
type check struct {
	id, title string

	// query returns one row for each finding, with columns named for the reader. count
	// counts the rows that were checked, and remarks those that are worth a remark
	// (remarkText) but violate nothing.
	count, query, remarks, remarkText string
	queryArgs, remarkArgs             func(now time.Time) []any // of query and remarks

	// sinceQuery stands for query in a verification since a checkpoint, where another way reads less. A check that is
	// sinceOnly has no meaning in a whole one.
	sinceQuery string
	sinceOnly  bool

	// A rule: the rows that it applies to, and the violation by a row, "" = none.
	appliesTo     func(*ledgerRow) bool
	findViolation func(*accountTotals, *ledgerRow) string

	verify func(context.Context, *verification, *checkResult) error
}

func argsAt(of func(time.Time) []any, now time.Time) []any {
	if of == nil {
		return nil
	}
	return of(now)
}

// sweepDelay is the time in which a running server ends what has expired.
const sweepDelay = 10 * time.Second

// responseRetention is how long responses are kept for replays (decision 027).
const responseRetention = 7 * 24 * time.Hour

func sweepDeadlineAndNow(now time.Time) []any {
	return []any{now.Add(-sweepDelay).UnixMicro(), now.UnixMicro()}
}

// recordTimeout is how long a server waits for a provider's record, plus the last lease
// of the node that asked for it (decision 028).
const recordTimeout = 15 * time.Minute

func recordDeadlineAndNow(now time.Time) []any {
	return []any{now.Add(-recordTimeout).UnixMicro(), now.UnixMicro()}
}

const (
	countAccounts     = `SELECT COUNT(*) FROM balances`
	countConnections  = `SELECT COUNT(*) FROM connections`
	countPendingHolds = `SELECT COUNT(*) FROM holds WHERE state = 'pending'`
	countOpenHolds    = `SELECT COUNT(*) FROM holds WHERE state = 'open'`
	countGoodwill     = `SELECT COUNT(*) FROM goodwill_records`
)

// checks are all checks, in the order of the report.
var checks = []check{
	{
		id: "I1", title: "accounts: reserved = Σ (allocation − consumed) of the connections",
		count: countAccounts,
		query: `SELECT account_id AS account, SUM(reserved) AS reserved_mc, SUM(unspent) AS connections_mc FROM (
				SELECT account_id, reserved_mc AS reserved, 0 AS unspent FROM balances
				UNION ALL SELECT account_id, 0, allocation_mc - consumed_mc FROM connections) AS sides
			GROUP BY account_id HAVING SUM(reserved) <> SUM(unspent)`,
	},
	{
		id:    "I2",
		title: "accounts: balances are the sum of the ledger; what came in = what is there + spent",
		count: countAccounts,
		query: `SELECT account_id AS account, SUM(balance) AS balances, SUM(available) AS available_mc, SUM(available_rows) AS available_rows_mc,
				SUM(reserved) AS reserved_mc, SUM(reserved_rows) AS reserved_rows_mc, SUM(spent) AS spent_mc, SUM(funded) AS funded_mc FROM (
				SELECT account_id, 1 AS balance, available_mc AS available, 0 AS available_rows, reserved_mc AS reserved, 0 AS reserved_rows, 0 AS spent, 0 AS funded FROM balances
				UNION ALL SELECT account_id, 0, 0, available_delta_mc, 0, reserved_delta_mc, {spent}, {funded}
					FROM {ledger} AS ledger
				UNION ALL SELECT account_id, 0, 0, available_mc, 0, reserved_mc, 0, available_mc + reserved_mc
					FROM {verified accounts} AS v) AS sides
			GROUP BY account_id HAVING SUM(balance) <> 1 OR SUM(available) <> SUM(available_rows) OR SUM(reserved) <> SUM(reserved_rows)
				OR SUM(available) + SUM(reserved) + SUM(spent) <> SUM(funded)`,
	},
	{id: "I2", title: "ledger: each row moves what its type says", appliesTo: anyRow, findViolation: checkMovement},
	{
		id:            "I3",
		title:         "ledger: available and reserved are never negative",
		appliesTo:     anyRow,
		findViolation: checkNotOverdrawn,
	},
	{
		id:    "I4",
		title: "connections: consumed = Σ spend rows, allocation = Σ its movements",
		count: countConnections,
		query: `SELECT connection_id AS connection, SUM(connection) AS connections, SUM(consumed) AS consumed_mc, SUM(spent) AS spent_mc,
				SUM(allocation) AS allocation_mc, SUM(allocation_rows) AS allocation_rows_mc FROM (
				SELECT id AS connection_id, 1 AS connection, consumed_mc AS consumed, 0 AS spent, allocation_mc AS allocation, 0 AS allocation_rows FROM connections
				UNION ALL SELECT connection_id, 0, 0, {spent}, 0, allocation_delta_mc FROM {ledger} AS ledger
					WHERE connection_id IS NOT NULL
				UNION ALL SELECT connection_id, 0, 0, consumed_mc, 0, allocation_mc FROM {verified connections} AS v)
					AS sides
			GROUP BY connection_id HAVING SUM(connection) <> 1 OR SUM(consumed) <> SUM(spent) OR SUM(allocation) <> SUM(allocation_rows)`,
	},
	{
		id:    "I5",
		title: "connections: held = Σ open and pending holds that the wallet pays",
		count: countConnections,
		query: `SELECT connection_id AS connection, SUM(held) AS held_mc, SUM(open_mc) AS open_holds_mc FROM (
				SELECT id AS connection_id, held_mc AS held, 0 AS open_mc FROM connections
				UNION ALL SELECT connection_id, 0, amount_mc FROM holds WHERE state <> 'failed' AND paid_by = 'wallet') AS sides
			GROUP BY connection_id HAVING SUM(held) <> SUM(open_mc)`,
	},
	{id: "I5", title: "counters: held = Σ of what open and pending holds say of each", verify: checkCountersHeld},
	{
		id: "I6", title: "connections: consumed + held ≤ allocation, none of them negative",
		count: countConnections,
		query: `SELECT id AS connection, allocation_mc, consumed_mc, held_mc FROM connections
			WHERE consumed_mc + held_mc > allocation_mc OR consumed_mc < 0 OR held_mc < 0`,
	},
	{
		id:            "I6",
		title:         "ledger: consumed ≤ allocation after every row",
		appliesTo:     hasConnection,
		findViolation: checkAllocation,
	},
	{
		id:            "I7",
		title:         "ledger: the remaining allocation that a spend row tells was there",
		appliesTo:     isSpend,
		findViolation: checkRemaining,
	},
	{
		id: "I8", title: "connections: revoked ⇔ it says when, and a revoked one keeps only what is held",
		count: countConnections,
		query: `SELECT id AS connection, status, revoked_us, allocation_mc, consumed_mc, held_mc FROM connections
			WHERE status NOT IN ('active', 'frozen', 'revoked') OR (status = 'revoked') <> (revoked_us IS NOT NULL)
				OR status = 'revoked' AND allocation_mc <> consumed_mc + held_mc`,
	},
	{
		id:    "I8",
		title: "connections: the cause of a freeze is kept while it lasts, and a reason only of the operator",
		count: countConnections,
		query: `SELECT id AS connection, status, frozen_by, frozen_reason FROM connections
			WHERE status <> 'frozen' AND frozen_by <> '' OR frozen_by <> 'operator' AND frozen_reason <> ''`,
	},
	{
		id:    "I37",
		title: "connections: frozen ⇔ there is a cause, and the strongest is shown",
		count: countConnections,
		query: `SELECT COALESCE(c.id, f.connection_id) AS connection, c.status, c.frozen_by,
				COALESCE(f.causes, 0) AS causes
			FROM connections c FULL JOIN (SELECT connection_id, COUNT(*) AS causes,
				MAX(CASE cause WHEN 'user' THEN 1 WHEN 'risk' THEN 2 WHEN 'payment' THEN 3 ELSE 4 END) AS strongest
				FROM freezes GROUP BY connection_id) AS f ON f.connection_id = c.id
			WHERE c.id IS NULL OR (c.status = 'frozen') <> (f.causes IS NOT NULL) OR c.status = 'frozen' AND
				f.strongest <> CASE c.frozen_by WHEN 'user' THEN 1 WHEN 'risk' THEN 2 WHEN 'payment' THEN 3
					ELSE 4 END`,
	},
	{
		id:    "I37",
		title: "disputes: an open one is recorded with its payment, and stops its account's connections alone",
		count: `SELECT COUNT(*) FROM open_disputes`,
		query: `SELECT o.dispute_id AS dispute, o.account_id AS account, '' AS connection FROM open_disputes o
			WHERE NOT EXISTS (SELECT 1 FROM payment_records r WHERE r.payment_id = o.payment_id AND r.kind = 'disputed'
				AND r.reason = o.dispute_id AND r.account_id = o.account_id)
			UNION ALL SELECT f.subject, c.account_id, c.id FROM freezes f JOIN connections c ON c.id = f.connection_id
				LEFT JOIN open_disputes o ON o.dispute_id = f.subject AND o.account_id = c.account_id
			WHERE f.cause = 'payment' AND f.subject <> 'below_zero' AND o.dispute_id IS NULL`,
	},
	{
		id:    "I8",
		title: "connections: one connect row, and one revoke row ⇔ revoked",
		count: countConnections,
		query: `SELECT c.id AS connection, c.status, COALESCE(j.connects, 0) AS connect_rows, COALESCE(j.revokes, 0) AS revoke_rows FROM connections c LEFT JOIN (
				SELECT connection_id, account_id, app_id, SUM(connects) AS connects, SUM(revokes) AS revokes FROM (
					SELECT connection_id, account_id, app_id, CASE type WHEN 'connect' THEN 1 ELSE 0 END AS connects,
						CASE type WHEN 'revoke' THEN 1 ELSE 0 END AS revokes
					FROM {ledger} AS ledger WHERE type IN ('connect', 'revoke')
					UNION ALL SELECT connection_id, account_id, app_id, 1, revoked FROM {verified connections} AS v)
						AS sides
				GROUP BY connection_id, account_id, app_id
			) AS j ON j.connection_id = c.id AND j.account_id = c.account_id AND j.app_id = c.app_id
			WHERE COALESCE(j.connects, 0) <> 1 OR COALESCE(j.revokes, 0) <> CASE c.status WHEN 'revoked' THEN 1 ELSE 0 END`,
	},
	{
		id:            "I8",
		title:         "ledger: connect comes first, and after revoke only holds end and refunds return",
		appliesTo:     hasConnection,
		findViolation: checkConnectionOrder,
	},
	{
		id: "I9", title: "connections: at most one that is not revoked for an app and account",
		count: `SELECT COUNT(*) FROM connections WHERE status <> 'revoked'`,
		query: `SELECT app_id AS app, account_id AS account, COUNT(*) AS live FROM connections WHERE status <> 'revoked'
			GROUP BY app_id, account_id HAVING COUNT(*) > 1`,
	},
	{
		id:    "I9",
		title: "allocation requests: a pending one asks a live connection for more than its cap",
		count: `SELECT COUNT(*) FROM allocation_requests WHERE status = 'pending'`,
		query: `SELECT r.id AS request, r.connection_id AS connection, r.target_mc, c.allocation_mc, c.status
			FROM allocation_requests r LEFT JOIN connections c ON c.id = r.connection_id
			WHERE r.status = 'pending' AND (c.id IS NULL OR c.status = 'revoked' OR r.target_mc <= c.allocation_mc)`,
	},
	{
		id:    "I10",
		title: "holds: open, pending or failed, positive, of a connection and its account and app",
		count: `SELECT COUNT(*) FROM holds`,
		query: `SELECT h.request_id AS request, h.state, h.attempt, h.amount_mc, h.connection_id AS connection, h.account_id AS account, h.app_id AS app
			FROM holds h LEFT JOIN connections c ON c.id = h.connection_id
			WHERE h.state NOT IN ('open', 'pending', 'failed') OR h.attempt < 1 OR h.amount_mc <= 0 OR h.request_id NOT LIKE 'req\_%' ESCAPE '\'
				OR c.id IS NULL OR c.account_id <> h.account_id OR c.app_id <> h.app_id`,
	},
	{
		// Only a running server ends a hold, so without one an overdue hold is no finding.
		id:    "I11",
		title: "holds: none is open past its owner's lease while a server runs to end it",
		count: countOpenHolds,
		query: `SELECT h.request_id AS request, h.connection_id AS connection, h.amount_mc, h.node_id AS node, n.lease_us FROM holds h LEFT JOIN nodes n ON n.id = h.node_id
			WHERE h.state = 'open' AND (n.id IS NULL OR n.lease_us < $1 AND EXISTS (SELECT 1 FROM nodes WHERE lease_us >= $2 AND started_us < $1))`,
		remarks: `SELECT COUNT(*) FROM holds h JOIN nodes n ON n.id = h.node_id
			WHERE h.state = 'open' AND n.lease_us < $1 AND NOT EXISTS (SELECT 1 FROM nodes WHERE lease_us >= $2 AND started_us < $1)`,
		remarkText: "past their lease wait for a server to start",
		queryArgs:  sweepDeadlineAndNow,
		remarkArgs: sweepDeadlineAndNow,
	},
	{
		id:    "I11",
		title: "holds: a pending one says whom to ask for its charge, and no other does",
		count: countPendingHolds,
		query: `SELECT COALESCE(h.request_id, d.request_id) AS request, h.state, d.provider FROM holds h FULL JOIN
			deferrals d ON d.request_id = h.request_id
			WHERE h.state = 'pending' AND d.request_id IS NULL OR d.request_id IS NOT NULL AND (h.request_id IS NULL OR h.state <> 'pending')
				OR d.connection_id <> h.connection_id OR d.key <> h.key OR d.provider = ''`,
	},
	{
		id:    "I11",
		title: "holds: none is pending for longer than a record is waited for while a server runs to settle it",
		count: countPendingHolds,
		query: `SELECT request_id AS request, connection_id AS connection, provider, tries, since_us FROM deferrals
			WHERE since_us < $1 AND EXISTS (SELECT 1 FROM nodes WHERE lease_us >= $2 AND started_us < $1)`,
		remarks: `SELECT COUNT(*) FROM deferrals WHERE since_us < $1 AND NOT EXISTS (SELECT 1 FROM nodes WHERE
			lease_us >= $2 AND started_us < $1)`,
		remarkText: "wait for a server to settle them",
		queryArgs:  recordDeadlineAndNow,
		remarkArgs: recordDeadlineAndNow,
	},
	{id: "I12", title: "holds: the amount follows from its terms", verify: checkHolds},
	{
		id:            "I12",
		title:         "ledger: the hold of a spend row follows from its terms",
		appliesTo:     isBilled,
		findViolation: checkHoldAmount,
	},
	{
		id:            "I13",
		title:         "ledger: user_charge = provider_cost + svc_fee + dev_margin",
		appliesTo:     isSpend,
		findViolation: checkChargeSum,
	},
	{
		id:            "I13",
		title:         "ledger: margin and fee follow from the cost, and only the cap lowers a fee",
		appliesTo:     isBilled,
		findViolation: checkMarginAndFee,
	},
	{
		id:            "I14",
		title:         "ledger: provider_cost follows from prices and usage",
		appliesTo:     isBilled,
		findViolation: checkProviderCost,
	},
	{
		id:            "I14",
		title:         "ledger: cache_saved follows from prices and usage",
		appliesTo:     isBilled,
		findViolation: checkCacheSaved,
	},
	{
		id:    "I15",
		title: "ledger: one spend row for a connection and key",
		count: `SELECT COUNT(*) FROM {ledger} AS ledger WHERE key IS NOT NULL`,
		query: `SELECT connection_id AS connection, key, COUNT(*) AS entries FROM ledger WHERE key IS NOT NULL GROUP BY connection_id, key HAVING COUNT(*) > 1`,
		sinceQuery: `SELECT n.id AS entry, n.connection_id AS connection, n.key, COUNT(*) AS entries
			FROM {ledger} AS n CROSS JOIN ledger AS o WHERE o.key_hash = n.key_hash
				AND o.connection_id = n.connection_id AND o.key = n.key
			GROUP BY n.id, n.connection_id, n.key HAVING COUNT(*) > 1`,
	},
	{
		id:            "I15",
		title:         "ledger: a billed call, and no other row, has key, fingerprint and settlement",
		appliesTo:     anyRow,
		findViolation: checkIdentifiers,
	},
	{
		id:            "I15",
		title:         "ledger: the index of keys has each call's key",
		appliesTo:     anyRow,
		findViolation: checkKeyHash,
	},
	{
		id:    "I15",
		title: "holds: no hold of a request that has its row",
		count: `SELECT COUNT(*) FROM holds`,
		query: `SELECT h.request_id AS request, h.state, l.id AS entry FROM holds h
				JOIN ledger l ON l.id = 'led_' || substr(h.request_id, 5)`,
		sinceQuery: `SELECT h.request_id AS request, l.id AS entry FROM {keys of holds} AS h
				JOIN ledger l ON l.id = 'led_' || substr(h.request_id, 5)`,
	},
	{
		// A response that is too long is not kept, so a missing one is only a remark.
		id:    "I16",
		title: "answers: each has its settled spend row, or is pending",
		count: `SELECT COUNT(*) FROM stored_responses WHERE request_id >= {from req_}`,
		query: `SELECT a.request_id AS request, a.encoding, l.type, l.status FROM stored_responses a LEFT JOIN ledger
			l ON l.id = 'led_' || substr(a.request_id, 5)
			WHERE a.request_id >= {from req_} AND (l.id IS NULL AND NOT EXISTS (SELECT 1 FROM deferrals d
				WHERE d.request_id = a.request_id)
				OR l.type <> 'spend' OR l.status <> 'settled' OR a.encoding NOT IN ('raw', 's2'))`,
		remarks: `SELECT COUNT(*) FROM {ledger} AS l LEFT JOIN stored_responses a ON a.request_id = 'req_' ||
			substr(l.id, 5)
			WHERE l.id >= $1 AND l.type = 'spend' AND l.status = 'settled' AND a.request_id IS NULL`,
		remarkText: "calls of the last 7 days were too long to keep",
		remarkArgs: func(now time.Time) []any { return []any{id.Floor(id.Ledger, now.Add(-responseRetention))} },
	},
	{
		id:    "I17",
		title: "counters: free credit used = Σ charges of the rows that it paid",
		count: `SELECT COUNT(*) FROM counters WHERE subject LIKE 'free/%'`,
		query: `SELECT subject AS counter, SUM(counted) AS counted_mc, SUM(charged) AS rows_mc FROM (
				SELECT subject, CASE WHEN buckets = '' THEN 0 ELSE CAST(substr(buckets, 3) AS BIGINT) END AS counted,
					0 AS charged FROM counters WHERE subject LIKE 'free/%'
				UNION ALL SELECT {pool}, 0, user_charge_mc FROM {ledger} AS ledger WHERE paid_by = 'free_credit'
					AND status = 'settled'
				UNION ALL SELECT 'free/' || app_id || '/' || account_id, 0, user_charge_mc FROM {ledger} AS ledger
					WHERE paid_by = 'free_credit' AND status = 'settled'
				UNION ALL SELECT 'free/' || account_id, 0, user_charge_mc FROM {ledger} AS ledger
					WHERE paid_by = 'free_credit' AND status = 'settled'
				UNION ALL SELECT subject, 0, counted_mc FROM {verified counters} AS v
					WHERE subject LIKE 'free/%') AS sides
			GROUP BY subject HAVING SUM(counted) <> SUM(charged)`,
	},
	{
		id:            "I17",
		title:         "ledger: free credit pays the cost alone, from its app's pool of the month",
		appliesTo:     isFreeCredit,
		findViolation: checkFreeCredit,
	},
	{
		id:    "I17",
		title: "free credit: over for accounts that paid by a card of another, and for no others",
		count: `SELECT COUNT(*) FROM paying_cards`,
		query: `SELECT account_id AS account, SUM(shared) AS shared_cards, SUM(ended) AS ended FROM (
				SELECT account_id, 1 AS shared, 0 AS ended FROM paying_cards WHERE is_first = 0
				UNION ALL SELECT substr(subject, 6), 0, 1 FROM counters
					WHERE subject LIKE 'free/%' AND subject NOT LIKE 'free/%/%' AND limit_reported <> 0) AS sides
			GROUP BY account_id HAVING SUM(shared) > 0 AND SUM(ended) = 0 OR SUM(shared) = 0 AND SUM(ended) > 0
			UNION ALL SELECT card, COUNT(*), SUM(is_first) FROM paying_cards GROUP BY card HAVING SUM(is_first) <> 1`,
	},
	{
		id:     "I17",
		title:  "holds: one payer, who holds the whole call of each of its counters",
		verify: checkHoldReservations,
	},
	{
		// 400 and 502 may come from a provider after the hold: it is released at
		// once, and the same request may be billed by a later attempt. So it may be
		// after a 403, which may come from a stop. 500 and 503 promise nothing.
		id: "I18", title: "refusals: a refused call has no row and holds nothing",
		count: `SELECT COUNT(*) FROM refusals WHERE created_us >= {from time}`,
		query: `SELECT r.request_id AS request, r.status, r.code, l.id AS entry, h.state AS hold FROM refusals r
				LEFT JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
				LEFT JOIN holds h ON h.request_id = r.request_id AND h.state <> 'failed'
			WHERE r.created_us >= {from time} AND (r.status NOT IN (400, 500, 502, 503)
				AND (l.id IS NOT NULL AND (r.status <> 403 OR l.created_us < r.created_us)
					OR h.request_id IS NOT NULL AND (r.status <> 403 OR h.created_us < r.created_us))
				OR r.status IN (400, 502) AND h.attempt = 1 AND h.created_us < r.created_us AND r.created_us < $1)`,
		remarks: `SELECT COUNT(*) FROM refusals r JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
			WHERE r.created_us >= {from time} AND r.status IN (400, 502) AND l.created_us < r.created_us`,
		remarkText: "attempts failed after a later one was billed",
		queryArgs:  func(now time.Time) []any { return []any{now.Add(-sweepDelay).UnixMicro()} },
	},
	{
		// The row says whether its call was mock. The app's mode may have changed since.
		id:            "I19",
		title:         "ledger: in mock mode no charge is above its hold",
		appliesTo:     isMock,
		findViolation: checkMockCharge,
	},
	{
		id:    "I20",
		title: "reversals: each names an earlier row of the same kind, settled or a top-up's, and a reason",
		count: `SELECT COUNT(*) FROM {ledger} AS ledger WHERE reversal_of IS NOT NULL`,
		query: `SELECT r.id AS entry, r.type, r.status, r.reason, r.reversal_of, o.type AS original_type,
				o.status AS original_status FROM {ledger} AS r LEFT JOIN ledger o ON o.id = r.reversal_of
			WHERE r.reversal_of IS NOT NULL
				AND (r.status <> 'reversed' OR COALESCE(r.reason, '') = '' OR o.id IS NULL OR o.type <> r.type
				OR o.status <> 'settled' AND (r.type <> 'topup'
					OR o.status = 'pending' AND (r.available_delta_mc <> 0 OR r.amount_mc <> o.amount_mc)
					OR o.status = 'reversed' AND (o.available_delta_mc >= 0 OR r.available_delta_mc <= 0))
				OR o.account_id <> r.account_id OR o.seq >= r.seq OR COALESCE(o.connection_id, '') <> COALESCE(r.connection_id, ''))`,
	},
	{
		id:    "I20",
		title: "reversals: never more than the original, without what came back",
		count: `SELECT COUNT(DISTINCT reversal_of) FROM {ledger} AS ledger WHERE reversal_of IS NOT NULL`,
		query: `SELECT o.id AS entry, o.user_charge_mc, s.charge AS reversed_charge_mc, o.provider_cost_mc, s.cost AS reversed_cost_mc, o.dev_margin_mc, s.margin AS reversed_margin_mc,
				o.amount_mc, s.amount AS reversed_amount_mc FROM (
				SELECT reversal_of, SUM(user_charge_mc) AS charge, SUM(provider_cost_mc) AS cost,
					SUM(dev_margin_mc) AS margin, SUM(amount_mc - COALESCE((SELECT SUM(b.amount_mc) FROM ledger b
						WHERE b.reversal_of = ledger.id), 0)) AS amount
				FROM ledger WHERE reversal_of IN (SELECT n.reversal_of FROM {ledger} AS n WHERE n.reversal_of IS NOT
					NULL) GROUP BY reversal_of) AS s JOIN ledger o ON o.id = s.reversal_of
			WHERE s.charge > o.user_charge_mc OR s.cost > o.provider_cost_mc OR s.margin > o.dev_margin_mc OR s.amount > o.amount_mc`,
	},
	{id: "I21", title: "ledger: seq is dense in each account", appliesTo: anyRow, findViolation: checkSeq},
	{
		id:            "I21",
		title:         "ledger: each row's hash follows from the row before and its columns",
		appliesTo:     anyRow,
		findViolation: checkHash,
	},
	{
		id:    "I21",
		title: "accounts: seq and head are those of the newest row",
		count: countAccounts,
		query: `SELECT account, seq, head, row_hash, newest FROM (
				SELECT b.account_id AS account, b.seq, b.head, (SELECT l.hash FROM ledger l
					WHERE l.account_id = b.account_id AND l.seq = b.seq) AS row_hash,
					(SELECT MAX(l.seq) FROM ledger l WHERE l.account_id = b.account_id) AS newest
						FROM balances b) AS ends
			WHERE head <> COALESCE(row_hash, '') OR seq > 0 AND row_hash IS NULL OR newest > seq`,
	},
	{
		id:    "I21",
		title: "accounts: what the checkpoint verified ends at the row at which it ended then",
		count: `SELECT COUNT(*) FROM {verified accounts} AS v`,
		query: `SELECT account, seq, head, row_hash FROM (SELECT v.account_id AS account, v.seq, v.head,
					l.hash AS row_hash FROM {verified accounts} AS v
					LEFT JOIN ledger l ON l.account_id = v.account_id AND l.seq = v.seq) AS ends
			WHERE head <> COALESCE(row_hash, '') OR seq > 0 AND row_hash IS NULL`,
		sinceOnly: true,
	},
	{
		id:     "I21",
		title:  "schema: triggers refuse to change or delete a row of the ledger or of payments",
		verify: checkTriggers,
	},
	{
		// Grouping by an expression keeps SQLite from reading a whole index for the order of its rows.
		id:    "I22",
		title: "totals: of each app and day, user_charge = provider_cost + svc_fee + dev_margin",
		count: `SELECT COUNT(*) FROM (SELECT DISTINCT app_id || '' AS app, day FROM daily_totals
			WHERE day >= {from day}) AS days`,
		query: `SELECT app, day, SUM(user_charge_mc) AS user_charge_mc, SUM(provider_cost_mc) AS provider_cost_mc,
				SUM(svc_fee_mc) AS svc_fee_mc, SUM(dev_margin_mc) AS dev_margin_mc
			FROM (SELECT app_id || '' AS app, day, user_charge_mc, provider_cost_mc, svc_fee_mc, dev_margin_mc
				FROM daily_totals WHERE day >= {from day}) AS days
			GROUP BY app, day HAVING SUM(user_charge_mc) <> SUM(provider_cost_mc) + SUM(svc_fee_mc) +
				SUM(dev_margin_mc)`,
	},
	{
		id:    "I22",
		title: "totals: of each app and day that is over = Σ of its connections",
		count: `SELECT COUNT(*) FROM app_days WHERE day >= {from day}`,
		query: `SELECT app, sandbox, day, feature, model, SUM(calls) AS calls_off, SUM(input) AS input_tokens_off,
				SUM(cached) AS cached_tokens_off, SUM(output) AS output_tokens_off, SUM(cost) AS provider_cost_off_mc,
				SUM(fee) AS svc_fee_off_mc, SUM(margin) AS dev_margin_off_mc, SUM(charge) AS user_charge_off_mc,
				SUM(saved) AS cache_saved_off_mc
			FROM (
				SELECT app_id AS app, sandbox, day, feature, model, calls, input_tokens AS input,
					cached_tokens AS cached, output_tokens AS output, provider_cost_mc AS cost, svc_fee_mc AS fee,
					dev_margin_mc AS margin, user_charge_mc AS charge, cache_saved_mc AS saved
					FROM app_days WHERE day >= {from day} AND day < (SELECT day FROM app_days_head)
				UNION ALL SELECT r.app_id, b.sandbox, r.day, r.feature, r.model, -r.calls, -r.input_tokens,
					-r.cached_tokens, -r.output_tokens, -r.provider_cost_mc, -r.svc_fee_mc, -r.dev_margin_mc,
					-r.user_charge_mc, -r.cache_saved_mc
					FROM daily_totals r JOIN balances b ON b.account_id = r.account_id
					WHERE r.day >= {from day} AND r.day < (SELECT day FROM app_days_head)) AS sides
			GROUP BY app, sandbox, day, feature, model
			HAVING SUM(calls) <> 0 OR SUM(input) <> 0 OR SUM(cached) <> 0 OR SUM(output) <> 0 OR SUM(cost) <> 0
				OR SUM(fee) <> 0 OR SUM(margin) <> 0 OR SUM(charge) <> 0 OR SUM(saved) <> 0`,
	},
	{
		id:    "I22",
		title: "totals: of each connection, day, feature and model = Σ spend rows",
		count: `SELECT COUNT(*) FROM daily_totals WHERE day >= {from day}`,
		query: `SELECT connection_id AS connection, app_id AS app, account_id AS account, day, feature, model,
				SUM(calls) AS calls_off, SUM(input) AS input_tokens_off, SUM(cached) AS cached_tokens_off,
				SUM(output) AS output_tokens_off, SUM(cost) AS provider_cost_off_mc, SUM(fee) AS svc_fee_off_mc,
				SUM(margin) AS dev_margin_off_mc, SUM(charge) AS user_charge_off_mc, SUM(saved) AS cache_saved_off_mc
			FROM (
				SELECT connection_id, app_id, account_id, day, feature, model,
					calls, input_tokens AS input, cached_tokens AS cached, output_tokens AS output,
					provider_cost_mc AS cost, svc_fee_mc AS fee, dev_margin_mc AS margin, user_charge_mc AS charge,
					cache_saved_mc AS saved FROM daily_totals WHERE day >= {from day}
				UNION ALL SELECT connection_id, app_id, account_id, {day}, COALESCE(feature_label, ''), model,
					-1, -({input}), -({cached}), -({output}),
					-provider_cost_mc, -svc_fee_mc, -dev_margin_mc, -user_charge_mc, -({saved})
					FROM {ledger} AS ledger WHERE type = 'spend' AND status = 'settled'
				UNION ALL SELECT connection_id, app_id, account_id, {day}, COALESCE(feature_label, ''), model, 0, 0,
					0, 0,
					provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc,
					COALESCE((SELECT {saved} FROM ledger o WHERE o.id = ledger.reversal_of), 0)
					FROM {ledger} AS ledger WHERE type = 'spend' AND status = 'reversed'
				UNION ALL SELECT connection_id, app_id, account_id, day, feature, model, -calls, -input_tokens,
					-cached_tokens,
					-output_tokens, -provider_cost_mc, -svc_fee_mc, -dev_margin_mc, -user_charge_mc, -cache_saved_mc
					FROM {verified totals} AS v) AS sides
			GROUP BY connection_id, app_id, account_id, day, feature, model
			HAVING SUM(calls) <> 0 OR SUM(input) <> 0 OR SUM(cached) <> 0 OR SUM(output) <> 0 OR SUM(cost) <> 0
				OR SUM(fee) <> 0 OR SUM(margin) <> 0 OR SUM(charge) <> 0 OR SUM(saved) <> 0`,
	},
	{
		id:    "I23",
		title: "payments: each record has its ledger row, and each pending row its payment",
		count: `SELECT COUNT(*) FROM payment_records WHERE created_us >= {from time}`,
		query: `SELECT p.payment_id AS payment, p.n, p.kind, p.account_id AS account, p.amount_mc, l.id AS entry, l.type, l.status, l.amount_mc AS entry_amount_mc, l.reversal_of
			FROM payment_records p LEFT JOIN ledger l ON l.id = p.entry_id
			LEFT JOIN payment_records o ON o.payment_id = p.payment_id AND o.n < p.n AND o.entry_id = l.reversal_of
				AND CASE p.kind WHEN 'failed' THEN o.kind IN ('opened', 'reopened')
					WHEN 'reversed' THEN o.kind = 'settled' ELSE p.kind = 'restored' AND o.kind = 'reversed' AND o.reason = p.reason END
			WHERE p.created_us >= {from time} AND p.kind NOT IN ('paid', 'disputed') AND (l.id IS NULL
				OR l.type <> 'topup' OR l.account_id <> p.account_id OR l.amount_mc <> p.amount_mc
				OR l.status <> CASE WHEN p.kind IN ('opened', 'reopened') THEN 'pending'
					WHEN p.kind = 'settled' THEN 'settled' ELSE 'reversed' END
				OR COALESCE(l.reversal_of, '') <> COALESCE(o.entry_id, '')
				OR p.kind IN ('failed', 'reversed', 'restored') AND o.entry_id IS NULL
				OR COALESCE(l.reason, '') <> COALESCE(p.reason, ''))
			UNION ALL SELECT NULL, NULL, NULL, l.account_id, NULL, l.id, l.type, l.status, l.amount_mc, l.reversal_of
			FROM {ledger} AS l WHERE l.type = 'topup' AND l.status = 'pending' AND NOT EXISTS (SELECT 1
				FROM payment_records p WHERE p.entry_id = l.id AND p.kind IN ('opened', 'reopened'))`,
	},
	{
		id:    "I23",
		title: "payments: opened first; settled once, if paid and cleared, or failed; no more goes back than came",
		count: `SELECT COUNT(DISTINCT payment_id) FROM payment_records`,
		query: `SELECT payment_id AS payment, MIN(account_id) AS account, COUNT(*) AS records, SUM(opened) AS opened, SUM(paid) AS paid, SUM(settled) AS settled, SUM(failed) AS failed,
				SUM(reopened) AS reopened,
				SUM(came) AS settled_mc, SUM(back) AS reversed_mc, MIN(hold_until_us) AS hold_until_us, MIN(settled_us) AS settled_us FROM (
				SELECT payment_id, n, account_id, hold_until_us, CASE kind WHEN 'opened' THEN 1 ELSE 0 END AS opened, CASE kind WHEN 'paid' THEN 1 ELSE 0 END AS paid,
					CASE kind WHEN 'settled' THEN 1 ELSE 0 END AS settled, CASE kind WHEN 'failed' THEN 1 ELSE 0 END AS failed,
					CASE kind WHEN 'reopened' THEN 1 ELSE 0 END AS reopened,
					CASE kind WHEN 'settled' THEN amount_mc ELSE 0 END AS came,
					CASE kind WHEN 'reversed' THEN amount_mc WHEN 'restored' THEN -amount_mc ELSE 0 END AS back,
					CASE kind WHEN 'settled' THEN created_us END AS settled_us, 
					CASE WHEN kind NOT IN ('reversed', 'restored', 'disputed') THEN amount_mc END AS whole,
					CASE WHEN kind = 'opened' AND n <> 1 THEN 1 ELSE 0 END AS late
				FROM payment_records) AS records
			GROUP BY payment_id HAVING SUM(opened) <> 1 OR SUM(late) <> 0 OR MAX(n) <> COUNT(*) OR MIN(n) <> 1 OR COUNT(DISTINCT account_id) <> 1 OR COUNT(DISTINCT whole) <> 1
				OR SUM(paid) > 1 OR SUM(settled) > 1
				OR SUM(settled) + SUM(failed) - SUM(reopened) NOT IN (0, 1) OR SUM(reopened) > SUM(failed)
				OR SUM(settled) > SUM(paid) OR SUM(settled) = 1 AND MIN(settled_us) < MIN(hold_until_us) OR SUM(back) > SUM(came) OR SUM(back) < 0`,
	},
	{
		id:    "I23",
		title: "payments: no more is restored than was reversed for the same reason",
		count: `SELECT COUNT(*) FROM payment_records WHERE kind = 'restored'`,
		query: `SELECT payment_id AS payment, reason,
				SUM(CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END) AS reversed_mc FROM payment_records
			WHERE kind IN ('reversed', 'restored') GROUP BY payment_id, reason
			HAVING SUM(CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END) < 0`,
	},
	{
		id:    "I23",
		title: "accounts: only those from which a payment went back may be overdrawn",
		count: countAccounts,
		query: `SELECT b.account_id AS account, b.available_mc, b.disputed, COALESCE(r.reversals, 0) AS reversals FROM balances b
			LEFT JOIN (SELECT account_id, COUNT(*) AS reversals FROM payment_records WHERE kind = 'reversed' GROUP BY account_id) r ON r.account_id = b.account_id
			WHERE b.disputed <> CASE WHEN r.reversals > 0 THEN 1 ELSE 0 END`,
	},
	{
		id:    "I23",
		title: "payments: an intent of Stripe's pays for one top-up",
		count: `SELECT COUNT(*) FROM payment_records WHERE kind = 'paid'`,
		query: `SELECT payment_intent, COUNT(*) AS payments, MIN(payment_id) AS payment, MAX(payment_id) AS another FROM payment_records
			WHERE kind = 'paid' GROUP BY payment_intent HAVING COUNT(*) > 1`,
	},
	{
		id:    "I23",
		title: "payments: each is a checkout of its account, of as many cents",
		count: `SELECT COUNT(*) FROM payment_records WHERE kind = 'opened'`,
		query: `SELECT p.payment_id AS payment, p.account_id AS account, p.amount_mc, c.account_id AS checkout_account, c.cents FROM payment_records p LEFT JOIN checkouts c ON c.id = p.payment_id
			WHERE p.kind = 'opened' AND (c.id IS NULL OR c.account_id <> p.account_id OR c.cents * 1000000 <> p.amount_mc)`,
	},
	{
		// The maximum is that of the moment: a user may change it later. An attempt that
		// failed unpaid took nothing.
		id:    "I23",
		title: "automatic top-ups: those of a month are at most what the person said",
		count: `SELECT COUNT(*) FROM checkouts WHERE n IS NOT NULL`,
		query: `WITH made AS (SELECT id, account_id, n, month_us, cents, most_cents FROM checkouts c WHERE n IS NOT NULL
				AND (NOT EXISTS (SELECT 1 FROM payment_records p WHERE p.payment_id = c.id AND p.kind = 'failed') OR EXISTS (SELECT 1 FROM payment_records p WHERE p.payment_id = c.id AND p.kind = 'paid')))
			SELECT c.id AS payment, c.account_id AS account, c.n, c.most_cents, SUM(o.cents) AS month_cents FROM made c JOIN made o ON o.account_id = c.account_id AND o.month_us = c.month_us AND o.n <= c.n
			GROUP BY c.id, c.account_id, c.n, c.most_cents HAVING SUM(o.cents) > c.most_cents`,
	},
	{
		id:    "I23",
		title: "automatic top-ups: each is a payment of a real account, in its month, by its own intent",
		count: `SELECT COUNT(*) FROM checkouts WHERE n IS NOT NULL`,
		query: `SELECT c.id AS payment, c.account_id AS account, a.sandbox, c.n, c.month_us, c.created_us, c.intent_id, p.payment_intent FROM checkouts c
			LEFT JOIN accounts a ON a.id = c.account_id LEFT JOIN payment_records o ON o.payment_id = c.id AND o.kind = 'opened' LEFT JOIN payment_records p ON p.payment_id = c.id AND p.kind = 'paid'
			WHERE c.n IS NOT NULL AND (a.id IS NULL OR a.sandbox = 1 OR o.payment_id IS NULL OR c.most_cents IS NULL OR c.month_us IS NULL OR c.created_us < c.month_us
				OR c.created_us >= c.month_us + 31 * 86400000000 OR p.payment_id IS NOT NULL AND p.payment_intent <> COALESCE(c.intent_id, ''))`,
	},
	{
		id:    "I24",
		title: "voice: what an ended session charged, and how often, is Σ its replies' rows",
		count: `SELECT COUNT(*) FROM realtime_sessions WHERE id >= {from rts_}`,
		query: `SELECT s.id AS session, s.charged_mc, s.response_count, COALESCE(SUM(l.user_charge_mc), 0) AS rows_mc,
				COUNT(CASE WHEN NOT (` + isTranscript + `) THEN l.id END) AS replies FROM realtime_sessions s
				LEFT JOIN realtime_replies r ON r.session_id = s.id LEFT JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
			WHERE s.id >= {from rts_} AND s.status = 'ended' GROUP BY s.id, s.charged_mc, s.response_count
			HAVING s.charged_mc <> COALESCE(SUM(l.user_charge_mc), 0)
				OR s.response_count <> COUNT(CASE WHEN NOT (` + isTranscript + `) THEN l.id END)`,
	},
	{
		id:    "I24",
		title: "voice: each row is of its session's connection, account and app, by its model or that of transcripts",
		count: `SELECT COUNT(*) FROM {ledger} AS l WHERE ` + isReply,
		query: `SELECT l.id AS entry, l.key, l.connection_id AS connection, s.id AS session FROM {ledger} AS l
				LEFT JOIN realtime_replies r ON r.request_id = 'req_' || substr(l.id, 5) LEFT JOIN realtime_sessions s ON s.id = r.session_id
			WHERE (` + isReply + `) AND (s.id IS NULL
				OR l.key <> CASE WHEN s.child_id IS NULL THEN '' ELSE s.child_id || '/' END
					|| r.session_id || '/' || r.n
				OR s.connection_id <> l.connection_id OR s.account_id <> l.account_id
				OR s.app_id <> l.app_id OR (s.model = l.model) = (` + isTranscript + `)
				OR ` + isTranscript + ` AND (l.usage LIKE '%"waived"%'
					OR s.state NOT LIKE '%"TranscriptModel":"' || l.model || '"%'))`,
	},
	{
		id:    "I24",
		title: "voice: nothing is held for a session that has ended",
		count: `SELECT COUNT(*) FROM holds l WHERE ` + isReply,
		query: `SELECT h.request_id AS request, h.connection_id AS connection, h.amount_mc, s.id AS session FROM holds h JOIN realtime_replies r ON r.request_id = h.request_id
				JOIN realtime_sessions s ON s.id = r.session_id WHERE h.state <> 'failed' AND s.status = 'ended'`,
	},
	{
		// Free credit is not the user's money.
		id:    "I24",
		title: "voice: a session charged the wallet at most max_cost_mc",
		count: `SELECT COUNT(*) FROM realtime_sessions WHERE id >= {from rts_} AND max_cost_mc IS NOT NULL`,
		query: `SELECT s.id AS session, s.max_cost_mc, SUM(l.user_charge_mc) AS charged_mc FROM realtime_sessions s
				JOIN realtime_replies r ON r.session_id = s.id JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
			WHERE s.id >= {from rts_} AND s.max_cost_mc IS NOT NULL AND l.paid_by = 'wallet'
			GROUP BY s.id, s.max_cost_mc HAVING SUM(l.user_charge_mc) > s.max_cost_mc`,
	},
	{
		id:    "I24",
		title: "voice: the counter of max_cost_mc = Σ what the wallet paid for the session's replies",
		count: `SELECT COUNT(*) FROM counters WHERE subject LIKE 'voice/%'`,
		query: `SELECT w.subject AS counter, w.buckets, COALESCE(SUM(l.user_charge_mc), 0) AS rows_mc FROM counters w
				LEFT JOIN realtime_replies r ON r.session_id = substr(w.subject, 7)
				LEFT JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5) AND l.paid_by = 'wallet'
			WHERE w.subject LIKE 'voice/%' AND substr(w.subject, 7) >= {from rts_}
			GROUP BY w.subject, w.buckets
			HAVING CASE WHEN w.buckets = '' THEN 0 ELSE CAST(substr(w.buckets, 3) AS BIGINT) END
				<> COALESCE(SUM(l.user_charge_mc), 0)`,
	},
	{
		id:    "I9",
		title: "voice: at most two sessions of a connection have not ended",
		count: `SELECT COUNT(*) FROM realtime_sessions WHERE id >= {from rts_} AND status <> 'ended'`,
		query: `SELECT connection_id || '' AS connection, COUNT(*) AS sessions FROM realtime_sessions
				WHERE id >= {from rts_} AND status <> 'ended' GROUP BY connection_id || '' HAVING COUNT(*) > 2`,
	},
	{
		id:    "I28",
		title: "events: the end of each voice session is told once",
		count: `SELECT COUNT(*) FROM realtime_sessions WHERE id >= {from rts_} AND status = 'ended'`,
		query: `SELECT connection_id AS connection, SUM(ended) AS ended, SUM(told) AS told FROM (
				SELECT connection_id, 1 AS ended, 0 AS told FROM realtime_sessions WHERE id >= {from rts_}
					AND status = 'ended'
				UNION ALL SELECT connection_id, 0, 1 FROM {events} AS told WHERE type = 'realtime_session.ended'
					AND test = 0
				UNION ALL SELECT connection_id, -sessions, 0 FROM {verified voice} AS v) AS sides
			GROUP BY connection_id HAVING SUM(ended) <> SUM(told)`,
	},
	{
		id:    "I25",
		title: "connections: what each remembers of 24 hours = Σ its rows, by 10 minutes",
		count: `SELECT COUNT(*) FROM connections WHERE spent <> ''`,
		query: `SELECT subject AS connection, bucket, SUM(counted) AS counted_mc, SUM(sure) AS rows_mc, SUM(likely) AS with_the_bucket_before_mc FROM (
				SELECT c.id AS subject, {index} AS bucket, {amount} AS counted, 0 AS sure, 0 AS likely FROM connections c, {buckets of c.spent}
				UNION ALL ` + rowsByBucket("l.connection_id", "user_charge_mc", "", notRefunded) + `) AS sides
			WHERE bucket >= $2 GROUP BY subject, bucket HAVING SUM(counted) < SUM(sure) OR SUM(counted) > SUM(likely)`,
		queryArgs: skewAndFirstBucket,
	},
	{
		// Less is counted than spent while the app's tier sets no limit.
		id:    "I25",
		title: "counters: spend and cost of 24 hours are at most the rows', by 10 minutes",
		count: `SELECT COUNT(*) FROM counters WHERE subject LIKE 'spend/%' OR subject LIKE 'live/%'`,
		query: `SELECT subject AS counter, bucket, SUM(counted) AS counted_mc, SUM(likely) AS rows_mc FROM (
				SELECT c.subject AS subject, {index} AS bucket, {amount} AS counted, 0 AS sure, 0 AS likely FROM
					counters c, {buckets of c.buckets} WHERE c.subject LIKE 'spend/%' OR c.subject LIKE 'live/%'
				UNION ALL ` + rowsByBucket("'spend/' || l.app_id", "user_charge_mc", "", notRefunded) + `
				UNION ALL ` + rowsByBucket("'spend/' || l.app_id || '/' || l.account_id", "user_charge_mc", "",
			notRefunded) + `
				UNION ALL ` + rowsByBucket("'live/' || a.owner_id", "provider_cost_mc",
			"JOIN apps a ON a.id = l.app_id", "") + `
				UNION ALL ` + rowsByBucket("'live/*'", "provider_cost_mc", "", "") + `
				UNION ALL ` + unbilledByBucket("'live/' || a.owner_id", "JOIN apps a ON a.id = l.app_id") + `
				UNION ALL ` + unbilledByBucket("'live/*'", "") + `) AS sides
			WHERE bucket >= $2 GROUP BY subject, bucket HAVING SUM(counted) > SUM(likely)`,
		queryArgs: skewAndFirstBucket,
	},
	{
		id:    "I36",
		title: "counters: what free calls cost in 24 hours = Σ their rows, by 10 minutes",
		count: `SELECT COUNT(*) FROM counters WHERE subject LIKE 'waived/%'`,
		query: `SELECT subject AS counter, bucket, SUM(counted) AS counted_mc, SUM(sure) AS rows_mc,
				SUM(likely) AS with_the_bucket_before_mc FROM (
				SELECT c.subject AS subject, {index} AS bucket, {amount} AS counted, 0 AS sure, 0 AS likely
				FROM counters c, {buckets of c.buckets} WHERE c.subject LIKE 'waived/%'
				UNION ALL ` + rowsByBucket("'waived/' || l.app_id || '/' || l.account_id", "provider_cost_mc", "",
			` AND l.usage LIKE '%"waived"%'`) + `) AS sides
			WHERE bucket >= $2 GROUP BY subject, bucket HAVING SUM(counted) < SUM(sure) OR SUM(counted) > SUM(likely)`,
		queryArgs: skewAndFirstBucket,
	},
	{
		id:    "I38",
		title: "counters: what unbilled attempts cost in 24 hours = Σ their rows, by 10 minutes",
		count: `SELECT COUNT(*) FROM counters WHERE subject LIKE 'unbilled/%'`,
		query: `SELECT subject AS counter, bucket, SUM(counted) AS counted_mc, SUM(sure) AS rows_mc,
				SUM(likely) AS with_the_bucket_before_mc FROM (
				SELECT c.subject AS subject, {index} AS bucket, {amount} AS counted, 0 AS sure, 0 AS likely
				FROM counters c, {buckets of c.buckets} WHERE c.subject LIKE 'unbilled/%'
				UNION ALL ` + unbilledByBucket("'unbilled/' || l.app_id || '/' || l.account_id", "") + `) AS sides
			WHERE bucket >= $2 GROUP BY subject, bucket HAVING SUM(counted) < SUM(sure) OR SUM(counted) > SUM(likely)`,
		queryArgs: skewAndFirstBucket,
	},
	{
		id:    "I38",
		title: "unbilled attempts: each is of a connection, and of its account and app",
		count: `SELECT COUNT(*) FROM unbilled_attempts`,
		query: `SELECT u.request_id AS request, u.attempt, u.connection_id AS connection FROM unbilled_attempts u
				LEFT JOIN connections c ON c.id = u.connection_id
			WHERE c.id IS NULL OR c.app_id <> u.app_id OR c.account_id <> u.account_id`,
	},
	{
		id: "I26", title: "holds: no hold of a key that has its row",
		count: `SELECT COUNT(*) FROM holds`,
		query: `SELECT h.connection_id AS connection, h.key, h.request_id AS request, h.state, l.id AS entry
			FROM holds h JOIN ledger l ON l.connection_id = h.connection_id AND l.key = h.key`,
		sinceQuery: `SELECT h.connection_id AS connection, h.key, h.request_id AS request, l.id AS entry
			FROM {keys of holds} AS h CROSS JOIN ledger AS l WHERE l.key_hash = h.key_hash
				AND l.connection_id = h.connection_id AND l.key = h.key`,
	},
	{
		id: "I27", title: "tokens: at most one usable refresh token in a family",
		count: `SELECT COUNT(*) FROM oauth_tokens WHERE kind = 'refresh'`,
		query: `SELECT family_id AS family, MIN(connection_id) AS connection, COUNT(*) AS usable FROM oauth_tokens
			WHERE kind = 'refresh' AND used_us IS NULL AND revoked_us IS NULL GROUP BY family_id HAVING COUNT(*) > 1`,
	},
	{
		id:    "I27",
		title: "tokens: a revoked family has no live access token",
		count: `SELECT COUNT(*) FROM oauth_tokens WHERE kind = 'access'`,
		query: `SELECT family_id AS family, MIN(connection_id) AS connection, COUNT(*) AS live FROM oauth_tokens a
			WHERE kind = 'access' AND revoked_us IS NULL AND expires_us > $1
				AND EXISTS (SELECT 1 FROM oauth_tokens r WHERE r.family_id = a.family_id AND r.kind = 'refresh' AND r.revoked_us IS NOT NULL) GROUP BY family_id`,
		queryArgs: func(now time.Time) []any { return []any{now.UnixMicro()} },
	},
	{
		id:    "I27",
		title: "tokens: a family belongs to one connection and app",
		count: `SELECT COUNT(DISTINCT family_id) FROM oauth_tokens`,
		query: `SELECT family_id AS family, COUNT(DISTINCT connection_id) AS connections, COUNT(DISTINCT app_id) AS apps FROM oauth_tokens
			GROUP BY family_id HAVING COUNT(DISTINCT connection_id) > 1 OR COUNT(DISTINCT app_id) > 1`,
	},
	{
		id:    "I27",
		title: "codes: what gave tokens is used up, and gave one family",
		count: `SELECT (SELECT COUNT(*) FROM oauth_codes) + (SELECT COUNT(*) FROM oauth_device_codes)`,
		query: `SELECT family_id AS family, COUNT(*) AS codes, COUNT(used_us) AS used FROM (SELECT family_id, used_us FROM oauth_codes
				UNION ALL SELECT family_id, used_us FROM oauth_device_codes) AS codes WHERE family_id IS NOT NULL
			GROUP BY family_id HAVING COUNT(*) > 1 OR COUNT(used_us) < COUNT(*)`,
	},
	{
		id:    "I28",
		title: "events: numbered without a gap in each connection, up to its event_seq",
		count: `SELECT COUNT(*) FROM {events} AS told WHERE connection_id IS NOT NULL`,
		query: `SELECT connection_id AS connection, SUM(last) AS event_seq, COUNT(seq) AS events, MIN(seq) AS first_seq, MAX(seq) AS last_seq, COUNT(DISTINCT app_id) AS apps FROM (
				SELECT id AS connection_id, app_id, event_seq AS last, CAST(NULL AS BIGINT) AS seq FROM connections
				UNION ALL SELECT connection_id, app_id, -event_seq, NULL FROM {verified connections} AS v
				UNION ALL SELECT connection_id, app_id, 0, seq - verified_seq FROM {events} AS told
					WHERE connection_id IS NOT NULL) AS sides
			GROUP BY connection_id HAVING SUM(last) <> COUNT(seq) OR COUNT(DISTINCT seq) <> COUNT(seq) OR COALESCE(MIN(seq), 1) <> 1
				OR COALESCE(MAX(seq), 0) <> SUM(last) OR COUNT(DISTINCT app_id) <> 1`,
	},
	{id: "I28", title: "events: request.settled tells once what a pending call was billed", verify: checkSettledEvents},
	{id: "I28", title: "events: request.refunded tells once which row refunded a call", verify: checkRefundEvents},
	{
		id:    "I28",
		title: "events: each change of a spend cap is reported when it is made",
		count: `SELECT COUNT(*) FROM {ledger} AS ledger WHERE type = 'cap' AND allocation_delta_mc <> 0`,
		query: `SELECT l.connection_id AS connection, l.id AS entry, l.allocation_delta_mc, l.created_us
				FROM {ledger} AS l
			WHERE l.type = 'cap' AND l.allocation_delta_mc <> 0
				AND NOT EXISTS (SELECT 1 FROM events e WHERE e.connection_id = l.connection_id
					AND e.created_us = l.created_us AND e.type IN ('connection.updated', 'allocation_change.approved'))`,
	},
	{
		id:    "I28",
		title: "events: the end of each child is told once",
		count: `SELECT COUNT(*) FROM children WHERE ended_us >= {from time}`,
		query: `SELECT child, MIN(connection_id) AS connection, SUM(ended) AS ended, SUM(told) AS told FROM (
				SELECT id AS child, connection_id, ended_us AS at_us, 1 AS ended, 0 AS told FROM children
					WHERE ended_us >= {from time}
				UNION ALL SELECT substr(data, ` + childInEvent + `, 30), connection_id, created_us, 0, 1 FROM events
					WHERE id >= {from evt_} AND created_us >= {from time} AND type = 'connection.child_ended'
						AND test = 0) AS sides
			GROUP BY child HAVING SUM(ended) <> 1 OR SUM(told) <> 1 OR MIN(at_us) <> MAX(at_us)
				OR MIN(connection_id) <> MAX(connection_id)`,
	},
	{
		id:    "I28",
		title: "events: one for each change of a connection's status",
		count: countConnections,
		query: `SELECT c.id AS connection, c.status, COALESCE(e.created, 0) AS created, COALESCE(e.frozen, 0) AS frozen, COALESCE(e.resumed, 0) AS resumed, COALESCE(e.revoked, 0) AS revoked
			FROM connections c LEFT JOIN (
				SELECT connection_id, SUM(created) AS created, SUM(frozen) AS frozen, SUM(resumed) AS resumed,
					SUM(revoked) AS revoked FROM (
					SELECT connection_id, CASE type WHEN 'connection.created' THEN 1 ELSE 0 END AS created,
						CASE type WHEN 'connection.frozen' THEN 1 ELSE 0 END AS frozen,
						CASE type WHEN 'connection.resumed' THEN 1 ELSE 0 END AS resumed, CASE type WHEN
							'connection.revoked' THEN 1 ELSE 0 END AS revoked
					FROM {events} AS told WHERE connection_id IS NOT NULL
					UNION ALL SELECT connection_id, 1, frozen, 0, revoked FROM {verified connections} AS v) AS sides
				GROUP BY connection_id
			) AS e ON e.connection_id = c.id
			WHERE COALESCE(e.created, 0) <> 1 OR COALESCE(e.revoked, 0) <> CASE c.status WHEN 'revoked' THEN 1 ELSE 0 END
				OR c.status = 'active' AND COALESCE(e.frozen - e.resumed, 0) <> 0 OR c.status = 'frozen' AND COALESCE(e.frozen - e.resumed, 0) <> 1`,
	},
	{
		id:    "I28",
		title: "events: at most one warning of a connection in ten minutes",
		count: `SELECT COUNT(*) FROM {events} AS told WHERE type = 'connection.risk_warning'`,
		query: `SELECT connection, id AS event, apart_us FROM (
				SELECT connection_id AS connection, id, created_us - LAG(created_us) OVER (PARTITION BY connection_id ORDER BY seq) AS apart_us
				FROM (SELECT connection_id, id, seq, created_us FROM {events} AS told
					WHERE type = 'connection.risk_warning'
					UNION ALL SELECT connection_id, '', 0, warned_us FROM {verified connections} AS v
						WHERE warned_us > 0) AS both_sides) AS warnings
			WHERE apart_us < 600000000`,
	},
	{
		id:    "I28",
		title: "notices: each is for the account of its connection",
		count: `SELECT COUNT(*) FROM notices WHERE id >= {from ntc_}`,
		query: `SELECT n.id AS notice, n.kind, n.account_id AS account, n.connection_id AS connection, n.app_id AS app FROM notices n
				LEFT JOIN accounts a ON a.id = n.account_id LEFT JOIN connections c ON c.id = n.connection_id
			WHERE n.id >= {from ntc_} AND (a.id IS NULL OR c.id IS NULL OR c.account_id <> n.account_id
				OR c.app_id <> n.app_id)`,
	},
	{
		// Apps go from sandbox to live, never back: what a test account had there is revoked by then.
		id:    "I29",
		title: "connections: no test account with a live app, no real one ever with a sandbox app",
		count: countConnections,
		query: `SELECT c.id AS connection, c.status, a.id AS account, a.sandbox, p.id AS app, p.tier FROM connections c JOIN accounts a ON a.id = c.account_id JOIN apps p ON p.id = c.app_id
			WHERE a.sandbox = 1 AND p.tier <> 'sandbox' AND c.status <> 'revoked' OR a.sandbox = 0 AND p.tier = 'sandbox'`,
	},
	{
		id:    "I29",
		title: "connections: a test account only with its developer's apps, and with none once deleted",
		count: `SELECT COUNT(*) FROM connections c JOIN accounts a ON a.id = c.account_id WHERE a.sandbox = 1`,
		query: `SELECT c.id AS connection, c.status, a.id AS account, a.owner_id AS developer, a.deactivated_us, p.id AS app, p.owner_id AS app_developer
			FROM connections c JOIN accounts a ON a.id = c.account_id JOIN apps p ON p.id = c.app_id
			WHERE a.sandbox = 1 AND (a.owner_id <> p.owner_id OR a.deactivated_us IS NOT NULL AND c.status <> 'revoked')`,
	},
	{
		id:    "I29",
		title: "accounts: test accounts, and no others, have money that is not real",
		count: countAccounts,
		query: `SELECT b.account_id AS account, a.sandbox AS test_account, b.sandbox AS sandbox_balance, b.available_mc, b.reserved_mc
			FROM balances b JOIN accounts a ON a.id = b.account_id WHERE b.sandbox <> a.sandbox`,
	},
	{
		id:    "I29",
		title: "ledger: free credit pays for no call of a test account",
		count: `SELECT COUNT(*) FROM {ledger} AS l JOIN accounts a ON a.id = l.account_id WHERE a.sandbox = 1`,
		query: `SELECT l.id AS entry, l.account_id AS account, l.app_id AS app, l.user_charge_mc FROM {ledger} AS l
				JOIN accounts a ON a.id = l.account_id
			WHERE a.sandbox = 1 AND l.paid_by = 'free_credit'`,
	},
	{
		// A top-up by payment has no reason, and no top-up of a test account has one.
		id:    "I30",
		title: "goodwill: each record has its ledger row, and each row its record",
		count: countGoodwill,
		query: `SELECT g.goodwill_id AS goodwill, g.n, g.kind, g.account_id AS account, g.amount_mc, l.id AS entry, l.type, l.status, l.amount_mc AS entry_amount_mc, l.reversal_of
			FROM goodwill_records g LEFT JOIN ledger l ON l.id = g.entry_id
			LEFT JOIN goodwill_records o ON o.goodwill_id = g.goodwill_id AND o.kind = 'given' AND g.kind = 'withdrawn'
			WHERE (l.id IS NULL OR l.type <> 'topup' OR l.account_id <> g.account_id
				OR l.amount_mc <> g.amount_mc
				OR l.status <> CASE g.kind WHEN 'given' THEN 'settled' ELSE 'reversed' END
				OR COALESCE(l.reversal_of, '') <> COALESCE(o.entry_id, '') OR COALESCE(l.reason, '') <> g.reason)
			UNION ALL SELECT NULL, NULL, NULL, l.account_id, NULL, l.id, l.type, l.status, l.amount_mc, l.reversal_of
			FROM {ledger} AS l WHERE l.type = 'topup' AND NOT EXISTS (SELECT 1 FROM goodwill_records g
				WHERE g.entry_id = l.id)
				AND (l.status = 'settled' AND l.reason IS NOT NULL AND l.amount_mc > 0
					OR l.status = 'reversed' AND EXISTS (SELECT 1 FROM goodwill_records g WHERE g.entry_id = l.reversal_of))`,
	},
	{
		id:    "I30",
		title: "goodwill: given once and first, to one account; no more is withdrawn than was given",
		count: `SELECT COUNT(DISTINCT goodwill_id) FROM goodwill_records`,
		query: `SELECT goodwill_id AS goodwill, MIN(account_id) AS account, COUNT(*) AS records, SUM(given) AS given, SUM(given_mc) AS given_mc, SUM(withdrawn_mc) AS withdrawn_mc FROM (
				SELECT goodwill_id, n, account_id, CASE WHEN kind = 'given' AND n = 1 THEN 1 WHEN kind = 'given' THEN 2 ELSE 0 END AS given,
					CASE kind WHEN 'given' THEN amount_mc ELSE 0 END AS given_mc, CASE kind WHEN 'given' THEN 0 ELSE amount_mc END AS withdrawn_mc
				FROM goodwill_records) AS records
			GROUP BY goodwill_id HAVING SUM(given) <> 1 OR MIN(n) <> 1 OR MAX(n) <> COUNT(*) OR COUNT(DISTINCT account_id) <> 1 OR SUM(withdrawn_mc) > SUM(given_mc)`,
	},
	{
		id:    "I30",
		title: "goodwill: only accounts with real money get it",
		count: countGoodwill,
		query: `SELECT g.goodwill_id AS goodwill, g.account_id AS account, b.sandbox AS sandbox_balance FROM goodwill_records g LEFT JOIN balances b ON b.account_id = g.account_id
			WHERE COALESCE(b.sandbox, 1) <> 0`,
	},
	{id: "I31", title: "log: each published row has one leaf, which commits to it", verify: checkLogRows},
	{id: "I31", title: "log: the tiles and the checkpoint are those of the leaves", verify: checkLogTree},
	{
		id:    "I32",
		title: "refunds of calls: each pays the charge of a call that it reversed; each debit has one",
		count: `SELECT COUNT(*) FROM call_refunds`,
		query: `SELECT f.app_id AS app, f.n, f.entry_id AS entry, f.reversal_id AS reversal, f.sandbox, f.margin_mc,
				f.balance_mc, o.user_charge_mc, d.id AS debit, d.amount_mc AS debit_mc
			FROM call_refunds f LEFT JOIN ledger o ON o.id = f.entry_id LEFT JOIN ledger r ON r.id = f.reversal_id
				LEFT JOIN ledger d ON d.id = f.debit_id LEFT JOIN accounts u ON u.id = o.account_id
				LEFT JOIN apps a ON a.id = f.app_id
			WHERE (o.id IS NULL OR o.type <> 'spend' OR o.status <> 'settled'
				OR o.app_id <> f.app_id
				OR COALESCE(a.owner_id, '') <> f.developer_id OR COALESCE(u.sandbox, -1) <> f.sandbox
				OR r.id IS NULL OR COALESCE(r.reversal_of, '') <> f.entry_id OR COALESCE(r.reason, '') <> f.reason
				OR f.margin_mc < 0 OR f.balance_mc < 0
				OR f.margin_mc + f.balance_mc <> CASE f.sandbox WHEN 1 THEN 0 ELSE o.user_charge_mc END
				OR f.balance_mc > 0 AND (d.id IS NULL OR d.type <> 'topup' OR d.status <> 'settled'
					OR d.account_id <> f.developer_id OR d.amount_mc <> -f.balance_mc))
			UNION ALL SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, l.id, l.amount_mc FROM {ledger} AS l
			WHERE l.type = 'topup' AND l.status = 'settled' AND l.amount_mc < 0
				AND NOT EXISTS (SELECT 1 FROM call_refunds f WHERE f.debit_id = l.id)`,
	},
	{
		// The margin of a call that its app refunded is the app's no longer, nor is what refunds have used beyond.
		id:    "I32",
		title: "refunds of calls: numbered in each app, and no more margin is used than the app has earned",
		count: `SELECT COUNT(DISTINCT app_id) FROM call_refunds`,
		query: `SELECT * FROM (SELECT s.app_id AS app, s.refunds, s.last, s.used_mc, f.margin_used_mc, s.own_mc,
				f.earned_mc, (SELECT COALESCE(SUM(l.dev_margin_mc), 0) FROM ledger l
					JOIN accounts u ON u.id = l.account_id
					WHERE l.app_id = s.app_id AND l.type = 'spend' AND l.status = 'settled' AND u.sandbox = 0
					) AS ever_earned_mc,
				(SELECT COALESCE(SUM(t.dev_margin_mc), 0) FROM daily_totals t JOIN accounts u ON u.id = t.account_id
					WHERE t.app_id = s.app_id AND t.day < f.earned_day AND u.sandbox = 0) AS closed_days_mc
				FROM (SELECT r.app_id, COUNT(*) AS refunds, MAX(r.n) AS last,
						SUM(CASE r.sandbox WHEN 0 THEN r.margin_mc - o.dev_margin_mc ELSE 0 END) AS used_mc,
						SUM(CASE r.sandbox WHEN 0 THEN o.dev_margin_mc ELSE 0 END) AS own_mc
					FROM call_refunds r JOIN ledger o ON o.id = r.entry_id GROUP BY r.app_id) AS s
				JOIN call_refunds f ON f.app_id = s.app_id AND f.n = s.last) AS sides
			WHERE earned_mc <> closed_days_mc OR refunds <> last OR used_mc <> margin_used_mc
				OR used_mc + own_mc > ever_earned_mc`,
	},
	{
		id:    "I33",
		title: "money back to cards: what users asked for of a payment, and Stripe did not refuse, is reversed of it",
		count: `SELECT COUNT(*) FROM refunds WHERE by_user = 1`,
		query: `SELECT payment_id AS payment, SUM(asked) AS asked_mc, SUM(reversed) AS reversed_mc FROM (
				SELECT payment_id, cents * 1000000 AS asked, 0 AS reversed FROM refunds
					WHERE by_user = 1 AND state <> 'refused'
				UNION ALL SELECT payment_id, 0, CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END
					FROM payment_records WHERE kind IN ('reversed', 'restored') AND reason = 'returned_to_card') AS sides
			GROUP BY payment_id HAVING SUM(asked) <> SUM(reversed)`,
	},
	{
		id:    "I33",
		title: "money paid otherwise: what operators have settled is gone of payments, the rest of goodwill credits",
		count: `SELECT COUNT(*) FROM operator_log WHERE action = 'settle'`,
		query: `SELECT account_id AS account, SUM(settled) AS settled_mc, SUM(reversed) AS reversed_mc,
				SUM(withdrawn) AS withdrawn_mc FROM (
				SELECT subject AS account_id, {settled} AS settled, 0 AS reversed, 0 AS withdrawn FROM operator_log
					WHERE action = 'settle'
				UNION ALL SELECT account_id, 0, CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END, 0
					FROM payment_records WHERE kind IN ('reversed', 'restored') AND reason = 'paid_elsewhere'
				UNION ALL SELECT account_id, 0, 0, amount_mc FROM goodwill_records WHERE kind = 'withdrawn') AS sides
			GROUP BY account_id
			HAVING SUM(reversed) > SUM(settled) OR SUM(settled) > SUM(reversed) + SUM(withdrawn)`,
	},
	{
		id:    "I34",
		title: "connections: delegated = Σ what children have left, held by them = Σ their holds, and it all fits",
		count: countConnections,
		query: `SELECT connection_id AS connection, SUM(delegated) AS delegated_mc, SUM(left_mc) AS children_mc,
				SUM(child_held) AS child_held_mc, SUM(holds) AS holds_mc, SUM(own) AS own_remaining_mc FROM (
				SELECT id AS connection_id, delegated_mc AS delegated, 0 AS left_mc, child_held_mc AS child_held,
					0 AS holds,
					allocation_mc - consumed_mc - held_mc - delegated_mc + child_held_mc AS own FROM connections
				UNION ALL SELECT c.connection_id, 0, ` + counted + `, 0, 0, 0
					FROM children c JOIN counters w ON w.subject = 'child/' || c.id
				UNION ALL SELECT connection_id, 0, 0, 0, amount_mc, 0 FROM holds
					WHERE state <> 'failed' AND paid_by = 'wallet' AND key LIKE 'chd%') AS sides
			GROUP BY connection_id
			HAVING SUM(delegated) <> SUM(left_mc) OR SUM(child_held) <> SUM(holds)
				OR SUM(delegated) > 0 AND SUM(own) < 0`,
	},
	{
		id:    "I34",
		title: "children: what a live one has left is what it was given − passed on − spent by wallet and free credit",
		count: `SELECT COUNT(*) FROM children WHERE ended_us IS NULL`,
		query: `SELECT subject AS child, SUM(spent) AS spent_mc, SUM(charged) AS rows_mc FROM (
				` + childrenSpent + `
				UNION ALL SELECT 'child/' || substr(key, 1, 30), 0, 0, user_charge_mc FROM {ledger} AS ledger
					WHERE key LIKE 'chd%' AND type = 'spend' AND status = 'settled'
				UNION ALL SELECT subject, 0, 0, counted_mc FROM {verified counters} AS v
					WHERE subject LIKE 'child/%') AS sides
			GROUP BY subject HAVING SUM(live) = 1 AND SUM(spent) <> SUM(charged)`,
	},
	{
		id:    "I34",
		title: "children: an ended one has left what it holds, a live one no less, and it stands where its parent does",
		count: `SELECT COUNT(*) FROM children`,
		query: `SELECT c.id AS child, c.connection_id AS connection, c.depth, c.ended_us, w.limit_reported, w.held,
				` + counted + ` AS left_mc, p.id AS parent, p.depth AS parents_depth, p.ended_us AS parent_ended_us
			FROM children c JOIN connections n ON n.id = c.connection_id
				LEFT JOIN counters w ON w.subject = 'child/' || c.id LEFT JOIN children p ON p.id = c.parent_id
				LEFT JOIN counters f ON f.subject = 'childfree/' || c.id
			WHERE w.subject IS NULL OR (c.ended_us IS NOT NULL) <> (w.limit_reported <> 0) OR ` + counted + ` < w.held
				OR c.ended_us IS NULL AND ` + counted + ` < w.held + COALESCE(f.held, 0)
				OR c.ended_us IS NOT NULL AND ` + counted + ` <> w.held
				OR c.depth <> COALESCE(p.depth, 0) + 1 OR p.connection_id <> c.connection_id
				OR c.ended_us IS NULL AND (n.status = 'revoked' OR p.ended_us IS NOT NULL)`,
	},
	{
		id:    "I35",
		title: "payouts: what is taken of an app's margin is numbered and adds up, and its developer's are paid",
		count: `SELECT COUNT(*) FROM margin_records`,
		query: `SELECT m.app_id AS app, m.n, m.number, m.kind, m.taken_mc, m.sum_mc, m.developer_id AS developer FROM (
				SELECT app_id, n, kind, developer_id, taken_mc,
					ROW_NUMBER() OVER (PARTITION BY app_id ORDER BY n) AS number,
					SUM(amount_mc) OVER (PARTITION BY app_id ORDER BY n) AS sum_mc
				FROM margin_records) AS m LEFT JOIN apps a ON a.id = m.app_id
			WHERE m.n <> m.number OR m.taken_mc <> m.sum_mc OR COALESCE(a.owner_id, '') <> m.developer_id`,
	},
	{
		id:    "I35",
		title: "payouts: each takes whole cents of what had matured and not come back; a failed one returns them",
		count: `SELECT COUNT(*) FROM margin_records WHERE kind IN ('begun', 'found')`,
		query: `SELECT b.subject AS payout, b.app_id AS app, b.amount_mc, b.matured_mc, b.returned_mc,
				b.taken_mc - b.amount_mc AS taken_before_mc, b.kept_mc, b.days_mc, b.paid, b.begun FROM (
				SELECT m.*, (SELECT COALESCE(SUM(t.dev_margin_mc), 0) FROM daily_totals t JOIN balances u
						ON u.account_id = t.account_id
						WHERE t.app_id = m.app_id AND t.day < m.matured_day AND u.sandbox = 0) AS days_mc,
					(SELECT COUNT(*) FROM margin_records p WHERE p.subject = m.subject AND p.kind = 'paid') AS paid,
					(SELECT COUNT(*) FROM margin_records o WHERE o.subject = m.subject AND o.kind <> 'disputed'
						AND o.app_id = m.app_id AND o.n < m.n) AS begun
				FROM margin_records m WHERE m.kind = 'begun') AS b
			WHERE b.amount_mc <= 0 OR b.amount_mc % 1000000 <> 0 OR b.days_mc <> b.matured_mc
				OR b.amount_mc > b.matured_mc - b.returned_mc - (b.taken_mc - b.amount_mc) - b.kept_mc OR b.kept_mc < 0
				OR b.paid > 1 OR b.begun > 0
			UNION ALL SELECT e.subject, e.app_id, e.amount_mc, NULL, NULL, NULL, NULL, NULL, NULL, NULL
			FROM margin_records e WHERE e.kind = 'paid' AND NOT EXISTS (SELECT 1 FROM margin_records o
				WHERE o.subject = e.subject AND o.app_id = e.app_id AND o.kind = 'begun' AND o.n < e.n)
			UNION ALL SELECT s.subject, s.app_id, s.amount_mc, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM (
				SELECT subject, app_id, amount_mc, kind, LAG(kind) OVER (PARTITION BY subject ORDER BY n) AS last_kind,
					LAG(amount_mc) OVER (PARTITION BY subject ORDER BY n) AS last_mc,
					LAG(app_id) OVER (PARTITION BY subject ORDER BY n) AS last_app
				FROM margin_records WHERE kind IN ('begun', 'failed', 'found')) AS s
			WHERE s.kind = 'failed' AND (COALESCE(s.last_kind, 'failed') = 'failed' OR s.last_mc <> -s.amount_mc)
				OR s.kind = 'found' AND (COALESCE(s.last_kind, 'failed') <> 'failed' OR s.amount_mc % 1000000 <> 0)
				OR s.last_app <> s.app_id`,
	},
	{
		id:    "I35",
		title: "payouts: margin is taken only for disputed payments, at most what their account's calls brought",
		count: `SELECT COUNT(*) FROM margin_records WHERE kind = 'disputed'`,
		query: `SELECT s.app_id AS app, s.account_id AS account, s.taken_mc, s.margin_mc FROM (
				SELECT m.app_id, m.account_id, SUM(m.amount_mc) AS taken_mc,
					(SELECT COALESCE(SUM(l.dev_margin_mc), 0) FROM ledger l WHERE l.account_id = m.account_id
						AND l.app_id = m.app_id AND l.type = 'spend' AND l.status = 'settled') AS margin_mc
				FROM (SELECT r.app_id, r.amount_mc, COALESCE(p.account_id, r.subject) AS account_id
					FROM margin_records r LEFT JOIN payment_records p ON p.payment_id = r.subject AND p.n = 1
					WHERE r.kind = 'disputed') AS m GROUP BY m.app_id, m.account_id) AS s
			WHERE s.taken_mc < 0 OR s.taken_mc > s.margin_mc OR NOT EXISTS (
				SELECT 1 FROM payment_records d WHERE d.account_id = s.account_id AND d.kind = 'disputed')`,
	},
	{
		id:     "I35",
		title:  "payouts: disputes take each app's share of what their account has lost, once, or nothing",
		verify: checkLosses,
	},
}

// isTranscript is the condition that r is a transcript of a user's speech, and no reply.
const isTranscript = `COALESCE(r.reply_id, '') LIKE 'transcript/%'`

// isReply is the condition that l is of a reply or a transcript of a voice session, which a connection or a child of it
// has made.
const isReply = `l.key LIKE 'rts%' OR l.key LIKE 'chd%/rts%'`

// childInEvent is where the child's id begins in the data of connection.child_ended: {"child":{"id":"chd_…
const childInEvent = `17`

// counted is the sum of a counter without a window.
const counted = `CASE WHEN w.buckets = '' THEN 0 ELSE CAST(substr(w.buckets, 3) AS BIGINT) END`

// childrenSpent is what calls of live children were charged, if what they have left is right: what they were given,
// less what they have passed on and what is left. What an ended child returned is its parent's again.
const childrenSpent = `SELECT 'child/' || c.id AS subject, 1 AS live, c.amount_mc - ` + counted + ` AS spent,
					0 AS charged
					FROM children c JOIN counters w ON w.subject = 'child/' || c.id WHERE c.ended_us IS NULL
				UNION ALL SELECT 'child/' || parent_id, 0,
					CASE WHEN ended_us IS NULL OR ended_by = 'parent' THEN 0 ELSE returned_mc END - amount_mc, 0
					FROM children WHERE parent_id IS NOT NULL`

// notRefunded leaves out charges that have left the windows of spend with their refund, which its event reports.
const notRefunded = ` AND NOT EXISTS (SELECT 1 FROM ledger r JOIN events e
			ON e.connection_id = r.connection_id AND e.created_us = r.created_us AND e.type = 'request.refunded' WHERE r.reversal_of = l.id)`

// rowsByBucket says of each row that the wallet paid in which bucket of 10 minutes it
// surely stands, and in which it may: nodes' clocks are not quite the same.
func rowsByBucket(subject, amount, join, condition string) string {
	return byBucket(subject, amount, `ledger l `+join+
		` WHERE (l.id >= {a day ago led_} OR l.id IN ({late}))
			AND l.type = 'spend' AND l.status = 'settled' AND l.paid_by = 'wallet'
			AND (l.created_us + $1) / `+bucketWidth+` >= $2`+condition)
}

// unbilledByBucket is rowsByBucket of unbilled attempts.
func unbilledByBucket(subject, join string) string {
	return byBucket(subject, "provider_cost_mc", `unbilled_attempts l `+join+
		` WHERE l.created_us >= CAST($2 AS BIGINT) * `+bucketWidth+` - CAST($1 AS BIGINT)`)
}

// bucketWidth is that of limits.SpendBucketWidth, in microseconds.
const bucketWidth = "600000000"

// byBucket counts amounts of the rows of a table l, given with its conditions, in their buckets.
func byBucket(subject, amount, table string) string {
	from, width := ` FROM `+table, bucketWidth
	return `SELECT ` + subject + `, l.created_us / ` + width + `, 0, CASE WHEN l.created_us / ` + width +
		` = (l.created_us + $1) / ` + width + ` THEN ` + amount + ` ELSE 0 END, ` + amount + from + `
		UNION ALL SELECT ` + subject + `, (l.created_us + $1) / ` + width + `, 0, 0, ` + amount + from +
		` AND l.created_us / ` + width + ` <> (l.created_us + $1) / ` + width
}
