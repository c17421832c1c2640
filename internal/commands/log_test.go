package commands

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// lockedBuffer is written by the log's own goroutine too.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) lines() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), "\n")
}

// TestTroubleIsLoggedAtOnce shows that a warning takes the lines before it along.
func TestTroubleIsLoggedAtOnce(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	log := slog.New(slog.NewJSONHandler(newLogWriter(&out), nil))
	for range 10 {
		log.Info("quiet")
	}
	log.Warn("trouble")
	if n := out.lines(); n != 11 {
		t.Errorf("%d lines are out, want 11", n)
	}
	log.Info("quiet")
	log.Error("trouble")
	if n := out.lines(); n != 13 {
		t.Errorf("%d lines are out, want 13", n)
	}
}
