package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// most is what each limit of these races allows: ten calls of ten, and not one more.
const most = 109

// limitRace is a limit, and the calls that meet at it.
type limitRace struct {
	name        string
	connections int  // how many connections share the limit
	apps        bool // of one account on as many apps; else of as many accounts on one app
	velocity    bool
	limit       func(h *rules.Hold) // puts it into a call
	subject     string              // its counter; "" = the connection's own spend
	cost        bool                // counts the provider's cost
	free        bool                // free credit pays while there is any, and nothing else does
	refused     apierr.Code
	wins        int64 // of 64
}

func spendOf(subject string, unit limits.Unit, code apierr.Code) func(*rules.Hold) {
	return func(h *rules.Hold) {
		h.Limits = []limits.Limit{{
			Subject: subject,
			Unit:    unit,
			Window:  rules.VelocityWindow,
			Max:     most,
			Code:    code,
			Owner:   "a race",
		}}
		h.CostMC = h.HoldMC
	}
}

func freeOf(pool, onApp, onAll int64) func(*rules.Hold) {
	return func(h *rules.Hold) {
		h.FreeCredit = &rules.FreeCreditHold{Terms: "{}", HoldMC: h.HoldMC, Limits: []limits.Limit{
			{Subject: "free/p/2026-11", Unit: limits.Spend, Max: pool}, {
				Subject: "free/p/A",
				Unit:    limits.Spend,
				Max:     onApp,
			}, {
				Subject: "free/A",
				Unit:    limits.Spend,
				Max:     onAll,
			},
		}}
	}
}

var races = []limitRace{
	{
		name:        "app day",
		connections: 8,
		limit:       spendOf("spend/p", limits.Spend, apierr.AppSpendLimited),
		subject:     "spend/p",
		refused:     apierr.AppSpendLimited,
		wins:        10,
	},
	{
		name:        "sandbox cost",
		connections: 8,
		apps:        true,
		limit:       spendOf("live/dev", limits.Cost, apierr.SandboxLiveCostLimited),
		subject:     "live/dev",
		cost:        true,
		refused:     apierr.SandboxLiveCostLimited,
		wins:        10,
	},
	{
		name:        "connection day",
		connections: 1,
		limit:       spendOf("spend/p0/A", limits.Spend, apierr.DailyLimitReached),
		subject:     "spend/p0/A",
		refused:     apierr.DailyLimitReached,
		wins:        10,
	},
	{
		name:        "velocity limit",
		connections: 1,
		velocity:    true,
		limit:       func(*rules.Hold) {},
		refused:     apierr.DailyLimitReached,
		wins:        10,
	},
	{
		name:        "free pool",
		connections: 8,
		limit:       freeOf(most, 1000, 1000),
		subject:     "free/p/2026-11",
		free:        true,
		refused:     apierr.AllocationExhausted,
		wins:        10,
	},
	{
		name:        "free on the app",
		connections: 8,
		limit:       freeOf(1000, most, 1000),
		subject:     "free/p/A",
		free:        true,
		refused:     apierr.AllocationExhausted,
		wins:        10,
	},
	{
		name:        "free on all apps",
		connections: 8,
		apps:        true,
		limit:       freeOf(1000, 1000, most),
		subject:     "free/A",
		free:        true,
		refused:     apierr.AllocationExhausted,
		wins:        10,
	},
	{name: "feature rate",
		connections: 1,
		limit: func(h *rules.Hold) {
			h.Limits = []limits.Limit{{
				Subject: "rate/p0/A/f",
				Unit:    limits.Calls,
				Window:  time.Hour,
				Max:     10,
				Code:    apierr.RateLimited,
				Owner:   "a race",
			}}
		},
		refused: apierr.RateLimited,
		wins:    10},
	{
		name:        "tier cap",
		connections: 1,
		limit:       func(h *rules.Hold) { h.MaxCapMC = most },
		refused:     apierr.AllocationExhausted,
		wins:        10,
	},
	// The pace looks at what is held before the call: at 100 it may pass, at 110 not.
	{
		name:        "pace",
		connections: 1,
		limit: func(h *rules.Hold) {
			h.Risk = &limits.RiskThresholds{FloorMC: 10, Warn: 5, Throttle: 10, Freeze: 20}
		},
		refused: apierr.RiskThrottled,
		wins:    11,
	},
}

// TestLimitsRaced lets 64 callers on two writers meet at each limit, twice: first
// exactly as many are held as fit; then those end while 64 more come, and whatever the
// order, what is settled and held never passes the limit by a micro-cent (F-49, I25).
func TestLimitsRaced(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		for _, r := range races {
			t.Run(string(e)+"/"+r.name, func(t *testing.T) {
				t.Parallel()
				r.runRace(t, e)
			})
		}
	}
}

// newCall is the i-th caller's.
func (r *limitRace) newCall(i int) rules.Hold {
	n := i % r.connections
	account, app := fmt.Sprint("A", n), "p"
	if r.apps || r.connections == 1 {
		account, app = "A", fmt.Sprint("p", n)
	}
	h := rules.Hold{Call: callOf(fmt.Sprint("C", n), account, app, fmt.Sprint(i), 10), Claim: fmt.Sprint(i)}
	r.limit(&h)
	return h
}

