package world

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

// An end is something that waits, by the column that says until when: too many rows of the query are those that nobody
// has ended, though it was due a day ago ($1), or is not kept for so long. F-entries and docs/operate/configuration.md
// say what ends each.
type end struct {
	column string // "" = it is due at once
	query  string
}

// ends are all columns of the schema by which something waits.
var ends = map[string]end{
	"holds are open": {"",
		`SELECT COUNT(*) FROM holds WHERE state = 'open' AND CAST($1 AS BIGINT) > 0`},
	"charges are pending": {"deferrals.next_us",
		`SELECT COUNT(*) FROM deferrals WHERE next_us < $1`},
	"dead nodes have holds": {"nodes.lease_us",
		`SELECT COUNT(*) FROM nodes WHERE lease_us < $1 - 86400000000`},
	"voice sessions have no end": {"realtime_sessions.lease_us",
		unended + `status <> 'ended' AND CAST($1 AS BIGINT) > 0`},
	"voice calls are not hung up": {"realtime_sessions.hang_up_us",
		unended + `hang_up = 1 AND hang_up_us < $1`},
	"tickets wait": {"realtime_sessions.ticket_until_us",
		unended + `status = 'pending' AND ticket_until_us < $1`},
	"checkouts are followed": {"checkouts.next_us",
		`SELECT COUNT(*) FROM checkouts WHERE next_us < $1`},
	"refunds are open": {"refunds.next_us",
		`SELECT COUNT(*) FROM refunds WHERE state = 'open' AND next_us < $1`},
	"cards are to be removed": {"card_removals.next_us",
		`SELECT COUNT(*) FROM card_removals WHERE next_us < $1`},
	"customers are to be removed": {"customer_removals.next_us",
		`SELECT COUNT(*) FROM customer_removals WHERE next_us < $1`},
	"requests to Stripe wait": {"stripe_requests.waits_us",
		`SELECT COUNT(*) FROM stripe_requests WHERE waits_us < $1`},
	"claims are held": {"stripe_requests.claimed_us",
		`SELECT COUNT(*) FROM stripe_requests WHERE claimed_us > $1 + 2 * 86400000000`},
	"reconciliations are open": {"reconciliations.claimed_us",
		`SELECT COUNT(*) FROM reconciliations WHERE ended_us IS NULL AND created_us < $1`},
	"deliveries wait": {"deliveries.due_us",
		waiting + `d.due_us < $1`},
	"attempts wait": {"deliveries.next_us",
		waiting + `d.next_us < $1`},
	"events are in no log": {"",
		`SELECT COUNT(*) FROM events WHERE passed = 0 AND created_us < $1`},
	"notices are in no mail": {"",
		`SELECT COUNT(*) FROM notices WHERE passed = 0 AND created_us < $1`},
	"margin changes are untold": {"",
		`SELECT COUNT(*) FROM margin_changes WHERE done = 0 AND changed_us < $1`},
	"erasures wait": {"",
		`SELECT COUNT(*) FROM erasures WHERE CAST($1 AS BIGINT) > 0`},
	"endpoints are to be deleted": {"",
		`SELECT COUNT(*) FROM webhooks WHERE deleted_us < $1`},
	"verifications wait": {"",
		`SELECT COUNT(*) FROM verifications WHERE finished_us IS NULL AND asked_us < $1`},
	"children live too long": {"children.expires_us",
		`SELECT COUNT(*) FROM children WHERE ended_us IS NULL AND expires_us < $1`},
	"stops are kept": {"",
		`SELECT COUNT(*) FROM stops WHERE created_us < $1 - 86400000000`},
	"apps are not watched": {"watch_turns.next_us",
		`SELECT COUNT(*) FROM watch_turns WHERE next_us < $1`},
	"the operator's sums are old": {"operator_totals.next_us",
		`SELECT COUNT(*) FROM operator_totals WHERE next_us < $1`},
	"sessions are kept": {"sessions.expires_us",
		expired("sessions")},
	"links are kept": {"identity_links.expires_us",
		expired("identity_links")},
	"invitations are kept": {"invitations.expires_us",
		expired("invitations")},
	"challenges are kept": {"passkey_challenges.expires_us",
		expired("passkey_challenges")},
	"sign-ins are kept": {"openid_attempts.expires_us",
		expired("openid_attempts")},
	"set-ups are kept": {"totp_seeds.expires_us",
		expired("totp_seeds") + ` AND active = 0`},
	"codes are kept": {"oauth_codes.expires_us",
		expired("oauth_codes") + aDay},
	"device codes are kept": {"oauth_device_codes.expires_us",
		expired("oauth_device_codes") + aDay},
	"tokens are kept": {"oauth_tokens.expires_us",
		expired("oauth_tokens") + aDay},
	"answers of tokens are kept": {"oauth_replays.expires_us",
		expired("oauth_replays") + aDay},
	"invited members are kept": {"app_invitations.expires_us",
		expired("app_invitations") + ` - 30 * 86400000000`},
	"answers of calls are kept": {"",
		`SELECT COUNT(*) FROM stored_responses WHERE created_us < $1 - 7 * 86400000000`},
	"refusals are kept": {"",
		`SELECT COUNT(*) FROM refusals WHERE created_us < $1 - 30 * 86400000000`},
	"parts of streams are kept": {"",
		`SELECT COUNT(*) FROM checkpoints WHERE CAST($1 AS BIGINT) > 0`},
	"Stripe's event ids are kept": {"",
		`SELECT COUNT(*) FROM stripe_events WHERE created_us < $1 - 40 * 86400000000`},
	"automatic top-ups do not run": {"auto_topups.next_us",
		`SELECT COUNT(*) FROM auto_topups WHERE next_us > $1 + 60 * 86400000000`},
	"mails are in no turn": {"mails.next_us",
		`SELECT COUNT(*) FROM mails WHERE status <> 'pending' AND done_us IS NULL AND CAST($1 AS BIGINT) > 0`},
	"old secrets of apps work": {"apps.previous_secret_until_us",
		`SELECT COUNT(*) FROM apps WHERE previous_secret_until_us > $1 + 9 * 86400000000`},
	"payments are held back": {"payment_records.hold_until_us", `SELECT COUNT(*) FROM payment_records p
		WHERE hold_until_us < $1 AND NOT EXISTS (SELECT 1 FROM payment_records e WHERE e.payment_id = p.payment_id
			AND e.kind IN ('settled', 'failed'))
			AND NOT EXISTS (SELECT 1 FROM open_disputes d WHERE d.payment_id = p.payment_id)`},
}

