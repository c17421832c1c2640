package watch

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/apps/watch/rules"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// claimTurn claims the check that is due and sets the time of the next one. It returns the first bucket that is not
// counted yet, and false if no check is due or another node has claimed it. A time further ahead than two intervals was
// written by a clock that was wrong, and counts as due.
func claimTurn(ctx context.Context, d *db.DB, nowUS, nextUS int64) (bucket int64, ok bool, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		err := tx.QueryRowContext(ctx, `UPDATE watch_turns SET next_us = $2
			WHERE name = 'apps' AND (next_us <= $1 OR next_us > $3) RETURNING bucket`,
			nowUS, nextUS, nextUS+interval.Microseconds()).Scan(&bucket)
		if ok = err == nil; errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return bucket, ok, err
}

// sumSpend sums the charges of users by app and bucket, from one bucket up to another. It finds the rows by their ids,
// which rise with the start times of the calls, so that the ledger needs no index for this; early is the longest time
// from the start of a call to its settlement. Charges of test accounts do not count. (A call that is retried much later
// under its key keeps its id and is missed. Such calls cause no anomaly.) It reads the rows in steps.
func sumSpend(ctx context.Context, q db.Queryer, from, to int64) (map[string]map[int64]money.MC, error) {
	const early = 20 * time.Minute // the longest stream plus the longest wait for a provider's record
	begin, end := from*rules.BucketWidth.Microseconds(), to*rules.BucketWidth.Microseconds()
	// A node whose clock is ahead makes ids with a later time.
	first, last := id.Floor(id.Ledger, time.UnixMicro(begin).Add(-early)),
		id.Floor(id.Ledger, time.UnixMicro(end).Add(time.Minute))
	sums := map[string]map[int64]money.MC{}
	for {
		list, err := db.QueryAll(ctx, q, db.ScanFields(func(s *spend) []any {
			return []any{&s.id, &s.appID, &s.createdUS, &s.mc, &s.counts}
		}), `SELECT l.id, COALESCE(l.app_id, ''), l.created_us, COALESCE(l.user_charge_mc, 0),
				l.type = 'spend' AND l.status = 'settled' AND COALESCE(a.sandbox, 0) = 0
			FROM (SELECT id, account_id, app_id, type, status, created_us, user_charge_mc FROM ledger
				WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3) AS l
			LEFT JOIN accounts a ON a.id = l.account_id ORDER BY l.id`, first, last, rowsPerStep)
		if err != nil {
			return nil, err
		}
		for _, s := range list {
			if !s.counts || s.createdUS < begin || s.createdUS >= end {
				continue
			}
			if sums[s.appID] == nil {
				sums[s.appID] = map[int64]money.MC{}
			}
			sums[s.appID][s.createdUS/rules.BucketWidth.Microseconds()] += s.mc
		}
		if len(list) < rowsPerStep {
			return sums, nil
		}
		first = list[len(list)-1].id + " " // after it, and before the next one
	}
}

// rowsPerStep is how many ledger rows one statement reads. Each needs the page of its account.
const rowsPerStep = 300

// A spend is a ledger row of which sumSpend sums the charge, if it counts.
type spend struct {
	id, appID string
	createdUS int64
	mc        money.MC
	counts    bool
}

// listCounted returns the stored sums of one app.
func listCounted(ctx context.Context, q db.Queryer, appID string, from int64) (map[int64]money.MC, error) {
	list, err := querySums(ctx, q, `SELECT app_id, bucket, user_charge_mc FROM app_spend
		WHERE app_id = $1 AND bucket >= $2`, appID, from)
	return list[appID], err
}

// listCountedBetween returns the stored sums of all apps from one bucket to another, both included.
func listCountedBetween(ctx context.Context, q db.Queryer, from, to int64) (map[string]map[int64]money.MC, error) {
	return querySums(ctx, q, `SELECT app_id, bucket, user_charge_mc FROM app_spend WHERE bucket >= $1 AND bucket <= $2`,
		from, to)
}

func querySums(ctx context.Context, q db.Queryer, text string,
	args ...any) (list map[string]map[int64]money.MC, err error) {
	type sum struct {
		appID  string
		bucket int64
		mc     money.MC
	}
	scan := db.ScanFields(func(s *sum) []any { return []any{&s.appID, &s.bucket, &s.mc} })
	rows, err := db.QueryAll(ctx, q, scan, text, args...)
	list = map[string]map[int64]money.MC{}
	for _, s := range rows {
		if list[s.appID] == nil {
			list[s.appID] = map[int64]money.MC{}
		}
		list[s.appID][s.bucket] += s.mc
	}
	return list, err
}

// saveCounts stores the sums of complete buckets and deletes old ones. It may be repeated with the same numbers.
func saveCounts(ctx context.Context, tx *db.Tx, list map[string]map[int64]money.MC, next, oldest int64) error {
	for appID, buckets := range list {
		for bucket, mc := range buckets {
			if _, err := tx.ExecContext(ctx, `INSERT INTO app_spend (app_id, bucket, user_charge_mc) VALUES ($1, $2, $3)
				ON CONFLICT (app_id, bucket) DO UPDATE SET user_charge_mc = excluded.user_charge_mc`, appID, bucket,
				mc); err != nil {
				return err
			}
		}
	}
	if _, err := tx.ExecContext(ctx, `UPDATE watch_turns SET bucket = $1
		WHERE name = 'apps' AND bucket <> $1`, next); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `DELETE FROM app_spend WHERE bucket < $1`, oldest)
	return err
}

// Revocations of test accounts do not count: every promotion causes them.
const realAccountsOnly = `
		AND NOT EXISTS (SELECT 1 FROM accounts WHERE accounts.id = connections.account_id AND accounts.sandbox = 1)`

// listRevocationCandidates returns the apps with at least so many revocations by users since a time.
func listRevocationCandidates(ctx context.Context, q db.Queryer, sinceUS, least int64) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT app_id FROM connections
		WHERE revoked_us > $1`+realAccountsOnly+` GROUP BY app_id HAVING COUNT(*) >= $2`, sinceUS, least)
}

// countRevocations returns how many connections of users were live at a time, and how many of those were revoked since.
// It counts at most enough live connections, because more do not change the result.
func countRevocations(ctx context.Context, q db.Queryer, appID string, sinceUS int64) (live, revoked int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM connections
		WHERE revoked_us > $2 AND app_id = $1 AND created_us <= $2`+realAccountsOnly, appID, sinceUS).Scan(&revoked)
	if err != nil {
		return 0, 0, err
	}
	enough := rules.RevocationsShare*revoked + 1
	err = q.QueryRowContext(ctx, `SELECT COUNT(*)
		FROM (SELECT 1 FROM connections
			WHERE app_id = $1 AND status <> 'revoked' AND created_us <= $2`+realAccountsOnly+`
			LIMIT $3) AS found`, appID, sinceUS, enough).Scan(&live)
	return live + revoked, revoked, err
}

// listChargebackCandidates returns the apps with at least so many chargebacks since a time.
func listChargebackCandidates(ctx context.Context, q db.Queryer, sinceUS, least int64) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT app_id FROM ledger
		WHERE reason = 'chargeback' AND status = 'reversed' AND app_id IS NOT NULL AND created_us > $1 GROUP BY app_id
		HAVING COUNT(*) >= $2`, sinceUS, least)
}

func countChargebacks(ctx context.Context, q db.Queryer, appID string, sinceUS int64) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger
		WHERE reason = 'chargeback' AND status = 'reversed' AND app_id = $1 AND created_us > $2`, appID,
		sinceUS).Scan(&n)
	return n, err
}
