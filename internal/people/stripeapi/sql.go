package stripeapi

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
)

// A claim is a request that one node carries out.
type claim struct {
	Kind                Kind
	ID                  string
	Attempt, Fence      int64
	UntilUS             int64 // end of the claim
	Outcome             Outcome
	Text                string
	WaitsUS, ReplayedUS int64 // 0 = it does not; Stripe has not
}

const requestColumns = `kind, id, attempt, fence, claimed_us, outcome, text, COALESCE(waits_us, 0),
	COALESCE(replayed_us, 0)`

func (c *claim) fields() []any {
	return []any{&c.Kind, &c.ID, &c.Attempt, &c.Fence, &c.UntilUS, &c.Outcome, &c.Text, &c.WaitsUS, &c.ReplayedUS}
}

// claimRequest claims a request until untilUS. It returns ErrClaimed if it is claimed. A claim that lasts much longer
// was made by a clock that was ahead, and is over.
func claimRequest(ctx context.Context, d *db.DB, kind Kind, id string, nowUS, untilUS int64) (c claim, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx, `INSERT INTO stripe_requests (kind, id, attempt, fence, claimed_us,
				outcome, text)
			VALUES ($1, $2, 1, 1, $4, '', '') ON CONFLICT (kind, id) DO UPDATE
			SET fence = stripe_requests.fence + 1, claimed_us = excluded.claimed_us
			WHERE stripe_requests.claimed_us <= $3
				OR stripe_requests.claimed_us > 2 * CAST($4 AS BIGINT) - CAST($3 AS BIGINT)
			RETURNING `+requestColumns, string(kind), id, nowUS, untilUS).Scan(c.fields()...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return c, ErrClaimed
	}
	return c, err
}

// renewClaim prolongs a claim, and stores the attempt that follows. It returns false if the claim is another's.
func renewClaim(ctx context.Context, d *db.DB, c claim) (bool, error) {
	r, err := d.ExecContext(ctx, `UPDATE stripe_requests SET claimed_us = $4, attempt = $5, replayed_us = $6
		WHERE kind = $1 AND id = $2 AND fence = $3`,
		string(c.Kind), c.ID, c.Fence, c.UntilUS, c.Attempt, nullUS(c.ReplayedUS))
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// releaseClaim ends a claim.
func releaseClaim(ctx context.Context, d *db.DB, c claim) error {
	_, err := d.ExecContext(ctx, `UPDATE stripe_requests SET claimed_us = 0
		WHERE kind = $1 AND id = $2 AND fence = $3`, string(c.Kind), c.ID, c.Fence)
	return err
}

// saveWait ends a claim, and says why its request waits. isOurs says that it waits for us, or for what is unknown.
func saveWait(ctx context.Context, d *db.DB, c claim, isOurs bool, nowUS int64) error {
	since := sql.NullInt64{Int64: nowUS, Valid: isOurs}
	_, err := d.ExecContext(ctx, `UPDATE stripe_requests SET claimed_us = 0, outcome = $4, text = $5, replayed_us = $6,
			waits_us = CASE WHEN $8 = 0 THEN NULL ELSE COALESCE(waits_us, $7) END
		WHERE kind = $1 AND id = $2 AND fence = $3`, string(c.Kind), c.ID, c.Fence, string(c.Outcome), c.Text,
		nullUS(c.ReplayedUS), since, db.BoolInt(isOurs))
	return err
}

func nullUS(us int64) sql.NullInt64 { return sql.NullInt64{Int64: us, Valid: us != 0} }

// deleteClaimed forgets a request, unless its claim is another's. It returns false if it is.
func deleteClaimed(ctx context.Context, tx *db.Tx, c claim) (bool, error) {
	r, err := tx.ExecContext(ctx, `DELETE FROM stripe_requests
		WHERE kind = $1 AND id = $2 AND fence = $3`, string(c.Kind), c.ID, c.Fence)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}

// deleteRequest forgets a request, also one that is claimed.
func deleteRequest(ctx context.Context, tx *db.Tx, kind Kind, id string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM stripe_requests WHERE kind = $1 AND id = $2`, string(kind), id)
	return err
}

// getAttempt returns the number of the attempt by which something is made.
func getAttempt(ctx context.Context, q db.Queryer, kind Kind, id string) (n int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT attempt FROM stripe_requests
		WHERE kind = $1 AND id = $2`, string(kind), id).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 1, nil
	}
	return n, err
}

// addAttempt counts the attempt after n, unless another request has, and returns the newest.
func addAttempt(ctx context.Context, d *db.DB, kind Kind, id string, n int64) (int64, error) {
	_, err := d.ExecContext(ctx, `INSERT INTO stripe_requests (kind, id, attempt, fence, claimed_us, outcome, text)
		VALUES ($1, $2, CAST($3 AS BIGINT) + 1, 1, 0, '', '')
		ON CONFLICT (kind, id) DO UPDATE SET attempt = excluded.attempt
		WHERE stripe_requests.attempt < excluded.attempt`,
		string(kind), id, n)
	if err != nil {
		return 0, err
	}
	return getAttempt(ctx, d, kind, id)
}

// renewAttempt counts another attempt.
func renewAttempt(ctx context.Context, q db.Execer, kind Kind, id string) error {
	_, err := q.ExecContext(ctx, `INSERT INTO stripe_requests (kind, id, attempt, fence, claimed_us, outcome, text)
		VALUES ($1, $2, 2, 1, 0, '', '')
		ON CONFLICT (kind, id) DO UPDATE SET attempt = stripe_requests.attempt + 1`, string(kind), id)
	return err
}

// listWaiting returns requests that wait for us, or whose outcome is unknown, the oldest first.
func listWaiting(ctx context.Context, q db.Queryer, limit int) ([]claim, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*claim).fields), `SELECT `+requestColumns+` FROM stripe_requests
		WHERE waits_us IS NOT NULL ORDER BY waits_us, kind, id LIMIT $1`, limit)
}
