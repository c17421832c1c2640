package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// writers starts n writers on one database, as n nodes would.
func writers(t testing.TB, d *db.DB, n int) []*Writer {
	t.Helper()
	var list []*Writer
	for range n {
		w := NewWriter(d, time.Now)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		t.Cleanup(func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		list = append(list, w)
	}
	return list
}

func must(t testing.TB) func(rules.Result, error) rules.Result {
	return func(r rules.Result, err error) rules.Result {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func callOf(conn, account, app, key string, hold money.MC) rules.Call {
	return rules.Call{
		ConnectionID: conn,
		AccountID:    account,
		AppID:        app,
		Key:          key,
		RequestID:    "req_" + conn + key,
		Fingerprint:  "f",
		Model:        "m",
		Terms:        "{}",
		HoldMC:       hold,
	}
}

// lockRow locks the row that a SELECT finds until open is called, and n batches wait
// for it. So they are under way at once, whatever the machine does: one that read
// the row without locking it has read what the others change. In SQLite only one
// batch can be under way, and there is no gate.
func lockRow(t *testing.T, d *db.DB, selects string) (open func(n int)) {
	t.Helper()
	if d.Engine == db.SQLite {
		return func(int) {}
	}
	conn, err := d.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var found string
	if err := tx.QueryRowContext(t.Context(), selects+` FOR UPDATE`).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for waiting := 0; waiting < n; {
			err := d.QueryRowContext(ctx,
				`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = `+
					`'Lock'`).Scan(&waiting)
			if err != nil {
				t.Errorf("%d of %d batches wait: %v", waiting, n, err)
				break
			}
		}
		if err := errors.Join(tx.Rollback(), conn.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestLastMicroCent races 64 callers on two writers for an allocation that
// covers exactly ten of them (F-49). It fails if a connection is not locked.
func TestLastMicroCent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 2)
		ctx := context.Background()
		must(t)(w[0].Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
		must(t)(w[0].Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: "C",
			AppID:        "p",
			AccountID:    "A",
			RequestedMC:  100,
		}))
		open := lockRow(t, d, `SELECT id FROM connections WHERE id = 'C'`)
		var won, lost atomic.Int64
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				h := rules.Hold{Call: callOf("C", "A", "p", fmt.Sprint(i), 10), Claim: fmt.Sprint(i)}
				_, err := w[i%2].Do(ctx, h)
				var e *apierr.Error
				switch {
				case err == nil:
					won.Add(1)
				case errors.As(err, &e) && e.Code == apierr.AllocationExhausted:
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		open(2)
		wg.Wait()
		c, err := GetConnection(ctx, d, "C")
		if err != nil || won.Load() != 10 || lost.Load() != 54 || c.HeldMC != 100 || c.RemainingMC() != 0 {
			t.Errorf("won %d, lost %d, %+v, %v", won.Load(), lost.Load(), c, err)
		}
	})
}

// TestOneKeyManyCallers sends one key from 100 callers on two writers: one holds.
// It fails if a connection, which guards its keys, is not locked.
func TestOneKeyManyCallers(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 2)
		ctx := context.Background()
		must(t)(w[0].Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
		must(t)(w[0].Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: "C",
			AppID:        "p",
			AccountID:    "A",
			RequestedMC:  100,
		}))
		open := lockRow(t, d, `SELECT id FROM connections WHERE id = 'C'`)
		var holds, running atomic.Int64
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r, err := w[i%2].Do(ctx, rules.Hold{Call: callOf("C", "A", "p", "k", 10), Claim: fmt.Sprint(i)})
				switch {
				case err != nil:
					t.Error(err)
				case r.Outcome == rules.Applied:
					holds.Add(1)
				case r.Outcome == rules.Running:
					running.Add(1)
				}
			})
		}
		open(2)
		wg.Wait()
		if holds.Load() != 1 || running.Load() != 99 {
			t.Errorf("%d held, %d joined", holds.Load(), running.Load())
		}
	})
}

