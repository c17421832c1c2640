package store

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file keeps why connections are stopped, and the open disputes of accounts (decision 123). The backends write the
// causes with the connections, because a settlement may add one.

const freezeColumns = `connection_id, cause, subject, actor, reason, since_us`

var scanFreeze = db.ScanFields(func(f *rules.FreezeRow) []any {
	return []any{&f.ConnectionID, &f.Cause, &f.Subject, &f.Actor, &f.Reason, &f.SinceUS}
})

// These write causes. The first argument of a deletion is a connection, the second its cause; "" = all.
const (
	deleteFreezes = `DELETE FROM freezes WHERE connection_id = $1 AND ($2 = '' OR cause = $2 AND subject = $3)`
	insertFreeze  = `INSERT INTO freezes (` + freezeColumns + `) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (connection_id, cause, subject) DO NOTHING`
)

// ListFreezes returns the causes why a connection is stopped, the oldest first.
func ListFreezes(ctx context.Context, q db.Queryer, connectionID string) ([]rules.FreezeRow, error) {
	return db.QueryAll(ctx, q, scanFreeze, `SELECT `+freezeColumns+` FROM freezes
		WHERE connection_id = $1 ORDER BY since_us, cause, subject`, connectionID)
}

// ListOpenDisputes returns the disputes of an account's payments that are not decided, the oldest first.
func ListOpenDisputes(ctx context.Context, q db.Queryer, accountID string) ([]rules.OpenDispute, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(d *rules.OpenDispute) []any {
		return []any{&d.DisputeID, &d.PaymentID, &d.AccountID, &d.SinceUS}
	}), `SELECT dispute_id, payment_id, account_id, since_us FROM open_disputes
		WHERE account_id = $1 ORDER BY since_us, dispute_id`, accountID)
}

// findFreezes reads the causes of the connections and the open disputes of the accounts, under the locks of the
// accounts.
func (r *rareRows) findFreezes(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	if keys.Freezes {
		for connectionID := range keys.Connections {
			found, err := ListFreezes(ctx, tx, connectionID)
			if err != nil {
				return err
			}
			r.freezes = append(r.freezes, found...)
		}
	}
	if keys.Disputes {
		for accountID := range keys.Accounts {
			found, err := ListOpenDisputes(ctx, tx, accountID)
			if err != nil {
				return err
			}
			r.disputes = append(r.disputes, found...)
		}
	}
	return nil
}

// saveDisputes writes which disputes are open.
func saveDisputes(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, d := range s.Changes.EndedDisputes {
		if _, err := tx.ExecContext(ctx, `DELETE FROM open_disputes WHERE dispute_id = $1`, d.DisputeID); err != nil {
			return err
		}
	}
	for _, d := range s.Changes.OpenedDisputes {
		if _, err := tx.ExecContext(ctx, `INSERT INTO open_disputes (dispute_id, payment_id, account_id, since_us)
			VALUES ($1, $2, $3, $4)`, d.DisputeID, d.PaymentID, d.AccountID, d.SinceUS); err != nil {
			return err
		}
	}
	return nil
}
