package catalog

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
)

// A Source hands out the catalogue in force: the built-in book under the
// operator's file, which is read again when it has changed. A file that is wrong
// then changes nothing: the last good catalogue stays.
type Source struct {
	path    string
	log     *slog.Logger
	builtin *Catalog
	current atomic.Pointer[Catalog]

	mu       sync.Mutex
	seen     stamp // of the file that was read last, right or wrong
	waiting  stamp // of one that changed since, and may still be being written
	broken   atomic.Bool
	failures atomic.Int64
}

// stamp tells one state of a file from another; zero = there is none.
type stamp struct{ info fs.FileInfo }

func (s stamp) same(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == t.info
	}
	return os.SameFile(s.info, t.info) && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Size() == t.info.Size()
}

// Open returns the built-in book, changed by the operator's file unless path is
// empty. At the start, a file that is wrong is an error.
func Open(path string, log *slog.Logger) (*Source, error) {
	c, err := Builtin()
	if err != nil {
		return nil, err
	}
	s := &Source{path: path, log: log, builtin: c}
	s.current.Store(c)
	if path == "" {
		return s, nil
	}
	if s.seen, err = s.stat(); err != nil {
		return nil, err
	}
	s.waiting = s.seen
	return s, s.read()
}

// Current returns the catalogue in force. It never changes; whoever decides
// several things at once asks once.
func (s *Source) Current() *Catalog { return s.current.Load() }

// Failures counts the changes of the file that could not be used.
func (s *Source) Failures() int64 { return s.failures.Load() }

// Broken says whether the file, as it is now, could not be used.
func (s *Source) Broken() bool { return s.broken.Load() }

// Poll looks whether the file has changed, and reads it once it has stood
// unchanged from one Poll to the next: whoever writes it may not be done.
func (s *Source) Poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.stat()
	switch {
	case err != nil:
		s.lost(err)
	case now.same(s.seen):
		s.waiting = now
	case now.same(s.waiting):
		s.load(now)
	default:
		s.waiting = now
	}
}

// Reload reads the file at once, changed or not.
func (s *Source) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := s.stat(); err != nil {
		s.lost(err)
	} else {
		s.load(now)
	}
}

func (s *Source) stat() (stamp, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return stamp{}, fmt.Errorf("prices: %w", err)
	}
	return stamp{info}, nil
}

// lost notes once that the file is not there any longer. The prices stay: a file
// that is moved away for a moment must not bring the built-in ones back.
func (s *Source) lost(err error) {
	if s.seen.info != nil {
		s.seen, s.waiting = stamp{}, stamp{}
		s.fail(err)
	}
}

// load reads the file, whose state now stamps.
func (s *Source) load(now stamp) {
	s.seen, s.waiting = now, now
	if err := s.read(); err != nil {
		s.fail(err)
		return
	}
	s.broken.Store(false)
	s.log.Info("prices were read again", "file", s.path, "version", s.Current().Version())
}

func (s *Source) fail(err error) {
	s.failures.Add(1)
	s.broken.Store(true)
	s.log.Error("the prices were not read again; those before stay in force", "file", s.path, "version", s.Current().Version(), "error", err)
}

func (s *Source) read() error {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("prices: %w", err)
	}
	c, err := s.builtin.With(text)
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	s.current.Store(c)
	return nil
}
