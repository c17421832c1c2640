package store

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
)

// LastMarginDay returns the newest day on which calls with real money brought an app margin; "" = none did.
func LastMarginDay(ctx context.Context, q db.Queryer, appID string) (day string, err error) {
	days, err := ReadAppDays(ctx, q, AppDayFilter{AppID: appID})
	if err != nil {
		return "", fmt.Errorf("ledger: last day of margin of %s: %w", appID, err)
	}
	for _, d := range days {
		if d.DevMarginMC > 0 {
			day = d.Day
		}
	}
	return day, nil
}
