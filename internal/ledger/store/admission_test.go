package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// startNodeWriter starts a writer whose holds live by a node's lease, with a connection.
func startNodeWriter(t *testing.T, d *db.DB) *Writer {
	t.Helper()
	w := NewWriter(d, time.Now)
	var err error
	if w.Node, err = JoinNode(t.Context(), d, "node", time.Minute, time.Now); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
	must(t)(w.Do(ctx, rules.Connect{
		Sandbox:      true,
		ConnectionID: "C",
		AppID:        "p",
		AccountID:    "A",
		RequestedMC:  100_000,
	}))
	return w
}

func holdOf(key string) rules.Hold {
	return rules.Hold{Call: callOf("C", "A", "p", key, 10), NodeID: "node", Claim: key}
}

func settleOf(h rules.Hold) rules.Settle {
	return rules.Settle{
		Call:       h.Call,
		Attempt:    1,
		Settlement: rules.Settled,
		Charge:     rules.Amounts{ProviderCostMC: 4, UserChargeMC: 4},
		Usage:      rules.Usage{JSON: "{}"},
	}
}

func isRefusedAsUnavailable(err error) bool {
	e, ok := errors.AsType[*apierr.Error](err)
	return ok && e.Code == apierr.Unavailable && e.RetryAfter > 0
}

// TestHoldsStopAfterAFailedWrite lets a SQLite file take no writes, as a full disk does. Holds
// live in memory, so the first settlement finds out: then no hold is accepted and the node is
// not ready, until a write succeeds.
func TestHoldsStopAfterAFailedWrite(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	w := startNodeWriter(t, d)
	ctx := t.Context()
	takeWrites := func(yes bool) {
		t.Helper()
		conn, err := d.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		text := `PRAGMA query_only = 1`
		if yes {
			text = `PRAGMA query_only = 0`
		}
		if _, err := conn.ExecContext(ctx, text); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.CheckReady(ctx); err != nil {
		t.Errorf("a new node is not ready: %v", err)
	}
	takeWrites(false)
	first := holdOf("first")
	must(t)(w.Do(ctx, first))
	if _, err := w.Do(ctx, settleOf(first)); !db.IsUnavailable(err) {
		t.Errorf("a settlement that cannot be written: %v", err)
	}
	if _, err := w.Do(ctx, holdOf("second")); !isRefusedAsUnavailable(err) {
		t.Errorf("a hold after a failed write: %v", err)
	}
	began := time.Now()
	if _, err := w.Do(ctx, holdOf("third")); !isRefusedAsUnavailable(err) || time.Since(began) > closedWait/2 {
		t.Errorf("a hold long after it, after %v: %v", time.Since(began), err)
	}
	if err := w.CheckReady(ctx); err == nil || w.AcceptsHolds() {
		t.Errorf("ready though the file takes no writes: %v", err)
	}
	takeWrites(true)
	_, reopened, _ := w.admission.state()
	<-reopened
	if err := w.CheckReady(ctx); err != nil {
		t.Errorf("not ready though the file takes writes: %v", err)
	}
	must(t)(w.Do(ctx, holdOf("fourth")))
	must(t)(w.Do(ctx, settleOf(first)))
}

// TestUnsavedHoldStopsHolds needs no settlement: the flush of a hold finds out.
func TestUnsavedHoldStopsHolds(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	w := startNodeWriter(t, d)
	ctx := t.Context()
	conn, err := d.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.ExecContext(ctx, `PRAGMA query_only = 1`)
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
	must(t)(w.Do(ctx, holdOf("first")))
	for w.AcceptsHolds() { // the flush is due after holdFlushDelay
		time.Sleep(time.Millisecond)
	}
	if _, err := w.Do(ctx, holdOf("second")); !isRefusedAsUnavailable(err) {
		t.Errorf("a hold after a failed flush: %v", err)
	}
}

// A fakeBackend fails or waits instead of running a batch.
type fakeBackend struct {
	backend
	onLoad func() error

	mu    sync.Mutex
	loads int
}

func (f *fakeBackend) bind(context.Context, any) error   { return nil }
func (f *fakeBackend) begin(context.Context, bool) error { return nil }
func (f *fakeBackend) rollback(context.Context)          {}
func (f *fakeBackend) close(any) error                   { return nil }

func (f *fakeBackend) flushDelayed(context.Context, time.Time) (wrote, more bool, err error) { return }

func (f *fakeBackend) load(context.Context, *rules.RowKeys) (*rules.State, error) {
	f.mu.Lock()
	f.loads++
	f.mu.Unlock()
	return nil, f.onLoad()
}

// TestBatchFailsAsAWhole gives a batch to a database that is away: it is tried once, and
// every command gets that error. To try each alone would take as long for each.
func TestBatchFailsAsAWhole(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		err  error
		want int // tries
	}{
		{"away", context.DeadlineExceeded, 1},
		{"a bad command", errors.New("bad"), 1 + 3},
	} {
		f := &fakeBackend{onLoad: func() error { return tt.err }}
		w := NewWriter(dbtest.Open(t, db.SQLite), time.Now)
		w.backend = f
		var batch []*job
		for i := range 3 {
			batch = append(batch, &job{cmd: holdOf(fmt.Sprint(i)), done: make(chan struct{}, 1)})
		}
		w.commitOrSplit(batch)
		for _, j := range batch {
			<-j.done
			if !errors.Is(j.err, tt.err) {
				t.Errorf("%s: a command got %v", tt.name, j.err)
			}
		}
		if f.loads != tt.want {
			t.Errorf("%s: %d tries, want %d", tt.name, f.loads, tt.want)
		}
	}
}

// TestCommandsAreGivenUp lets the database hang. A command is given up at its deadline, holds
// are refused, and a command that was given up while it waited is not run later.
func TestCommandsAreGivenUp(t *testing.T) {
	t.Parallel()
	hangs, answer := make(chan struct{}, 1), make(chan struct{})
	f := &fakeBackend{onLoad: func() error {
		hangs <- struct{}{}
		<-answer
		return errors.New("thawed")
	}}
	w := NewWriter(dbtest.Open(t, db.SQLite), time.Now)
	w.backend = f
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	do := func(c rules.Command, wait time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := w.Do(ctx, c)
		return err
	}
	first := holdOf("first")
	if err := do(first, 50*time.Millisecond); !db.IsUnavailable(err) {
		t.Errorf("a hold that hangs: %v", err)
	}
	<-hangs
	if err := do(settleOf(first), 50*time.Millisecond); !db.IsUnavailable(err) {
		t.Errorf("a settlement behind it: %v", err)
	}
	close(answer)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f.loads != 1 {
		t.Errorf("%d batches ran: a command ran that its caller had given up", f.loads)
	}
}
