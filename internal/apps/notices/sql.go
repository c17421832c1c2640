package notices

import (
	"context"

	"github.com/purserhq/purser/internal/base/db"
)

// A marginUser is a user of an app who has not been told of all changes of its margin.
type marginUser struct {
	accountID, connectionID   string
	seenUS, mailedUS, sinceUS int64
}

func (u *marginUser) fields() []any {
	return []any{&u.accountID, &u.connectionID, &u.seenUS, &u.mailedUS, &u.sinceUS}
}

// listUntoldUsers returns users who approved their connection before a change of an app's margin and have not been told
// of it, those who were told of an earlier one last. Users who approve later agree to the new rate.
func listUntoldUsers(ctx context.Context, q db.Queryer, appID string, untilUS int64, limit int) ([]marginUser, error) {
	const agreedUS = `COALESCE(NULLIF(c.approved_us, 0), c.created_us)` // as rules.Connection.AgreedUS
	return db.QueryAll(ctx, q, db.ScanFields((*marginUser).fields), `SELECT c.account_id, c.id, COALESCE(n.seen_us, 0),
			COALESCE(n.mailed_us, 0),
			CASE WHEN `+agreedUS+` > COALESCE(n.seen_us, 0) THEN `+agreedUS+` ELSE n.seen_us END
		FROM connections c LEFT JOIN margin_notices n ON n.app_id = c.app_id AND n.account_id = c.account_id
		WHERE c.app_id = $1 AND c.status <> 'revoked' AND `+agreedUS+` < $2 AND COALESCE(n.seen_us, 0) < $2
		ORDER BY 4, c.id LIMIT $3`, appID, untilUS, limit)
}

// setMarginNotice notes up to which change a user has been told. It reports false if another node has done so.
func setMarginNotice(ctx context.Context, tx *db.Tx, appID string, u marginUser, seenUS, mailedUS int64,
) (moved bool, err error) {
	r, err := tx.ExecContext(ctx, `INSERT INTO margin_notices (app_id, account_id, seen_us, mailed_us)
		VALUES ($1, $2, $3, $4) ON CONFLICT (app_id, account_id) DO UPDATE
		SET seen_us = excluded.seen_us, mailed_us = excluded.mailed_us WHERE margin_notices.seen_us = $5`,
		appID, u.accountID, seenUS, mailedUS, u.seenUS)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	return n == 1, err
}
