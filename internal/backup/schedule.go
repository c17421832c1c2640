package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/purserhq/purser/internal/base/rowfile"
	"github.com/purserhq/purser/internal/models/metrics"
)

// Settings are the daily backups of a node. The zero value is none.
type Settings struct {
	At         string // time of day in UTC, as 04:00; "" = none
	Folder     string // where the files are
	Keep       int    // number of files that are kept
	Recipients []age.Recipient
}

// A Schedule writes a backup each day and deletes the oldest ones. The folder is its only state: a backup is due if
// the folder has none of the day. So a node that was down at that time makes up for it, and of several nodes that
// share a folder one writes. Files of other databases in the folder count for nothing, and are not deleted.
type Schedule struct {
	Settings
	Database   string
	DatabaseID string // is in the names of its files; "" = those without an id
	Metrics    *metrics.Metrics
	Log        *slog.Logger
	Now        func() time.Time

	retryAt time.Time // after a failure
}

const (
	filePrefix = "purser-"
	fileSuffix = ".backup"
	fileTime   = "20060102T1504" // of the time at which it was due, UTC

	retryPause   = 10 * time.Minute // after a failed backup
	staleAfter   = 30 * time.Minute // an incomplete file that did not grow for so long was interrupted
	alarmFailure = "backup failed"
	alarmFuture  = "backups are dated in the future"
)

// Once writes the backup of the day if it is due.
func (s *Schedule) Once(ctx context.Context) error {
	at, err := time.Parse("15:04", s.At)
	if err != nil {
		return nil // there is none
	}
	now := s.Now().UTC()
	if now.Before(s.retryAt) {
		return nil
	}
	if err := s.writeDue(ctx, now, lastDue(now, at)); err != nil {
		s.retryAt = now.Add(retryPause)
		s.Metrics.RaiseAlarm(alarmFailure, "")
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

// lastDue returns the last time not after now that has the time of day of at.
func lastDue(now, at time.Time) time.Time {
	due := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
	if now.Before(due) {
		due = due.AddDate(0, 0, -1)
	}
	return due
}

func (s *Schedule) writeDue(ctx context.Context, now, due time.Time) error {
	files, future, err := s.listPast(now)
	if err != nil {
		return err
	}
	if n := len(files); n == 0 {
		s.Metrics.SetNewestBackup(time.Unix(0, 0))
	} else {
		newest, err := s.timeOf(files[n-1])
		if err != nil {
			return err
		}
		s.Metrics.SetNewestBackup(newest)
		if !newest.Before(due) {
			return nil
		}
	}
	path := filepath.Join(s.Folder, s.prefix()+due.Format(fileTime)+fileSuffix)
	if wait, err := removeStale(path+partialSuffix, now); err != nil || wait {
		return err
	}
	m, err := Create(ctx, s.Database, path, s.Recipients)
	if err != nil {
		return err
	}
	s.Metrics.SetNewestBackup(due)
	s.Log.Info("backup written", "file", path, "rows", m.Rows(), "ledger_rows", m.Heads.Entries,
		"heads", m.Heads.Digest, "digest", m.Digest, "duration", m.EndedAt.Sub(m.BeganAt))
	if len(future) > 0 {
		s.Metrics.RaiseAlarm(alarmFuture, "")
		s.Log.Error("backup is dated in the future", "file", filepath.Join(s.Folder, future[0]))
	}
	return s.deleteOld(now)
}

// prefix begins the names of the database's files.
func (s *Schedule) prefix() string {
	if s.DatabaseID == "" {
		return filePrefix
	}
	return filePrefix + s.DatabaseID + "-"
}

// listPast returns the names of the backups that were due by now, oldest first, and of those that a clock which was
// ahead has dated in the future: they are no reason to write none, and none is deleted for them.
func (s *Schedule) listPast(now time.Time) (past, future []string, err error) {
	names, err := s.listBackups()
	for i, name := range names {
		if at, err := s.timeOf(name); err == nil && at.After(now) {
			return names[:i], names[i:], nil
		}
	}
	return names, nil, err
}

// listBackups returns the names of the database's backups in the folder, oldest first.
func (s *Schedule) listBackups() (names []string, err error) {
	entries, err := os.ReadDir(s.Folder) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, err := s.timeOf(e.Name()); err == nil {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// timeOf returns the time at which a backup was due, which is in its name.
func (s *Schedule) timeOf(name string) (time.Time, error) {
	text, isPrefixed := strings.CutPrefix(name, s.prefix())
	text, isSuffixed := strings.CutSuffix(text, fileSuffix)
	if !isPrefixed || !isSuffixed {
		return time.Time{}, rowfile.ErrFormat
	}
	return time.Parse(fileTime, text)
}

// removeStale removes an incomplete file that was interrupted. It returns true if another node writes it.
func removeStale(partial string, now time.Time) (wait bool, err error) {
	info, err := os.Stat(partial)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if now.Sub(info.ModTime()) < staleAfter {
		return true, nil
	}
	return false, removeIfThere(partial)
}

// deleteOld deletes the oldest backups beyond those that are kept.
func (s *Schedule) deleteOld(now time.Time) error {
	files, _, err := s.listPast(now)
	if err != nil {
		return err
	}
	for _, name := range files[:max(0, len(files)-s.Keep)] {
		if err := removeIfThere(filepath.Join(s.Folder, name)); err != nil {
			return err
		}
	}
	return nil
}
