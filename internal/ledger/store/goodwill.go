package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const goodwillColumns = `goodwill_id, n, kind, account_id, amount_mc, entry_id, reason, created_us`

// GetGoodwill returns a goodwill credit, or sql.ErrNoRows.
func GetGoodwill(ctx context.Context, q db.Queryer, goodwillID string) (rules.Goodwill, error) {
	list, err := readGoodwill(ctx, q, `goodwill_id = $1`, goodwillID)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return rules.Goodwill{}, err
	}
	return *list[0], nil
}

// GoodwillOfEntry returns the goodwill credit that a ledger row gave or withdrew, or sql.ErrNoRows.
func GoodwillOfEntry(ctx context.Context, q db.Queryer, entryID string) (rules.Goodwill, error) {
	var goodwillID string
	if err := q.QueryRowContext(ctx, `SELECT goodwill_id FROM goodwill_records WHERE entry_id = $1`,
		entryID).Scan(&goodwillID); err != nil {
		return rules.Goodwill{}, err
	}
	return GetGoodwill(ctx, q, goodwillID)
}

// GoodwillOfAccount returns the goodwill credits of an account, newest first, at most limit.
func GoodwillOfAccount(ctx context.Context, q db.Queryer, accountID string, limit int) ([]*rules.Goodwill, error) {
	return readGoodwill(ctx, q, `goodwill_id IN (SELECT goodwill_id FROM goodwill_records
		WHERE account_id = $1 AND n = 1 ORDER BY goodwill_id DESC LIMIT $2)`, accountID, limit)
}

func readGoodwill(ctx context.Context, q db.Queryer, where string, args ...any) (list []*rules.Goodwill, err error) {
	records, err := db.QueryAll(ctx, q, db.ScanFields(func(r *rules.GoodwillRecord) []any {
		return []any{&r.GoodwillID, &r.N, &r.Kind, &r.AccountID, &r.AmountMC, &r.EntryID, &r.Reason, &r.CreatedUS}
	}), `SELECT `+goodwillColumns+` FROM goodwill_records WHERE `+where+` ORDER BY goodwill_id DESC, n`, args...)
	for _, r := range records {
		if len(list) == 0 || list[len(list)-1].ID != r.GoodwillID {
			list = append(list, &rules.Goodwill{})
		}
		list[len(list)-1].Fold(r)
	}
	return list, err
}

// findGoodwillAccounts adds the accounts of the goodwill credits that are named: a credit never moves to another.
func findGoodwillAccounts(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, goodwillID := range keys.Goodwill {
		var accountID string
		err := tx.QueryRowContext(ctx, `SELECT account_id FROM goodwill_records WHERE goodwill_id = $1 AND n = 1`,
			goodwillID).Scan(&accountID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		keys.Accounts[accountID] = true
	}
	return nil
}

// findGoodwill reads the goodwill credits themselves, under the lock of their account.
func (r *rareRows) findGoodwill(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, goodwillID := range keys.Goodwill {
		g, err := GetGoodwill(ctx, tx, goodwillID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return err
		}
		r.goodwill = append(r.goodwill, &g)
	}
	return nil
}

// saveGoodwill appends what was recorded.
func saveGoodwill(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, r := range s.Changes.GoodwillRecords {
		_, err := tx.ExecContext(ctx, `INSERT INTO goodwill_records (`+goodwillColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			r.GoodwillID, r.N, r.Kind, r.AccountID, r.AmountMC, r.EntryID, r.Reason, r.CreatedUS)
		if err != nil {
			return err
		}
	}
	return nil
}
