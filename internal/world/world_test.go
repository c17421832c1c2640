package world

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// first and seeds say which histories of fixed seeds are played, and steps how long they are. One that fails is cut so
// often at most.
var (
	first = flag.Uint64("first", 1, "the first seed")
	seeds = flag.Uint64("seeds", 2, "play so many histories of fixed seeds")
	steps = flag.Int("steps", 60, "of so many steps")
	cuts  = flag.Int("cuts", 150, "play so often at most to cut a history that fails")
)

// newSeeds is for how long histories of new seeds are played after those: as PURSER_TEST_WORLD says, such as 2h, or ten
// minutes in the long run.
func newSeeds(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PURSER_TEST_WORLD")
	if text == "" && testkit.IsLong() {
		return 10 * time.Minute
	} else if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal("PURSER_TEST_WORLD:", err)
	}
	return d
}

// TestMonth lets a month pass in which nobody does anything: the product is as ready as before, and stops.
func TestMonth(t *testing.T) {
	testkit.Long(t, "a month of jobs; the histories of TestWorld take as long")
	t.Parallel()
	Run(t, db.SQLite, func(b *Box) {
		for range 2 {
			answer, err := http.Get(b.URL(purserHost) + "/readyz")
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("readyz answers %d", answer.StatusCode)
			}
			b.Pass(15 * day)
		}
	})
}

// TestWorld plays random histories, of fixed seeds and then of new ones. A history that fails is printed, and a shorter
// one that fails, too.
func TestWorld(t *testing.T) {
	t.Parallel()
	playHistories(t, db.SQLite, min(runtime.NumCPU(), 8), *seeds, *steps) // a history keeps one processor busy
}

// TestWorldOnTwoNodes is TestWorld on PostgreSQL, with two processes of the product and real sockets.
func TestWorldOnTwoNodes(t *testing.T) {
	testkit.Long(t, "waits for leases; TestWorld plays the same actors on one node")
	t.Parallel()
	playHistories(t, db.Postgres, 1, (*seeds+1)/2, *steps)
}

// playHistories plays histories of so many steps by so many players, the first of fixed seeds.
func playHistories(t *testing.T, e db.Engine, players int, fixed uint64, steps int) {
	t.Helper()
	var mu sync.Mutex
	drawn, n, began := map[string]int{}, uint64(0), time.Now()
	until := began.Add(newSeeds(t))
	next := func() (seed uint64, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n <= fixed {
			return *first + n - 1, true
		}
		if time.Now().After(until) || t.Failed() {
			n--
			return 0, false
		}
		return rand.Uint64(), true
	}
	play := func(seed uint64) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			history, own := random(e, seed, steps), map[string]int{}
			err := playWhole(t, e, history, own)
			mu.Lock()
			for what, times := range own {
				drawn[what] += times
			}
			mu.Unlock()
			if err == nil {
				return
			}
			t.Errorf("%v\nhistory:\n%s", err, bank.Format(history))
			if *cuts > 0 {
				t.Errorf("shorter:\n%s", shorten(t, e, seed, history, err))
			}
		})
	}
	var all sync.WaitGroup
	for range players {
		all.Go(func() {
			for seed, ok := next(); ok; seed, ok = next() {
				play(seed)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	t.Logf("%d histories in %s: %.0f an hour", n, took.Round(time.Second), float64(n)/took.Hours())
	if n >= 2 && drawn[fmt.Sprint("a call of who may spend: ", http.StatusOK)] == 0 {
		t.Error("vacuous: nobody has spent")
	}
	for _, what := range slices.Sorted(maps.Keys(drawn)) {
		t.Log(drawn[what], what)
	}
}
