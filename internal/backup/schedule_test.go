package backup

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A backup is written once a day, makes up for a time at which no node ran, and the oldest ones go.
func TestSchedule(t *testing.T) {
	t.Parallel()
	source := dbtest.URL(t, db.SQLite)
	folder := t.TempDir()
	now := time.Date(2026, 11, 21, 3, 59, 0, 0, time.UTC)
	var log bytes.Buffer
	s := &Schedule{
		Settings: Settings{At: "04:00", Folder: folder, Keep: 2},
		Database: source,
		Metrics:  metrics.New(nil, nil),
		Log:      slog.New(slog.NewTextHandler(&log, nil)),
		Now:      func() time.Time { return now },
	}
	once := func(want ...string) {
		t.Helper()
		if err := s.Once(t.Context()); err != nil {
			t.Error(err)
		}
		if names, err := s.listBackups(); err != nil || !slices.Equal(names, want) {
			t.Errorf("at %s: %q, %v; want %q", now, names, err, want)
		}
	}
	once("purser-20261120T0400.backup") // of the day before, which has none
	now = now.Add(2 * time.Minute)
	once("purser-20261120T0400.backup", "purser-20261121T0400.backup")
	now = now.Add(time.Hour)
	once("purser-20261120T0400.backup", "purser-20261121T0400.backup")
	kept := filepath.Join(folder, "purser-by-hand.backup")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(48 * time.Hour)
	once("purser-20261121T0400.backup", "purser-20261123T0400.backup")
	if _, err := os.Stat(kept); err != nil {
		t.Error("a file that the schedule has not written is gone")
	}
	if _, r, err := Verify(t.Context(), filepath.Join(folder, "purser-20261123T0400.backup"), nil); err != nil ||
		r.Findings > 0 {
		t.Error(r.Report, err)
	}
	if n := strings.Count(log.String(), "backup written"); n != 3 {
		t.Errorf("%d lines: %s", n, &log)
	}

	// Another node writes, until its file stops growing.
	now = now.Add(24 * time.Hour)
	partial := filepath.Join(folder, "purser-20261124T0400.backup.partial")
	if err := os.WriteFile(partial, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(partial, now, now); err != nil {
		t.Fatal(err)
	}
	once("purser-20261121T0400.backup", "purser-20261123T0400.backup")
	now = now.Add(staleAfter)
	once("purser-20261123T0400.backup", "purser-20261124T0400.backup")

	// A failure raises an alarm, keeps the old ones, and is tried again later.
	now = now.Add(24 * time.Hour)
	s.Database = "sqlite:" + folder + "/none.db"
	if err := s.Once(t.Context()); err == nil {
		t.Error("no failure")
	}
	s.Database = source
	once("purser-20261123T0400.backup", "purser-20261124T0400.backup")
	now = now.Add(retryPause)
	once("purser-20261124T0400.backup", "purser-20261125T0400.backup")

	// A backup that a clock ahead has dated stands for no other, and none is deleted for it.
	ahead := "purser-20271125T0400.backup"
	if err := os.WriteFile(filepath.Join(folder, ahead), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(24 * time.Hour)
	once("purser-20261125T0400.backup", "purser-20261126T0400.backup", ahead)
	if !strings.Contains(log.String(), "dated in the future") {
		t.Errorf("no word of it: %s", &log)
	}
	if err := os.Remove(filepath.Join(folder, ahead)); err != nil {
		t.Fatal(err)
	}
	// Another database has files of its own in the folder: neither stands for the other's, or is deleted for them.
	now = now.Add(24 * time.Hour)
	other := *s
	other.DatabaseID, other.Keep = "db_2", 1
	for range 2 {
		if err := other.Once(t.Context()); err != nil {
			t.Error(err)
		}
		if names, err := other.listBackups(); err != nil || len(names) != 1 ||
			names[0] != "purser-db_2-"+now.Format("20060102")+"T0400.backup" {
			t.Errorf("the other's: %q, %v", names, err)
		}
		now = now.Add(24 * time.Hour)
	}
	now = now.Add(-24 * time.Hour)
	s.At = ""
	now = now.Add(24 * time.Hour)
	once("purser-20261125T0400.backup", "purser-20261126T0400.backup")
}
