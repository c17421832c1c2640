package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// flood lets five clients call h for a moment, and returns what they found.
func flood(t *testing.T, h http.HandlerFunc) floodResult {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	list, err := floodSpec{
		slowSpec: slowSpec{URL: s.URL, Cell: "stream", Chunks: 5},
		Apps:     []floodApp{{Name: "A", Tokens: []string{"token"}, Clients: 5, Retry: time.Millisecond}},
		Duration: 500 * time.Millisecond,
		Share:    2,
	}.runApps()
	if err != nil {
		t.Fatal(err)
	}
	return list[0]
}

// refuse answers as a node that is full.
func refuse(w http.ResponseWriter, retryAfter string) {
	w.Header().Set("Retry-After", retryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(`{"error":{"code":"unavailable","message":"full"}}`))
}

// A node that takes two calls at a time is seen as one.
func TestFlood(t *testing.T) {
	t.Parallel()
	var inFlight, admitted, refused atomic.Int64
	r := flood(t, func(w http.ResponseWriter, r *http.Request) {
		defer inFlight.Add(-1)
		if inFlight.Add(1) > 2 {
			refused.Add(1)
			refuse(w, "1")
			return
		}
		admitted.Add(1)
		answerSlowly(w, r, 5, 2*time.Millisecond)
	})
	if r.Failed != 0 || r.Admitted != admitted.Load() || r.Answered != r.Admitted || r.Refused != refused.Load() ||
		r.FirstAdmitted < 1 || r.ShareUS < 0 || r.InFlight <= 0 || r.RefusalP50US <= 0 || r.FirstP50US <= 0 {
		t.Errorf("%d admitted, %d refused, but found %+v", admitted.Load(), refused.Load(), r)
	}
}

// What is neither a whole stream nor a refusal as it should be makes the run invalid.
func TestBrokenFloods(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]http.HandlerFunc{
		"a refusal that does not say when": func(w http.ResponseWriter, _ *http.Request) { refuse(w, "") },
		"another 503": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"cut":      func(w http.ResponseWriter, r *http.Request) { answerSlowly(w, r, 4, time.Millisecond) },
	} {
		r := flood(t, h)
		rep := report{Overload: []overloadSample{{Engine: "sqlite", Cell: "a cell", floodResult: r}}}
		if r.Failed < 5 || r.Admitted != 0 || rep.checkValid() == nil {
			t.Errorf("%s: %+v", name, r)
		}
		var out bytes.Buffer
		if rep.printOverload(&out); !strings.Contains(out.String(), "INVALID: sqlite, a cell") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}

// Calls in flight are counted by the time for which they are.
func TestCallsInFlight(t *testing.T) {
	t.Parallel()
	calls := []floodCall{{start: 0, end: 10}, {start: 5, end: 15}, {start: 12, end: 30}, {start: 14, end: 16}}
	if got := meanInFlight(calls, 10, 20); got != 1.5 {
		t.Errorf("%g in flight", got)
	}
	for share, want := range map[int]int64{1: 0, 2: 5, 3: 14, 4: -1} {
		if got := timeOfShare(calls, share); got != want {
			t.Errorf("%d were in flight at %d, not %d", share, want, got)
		}
	}
}

// The early clients begin first, then the others.
func TestClientsBegin(t *testing.T) {
	t.Parallel()
	all := floodApp{Clients: 4, Begin: 1, Spread: 8}
	early := floodApp{Clients: 6, Early: 2, Begin: 1, Spread: 8}
	for n, want := range []time.Duration{1, 5, 9, 11, 13, 15} {
		if n < all.Clients && all.beginOf(n) != 1+time.Duration(2*n) || early.beginOf(n) != want {
			t.Errorf("client %d begins at %d, or at %d", n, all.beginOf(n), early.beginOf(n))
		}
	}
}

// A is compared with A inside the bound, B with B alone, and medians are shown.
func TestOverloadTables(t *testing.T) {
	t.Parallel()
	var rep report
	for i, lag := range []int64{1000, 3000, 2000} {
		base := overloadSample{Engine: "sqlite", Cell: cellInside, floodResult: floodResult{App: "A", LagP99US: 1000}}
		s := overloadSample{Engine: "sqlite", Cell: "more", Round: i, PeakKiB: 2048, floodResult: floodResult{
			App: "A", Clients: 7, Refused: 80, RefusalP50US: 500, LagP99US: lag,
		}}
		s.compare(&base)
		b := overloadSample{Engine: "sqlite", Cell: "both", floodResult: floodResult{
			App: "B", Admitted: 3, Refused: 1, FirstAdmitted: 2, ShareUS: 1_500_000,
		}}
		rep.Overload = append(rep.Overload, base, s, b)
	}
	var out bytes.Buffer
	rep.printOverload(&out)
	for _, row := range []string{"| sqlite | more | 7 | 0 | 10 | 0.5 |", "| 2.0 | 2.00 |",
		"| sqlite | both | B | 0 | 0 | 4 | 75.0 % | 2 | 1.5 |"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no %q in\n%s", row, out.String())
		}
	}
}
