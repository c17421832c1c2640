package operatorpages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/mail"
)

// A listedEntry holds the columns of a ledger row that a list shows.
type listedEntry struct {
	id, kind, status, model string
	seq, createdUS          int64
	chargeMC                money.MC
	availableDeltaMC        money.MC
	reservedDeltaMC         money.MC
}

// listEntriesBefore returns an account's ledger rows before a sequence number, newest first.
func listEntriesBefore(ctx context.Context, q db.Queryer, accountID string, beforeSeq int64, limit int) ([]listedEntry,
	error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(e *listedEntry) []any {
		return []any{&e.id, &e.kind, &e.status, &e.model, &e.seq, &e.createdUS, &e.chargeMC, &e.availableDeltaMC,
			&e.reservedDeltaMC}
	}), `SELECT id, type, status, COALESCE(model, ''), seq, created_us, COALESCE(user_charge_mc, 0),
		available_delta_mc, reserved_delta_mc
		FROM ledger WHERE account_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3`, accountID, beforeSeq, limit)
}

// findReversal returns the id of the row that reverses an entry; "" = not reversed.
func findReversal(ctx context.Context, q db.Queryer, entryID string) (reversalID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM ledger WHERE reversal_of = $1 LIMIT 1`, entryID).Scan(&reversalID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return reversalID, err
}

// claimCount reports whether this node counts now, and when so, lets the next count be due at nextUS. A count that is
// due much later than that was put there by a clock that was ahead.
func claimCount(ctx context.Context, d *db.DB, nowUS, nextUS int64) (claimed bool, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		var one int64
		err := tx.QueryRowContext(ctx, `UPDATE operator_totals SET next_us = $2
			WHERE next_us <= $1 OR next_us > 2 * CAST($2 AS BIGINT) - CAST($1 AS BIGINT) RETURNING one`,
			nowUS, nextUS).Scan(&one)
		if claimed = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return claimed, err
}

// getNewestDay returns the newest day up to today that is counted; "" = none. A clock that was ahead has made later
// ones.
func getNewestDay(ctx context.Context, q db.Queryer, today string) (day string, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(day), '') FROM operator_days WHERE day <= $1`, today).Scan(&day)
	return day, err
}

// accountsPerStep is how many balances one statement sums. Ids of accounts rise with time, so that balances in their
// order are close together.
const accountsPerStep = 2000

// A balanceWalk sums the balances of all accounts but test accounts, in steps.
type balanceWalk struct {
	balanceTotals
	after string // the account whose balance was the last to be summed
}

