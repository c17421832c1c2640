package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestYoungCounters shows that on SQLite a counter counts holds that are not in the
// file yet, whatever happens to them: a tick, a caller's transaction, a batch that
// fails, another process that writes, a crash. In the file it is always the sum of
// what the holds there say.
func TestYoungCounters(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.SQLite)
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	defer d.Close()
	var ahead atomic.Int64
	w := NewWriter(d, func() time.Time { return epoch.Add(time.Duration(ahead.Load())) })
	ctx := context.Background()
	try := func(c rules.Command) (rules.Result, error) { // as Run does, without its tick
		j := &job{cmd: c, done: make(chan struct{}, 1)}
		w.commitOrSplit([]*job{j})
		return j.res, j.err
	}
	do := func(c rules.Command) rules.Result { t.Helper(); return must(t)(try(c)) }
	day := func(c rules.Call, claim string) rules.Hold {
		return rules.Hold{
			Call:  c,
			Claim: claim,
			Limits: []limits.Limit{{
				Subject: "spend/p",
				Unit:    limits.Spend,
				Window:  rules.VelocityWindow,
				Max:     100,
				Code:    apierr.AppSpendLimited,
				Owner:   "a test",
			}},
		}
	}
	seen := func(step string, file, whole, spent int64) {
		t.Helper()
		held, holds, buckets := fileCounter(t, d, "spend/p")
		// What is really there, by what still fits.
		probe := callOf("C", "A", "p", "probe "+step, 100)
		var room int64
		for probe.HoldMC = 100; probe.HoldMC > 0; probe.HoldMC-- {
			if r, err := rules.Apply(stateOf(t, w, day(probe, step)), day(probe, step), w.now()); err == nil &&
				r.Refused == nil {
				room = int64(probe.HoldMC)
				break
			}
		}
		if held != file || holds != file || 100-room != whole+spent || spent != buckets {
			t.Errorf("%s: in the file %d by holds of %d, spent %d; in all %d; want %d, %d, %d", step, held, holds,
				buckets, 100-room-buckets, file, spent, whole)
		}
	}
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
	must(t)(w.Do(ctx, rules.Connect{Sandbox: true, ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 500}))
	one, two, three := callOf("C", "A", "p", "1", 10), callOf("C", "A", "p", "2", 20), callOf("C", "A", "p", "3", 5)
	one = do(day(one, "1")).Call
	seen("held", 0, 10, 0)
	ahead.Store(int64(time.Second))
	w.flushDelayed()
	seen("ticked", 10, 10, 0)
	two = do(day(two, "2")).Call
	seen("second held", 10, 30, 0)
	do(rules.Settle{
		Call:       one,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 4, UserChargeMC: 4},
	})
	seen("first settled", 0, 20, 4)
	forgotten := errors.New("forgotten")
	if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		must(t)(w.DoTx(ctx, tx, rules.ChangeCap{ConnectionID: "C", TargetMC: 400}))
		return forgotten
	}); !errors.Is(err, forgotten) {
		t.Fatal(err)
	}
	seen("rolled back", 0, 20, 4)
	three = do(day(three, "3")).Call
	seen("third held", 0, 25, 4)
	for _, f := range []struct{ event, table string }{
		{"INSERT", "counters"},
		{"UPDATE", "counters"},
		{"INSERT", "ledger"},
	} {
		undo := sabotage(t, d, f.event, f.table)
		if _, err := try(rules.Settle{
			Call:       three,
			Attempt:    1,
			Settlement: rules.Settled,
			Charge:     rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1},
		}); err == nil {
			t.Errorf("with every %s of %s failing: no error", f.event, f.table)
		}
		undo()
		seen("a batch failed", 0, 25, 4)
	}
	other, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:")) // an operator with a shell
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES ('other', '')`); err != nil {
		t.Fatal(err)
	}
	seen("another process wrote", 0, 25, 4)
	must(t)(w.Do(ctx, rules.ChangeCap{ConnectionID: "C", TargetMC: 300}))
	seen("a caller's transaction", 25, 25, 4)
	do(rules.Release{Call: two, Attempt: 1})
	seen("released", 5, 5, 4)
	two = do(day(two, "2b")).Call
	seen("held again", 5, 25, 4)
	do(rules.Defer{Call: two, Attempt: 2, Provider: "openai"})
	seen("left pending", 25, 25, 4)
	do(rules.Settle{
		Call:       two,
		Attempt:    2,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
		Receipt:    func(*rules.Entry) (string, error) { return "{}", nil },
	})
	seen("pending settled", 5, 5, 11)
	do(rules.Settle{
		Call:       three,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 9, UserChargeMC: 9},
	})
	seen("more than held", 0, 0, 20)
	four := do(day(callOf("C", "A", "p", "4", 30), "4")).Call
	do(rules.Release{Call: four, Attempt: 1})
	do(rules.Settle{
		Call:       four,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 30, UserChargeMC: 30},
	})
	seen("settled late", 0, 0, 50)
}

// stateOf is what a batch with c would begin with.
func stateOf(t *testing.T, w *Writer, c rules.Command) (s *rules.State) {
	t.Helper()
	conn, err := w.db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	need := rules.NewRowKeys()
	need.Add(c)
	err = conn.Raw(func(dc any) (err error) {
		if err = w.backend.bind(context.Background(), dc); err != nil {
			return err
		}
		if err = w.backend.begin(context.Background(), false); err != nil {
			return err
		}
		s, err = w.backend.load(context.Background(), need)
		return err
	})
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	return s
}

// fileCounter reads a counter from the file, and what the holds there say of it.
func fileCounter(t *testing.T, d *db.DB, subject string) (held, holds, spent int64) {
	t.Helper()
	ctx := context.Background()
	var buckets, all string
	err := d.QueryRowContext(ctx,
		`SELECT COALESCE(SUM(held), 0), COALESCE(MAX(buckets), ''), (SELECT COALESCE(group_concat(reservations, ' '),
			'') `+
			`FROM holds WHERE state <> 'failed') FROM counters WHERE subject = $1`, subject).Scan(&held, &buckets, &all)
	if err != nil {
		t.Fatal(err)
	}
	list, err := rules.ParseReservations(strings.TrimSpace(all))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		holds += int64(n.AmountMC) * db.BoolInt(n.Subject == subject)
	}
	series, err := limits.ParseSeries(limits.SpendBucketWidth, buckets)
	if err != nil {
		t.Fatal(err)
	}
	return held, holds, series.Sum(epoch, rules.VelocityWindow)
}
