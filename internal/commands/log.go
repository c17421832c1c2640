package commands

import (
	"bufio"
	"bytes"
	"io"
	"sync"
	"time"
)

// logWriter buffers log lines for at most logDelay, because a write for each would cost a
// busy node more than the lines themselves. A warning or an error is written immediately,
// with everything before it.
type logWriter struct {
	mu  sync.Mutex
	buf *bufio.Writer
}

// logDelay is how long a line of level info or debug may wait.
const logDelay = 100 * time.Millisecond

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{buf: bufio.NewWriterSize(w, 64<<10)}
	go func() {
		for range time.Tick(logDelay) { // as long as the process
			l.flushLines()
		}
	}()
	return l
}

var quietLevels = [][]byte{[]byte(`"level":"INFO"`), []byte(`"level":"DEBUG"`)}

// Write takes one line, as slog's handlers write them.
func (l *logWriter) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.buf.Write(line)
	head := line[:min(len(line), 80)] // time and level come first
	if err != nil || bytes.Contains(head, quietLevels[0]) || bytes.Contains(head, quietLevels[1]) {
		return n, err
	}
	return n, l.buf.Flush()
}

func (l *logWriter) flushLines() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.buf.Flush() // an error of the log cannot be logged
}
