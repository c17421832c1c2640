package bank_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// historyFile has the steps of one history to play.
var historyFile = flag.String("history", "", "play the steps of this file")

// seeds and first say which fixed seeds are played.
var (
	seeds = flag.Uint64("seeds", fixedSeeds, "play so many histories of fixed seeds")
	first = flag.Uint64("first", 1, "the first of these seeds")
	cuts  = flag.Int("cuts", 60, "play so often at most to cut a history that fails")
)

// A history has so many steps. The audit takes as long as ten of them. So of every so many histories it is asked in one
// after each step that has written to the books, and in the others after every so many steps.
const (
	steps      = 120
	auditEach  = 5
	auditEvery = 20
)

// play plays a history, and returns what does not hold after a step. The audit is asked after each step that has
// written to the books, or after every so many steps.
func play(t testing.TB, e db.Engine, history []bank.Step, auditEvery int) (*table, error) {
	w := newTable(t, e)
	defer w.Stop()
	for i, s := range history {
		err := errors.Join(w.Play(s), w.CheckStep())
		if err == nil && i%auditEvery == auditEvery-1 && (auditEvery > 1 || w.hasWritten()) {
			err = w.audit()
		}
		if err != nil {
			return w, fmt.Errorf("step %d, %s: %w", i+1, s, err)
		}
	}
	err := w.Settle()
	if err == nil {
		err = errors.Join(w.CheckStep(), w.CheckSettled(), w.CheckTexts())
	}
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, w.Describe())
	}
	if err == nil {
		err = w.audit()
	}
	if err != nil {
		return w, fmt.Errorf("at the end: %w", err)
	}
	return w, nil
}

// hasWritten reports whether something was written to the books since it was last asked.
func (w *table) hasWritten() bool {
	var rows int
	err := w.DB.QueryRowContext(w.local.t.Context(), `SELECT (SELECT COUNT(*) FROM ledger)
		+ (SELECT COUNT(*) FROM payment_records) + (SELECT COUNT(*) FROM margin_records)
		+ (SELECT COUNT(*) FROM goodwill_records) + (SELECT COUNT(*) FROM call_refunds)
		+ (SELECT COUNT(*) FROM refunds) + (SELECT COUNT(*) FROM events) + (SELECT COUNT(*) FROM freezes)
		+ (SELECT COUNT(*) FROM disputes) + (SELECT COUNT(*) FROM losses)`).Scan(&rows)
	was := w.rows
	w.rows = rows
	return err != nil || rows != was
}

// audit is purser ledger verify.
func (w *table) audit() error {
	var out bytes.Buffer
	n, err := audit.VerifyAndPrint(w.local.t.Context(), w.at, &out, w.local.Now())
	if err != nil || n == 0 {
		return err
	}
	var found bytes.Buffer
	for line := range bytes.Lines(out.Bytes()) {
		if !bytes.Contains(line, []byte(" 0 findings")) {
			found.Write(line)
		}
	}
	return fmt.Errorf("verify: %s", found.Bytes())
}

// fixedSeeds is how many histories of the same seeds are played on SQLite. On PostgreSQL, where each takes longer, it
// is a third of them.
const fixedSeeds = 12

// newSeeds is for how long histories of new seeds are played on each engine after those.
func newSeeds(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PURSER_TEST_BOOKS")
	if text == "" && testkit.IsLong() {
		return 10 * time.Minute
	} else if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		t.Fatalf("PURSER_TEST_BOOKS: %q is not a duration", text)
	}
	return d
}

// TestBooks plays random histories of people, their banks and the operator. After each step the books agree with
// Stripe's as far as its events have come, and when all have come, in everything. PURSER_TEST_BOOKS says for how long
// new histories are played, such as 10m. A history that fails is printed, and a shorter one that fails, too:
// go test -history FILE plays it.
func TestBooks(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			done := map[string]int{}
			if *historyFile != "" {
				text, err := os.ReadFile(*historyFile)
				if err != nil {
					t.Fatal(err)
				}
				history, err := bank.Parse(string(text))
				if err != nil {
					t.Fatal(err)
				}
				playOne(t, e, "file", history, 1, done)
				return
			}
			count := *seeds
			if e == db.Postgres {
				count = (count + 2) / 3
			}
			for seed := *first; seed < *first+count && !t.Failed(); seed++ {
				every := auditEvery
				if seed%auditEach == 0 {
					every = 1
				}
				playOne(t, e, fmt.Sprint("seed ", seed), bank.Random(seed, steps), every, done)
			}
			until := time.Now().Add(newSeeds(t))
			n := 0
			for ; !t.Failed() && time.Now().Before(until); n++ {
				seed := rand.Uint64()
				playOne(t, e, fmt.Sprint("seed ", seed), bank.Random(seed, steps), auditEvery, done)
			}
			t.Logf("%d histories of fixed seeds, %d of new ones: %v", count, n, done)
		})
	}
}

// playOne plays a history, and prints it and a shorter one if it fails.
func playOne(t *testing.T, e db.Engine, name string, history []bank.Step, every int,
	done map[string]int) {
	t.Run(name, func(t *testing.T) {
		w, err := play(t, e, history, every)
		if err != nil {
			t.Errorf("%v\nhistory:\n%s\nshorter:\n%s", err, bank.Format(history), bank.Format(shrink(t, e, history)))
		}
		for what, n := range w.Done {
			done[what] += n
		}
	})
}

// shrink cuts a history that fails.
func shrink(t *testing.T, e db.Engine, history []bank.Step) []bank.Step {
	n := 0
	return bank.Shrink(history, *cuts, func(cut []bank.Step) (fails bool) {
		n++
		t.Run(fmt.Sprint("cut ", n), func(t *testing.T) {
			_, err := play(t, e, cut, 1)
			fails = err != nil
		})
		return fails
	})
}

// TestThirtyDays lets the jobs run for thirty days, with Stripe's events and without any, while people, banks and the
// network do what they like. Nothing that was asked of Stripe is unknown for two days, no email blames a bank that was
// not asked, and at the end both books have the same sums.
func TestThirtyDays(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		for name, events := range map[string]bool{"with events": true, "without events": false} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprint(e, " ", name, " ", seed), func(t *testing.T) {
					t.Parallel()
					playDays(t, newTable(t, e), seed, events)
				})
			}
		}
	}
}

// playDays plays three steps a day.
func playDays(t *testing.T, w *table, seed uint64, events bool) {
	defer w.Stop()
	others := []string{"event", "event-again", "event-never", "time", "transfers", "wait",
		"overtaken"}
	history := slices.DeleteFunc(bank.Random(3000+seed, 400), func(s bank.Step) bool {
		return slices.Contains(others, s.Do)
	})
	for day := range 30 {
		for _, s := range history[day*3 : day*3+3] {
			if err := w.Play(s); err != nil {
				t.Fatalf("day %d, %s: %v", day, s, err)
			}
		}
		w.Resume()
		if err := errors.Join(w.Day(events), w.CheckUnknown()); err != nil {
			t.Fatalf("day %d: %v\n%s\n%s", day, err, w.Describe(), bank.Format(history[:day*3+3]))
		}
	}
	if err := errors.Join(w.Settle(), w.CheckStep(), w.CheckSettled(), w.CheckTexts(), w.audit()); err != nil {
		t.Fatalf("at the end: %v\n%s\n%s", err, w.Describe(), bank.Format(history[:90]))
	}
}
