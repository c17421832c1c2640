package estimates

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func open(t *testing.T, d *db.DB, now *time.Time, log *bytes.Buffer) *Calibration {
	t.Helper()
	calibration, err := Load(t.Context(), d, func() time.Time { return *now }, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return calibration
}

// TestRestart shows that a restart keeps the statistics.
func TestRestart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var now time.Time
		var log bytes.Buffer
		first := open(t, d, &now, &log)
		for range 300 {
			first.Record("low", 1000, 1000, 1200)
			first.Record("high", 1000, 1000, 900)
		}
		for range 2 { // the second time nothing has changed
			if err := first.Save(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		first.Record("high", 1000, 1000, 950)
		if err := first.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := open(t, d, &now, &log)
		want := first.Stats()
		for i := range want {
			want[i].Alarms = 0 // they are of a process
		}
		if diff := cmp.Diff(want, second.Stats()); diff != "" {
			t.Errorf("after the restart:\n%s", diff)
		}
		for model, held := range map[string]int64{"low": 1200, "high": 950, "never seen": 1000} {
			if got := second.Correct(model, 1000); got != held {
				t.Errorf("%s: %d tokens held for 1000 counted, want %d", model, got, held)
			}
		}
		if got := second.Correct("low", 1); got != 2 { // rounded up
			t.Errorf("%d held for one", got)
		}
	})
}

// TestSaveAgain shows that statistics which could not be saved are saved the next time.
func TestSaveAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var now time.Time
		var log bytes.Buffer
		calibration := open(t, d, &now, &log)
		calibration.Record("m", 1000, 1000, 1000)
		if _, err := d.ExecContext(t.Context(), `ALTER TABLE estimates RENAME TO elsewhere`); err != nil {
			t.Fatal(err)
		}
		if err := calibration.Save(t.Context()); err == nil {
			t.Fatal("saved without a table")
		}
		if _, err := d.ExecContext(t.Context(), `ALTER TABLE elsewhere RENAME TO estimates`); err != nil {
			t.Fatal(err)
		}
		if err := calibration.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(calibration.Stats(), open(t, d, &now, &log).Stats()); diff != "" {
			t.Error(diff)
		}
	})
}

// Alarms are logged once an hour and model, and counted each time.
func TestAlarm(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	calibration := open(t, dbtest.Open(t, db.SQLite), &now, &log)
	lines := func(want int) {
		t.Helper()
		if n := strings.Count(log.String(), "level=ERROR"); n != want {
			t.Errorf("%d errors, want %d:\n%s", n, want, log.String())
		}
	}
	calibration.Record("a", 1000, 1000, 1050) // within the 5 %
	calibration.Record("a", 1000, 1300, 1300) // the correction made room
	lines(0)
	calibration.Record("a", 1000, 1000, 1051)
	calibration.Record("a", 1000, 1000, 2000)
	lines(1)
	calibration.Record("b", 1000, 1000, 2000)
	lines(2)
	now = now.Add(time.Hour - 1)
	calibration.Record("a", 1000, 1000, 2000)
	lines(2)
	now = now.Add(1)
	calibration.Record("a", 1000, 1000, 2000)
	lines(3)
	if r := calibration.Stats(); r[0].Alarms != 4 || r[1].Alarms != 1 ||
		!strings.Contains(log.String(), "model=a real_tokens=1051 held_tokens=1000") {
		t.Errorf("%+v\n%s", r, log.String())
	}
}

func TestNil(t *testing.T) {
	t.Parallel()
	var d *Calibration
	if d.Record("m", 1, 1, 1); d.Correct("m", 7) != 7 {
		t.Error("a nil Calibration corrects")
	}
}

// Calls record and correct while a job saves, for the race detector.
func TestTogether(t *testing.T) {
	t.Parallel()
	var now time.Time
	var log bytes.Buffer
	calibration := open(t, dbtest.Open(t, db.SQLite), &now, &log)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				calibration.Record("m", 1000, calibration.Correct("m", 1000), 900)
			}
		})
	}
	for range 5 {
		if err := calibration.Save(t.Context()); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if r := calibration.Stats(); r[0].Calls != 2000 || calibration.Correct("m", 1000) != 900 {
		t.Errorf("%+v", r)
	}
}

// BenchmarkCorrectAndRecord is what a call pays for being compared.
func BenchmarkCorrectAndRecord(b *testing.B) {
	d := &Calibration{now: time.Now, models: map[string]*model{}}
	b.ReportAllocs()
	for b.Loop() {
		d.Record("gpt-6-luna", 1000, d.Correct("gpt-6-luna", 1000), 1010)
	}
}