// sum goes on with the sums to their end.
func (w *balanceWalk) sum(ctx context.Context, d *db.DB) error {
	for {
		var step balanceTotals
		var n int64
		var last string
		err := d.InTurn(ctx, func() error {
			return d.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MAX(account_id), ''),
					COUNT(CASE sandbox WHEN 0 THEN 1 END),
					CAST(COALESCE(SUM(CASE sandbox WHEN 0 THEN available_mc END), 0) AS BIGINT),
					CAST(COALESCE(SUM(CASE sandbox WHEN 0 THEN reserved_mc END), 0) AS BIGINT)
				FROM (SELECT * FROM balances WHERE account_id > $1 ORDER BY account_id LIMIT $2) AS b`,
				w.after, accountsPerStep).Scan(&n, &last, &step.accounts, &step.availableMC, &step.reservedMC)
		})
		if err != nil {
			return err
		}
		w.accounts += step.accounts
		w.availableMC += step.availableMC
		w.reservedMC += step.reservedMC
		if n > 0 {
			w.after = last // also if what comes next fails, and it goes on from here
		}
		if n < accountsPerStep {
			return nil
		}
	}
}

// daysPerInsert bounds the rows of a statement, and of its transaction.
const daysPerInsert = 500

// saveDays stores sums of calls. Two nodes that count the same day store the same numbers.
func saveDays(ctx context.Context, d *db.DB, days []callSum) error {
	for rows := range slices.Chunk(days, daysPerInsert) {
		var args []any
		for _, s := range rows {
			args = append(args, s.appID, s.day, s.calls, s.costMC, s.feeMC, s.marginMC, s.chargeMC)
		}
		if _, err := d.ExecContext(ctx, `INSERT INTO operator_days
			(app_id, day, calls, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
			VALUES `+db.Places(len(rows), 7)+`
			ON CONFLICT (app_id, day) DO UPDATE SET calls = excluded.calls,
			provider_cost_mc = excluded.provider_cost_mc, svc_fee_mc = excluded.svc_fee_mc,
			dev_margin_mc = excluded.dev_margin_mc, user_charge_mc = excluded.user_charge_mc`, args...); err != nil {
			return err
		}
	}
	return nil
}

// saveBalances stores the sums of balances.
func saveBalances(ctx context.Context, tx *db.Tx, t balanceTotals) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO operator_balances (day, available_mc, reserved_mc, accounts)
		VALUES ($1, $2, $3, $4) ON CONFLICT (day) DO UPDATE SET available_mc = excluded.available_mc,
		reserved_mc = excluded.reserved_mc, accounts = excluded.accounts`,
		time.UnixMicro(t.countedUS).UTC().Format(time.DateOnly), t.availableMC, t.reservedMC, t.accounts); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx,
		`UPDATE operator_totals SET available_mc = $1, reserved_mc = $2, accounts = $3, counted_us = $4`,
		t.availableMC, t.reservedMC, t.accounts, t.countedUS)
	return err
}

// getBalanceTotals returns the totals of the last count.
func getBalanceTotals(ctx context.Context, q db.Queryer) (t balanceTotals, err error) {
	err = q.QueryRowContext(ctx, `SELECT available_mc, reserved_mc, accounts, counted_us FROM operator_totals`).
		Scan(&t.availableMC, &t.reservedMC, &t.accounts, &t.countedUS)
	return t, err
}

// sumCountedDays sums what was counted, beginning with the day from; of one app unless appID is "".
func sumCountedDays(ctx context.Context, q db.Queryer, appID, from string) (s callSum, err error) {
	where, args := `day >= $1`, []any{from}
	if appID != "" {
		where, args = `day >= $1 AND app_id = $2`, append(args, appID)
	}
	err = q.QueryRowContext(ctx, `SELECT CAST(COALESCE(SUM(calls), 0) AS BIGINT),
		CAST(COALESCE(SUM(provider_cost_mc), 0) AS BIGINT), CAST(COALESCE(SUM(svc_fee_mc), 0) AS BIGINT),
		CAST(COALESCE(SUM(dev_margin_mc), 0) AS BIGINT), CAST(COALESCE(SUM(user_charge_mc), 0) AS BIGINT)
		FROM operator_days WHERE `+where, args...).
		Scan(&s.calls, &s.costMC, &s.feeMC, &s.marginMC, &s.chargeMC)
	return s, err
}

// maxCounted is how many rows of each kind of pending work are counted: a page that counts them all would take the
// longer the more of them there are.
const maxCounted = 1000

// countBacklog counts pending work, at most maxCounted of each. A small index serves each of the counts.
func countBacklog(ctx context.Context, q db.Queryer) (b backlog, err error) {
	for _, c := range []struct {
		from string
		into *int64
	}{
		{`FROM golive_requests WHERE status = 'pending'`, &b.reviews},
		{`FROM apps WHERE ` + apps.SuspendedSQL("apps"), &b.suspended},
		{`FROM connections WHERE status = 'frozen' AND frozen_by <> 'user'`, &b.frozen},
		{`FROM events WHERE passed = 0`, &b.events},
		{`FROM deliveries WHERE status = 'pending'`, &b.deliveries},
		{`FROM mails WHERE status = 'pending'`, &b.mails},
		{`FROM mails WHERE status = 'failed'`, &b.failedMails},
	} {
		if err := q.QueryRowContext(ctx, `SELECT COUNT(*) FROM (SELECT 1 `+c.from+` LIMIT $1) AS counted`,
			maxCounted).Scan(c.into); err != nil {
			return b, fmt.Errorf("operatorpages: backlog: %w", err)
		}
	}
	if err := q.QueryRowContext(ctx, `SELECT COALESCE(MIN(next_us), 0) FROM mails WHERE status = 'pending'`).
		Scan(&b.oldestMailUS); err != nil {
		return b, fmt.Errorf("operatorpages: backlog: %w", err)
	}
	return b, nil
}

// A waiting is a paused connection, a disputed payment, or a closed account that is owed money.
type waiting struct {
	id, accountID, appName, email string
	cause                         string // of the pause
	amountMC                      money.MC
	createdUS                     int64
}

// listPaused returns the newest connections that are paused, but not by their users.
func listPaused(ctx context.Context, q db.Queryer, limit int) ([]waiting, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(w *waiting) []any {
		return []any{&w.id, &w.accountID, &w.cause, &w.appName, &w.email}
	}), `SELECT c.id, c.account_id, c.frozen_by, apps.name, accounts.email
		FROM (SELECT id, account_id, app_id, frozen_by FROM connections WHERE status = 'frozen' AND frozen_by <> 'user'
		ORDER BY id DESC LIMIT $1) AS c JOIN apps ON apps.id = c.app_id JOIN accounts ON accounts.id = c.account_id
		ORDER BY c.id DESC`, limit)
}

