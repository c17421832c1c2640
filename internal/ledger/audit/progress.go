package audit

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A Progress is how far a verification is.
type Progress struct {
	Check     string // what is being checked
	Rows      int64  // of the ledger, that the rules were applied to; this is the last and longest part
	Total     int64  // of them; 0 = the part has not begun
	Share     float64
	Remaining time.Duration // estimated; 0 = not known yet
}

// String returns the progress as a line.
func (p Progress) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %% · %s", int(100*p.Share), p.Check)
	if p.Total > 0 {
		fmt.Fprintf(&b, " · %s of %s rows", formatCount(p.Rows), formatCount(p.Total))
	}
	if p.Remaining > 0 {
		fmt.Fprintf(&b, " · about %s left", formatDuration(p.Remaining))
	}
	return b.String()
}

// formatDuration formats a duration in its two largest units.
func formatDuration(d time.Duration) string {
	switch s := int64(d.Round(time.Second) / time.Second); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	default:
		return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
	}
}

// Speed says how many rows of the ledger were read one by one, and how fast the whole verification was.
func (r Result) Speed() string {
	return fmt.Sprintf("verified %s rows of the ledger in %s: %s rows a second", formatCount(r.LedgerRows),
		formatDuration(r.Took), formatCount(int64(float64(r.LedgerRows)/max(r.Took.Seconds(), 1e-6))))
}

// The work of a verification is counted in statements that read the whole ledger. These are the work of the rules, and
// of what reads every leaf of the public log, as measured.
const (
	rulesWork = 10
	logWork   = 2
)

// work estimates the work of a check that is no rule.
func (c *check) work() float64 {
	if strings.HasPrefix(c.title, "log:") {
		return logWork
	}
	work := 0.02 + float64(strings.Count(c.query, "{ledger}")+strings.Count(c.count, "{ledger}"))
	if strings.Contains(c.query, "{input}") { // JSON of each row
		work += 4
	}
	return work + 0.6*float64(strings.Count(c.query, "{a day ago led_}"))
}

// A workMeter tells how much of a verification is done. Without tell it does nothing.
type workMeter struct {
	tell      func(Progress)
	began     time.Time
	done, all float64
}

// newWorkMeter returns a meter for a verification by these checks.
func newWorkMeter(tell func(Progress), results []*checkResult) workMeter {
	m := workMeter{tell: tell, began: time.Now(), all: rulesWork}
	for _, v := range results {
		if v.findViolation == nil {
			m.all += v.work()
		}
	}
	return m
}

// beginCheck tells which check begins.
func (m *workMeter) beginCheck(c *check) {
	m.report(Progress{Check: c.id + " " + c.title}, 0)
}

// endCheck notes that a check has ended.
func (m *workMeter) endCheck(c *check) { m.done += c.work() }

// readRows tells to how many rows the rules were applied.
func (m *workMeter) readRows(rows, total int64) {
	m.report(Progress{Check: "each row of the ledger", Rows: rows, Total: total},
		rulesWork*float64(rows)/float64(max(total, 1)))
}

func (m *workMeter) report(p Progress, underWay float64) {
	if m.tell == nil {
		return
	}
	p.Share = min(1, (m.done+underWay)/m.all)
	if took := time.Since(m.began); p.Share > 0.02 && took > 2*time.Second {
		p.Remaining = time.Duration(float64(took) * (1 - p.Share) / p.Share)
	}
	m.tell(p)
}

// A Reporter prints the progress of a verification: to a terminal, where a line replaces the one before it, or to a
// log, line after line.
type Reporter struct {
	out      io.Writer
	terminal bool
	stop     chan struct{}
	stopped  sync.WaitGroup

	mu   sync.Mutex
	last string
}

// How often progress is printed.
const (
	terminalInterval = 200 * time.Millisecond
	logInterval      = 10 * time.Second
)

// NewReporter returns a Reporter for a verification that begins. Its Close must be called.
func NewReporter(out io.Writer, terminal bool) *Reporter {
	interval := logInterval
	if terminal {
		interval = terminalInterval
	}
	return startReporter(out, terminal, time.Tick(interval))
}

func startReporter(out io.Writer, terminal bool, tick <-chan time.Time) *Reporter {
	r := &Reporter{out: out, terminal: terminal, stop: make(chan struct{})}
	r.stopped.Go(func() {
		for {
			select {
			case <-tick:
				r.print()
			case <-r.stop:
				return
			}
		}
	})
	return r
}

// Report notes the progress. It is printed when it is time.
func (r *Reporter) Report(p Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = p.String()
}

// print prints the last progress. The verification goes on when it cannot be written.
func (r *Reporter) print() {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.last == "":
	case r.terminal:
		_, _ = fmt.Fprintf(r.out, "\r\x1b[K%s", r.last)
	default:
		_, _ = fmt.Fprintln(r.out, r.last)
	}
}

// Close ends the printing, and removes the line from a terminal.
func (r *Reporter) Close() {
	close(r.stop)
	r.stopped.Wait()
	if r.terminal {
		_, _ = io.WriteString(r.out, "\r\x1b[K")
	}
}
