package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// callOnce lets a single client call h for a moment, and returns what it found.
func callOnce(t *testing.T, stream, billed bool, h http.HandlerFunc) loadResult {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	r, err := loadSpec{
		URL:      s.URL,
		Tokens:   []string{"token"},
		Clients:  1,
		Cell:     map[bool]string{false: "plain", true: "stream"}[stream],
		Billed:   billed,
		Duration: 30 * time.Millisecond,
	}.runClients()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// editAnswers answers as the upstream does, with its bytes changed by edit.
func editAnswers(edit func([]byte) []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		answerChat(rec, r)
		w.Write(edit(rec.Body.Bytes()))
	}
}

func TestGoodAnswersCount(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		r := callOnce(t, stream, false, answerChat)
		if r.faults() != 0 || r.Answered == 0 {
			t.Errorf("stream %v: %+v", stream, r)
		}
	}
}

func TestBrokenAnswersAreFaults(t *testing.T) {
	t.Parallel()
	cut := func(b []byte) []byte { return b[:len(b)/2] }
	tests := map[string]struct {
		stream, billed bool
		h              http.HandlerFunc
		count          func(loadResult) int64
	}{
		"whole answer cut": {false, false, editAnswers(cut), func(r loadResult) int64 { return r.Truncated }},
		"stream cut":       {true, false, editAnswers(cut), func(r loadResult) int64 { return r.Truncated }},
		"stream without a chunk": {true, false, editAnswers(func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"delta":{"content"`), []byte(`"x":{"content"`), 1)
		}), func(r loadResult) int64 { return r.Truncated }},
		"chunk sent twice": {true, false,
			editAnswers(func(b []byte) []byte { return append([]byte("data: {\"delta\":{}}\n\n"), b...) }),
			func(r loadResult) int64 {
				return r.Wrong
			}},
		"another text": {false, false,
			editAnswers(func(b []byte) []byte { return bytes.Replace(b, []byte("Thursday"), []byte("Tuesday"), 1) }),
			func(r loadResult) int64 {
				return r.Wrong
			}},
		"answer without a charge": {false, true, answerChat, func(r loadResult) int64 { return r.Wrong }},
		"stream without a charge": {true, true, answerChat, func(r loadResult) int64 { return r.Wrong }},
		"an error": {false, false, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(503)
		}, func(r loadResult) int64 {
			return r.Failed
		}},
		"a connection that breaks": {true, false, func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "data: {}\n\n")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, func(r loadResult) int64 { return r.Truncated }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := callOnce(t, tt.stream, tt.billed, tt.h)
			if r.Answered != 0 || tt.count(r) == 0 || tt.count(r) != r.faults() {
				t.Errorf("%+v", r)
			}
			rep := report{Samples: []sample{{loadResult: r}}}
			if rep.checkValid() == nil {
				t.Error("the run counts as valid")
			}
		})
	}
}

// A call without its row in the ledger makes the run invalid.
func TestMissingRowInvalidatesTheRun(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]ledgerCheck{
		"row missing": {Answered: 2, SpendRows: 1}, "row too many": {Answered: 1, SpendRows: 2},
		"hold open": {Answered: 1, SpendRows: 1, OpenHolds: 1}, "unreadable": {Error: "no such file"},
	} {
		if (&report{Audits: []ledgerCheck{a}}).checkValid() == nil {
			t.Errorf("%s: the run counts as valid", name)
		}
	}
	if err := (&report{Audits: []ledgerCheck{{Answered: 1, SpendRows: 1}}}).checkValid(); err != nil {
		t.Error(err)
	}
}

func TestFloorHandsOnWholeAnswers(t *testing.T) {
	t.Parallel()
	up := httptest.NewServer(http.HandlerFunc(answerChat))
	t.Cleanup(up.Close)
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []bool{false, true} {
		r := callOnce(t, stream, false, newFloor(target).ServeHTTP)
		if r.faults() != 0 || r.Answered == 0 {
			t.Errorf("stream %v: %+v", stream, r)
		}
	}
}

func TestPromptsAndKeysDiffer(t *testing.T) {
	t.Parallel()
	c := &client{rng: rand.New(rand.NewPCG(1, 2))}
	if a, b := c.newPrompt(), c.newPrompt(); bytes.Equal(a, b) || len(a) < 500 {
		t.Errorf("%s\n%s", a, b)
	}
	v4 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	for range 1000 {
		u := newUUID(c.rng)
		if !v4.MatchString(u) || seen[u] {
			t.Fatal(u)
		}
		seen[u] = true
	}
}

func TestTableShowsMedians(t *testing.T) {
	t.Parallel()
	var rep report
	for _, perSecond := range []float64{9000, 1000, 5000} {
		rep.Samples = append(rep.Samples, sample{
			Gateway:    "purser sqlite",
			Cell:       "plain",
			Clients:    64,
			OfFloor:    perSecond / 10000,
			loadResult: loadResult{PerSecond: perSecond},
		})
	}
	var out strings.Builder
	rep.printCell(&out, "plain", 64)
	if !strings.Contains(out.String(), "| 5000 | 0.50 |") {
		t.Error(out.String())
	}
}