// TestTwoConnectionsOneBalance settles on two connections of one account by two
// writers: each row has its place in the account's chain, and no charge is lost. It
// fails if a balance is not locked; with more calls than one in a batch the writer
// would try them again one by one, and hide it.
func TestTwoConnectionsOneBalance(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 2)
		ctx := context.Background()
		must(t)(w[0].Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
		var calls []rules.Call
		for i := range w {
			conn, app := fmt.Sprint("C", i), fmt.Sprint("p", i)
			must(t)(w[0].Do(ctx, rules.Connect{
				Sandbox:      true,
				ConnectionID: conn,
				AppID:        app,
				AccountID:    "A",
				RequestedMC:  100,
			}))
			c := callOf(conn, "A", app, fmt.Sprint(i), 10)
			must(t)(w[0].Do(ctx, rules.Hold{Call: c, Claim: fmt.Sprint(i)}))
			calls = append(calls, c)
		}
		before, err := GetBalance(ctx, d, "A")
		if err != nil {
			t.Fatal(err)
		}
		open := lockRow(t, d, `SELECT account_id FROM balances WHERE account_id = 'A'`)
		var wg sync.WaitGroup
		for i, c := range calls {
			wg.Go(func() {
				r, err := w[i].Do(ctx, rules.Settle{
					Call:       c,
					Attempt:    1,
					Settlement: rules.Settled,
					Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
					Usage:      rules.Usage{JSON: "{}"},
				})
				if err != nil || r.Outcome != rules.Applied {
					t.Errorf("%s: %v, %v", c.ConnectionID, r.Outcome, err)
				}
			})
		}
		open(2)
		wg.Wait()
		b, err := GetBalance(ctx, d, "A")
		if err != nil || b.ReservedMC != before.ReservedMC-2*7 || b.AvailableMC != before.AvailableMC ||
			b.Seq != before.Seq+2 {
			t.Errorf("before %+v, after %+v, %v", before, b, err)
		}
	})
}

// TestFirstTopUps credits a new account from many sides at once: none is lost.
func TestFirstTopUps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 2)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				must(t)(w[i%2].Do(context.Background(), rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 7}))
			})
		}
		wg.Wait()
		if b, err := GetBalance(context.Background(), d, "A"); err != nil || b.AvailableMC != 140 || b.Seq != 20 {
			t.Errorf("%+v %v", b, err)
		}
	})
}