// disputedPart is what of a payment is in the dispute of a record, of which a table or alias is named.
func disputedPart(record string) string {
	return `COALESCE((SELECT s.cents * 1000000 FROM disputes s WHERE s.id = ` + record + `.reason), ` + record +
		`.amount_mc)`
}

// listDisputes returns the newest payments that were disputed since a time, with what of each is disputed.
func listDisputes(ctx context.Context, q db.Queryer, sinceUS int64, limit int) ([]waiting, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(w *waiting) []any {
		return []any{&w.id, &w.accountID, &w.amountMC, &w.createdUS, &w.email}
	}), `SELECT p.payment_id, p.account_id, `+disputedPart("p")+`, p.created_us, accounts.email
		FROM (SELECT payment_id, account_id, amount_mc, reason, created_us FROM payment_records
		WHERE kind = 'disputed' AND created_us >= $1 ORDER BY created_us DESC LIMIT $2) AS p
		JOIN accounts ON accounts.id = p.account_id ORDER BY p.created_us DESC`, sinceUS, limit)
}

// listOwed returns closed accounts that have a cent or more, which is owed to their users.
func listOwed(ctx context.Context, q db.Queryer, limit int) ([]waiting, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(w *waiting) []any {
		return []any{&w.accountID, &w.amountMC}
	}), `SELECT b.account_id, b.available_mc + b.reserved_mc FROM accounts a JOIN balances b ON b.account_id = a.id
		WHERE a.closed_us IS NOT NULL AND b.available_mc + b.reserved_mc >= 1000000 ORDER BY a.id LIMIT $1`, limit)
}

// A node is a server that holds calls.
type node struct {
	id                 string
	startedUS, leaseUS int64
}

// listNodes returns the nodes, oldest first.
func listNodes(ctx context.Context, q db.Queryer, limit int) ([]node, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(n *node) []any {
		return []any{&n.id, &n.startedUS, &n.leaseUS}
	}), `SELECT id, started_us, lease_us FROM nodes ORDER BY id LIMIT $1`, limit)
}

// listMoneyDays returns what was counted on each day since from, of all apps.
func listMoneyDays(ctx context.Context, q db.Queryer, from string) ([]callSum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *callSum) []any {
		return []any{&s.day, &s.calls, &s.costMC, &s.feeMC, &s.marginMC, &s.chargeMC}
	}), `SELECT day, CAST(SUM(calls) AS BIGINT), CAST(SUM(provider_cost_mc) AS BIGINT),
		CAST(SUM(svc_fee_mc) AS BIGINT), CAST(SUM(dev_margin_mc) AS BIGINT), CAST(SUM(user_charge_mc) AS BIGINT)
		FROM operator_days WHERE day >= $1 GROUP BY day ORDER BY day`, from)
}

// An appSum sums the calls of an app.
type appSum struct {
	appID string
	callSum
}

// listDayOfApps returns the sums of a day by app, those with the highest charges first.
func listDayOfApps(ctx context.Context, q db.Queryer, day string, limit int) ([]appSum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *appSum) []any {
		return []any{&s.appID, &s.calls, &s.costMC, &s.feeMC, &s.marginMC, &s.chargeMC}
	}), `SELECT app_id, calls, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc FROM operator_days
		WHERE day = $1 ORDER BY user_charge_mc DESC, app_id LIMIT $2`, day, limit)
}

// A balanceDay has the users' balances at the end of a day, or as last counted.
type balanceDay struct {
	day                     string
	availableMC, reservedMC money.MC
}

// listBalanceDays returns the balances of each day since from.
func listBalanceDays(ctx context.Context, q db.Queryer, from string) ([]balanceDay, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(b *balanceDay) []any {
		return []any{&b.day, &b.availableMC, &b.reservedMC}
	}), `SELECT day, available_mc, reserved_mc FROM operator_balances WHERE day >= $1 ORDER BY day`, from)
}