func (r *limitRace) runRace(t *testing.T, e db.Engine) {
	d := dbtest.Open(t, e)
	w, ctx := writers(t, d, 2), context.Background()
	for i := range r.connections {
		h := r.newCall(i)
		must(t)(w[0].Do(ctx, rules.TopUp{AccountID: h.AccountID, Sandbox: true, AmountMC: 1_000_000}))
		c := rules.Connect{
			Sandbox:      true,
			ConnectionID: h.ConnectionID,
			AppID:        h.AppID,
			AccountID:    h.AccountID,
			RequestedMC:  10_000,
		}
		if limit := money.MC(most); r.velocity {
			c.VelocityLimitMC = &limit
		}
		if r.free {
			c.RequestedMC = 1 // less than a call, and not exhausted
		}
		must(t)(w[0].Do(ctx, c))
	}
	selects := `SELECT id FROM connections WHERE id = 'C0'`
	if r.subject != "" { // a row to stand before
		if _, err := d.ExecContext(ctx,
			`INSERT INTO counters (subject, buckets, held, limit_reported) VALUES
				('`+r.subject+`', '', 0, 0)`); err != nil {
			t.Fatal(err)
		}
		selects = `SELECT subject FROM counters WHERE subject = '` + r.subject + `'`
	}
	open := lockRow(t, d, selects)
	held := r.callTogether(t, w, 0, func() { open(2) })
	if n := int64(len(held)); n != r.wins {
		t.Errorf("%d of 64 won, want %d", n, r.wins)
	}
	r.within(t, d)
	// Now they end, some for less, while others come.
	var wg sync.WaitGroup
	for i, h := range held {
		wg.Go(func() {
			if i%3 == 0 {
				must(t)(w[i%2].Do(ctx, rules.Release{Call: h, Attempt: 1}))
				return
			}
			cost := money.MC(10 - i%2*3)
			must(t)(w[i%2].Do(ctx, rules.Settle{
				Call:       h,
				Attempt:    1,
				Settlement: rules.Settled,
				Charge:     rules.Amounts{ProviderCostMC: cost, UserChargeMC: cost},
				Usage:      rules.Usage{JSON: "{}"},
			}))
		})
	}
	r.callTogether(t, w, 64, func() {})
	wg.Wait()
	r.within(t, d)
}

// callTogether makes 64 calls at once and returns those that are held.
func (r *limitRace) callTogether(t *testing.T, w []*Writer, from int, under func()) (held []rules.Call) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := from; i < from+64; i++ {
		h := r.newCall(i)
		wg.Go(func() {
			res, err := w[i%2].Do(context.Background(), h)
			var e *apierr.Error
			switch {
			case err == nil && res.Outcome == rules.Applied && (res.Call.PaidBy == rules.PaidByFreeCredit) == r.free:
				mu.Lock()
				defer mu.Unlock()
				held = append(held, res.Call)
			case errors.As(err, &e) && e.Code == r.refused &&
				(e.RetryAfter > 0) == (e.Code != apierr.AllocationExhausted):
				refused.Add(1)
			default:
				t.Errorf("%+v, %v", res.Outcome, err)
			}
		})
	}
	under()
	wg.Wait()
	if len(held)+int(refused.Load()) != 64 {
		t.Errorf("%d held, %d refused", len(held), refused.Load())
	}
	return held
}

// within checks what is settled and held against the limit, by rows and holds, and
// that the counter says the same.
func (r *limitRace) within(t *testing.T, d *db.DB) {
	t.Helper()
	ctx := context.Background()
	var settled, held, counted int64
	err := d.QueryRowContext(ctx,
		`SELECT COALESCE(SUM(user_charge_mc), 0) FROM ledger WHERE type = 'spend'`).Scan(&settled)
	if err != nil {
		t.Fatal(err)
	}
	if r.subject != "" && d.Engine == db.Postgres { // SQLite's is in memory
		var buckets string
		if err := d.QueryRowContext(ctx, `SELECT held, buckets FROM counters WHERE subject = $1`,
			r.subject).Scan(&counted, &buckets); err != nil {
			t.Fatal(err)
		}
		for _, b := range strings.Fields(buckets) {
			var index, n int64
			if _, err := fmt.Sscanf(b, "%d:%d", &index, &n); err != nil {
				t.Fatal(err)
			}
			counted += n
		}
	}
	if d.Engine == db.Postgres {
		if err := d.QueryRowContext(ctx,
			`SELECT COALESCE(SUM(amount_mc), 0) FROM holds WHERE state = 'open'`).Scan(&held); err != nil {
			t.Fatal(err)
		}
	} else {
		for _, h := range newBackend(d).(*sqlite).openHolds(t, d) {
			held += int64(h)
		}
	}
	limit := int64(most)
	if r.name == "pace" {
		limit = 110
	}
	if settled+held > limit {
		t.Errorf("settled %d, held %d: over %d", settled, held, limit)
	}
	if r.subject != "" && d.Engine == db.Postgres && counted != settled+held {
		t.Errorf("counted %d, settled %d, held %d", counted, settled, held)
	}
}

// openHolds are those in the file and those that are not yet.
func (q *sqlite) openHolds(t *testing.T, d *db.DB) (list []money.MC) {
	t.Helper()
	err := q.readWithUnsaved(func() error {
		rows, err := d.QueryContext(context.Background(), `SELECT amount_mc FROM holds WHERE state = 'open'`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var n money.MC
			if err := rows.Scan(&n); err != nil {
				return err
			}
			list = append(list, n)
		}
		for _, h := range q.unsaved {
			list = append(list, h.HoldMC)
		}
		return rows.Err()
	}, func(map[string]money.MC) {})
	if err != nil {
		t.Fatal(err)
	}
	return list
}
