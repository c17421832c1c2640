package providerkeys

import (
	"context"
	"database/sql"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
)

const keyColumns = `account_id, provider, last4, created_us, tested_us`

func (k *Key) fields() []any {
	return []any{&k.AccountID, &k.Provider, &k.Last4, &k.CreatedUS, &k.TestedUS}
}

// keyPlace is the place that the sealed key of a row is bound to.
func keyPlace(accountID, provider string) seal.Place {
	return seal.Place{"provider_keys", "sealed", accountID, provider}
}

// upsertKey stores a key in place of an earlier one and returns its public properties.
func upsertKey(ctx context.Context, tx *db.Tx, k Key, sealed []byte) (Key, error) {
	err := tx.QueryRowContext(ctx, `INSERT INTO provider_keys (account_id, provider, sealed, last4, created_us,
			tested_us) VALUES ($1, $2, $3, $4, $5, $5)
		ON CONFLICT (account_id, provider) DO UPDATE
		SET sealed = excluded.sealed, last4 = excluded.last4, tested_us = excluded.tested_us
		RETURNING `+keyColumns, k.AccountID, k.Provider, sealed, k.Last4, k.TestedUS).Scan(k.fields()...)
	return k, err
}

func getSealed(ctx context.Context, q db.Queryer, accountID, provider string) (sealed []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT sealed FROM provider_keys
		WHERE account_id = $1 AND provider = $2`, accountID, provider).Scan(&sealed)
	return sealed, err
}

func listKeys(ctx context.Context, q db.Queryer, accountID string) ([]Key, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*Key).fields), `SELECT `+keyColumns+` FROM provider_keys
		WHERE account_id = $1 ORDER BY provider`, accountID)
}

// deleteKey returns sql.ErrNoRows if there is no such key.
func deleteAccountKeys(ctx context.Context, tx *db.Tx, accountID string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM provider_keys WHERE account_id = $1`, accountID)
	return err
}

func deleteKey(ctx context.Context, d *db.DB, accountID, provider string) error {
	res, err := d.ExecContext(ctx, `DELETE FROM provider_keys
		WHERE account_id = $1 AND provider = $2`, accountID, provider)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n == 0 {
		err = sql.ErrNoRows
	}
	return err
}

// Of a change of the envelope key: an ID has account and provider.
const (
	listSealed = `SELECT account_id || ' ' || provider, sealed FROM provider_keys
		WHERE account_id || ' ' || provider > $1 ORDER BY account_id || ' ' || provider LIMIT $2`
	replaceSealed = `UPDATE provider_keys SET sealed = $1 WHERE account_id || ' ' || provider = $2 AND sealed = $3`
)
