package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSeen adds keys: none of them is ever taken for new.
func TestSeen(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newKeyFilter(0)
		f.parts[0] = newBloom(rapid.IntRange(1, 50).Draw(t, "size"))
		f.complete = true
		hashes := rapid.SliceOf(rapid.Int64Min(0)).Draw(t, "hashes")
		for i, hash := range hashes {
			f.addKey(hash)
			for _, known := range hashes[:i+1] {
				if f.neverUsed(known) {
					t.Fatalf("%d was added", known)
				}
			}
		}
	})
}

// TestSeenIsUseful bounds how often a new key is looked for in vain, and the memory.
func TestSeenIsUseful(t *testing.T) {
	t.Parallel()
	f := newKeyFilter(0)
	f.complete = true
	const n = 1_000_000 // six doublings
	for i := range n {
		f.addKey(rules.Key{ConnectionID: "C", Key: fmt.Sprint(i)}.IndexHash())
	}
	vain, tries := 0, 100_000
	for range tries {
		if !f.neverUsed(rand.Int64()) {
			vain++
		}
	}
	bytes := 0
	for _, p := range f.parts {
		bytes += 8 * len(p.bits)
	}
	if vain > tries/20 || bytes > 3*n {
		t.Errorf("%d of %d new keys are looked for, %d bytes", vain, tries, bytes)
	}
	if big := newKeyFilter(10_000_000); 8*len(big.parts[0].bits) > 20_000_000 {
		t.Errorf("10 million keys take %d bytes", 8*len(big.parts[0].bits))
	}
}

// TestKeysOfThePast starts a writer on a file with billed, failed and open keys: it
// finds each of them, before its filter is whole and afterwards.
func TestKeysOfThePast(t *testing.T) {
	t.Parallel()
	target := dbtest.URL(t, db.SQLite)
	ctx := db.ForJob(t.Context()) // all writes of the test wait at once
	start := func() (*Writer, func()) {
		d, err := db.Open(ctx, target)
		if err != nil {
			t.Fatal(err)
		}
		d.RelaxLimits(12)
		w := NewWriter(d, time.Now)
		run, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(run) }()
		return w, func() {
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	call := func(kind string, i int) rules.Call { return callOf("C", "A", "p", fmt.Sprint(kind, i), 1) }
	const n = 2500 // more than one page
	w, end := start()
	must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
	must(t)(w.Do(ctx, rules.Connect{
		Sandbox:      true,
		ConnectionID: "C",
		AppID:        "p",
		AccountID:    "A",
		RequestedMC:  1_000_000,
	}))
	var wg sync.WaitGroup
	callers := make(chan struct{}, 256) // of a batch: each waits 5 s at most
	for i := range n {
		wg.Go(func() {
			callers <- struct{}{}
			defer func() { <-callers }()
			billed := call("billed", i)
			must(t)(w.Do(ctx, rules.Hold{Call: billed, Claim: "1"}))
			must(t)(w.Do(ctx, rules.Settle{
				Call:       billed,
				Attempt:    1,
				Settlement: rules.Settled,
				Charge:     rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1},
			}))
		})
	}
	wg.Wait()
	for i := range 10 {
		failed := call("failed", i)
		must(t)(w.Do(ctx, rules.Hold{Call: failed, Claim: "1"}))
		must(t)(w.Do(ctx, rules.Release{Call: failed, Attempt: 1}))
	}
	open := call("open", 0)
	must(t)(w.Do(ctx, rules.Hold{Call: open, Claim: "1"}))
	must(t)(w.Do(ctx, rules.ChangeCap{ConnectionID: "C", TargetMC: 900_000})) // saves the hold
	end()

	w, end = start()
	defer end()
	st := w.backend.(*sqlite)
	check := func(when string) {
		t.Helper()
		for i := range n {
			wg.Go(func() {
				if r, err := w.Do(ctx, rules.Hold{Call: call("billed", i), Claim: "2"}); err != nil ||
					r.Outcome != rules.Done {
					t.Errorf("%s: a billed key answers %+v, %v", when, r, err)
				}
			})
		}
		wg.Wait()
		for i := range 10 {
			failed := call("failed", i)
			r := must(t)(w.Do(ctx, rules.Hold{Call: failed, Claim: when}))
			if r.Outcome != rules.Applied || r.Attempt < 2 {
				t.Fatalf("%s: a failed key answers %+v", when, r)
			}
			must(t)(w.Do(ctx, rules.Release{Call: failed, Attempt: r.Attempt}))
		}
		if r := must(t)(w.Do(ctx, rules.Hold{Call: open, Claim: "2"})); r.Outcome != rules.Running {
			t.Fatalf("%s: an open key answers %+v", when, r)
		}
	}
	check("at start")
	whole := func() bool {
		st.usedKeys.mu.Lock()
		defer st.usedKeys.mu.Unlock()
		return st.usedKeys.complete
	}
	for deadline := time.Now().Add(20 * time.Second); !whole(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the filter is never whole")
		}
	}
	check("with the filter")
}
