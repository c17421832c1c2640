package usage

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
)

// The basis of an app's usual size: the calls of so many days, at least so many calls, and of a
// large app only the newest daily totals.
const (
	sizeDays  = 30
	sizeCalls = 20
	sizeRows  = 5000
)

// A CallSize is the usual size of an app's calls: the sum of the recent ones, whose quotient is the average charge.
type CallSize struct {
	Calls    int64
	ChargeMC money.MC
}

// LoadCallSize returns the usual size of the app's calls.
func LoadCallSize(ctx context.Context, q db.Queryer, appID string, now time.Time) (CallSize, error) {
	since := FormatDay(now.UTC().AddDate(0, 0, 1-sizeDays))
	calls, chargeMC, err := store.SumRecentCalls(ctx, q, appID, since, sizeRows)
	if err != nil {
		return CallSize{}, fmt.Errorf("usage: size of calls: %w", err)
	}
	return CallSize{calls, chargeMC}, nil
}

// CountAnswers returns for how many calls of the usual size an amount pays, rounded down to two
// digits: "3,900". It is "" if the app has too few calls to say, or for less than one.
func (s CallSize) CountAnswers(amountMC money.MC) string {
	if s.Calls < sizeCalls || s.ChargeMC <= 0 || amountMC <= 0 {
		return ""
	}
	n := new(big.Int).Mul(big.NewInt(int64(amountMC)), big.NewInt(s.Calls))
	n.Quo(n, big.NewInt(int64(s.ChargeMC)))
	if !n.IsInt64() || n.Sign() == 0 {
		return ""
	}
	count, unit := n.Int64(), int64(1)
	for count/unit >= 100 {
		unit *= 10
	}
	return ui.Count(count / unit * unit)
}
