package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
)

// A Source has the current catalog: the built-in price list with the changes of the operator's file, which is read
// again when it has changed. A wrong file changes nothing: the last good catalog stays.
type Source struct {
	path    string
	log     *slog.Logger
	builtin *Catalog
	current atomic.Pointer[Catalog]

	mu       sync.Mutex
	text     []byte // of the file that the current catalog is of; nil = the built-in list alone
	read     stamp  // of the file that was read last, right or wrong
	pending  stamp  // of a file that changed since, and may still be being written
	broken   atomic.Bool
	failures atomic.Int64
}

// stamp identifies the state of a file; zero = there is none.
type stamp struct{ info fs.FileInfo }

func (s stamp) equal(t stamp) bool {
	if s.info == nil || t.info == nil {
		return s.info == t.info
	}
	return os.SameFile(s.info, t.info) && s.info.ModTime().Equal(t.info.ModTime()) && s.info.Size() == t.info.Size()
}

// Open returns a Source of the built-in price list and the operator's file at path, if path is not empty. A wrong file
// is an error.
func Open(path string, log *slog.Logger) (*Source, error) { return OpenOr(path, nil, log) }

// ErrFile is the error of a file with prices that cannot be used. The error that wraps it says why.
var ErrFile = errors.New("prices")

// OpenOr is Open, but with a wrong file it uses the text of the last good one, if that is not empty: a file that was
// broken while nodes ran must not keep them from starting again. The Source is Broken until the file is right.
func OpenOr(path string, lastGood []byte, log *slog.Logger) (*Source, error) {
	c, err := LoadBuiltin()
	if err != nil {
		return nil, err
	}
	s := &Source{path: path, log: log, builtin: c}
	s.current.Store(c)
	if path == "" {
		return s, nil
	}
	if s.read, err = s.statFile(); err == nil {
		err = s.readFile()
	}
	s.pending = s.read
	if err == nil {
		return s, nil
	}
	if len(lastGood) == 0 || s.use(lastGood) != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	s.reportFailure(err)
	return s, nil
}

// Text returns the text of the operator's file that the current catalog is of, nil if it is the built-in list alone.
func (s *Source) Text() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text
}

// Current returns the current catalog, which never changes. Related decisions must use the result of one call.
func (s *Source) Current() *Catalog { return s.current.Load() }

// Builtin returns the price list that is part of the binary.
func (s *Source) Builtin() *Catalog { return s.builtin }

// Failures returns the number of changed files that could not be used.
func (s *Source) Failures() int64 { return s.failures.Load() }

// Broken reports whether the present file could not be used.
func (s *Source) Broken() bool { return s.broken.Load() }

// Poll reads the file if it has changed, and has not changed again since the last Poll, so that it does not read a file
// that is half written.
func (s *Source) Poll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, err := s.statFile()
	switch {
	case err != nil:
		s.reportMissing(err)
	case now.equal(s.read):
		s.pending = now
	case now.equal(s.pending):
		s.reload(now)
	default:
		s.pending = now
	}
}

// Reload reads the file even if it has not changed.
func (s *Source) Reload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := s.statFile(); err != nil {
		s.reportMissing(err)
	} else {
		s.reload(now)
	}
}

func (s *Source) statFile() (stamp, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info}, nil
}

// reportMissing counts and logs once that the file is missing. The prices stay: they must not fall back to the built-in
// ones because a file is moved for a moment.
func (s *Source) reportMissing(err error) {
	if s.read.info != nil {
		s.read, s.pending = stamp{}, stamp{}
		s.reportFailure(err)
	}
}

// reload reads the file, whose state is now.
func (s *Source) reload(now stamp) {
	s.read, s.pending = now, now
	if err := s.readFile(); err != nil {
		s.reportFailure(err)
		return
	}
	s.broken.Store(false)
	s.log.Info("prices reloaded", "file", s.path, "version", s.Current().Version())
}

func (s *Source) reportFailure(err error) {
	s.failures.Add(1)
	s.broken.Store(true)
	s.log.Error("prices not reloaded", "file", s.path, "version", s.Current().Version(), "error", err)
}

func (s *Source) readFile() error {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	if err = CheckEnd(text); err == nil {
		err = s.use(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.path, err)
	}
	return nil
}

// endMark is the last line of a file of prices. In YAML it ends a document.
const endMark = "..."

// CheckEnd checks that a file of prices ends with its mark. Without the mark the half of a file that is still being
// copied, or did not fit on a disk, can be a right file in which prices and models are missing.
func CheckEnd(text []byte) error {
	lines := bytes.Split(bytes.TrimRight(text, " \t\r\n"), []byte("\n"))
	if last := lines[len(lines)-1]; string(last) != endMark {
		return fmt.Errorf("line %d: the last line must be %s, so that no part of the file can pass for the whole",
			len(lines), endMark)
	}
	return nil
}

// use makes a file's text the current catalog.
func (s *Source) use(text []byte) error {
	c, err := s.builtin.With(text)
	if err != nil {
		return err
	}
	s.text = text
	s.current.Store(c)
	return nil
}
