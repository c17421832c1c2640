package audit

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

func TestProgressLine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		p    Progress
		want string
	}{
		{Progress{Check: "I1 accounts"}, "0 % · I1 accounts"},
		{Progress{Check: "rows", Rows: 1500, Total: 30_000_000, Share: 0.415, Remaining: 61 * time.Second},
			"41 % · rows · 1,500 of 30,000,000 rows · about 1 min 1 s left"},
		{Progress{Check: "rows", Share: 1, Remaining: 1500 * time.Millisecond}, "100 % · rows · about 1.5 s left"},
		{Progress{Check: "rows", Remaining: 3*time.Hour + 61*time.Second}, "0 % · rows · about 3 h 1 min left"},
		{Progress{Check: "rows", Remaining: 42 * time.Second}, "0 % · rows · about 42 s left"},
	} {
		if got := tt.p.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	r := Result{LedgerRows: 3_000_000, Took: time.Minute}
	if got, want := r.Speed(), "verified 3,000,000 rows of the ledger in 1 min 0 s: 50,000 rows a second"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressOfAVerification verifies more than a page of rows: the share rises to all, and the rows to their number.
func TestProgressOfAVerification(t *testing.T) {
	t.Parallel()
	d, url := openDatabase(t, db.SQLite)
	var since *Checkpoint
	writeFixture(t, d, func(w *writer) {
		writeCalls(w, 2, noon.Add(-2*time.Hour))
		since = w.checkpoint()
		writeCalls(w, pageRows, noon.Add(-time.Hour))
	})
	for name, o := range map[string]Options{"whole": {Now: noon}, "since": {Now: noon, Since: since}} {
		var last Progress
		var checks int
		o.Progress = func(p Progress) {
			if p.Share < last.Share || p.Share > 1 || p.Rows < last.Rows {
				t.Errorf("%s: %+v follows %+v", name, p, last)
			}
			if last = p; p.Total == 0 {
				checks++
			}
		}
		r, err := Run(t.Context(), url, o)
		if err != nil || r.Findings > 0 {
			t.Fatalf("%s: %v\n%s", name, err, r.Report)
		}
		if last.Share < 0.999 || last.Rows != r.LedgerRows || last.Total != r.LedgerRows || checks < 40 || r.Took <= 0 {
			t.Errorf("%s: ended with %+v after %d checks, of %d rows", name, last, checks, r.LedgerRows)
		}
	}
}

func TestReporter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		terminal bool
		reports  []string
		want     string
	}{
		{true, nil, "\r\x1b[K"},
		{true, []string{"one", "two"}, "\r\x1b[K0 % · two\r\x1b[K"},
		{false, nil, ""},
		{false, []string{"one", "two"}, "0 % · two\n"},
	} {
		var out strings.Builder
		tick := make(chan time.Time)
		r := startReporter(&out, tt.terminal, tick)
		for _, check := range tt.reports {
			r.Report(Progress{Check: check})
		}
		tick <- noon
		r.Close()
		if got := out.String(); got != tt.want {
			t.Errorf("%+v: printed %q", tt, got)
		}
	}
}