const (
	unended = `SELECT COUNT(*) FROM realtime_sessions WHERE `
	// Deliveries to an endpoint that is disabled wait until it is enabled.
	waiting = `SELECT COUNT(*) FROM deliveries d JOIN webhooks w ON w.id = d.webhook_id WHERE d.status = 'pending'
		AND w.status = 'active' AND w.deleted_us IS NULL AND `
	aDay = ` - 86400000000`
)

// expired counts the rows of a table that have expired; what is appended makes it later.
func expired(table string) string { return `SELECT COUNT(*) FROM ` + table + ` WHERE expires_us < $1` }

// untilPattern are the names of columns that say until when something waits.
var untilPattern = regexp.MustCompile(`^(.*_)?(next|due|lease|claimed|waits|expires|until|hang_up)_us$`)

// checkEnds checks that nothing waits without an end, days after everybody has stopped to act.
func (w *world) checkEnds() error {
	ctx, before := context.Background(), w.Server.DB.Now().Add(-day).UnixMicro()
	judged := map[string]bool{}
	for what, e := range ends {
		var n int
		if judged[e.column] = true; e.column == "nodes.lease_us" && w.engine == db.Postgres {
			continue // it is by another clock
		}
		if err := w.Server.DB.QueryRowContext(ctx, e.query, before).Scan(&n); err != nil {
			return fmt.Errorf("ends: %s: %w", what, err)
		} else if n > 0 {
			return fmt.Errorf("ends: %d %s", n, what)
		}
	}
	columns, err := w.columns()
	for _, column := range columns {
		if _, name, _ := strings.Cut(column, "."); untilPattern.MatchString(name) && !judged[column] {
			err = errors.Join(err, fmt.Errorf("ends: nothing is said of %s", column))
		}
	}
	return err
}
