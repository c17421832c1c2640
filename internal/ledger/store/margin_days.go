package store

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

// LastMarginDay returns the newest day on which calls with real money brought an app margin; "" = none did.
func LastMarginDay(ctx context.Context, q db.Queryer, appID string) (day string, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MAX(r.day), '')
		FROM rollups r JOIN balances b ON b.account_id = r.account_id
		WHERE r.app_id = $1 AND r.dev_margin_mc > 0 AND b.sandbox = 0`, appID).Scan(&day)
	if err != nil {
		return "", fmt.Errorf("ledger: last day of margin of %s: %w", appID, err)
	}
	return day, nil
}
