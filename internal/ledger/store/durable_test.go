package store

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestAnsweredIsOnDisk blocks the disk: on SQLite a hold is answered all the same, a
// settlement only when the sync that began after its commit is over, and so is
// whoever asks for a key that was settled meanwhile.
func TestAnsweredIsOnDisk(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	now := time.Now()
	w := NewWriter(d, func() time.Time { return now }) // no hold becomes so old that a tick saves it
	w.minBatchWhileSyncing = 1                         // one command is worth a batch, even while the disk is busy
	syncs, disk := make(chan struct{}), make(chan error)
	w.sync = func() error {
		syncs <- struct{}{}
		return <-disk
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
	must(t)(w.Do(ctx, rules.Connect{Sandbox: true, ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 500}))
	type answered struct {
		rules.Result
		error
	}
	start := func(c rules.Command) chan answered {
		done := make(chan answered, 1)
		go func() {
			r, err := w.Do(context.Background(), c)
			done <- answered{r, err}
		}()
		return done
	}
	settle := func(c rules.Call) rules.Settle {
		return rules.Settle{
			Call:       c,
			Attempt:    1,
			Settlement: rules.Settled,
			Charge:     rules.Amounts{ProviderCostMC: 4, UserChargeMC: 4},
		}
	}
	waits := func(what string, done chan answered) {
		t.Helper()
		select {
		case a := <-done:
			t.Fatalf("%s is answered before the disk: %+v, %v", what, a.Result, a.error)
		default:
		}
	}
	one, two := callOf("C", "A", "p", "1", 10), callOf("C", "A", "p", "2", 10)
	must(t)(w.Do(ctx, rules.Hold{Call: one, Claim: "1"}))
	must(t)(w.Do(ctx, rules.Hold{Call: two, Claim: "2"}))

	first := start(settle(one))
	<-syncs
	// the disk works, and a hold is answered
	must(t)(w.Do(ctx, rules.Hold{Call: callOf("C", "A", "p", "3", 10), Claim: "3"}))
	second := start(settle(two))
	again := start(rules.Hold{Call: one, Claim: "1b"})
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // until the second is committed
		if c, err := GetConnection(ctx, d, "C"); err == nil && c.ConsumedMC == 8 {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the writer waits for the disk")
		}
	}
	waits("the first settlement", first)
	disk <- nil
	must(t)((<-first).Result, nil)
	<-syncs // this one began after the second commit
	waits("the second settlement", second)
	waits("the repeated hold", again)
	broken := errors.New("I/O error")
	stop() // and what is committed is synced before Run returns
	select {
	case err := <-stopped:
		t.Fatalf("Run has returned: %v", err)
	default:
	}
	disk <- broken
	if a := <-second; !errors.Is(a.error, broken) || a.Entry.ID != "" {
		t.Errorf("what the disk refused is answered by %+v, %v", a.Result, a.error)
	}
	for done := false; !done; { // the repeated hold may need a sync of its own
		select {
		case <-syncs:
			disk <- nil
		case a := <-again:
			done = true
			if a.error == nil && a.Outcome != rules.Done {
				t.Errorf("the repeated hold found %+v", a.Result)
			}
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestDiskLost takes the log away: nothing is answered any more as if it were durable.
func TestDiskLost(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	d, err := db.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	defer d.Close()
	w := writers(t, d, 1)[0]
	ctx := t.Context()
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1000}))
	must(t)(w.Do(ctx, rules.Connect{Sandbox: true, ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 500}))
	call := callOf("C", "A", "p", "1", 10)
	must(t)(w.Do(ctx, rules.Hold{Call: call, Claim: "1"}))
	log := strings.TrimPrefix(target, "sqlite:") + "-wal"
	// so that no reader begins another
	if err := errors.Join(os.Remove(log), os.Symlink("/nowhere/log", log)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []rules.Command{
		rules.Settle{
			Call:       call,
			Attempt:    1,
			Settlement: rules.Settled,
			Charge:     rules.Amounts{ProviderCostMC: 4, UserChargeMC: 4},
		},
		rules.Hold{Call: callOf("C", "A", "p", "2", 10), Claim: "2"}, rules.ChangeCap{ConnectionID: "C", TargetMC: 100},
	} {
		if r, err := w.Do(ctx, c); !db.IsUnavailable(err) {
			t.Errorf("%T: %+v, %v", c, r, err)
		}
	}
}