// A riskFilter selects events about risk: of a type, and of an app or a connection by its id; "" = all.
type riskFilter struct{ kind, subject string }

// listRiskEvents returns events about risk, newest first: those before the id after, or all if it is "". It leaves out
// the test events that developers send. The index of these events alone serves every filter.
func listRiskEvents(ctx context.Context, q db.Queryer, f riskFilter, after string, limit int) ([]rules.Event, error) {
	if after == "" {
		after = "~" // sorts after every id
	}
	return db.QueryAll(ctx, q, db.ScanFields(func(e *rules.Event) []any {
		return []any{&e.ID, &e.Type, &e.AppID, &e.ConnectionID, &e.CreatedUS}
	}), `SELECT id, type, app_id, COALESCE(connection_id, ''), created_us FROM events
		WHERE (type = 'connection.frozen' OR type = 'connection.risk_warning' OR type = 'app.spend_limit_reached')
		AND test = 0 AND id < $1 AND ($2 = '' OR (type || '') = $2) AND ($3 = '' OR (app_id || '') = $3
		OR (connection_id || '') = $3) ORDER BY id DESC LIMIT $4`, after, f.kind, f.subject, limit)
}

// listMails returns the newest emails to an account, without their texts.
func listMails(ctx context.Context, q db.Queryer, accountID string, limit int) ([]mail.Mail, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(m *mail.Mail) []any {
		return []any{&m.Subject, &m.Status, &m.CreatedUS, &m.LastError}
	}), `SELECT subject, status, created_us, last_error FROM mails WHERE account_id = $1 ORDER BY id DESC LIMIT $2`,
		accountID, limit)
}

// listFreePools returns the free pools that were used in a month, of the newest apps first. The index of the pools'
// counters has their months, so that apps that use none are not looked at.
func listFreePools(ctx context.Context, q db.Queryer, month, after string, limit int) ([]freePool, error) {
	if after == "" {
		after = "~" // sorts after every id
	}
	return db.QueryAll(ctx, q, scanFreePool, `SELECT apps.id, apps.name, counters.buckets, counters.held
		FROM counters JOIN apps ON apps.id = substr(counters.subject, 6, length(counters.subject) - 13)
		WHERE counters.subject LIKE 'free/%/____-__' AND substr(counters.subject, length(counters.subject) - 6) = $1
			AND counters.subject < 'free/' || $2 AND apps.tier <> 'sandbox'
		ORDER BY counters.subject DESC LIMIT $3`, month, after, limit)
}

func scanFreePool(row db.Row) (p freePool, err error) {
	var buckets string
	if err := row.Scan(&p.appID, &p.name, &buckets, &p.heldMC); err != nil {
		return p, err
	}
	used, err := limits.ParseSeries(0, buckets)
	p.usedMC = money.MC(used.Sum(time.Time{}, 0))
	return p, err
}

const verificationColumns = `id, state, asked_by, asked_us, touched_us, COALESCE(finished_us, 0), progress, checks,
	checked, findings, report`

// fields returns the destinations of verificationColumns.
func (v *verification) fields() []any {
	return []any{&v.id, &v.state, &v.requestedBy, &v.requestedUS, &v.touchedUS, &v.finishedUS, &v.progress, &v.checks,
		&v.rowsChecked, &v.findings, &v.report}
}

