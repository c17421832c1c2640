package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Bounds of a box, as docs/internals/world.md has them.
const (
	maxStatements = 400      // of one request, with those of jobs at the same moment
	maxRows       = 20_000   // of a table, after the month of a history; as many as checkCanaries reads
	maxFileBytes  = 64 << 20 // of the database
	maxWALBytes   = 32 << 20
	quiet         = 5 * time.Minute // after which idle connections are closed
)

var (
	bubblePattern  = regexp.MustCompile(`^goroutine [0-9]+ \[.*, (synctest bubble [0-9]+)\]`)
	creatorPattern = regexp.MustCompile(`(?m)^created by (\S+)`)
)

// goroutines counts the goroutines of this bubble by what has begun them.
func goroutines() map[string]int {
	text := make([]byte, 1<<20) // outside of a bubble nobody can tell whose they are: none are counted
	for n := runtime.Stack(text, true); n == len(text); n = runtime.Stack(text, true) {
		text = make([]byte, 2*len(text))
	}
	counts, own := map[string]int{}, ""
	for block := range strings.SplitSeq(strings.TrimRight(string(text), "\x00"), "\n\n") {
		m := bubblePattern.FindStringSubmatch(block)
		if m == nil {
			continue
		}
		if own == "" { // the first is this one
			own = m[1]
		}
		if creator := creatorPattern.FindStringSubmatch(block); m[1] == own && creator != nil {
			counts[creator[1]]++
		}
	}
	return counts
}

// checkBounds compares what a box has at the end of a history with what it had at its begin, and with the bounds.
func (w *world) checkBounds() error {
	var wrong error
	w.Pass(quiet)
	for creator, n := range goroutines() {
		if n > w.begun[creator] {
			wrong = errors.Join(wrong, fmt.Errorf("bounds: %d goroutines are begun by %s, and were %d at the begin", n,
				creator, w.begun[creator]))
		}
	}
	tables, err := w.tables()
	if err != nil {
		return err
	}
	for _, table := range tables {
		var n int
		err := w.Server.DB.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM "`+table+`"`).Scan(&n)
		if err != nil {
			return err
		} else if n > maxRows {
			wrong = errors.Join(wrong, fmt.Errorf("bounds: %d rows are in %s", n, table))
		}
	}
	path := strings.TrimPrefix(w.config.Database, "sqlite:")
	for file, most := range map[string]int64{path: maxFileBytes, path + "-wal": maxWALBytes} {
		if info, err := os.Stat(file); err == nil && info.Size() > most {
			wrong = errors.Join(wrong, fmt.Errorf("bounds: %s has %d bytes", file, info.Size()))
		}
	}
	for _, request := range slices.Sorted(maps.Keys(w.statements)) {
		if n := w.statements[request]; n > maxStatements {
			wrong = errors.Join(wrong, fmt.Errorf("bounds: %d statements are run by %s", n, request))
		}
	}
	return wrong
}

// noteStatements keeps how many statements a request has run, the most of each kind.
func (b *Box) noteStatements(method, path string, n int) {
	path, _, _ = strings.Cut(idPattern.ReplaceAllString(path, "{}"), "?")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.statements[method+" "+path] = max(b.statements[method+" "+path], n)
}