// TestYoungHolds shows that on SQLite a hold is true before it is in the file:
// the file stays consistent, the next tick saves it, a caller's transaction sees
// it, and one that is rolled back does not lose it.
func TestYoungHolds(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	var ahead atomic.Int64
	start := time.Now() // the clock stands still, so that a slow machine makes no hold older
	w := NewWriter(d, func() time.Time { return start.Add(time.Duration(ahead.Load())) })
	ctx := context.Background()
	do := func(commands ...rules.Command) { // in one batch, as Run does, without its tick
		var batch []*job
		for _, c := range commands {
			batch = append(batch, &job{cmd: c, done: make(chan struct{}, 1)})
		}
		w.commitOrSplit(batch)
		for _, j := range batch {
			must(t)(j.res, j.err)
		}
	}
	inFile := func() (heldMC, holds int64) {
		t.Helper()
		if err := d.QueryRowContext(ctx,
			`SELECT held_mc, (SELECT COUNT(*) FROM holds WHERE state = 'open') FROM connections`).Scan(&heldMC,
			&holds); err != nil {
			t.Fatal(err)
		}
		return heldMC, holds
	}
	seen := func(step string, file, count, whole int64) {
		t.Helper()
		held, holds := inFile()
		c, err := GetConnection(ctx, d, "C")
		if err != nil || held != file || holds != count || int64(c.HeldMC) != whole {
			t.Errorf("%s: in the file %d by %d holds, in all %d; want %d by %d, %d (%v)", step, held, holds, c.HeldMC,
				file, count, whole, err)
		}
	}
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
	must(t)(w.Do(ctx, rules.Connect{Sandbox: true, ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 500}))
	one, two := callOf("C", "A", "p", "1", 10), callOf("C", "A", "p", "2", 20)
	do(rules.Hold{Call: one, Claim: "1"})
	seen("held", 0, 0, 10)
	ahead.Store(int64(time.Second))
	w.flushDelayed()
	seen("ticked", 10, 1, 10)
	do(rules.Hold{Call: two, Claim: "2"})
	seen("second held", 10, 1, 30)
	do(rules.Settle{
		Call:       one,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 4, UserChargeMC: 4},
	})
	seen("first settled", 0, 0, 20)
	forgotten := errors.New("forgotten")
	if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r := must(t)(w.DoTx(ctx, tx, rules.ChangeCap{ConnectionID: "C", TargetMC: 1}))
		if r.Connection.AllocationMC != 24 {
			t.Errorf("the cap fell to %d under what is consumed and held", r.Connection.AllocationMC)
		}
		return forgotten
	}); !errors.Is(err, forgotten) {
		t.Fatal(err)
	}
	w.flushDelayed() // the young hold is still young
	ahead.Store(0)
	do(rules.Hold{Call: callOf("C", "A", "p", "3", 5), Claim: "3"})
	seen("rolled back", 0, 0, 25)
	must(t)(w.Do(ctx, rules.ChangeCap{ConnectionID: "C", TargetMC: 100}))
	seen("cap changed", 25, 2, 25)
	do(rules.Release{Call: two, Attempt: 1})
	seen("released", 5, 1, 5)
	do(rules.Hold{Call: two, Claim: "2b"})
	do(rules.Settle{
		Call:       two,
		Attempt:    2,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1},
	})
	seen("second attempt settled", 5, 1, 5)
	three := callOf("C", "A", "p", "4", 3)
	do(rules.Hold{Call: three, Claim: "4"})
	do(rules.Hold{Call: callOf("C", "A", "p", "5", 7), Claim: "5"}, rules.Settle{
		Call:       three,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1},
	})
	seen("held beside a settlement", 5, 1, 12)
	var left int
	if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM holds WHERE key = '2'`).Scan(&left); err != nil ||
		left != 0 {
		t.Errorf("the first attempt has left %d rows, %v", left, err)
	}
}

// TestOneBadCommand shows that a command which the database refuses hits its
// own caller only.
func TestOneBadCommand(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 1)[0]
		ctx := context.Background()
		must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
		must(t)(w.Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: "C",
			AppID:        "p",
			AccountID:    "A",
			RequestedMC:  500,
		}))
		var wg sync.WaitGroup
		var failed atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				c := callOf("C", "A", "p", fmt.Sprint(i), 10)
				r := must(t)(w.Do(ctx, rules.Hold{Call: c, Claim: fmt.Sprint(i)}))
				charge := rules.Amounts{ProviderCostMC: 5, UserChargeMC: 5}
				if i == 7 {
					charge.SvcFeeMC = 1 // violates a CHECK: the parts do not add up
				}
				if _, err := w.Do(ctx, rules.Settle{
					Call:       c,
					Attempt:    r.Attempt,
					Charge:     charge,
					Settlement: rules.Settled,
				}); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if c, err := GetConnection(ctx, d, "C"); err != nil || failed.Load() != 1 || c.HeldMC != 10 ||
			c.ConsumedMC != 95 {
			t.Errorf("%d failed, %+v, %v", failed.Load(), c, err)
		}
	})
}

// TestAppendOnly tries to change and delete a ledger row (I21).
func TestAppendOnly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 1)[0]
		must(t)(w.Do(context.Background(), rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
		for _, text := range []string{`UPDATE ledger SET amount_mc = 2`, `DELETE FROM ledger`} {
			if _, err := d.ExecContext(context.Background(), text); err == nil {
				t.Errorf("%s was carried out", text)
			}
		}
	})
}

// TestStopped shows that a stopped writer finishes what is queued, and refuses the rest.
func TestStopped(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := NewWriter(d, time.Now)
		ctx, stop := context.WithCancel(context.Background())
		stop()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Do(context.Background(), rules.Hold{}); !errors.Is(err, ErrWriterStopped) {
			t.Errorf("got %v", err)
		}
	})
}

func BenchmarkCalls(b *testing.B) {
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		for _, callers := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", e, callers), func(b *testing.B) { benchmarkCalls(b, e, callers) })
		}
	}
}

func benchmarkCalls(b *testing.B, e db.Engine, callers int) {
	d := dbtest.Open(b, e)
	w := writers(b, d, 1)[0]
	ctx := context.Background()
	for i := range callers {
		must(b)(w.Do(ctx, rules.TopUp{AccountID: fmt.Sprint("A", i), Sandbox: true, AmountMC: money.Max}))
		must(b)(w.Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: fmt.Sprint("C", i),
			AppID:        "p",
			AccountID:    fmt.Sprint("A", i),
			RequestedMC:  money.Max,
		}))
	}
	body := make([]byte, 700)
	var n atomic.Int64
	before := cpuTime(b)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n.Add(1) <= int64(b.N) {
				c := callOf(fmt.Sprint("C", i), fmt.Sprint("A", i), "p",
					fmt.Sprint(n.Load(), "-", time.Now().UnixNano()), 100)
				r := must(b)(w.Do(ctx, rules.Hold{Call: c, Claim: c.Key}))
				must(b)(w.Do(ctx, rules.Settle{
					Call:       c,
					Attempt:    r.Attempt,
					Settlement: rules.Settled,
					Charge:     rules.Amounts{ProviderCostMC: 80, SvcFeeMC: 5, DevMarginMC: 5, UserChargeMC: 90},
					Usage:      rules.Usage{JSON: `{"input":1,"cached":0,"cache_write":0,"output":1,"reasoning":0}`},
					Response:   &rules.StoredResponse{Encoding: "raw", Body: body},
				}))
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/1e3/float64(b.N), "cpu-µs/call")
}

// cpuTime is what this process has used: unlike the clock it does not mind a busy machine.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		keeper := goleak.IgnoreTopFunction("github.com/purserhq/purser/internal/testkit/dbtest.startLocked.func1")
		if err := goleak.Find(keeper); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