// hasOpenVerification reports whether a verification is waiting or running.
func hasOpenVerification(ctx context.Context, q db.Queryer) (open bool, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM verifications WHERE state = 'waiting' OR state = 'running')`).Scan(&open)
	return open, err
}

// claimVerification starts the oldest verification that waits, or whose node has not touched it since staleUS, or has
// done so by a clock that was ahead. The error is sql.ErrNoRows if there is none.
func claimVerification(ctx context.Context, d *db.DB, nowUS, staleUS int64) (v verification, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx,
			`UPDATE verifications SET state = 'running', touched_us = $1, progress = '' WHERE id IN
			(SELECT id FROM verifications WHERE (state = 'waiting' OR state = 'running')
			AND (state = 'waiting' OR touched_us < $2 OR touched_us > 2 * CAST($1 AS BIGINT) - CAST($2 AS BIGINT))
			ORDER BY id LIMIT 1`+tx.Engine.ForUpdate()+`)
			RETURNING `+verificationColumns, nowUS, staleUS).Scan(v.fields()...)
	})
	return v, err
}

func touchVerification(ctx context.Context, d *db.DB, verificationID, progress string, nowUS int64) error {
	_, err := d.ExecContext(ctx,
		`UPDATE verifications SET progress = $2, touched_us = $3 WHERE id = $1 AND state = 'running'`, verificationID,
		progress, nowUS)
	return err
}

func finishVerification(ctx context.Context, d *db.DB, v verification) error {
	_, err := d.ExecContext(ctx, `UPDATE verifications SET state = $2, progress = '', checks = $3, checked = $4,
		findings = $5, report = $6, finished_us = $7, touched_us = $7 WHERE id = $1`,
		v.id, v.state, v.checks, v.rowsChecked, v.findings, v.report, v.finishedUS)
	return err
}

// requestVerification adds a verification unless one is waiting or running.
func requestVerification(ctx context.Context, q db.Execer, verificationID, accountID string, nowUS int64) error {
	_, err := q.ExecContext(ctx, `INSERT INTO verifications
		(id, state, asked_by, asked_us, touched_us, progress, checks, checked, findings, report)
		SELECT $1, 'waiting', $2, CAST($3 AS BIGINT), CAST($3 AS BIGINT), '', 0, 0, 0, ''
		WHERE NOT EXISTS (SELECT 1 FROM verifications WHERE state = 'waiting' OR state = 'running')`,
		verificationID, accountID, nowUS)
	return err
}

// lastVerification returns the newest verification in one of some states; the zero value if there is none.
func lastVerification(ctx context.Context, q db.Queryer, states ...string) (v verification, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+verificationColumns+` FROM verifications
		WHERE state IN ('`+strings.Join(states, "', '")+`') ORDER BY id DESC LIMIT 1`).Scan(v.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return verification{}, nil
	}
	return v, err
}

func listVerifications(ctx context.Context, q db.Queryer, limit int) ([]verification, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*verification).fields),
		`SELECT `+verificationColumns+` FROM verifications ORDER BY id DESC LIMIT $1`, limit)
}

// savePriceList stores a price list, unless a node has stored it already.
func savePriceList(ctx context.Context, q db.Execer, p priceList, lines string) error {
	_, err := q.ExecContext(ctx, `INSERT INTO price_lists (version, first_us, models, lines) VALUES ($1, $2, $3, $4)
		ON CONFLICT (version) DO NOTHING`, p.version, p.firstUS, p.models, lines)
	return err
}

// listPriceLists returns the newest price lists.
func listPriceLists(ctx context.Context, q db.Queryer, limit int) ([]priceList, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(p *priceList) []any {
		return []any{&p.version, &p.firstUS, &p.models}
	}), `SELECT version, first_us, models FROM price_lists ORDER BY first_us DESC LIMIT $1`, limit)
}

// getPriceLines returns the lines of a price list as JSON.
func getPriceLines(ctx context.Context, q db.Queryer, version string) (lines string, err error) {
	err = q.QueryRowContext(ctx, `SELECT lines FROM price_lists WHERE version = $1`, version).Scan(&lines)
	return lines, err
}

// nameQueries find the names of ids, by the prefix of the ids.
var nameQueries = map[string]string{
	id.App:     `SELECT id, name FROM apps WHERE id IN `,
	id.Account: `SELECT id, email FROM accounts WHERE id IN `,
	id.Connection: `SELECT c.id, apps.name || ' · ' || accounts.email FROM connections AS c
		JOIN apps ON apps.id = c.app_id JOIN accounts ON accounts.id = c.account_id WHERE c.id IN `,
	"glr_": `SELECT r.id, 'Review of ' || apps.name FROM golive_requests AS r JOIN apps ON apps.id = r.app_id
		WHERE r.id IN `,
	"inc_": `SELECT id, title FROM incidents WHERE id IN `,
}

// namesPerStatement is how many ids one statement looks up.
const namesPerStatement = 300

// loadNames finds the names of at most a few hundred ids. An id that has none, such as that of a ledger row, is left
// out.
func loadNames(ctx context.Context, q db.Queryer, ids ...string) (names, error) {
	found := names{}
	for prefix, query := range nameQueries {
		var known []string
		for _, subject := range ids {
			if strings.HasPrefix(subject, prefix) {
				known = append(known, subject)
			}
		}
		slices.Sort(known)
		for some := range slices.Chunk(slices.Compact(known), namesPerStatement) {
			var args []any
			var marks []string
			for _, subject := range some {
				args = append(args, subject)
				marks = append(marks, fmt.Sprintf("$%d", len(args)))
			}
			list, err := db.QueryAll(ctx, q, db.ScanFields(func(pair *[2]string) []any {
				return []any{&pair[0], &pair[1]}
			}), query+"("+strings.Join(marks, ", ")+")", args...)
			if err != nil {
				return nil, fmt.Errorf("operatorpages: names: %w", err)
			}
			for _, pair := range list {
				found[pair[0]] = pair[1]
			}
		}
	}
	return found, nil
}

// listMoves returns ledger rows of an account in a time, without calls but with refunds of calls, newest first.
func listMoves(ctx context.Context, q db.Queryer, accountID string, fromUS, toUS int64, limit int) ([]move, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(m *move) []any {
		return []any{&m.id, &m.kind, &m.status, &m.appID, &m.reason, &m.availableMC, &m.reservedMC, &m.allocationMC,
			&m.createdUS}
	}), `SELECT id, type, status, COALESCE(app_id, ''), COALESCE(reason, ''), available_delta_mc, reserved_delta_mc,
		allocation_delta_mc, created_us FROM ledger WHERE account_id = $1 AND created_us >= $2 AND created_us < $3
		AND (type <> 'spend' OR status = 'reversed') ORDER BY created_us DESC LIMIT $4`, accountID, fromUS, toUS, limit)
}

// listCallDays sums an account's calls by day and app, from a day to before another, without what was refunded.
func listCallDays(ctx context.Context, q db.Queryer, accountID, from, to string) ([]callSum, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(s *callSum) []any {
		return []any{&s.day, &s.appID, &s.calls, &s.chargeMC}
	}), `SELECT day, app_id, CAST(SUM(calls) AS BIGINT), CAST(SUM(user_charge_mc) AS BIGINT) FROM daily_totals
		WHERE connection_id IN (SELECT id FROM connections WHERE account_id = $1) AND day >= $2 AND day < $3
		GROUP BY day, app_id ORDER BY day DESC, app_id`, accountID, from, to)
}

// listPauses returns when connections of an account were paused or resumed in a time, newest first.
func listPauses(ctx context.Context, q db.Queryer, accountID string, fromUS, toUS int64, limit int) ([]rules.Event,
	error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(e *rules.Event) []any {
		return []any{&e.ID, &e.Type, &e.ConnectionID, &e.CreatedUS}
	}), `SELECT id, type, connection_id, created_us FROM events
		WHERE connection_id IN (SELECT id FROM connections WHERE account_id = $1)
		AND (type = 'connection.frozen' OR type = 'connection.resumed') AND created_us >= $2 AND created_us < $3
		ORDER BY created_us DESC LIMIT $4`, accountID, fromUS, toUS, limit)
}

// listDecisions returns what operators did to an account or to its connections in a time, newest first.
func listDecisions(ctx context.Context, q db.Queryer, accountID string, fromUS, toUS int64, limit int) ([]decision,
	error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(d *decision) []any {
		return []any{&d.id, &d.actor, &d.action, &d.subject, &d.reason, &d.createdUS}
	}), `SELECT id, actor, action, subject, reason, created_us FROM operator_log
		WHERE subject IN (SELECT id FROM connections WHERE account_id = $1 UNION ALL SELECT $1)
		AND created_us >= $2 AND created_us < $3 ORDER BY created_us DESC LIMIT $4`, accountID, fromUS, toUS, limit)
}

// listAccountDisputes returns the payments of an account that were disputed in a time, newest first, with what of each
// is disputed.
func listAccountDisputes(ctx context.Context, q db.Queryer, accountID string, fromUS, toUS int64, limit int) ([]waiting,
	error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(w *waiting) []any {
		return []any{&w.id, &w.amountMC, &w.createdUS}
	}), `SELECT d.payment_id, `+disputedPart("d")+`, d.created_us FROM payment_records AS o
		JOIN payment_records AS d ON d.payment_id = o.payment_id AND d.kind = 'disputed'
		WHERE o.account_id = $1 AND o.kind = 'opened' AND d.created_us >= $2 AND d.created_us < $3
		ORDER BY d.created_us DESC LIMIT $4`, accountID, fromUS, toUS, limit)
}
