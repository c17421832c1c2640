package usage

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A call that is billed in another hour than it began in belongs to the hour in which it was billed, whichever hours
// are asked for.
func TestCallsOverTheHour(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := apitest.NewBooks(t, d)
		b.Do(rules.TopUp{AccountID: "wac_user", AmountMC: 100 * money.Dollar})
		c := b.Do(rules.Connect{
			ConnectionID: id.New(id.Connection, b.Now()),
			AppID:        "app_1",
			AccountID:    "wac_user",
			RequestedMC:  20 * money.Dollar,
		}).Connection
		ten := b.Now().Truncate(time.Hour)
		b.Pass(59*time.Minute + 50*time.Second)
		call := b.Hold(c, money.Dollar)
		b.Pass(20 * time.Second)
		b.Do(rules.Settle{
			Call:       call,
			Attempt:    1,
			Settlement: rules.Settled,
			Usage:      rules.Usage{JSON: "{}"},
			Charge:     rules.Amounts{ProviderCostMC: money.Dollar, UserChargeMC: money.Dollar},
		})
		for _, hours := range []struct {
			from, to int
			want     string // the bucket of the call; "" = none
		}{
			{0, 1, ""},
			{1, 2, "2026-11-21 11:00"},
			{0, 2, "2026-11-21 11:00"},
			{2, 3, ""},
		} {
			list, err := ListHours(t.Context(), d, Query{
				AppID:   "app_1",
				From:    ten.Add(time.Duration(hours.from) * time.Hour),
				To:      ten.Add(time.Duration(hours.to) * time.Hour),
				GroupBy: ByNone,
			})
			got := ""
			if len(list) == 1 {
				got = list[0].Bucket
			}
			if err != nil || len(list) > 1 || got != hours.want {
				t.Errorf("hours %d to %d: %+v, %v", hours.from, hours.to, list, err)
			}
		}
	})
}
