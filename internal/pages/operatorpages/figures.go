package operatorpages

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A Summary sums money for the overview once a minute, for all nodes together: real money only, without test accounts.
// A count may take longer than a run of the job, on a service with many calls or a machine with much to do: the next
// run on this node goes on with it.
type Summary struct {
	DB  *db.DB
	Now func() time.Time

	counting bool          // a count has begun and not ended
	beganUS  int64         // when
	ranUS    int64         // when this node last went on with one
	next     string        // the days before it are counted
	walk     store.DayWalk // of the day that is being counted
	balances balanceWalk
}

// countInterval is the maximum age of the overview's figures.
const countInterval = time.Minute

// maxCountPause is for how long a count may be left. After it, another node may have counted days that are over since,
// which an older sum must not replace.
const maxCountPause = 15 * time.Minute

// Once counts if a count is due; every node may call it at any time, but not twice at once. Days that are counted are
// not counted again, except the newest and the day before: a batch around midnight may have added to that one.
func (c *Summary) Once(ctx context.Context) error {
	now := c.Now()
	claimed, err := claimCount(ctx, c.DB, now.UnixMicro(), now.Add(countInterval).UnixMicro())
	if err != nil || !claimed {
		return err
	}
	if pause := now.UnixMicro() - c.ranUS; pause < 0 || pause > maxCountPause.Microseconds() {
		c.counting, c.balances = false, balanceWalk{}
	}
	c.ranUS = now.UnixMicro()
	if err := c.countDays(ctx, now); err != nil {
		return fmt.Errorf("operatorpages: count days: %w", err)
	}
	if err := c.balances.sum(ctx, c.DB); err != nil {
		return fmt.Errorf("operatorpages: count balances: %w", err)
	}
	t := c.balances.balanceTotals
	t.countedUS = c.beganUS
	err = c.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return saveBalances(ctx, tx, t) })
	if err != nil {
		return fmt.Errorf("operatorpages: save count: %w", err)
	}
	c.counting, c.balances = false, balanceWalk{}
	return nil
}

// countDays counts the days that this count has not counted yet, one after the other, and saves each.
func (c *Summary) countDays(ctx context.Context, now time.Time) error {
	if !c.counting {
		newest, err := getNewestDay(ctx, c.DB, now.UTC().Format(time.DateOnly))
		if err != nil {
			return err
		}
		c.counting, c.beganUS, c.next, c.walk = true, now.UnixMicro(), newest, store.DayWalk{}
		if day, err := time.Parse(time.DateOnly, newest); err == nil {
			c.next = day.AddDate(0, 0, -1).Format(time.DateOnly)
		}
	}
	for {
		day, err := store.NextTotalsDay(ctx, c.DB, c.next)
		if err != nil || day == "" {
			return err
		}
		list, err := c.walk.Sum(ctx, c.DB, day)
		if err != nil {
			return err
		}
		if err := saveDays(ctx, c.DB, sumApps(list)); err != nil {
			return err
		}
		c.next = day + "~" // after that day, and before the next one
	}
}

// sumApps sums the calls of apps on a day, without those of test accounts.
func sumApps(list []store.AppDay) (days []callSum) {
	for _, a := range list { // in the order of the apps
		if a.Sandbox {
			continue
		}
		if n := len(days); n == 0 || days[n-1].appID != a.AppID {
			days = append(days, callSum{appID: a.AppID, day: a.Day})
		}
		s := &days[len(days)-1]
		s.calls += a.Calls
		s.costMC += a.ProviderCostMC
		s.feeMC += a.SvcFeeMC
		s.marginMC += a.DevMarginMC
		s.chargeMC += a.UserChargeMC
	}
	return days
}

// A callSum sums calls: of one app on one day, or of several.
type callSum struct {
	appID, day string
	calls      int64
	costMC     money.MC
	feeMC      money.MC
	marginMC   money.MC
	chargeMC   money.MC
}

// balanceTotals are the sums of users' balances.
type balanceTotals struct {
	availableMC, reservedMC money.MC
	accounts                int64
	countedUS               int64 // 0 = not yet
}
