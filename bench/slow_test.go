package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// slowly lets three clients stream from h, and returns what they found.
func slowly(t *testing.T, cell string, spec slowSpec, h http.HandlerFunc) slowResult {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	spec.URL, spec.Tokens, spec.Cell, spec.Clients = s.URL, []string{"token"}, cell, 3
	r, err := spec.runClients()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every chunk of every dialect is read, with its lag.
func TestSlowStreams(t *testing.T) {
	t.Parallel()
	h := func(w http.ResponseWriter, r *http.Request) { answerSlowly(w, r, 5, time.Millisecond) }
	for _, cell := range []string{"stream", "anthropic", "google"} {
		r := slowly(t, cell, slowSpec{Chunks: 5}, h)
		if r.Answered != 3 || r.Lags != 15 || r.faults() != 0 || r.P50US < 0 || r.P99US < r.P50US {
			t.Errorf("%s: %+v", cell, r)
		}
		if r := slowly(t, cell, slowSpec{Chunks: warmChunks, Warm: true}, h); r.Answered != 3 {
			t.Errorf("%s, warming up: %+v", cell, r)
		}
	}
}

// A chunk that arrives late counts from the time at which it was to be sent.
func TestLagCountsFromThePlan(t *testing.T) {
	t.Parallel()
	r := slowly(t, "stream", slowSpec{Chunks: 1}, func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("@" + time.Now().Add(-time.Second).Format("20060102")))
	})
	if r.Failed != 3 {
		t.Errorf("a stamp that is cut: %+v", r)
	}
	r = slowly(t, "stream", slowSpec{Chunks: 1}, func(w http.ResponseWriter, _ *http.Request) {
		_, event, _ := slowDialect("")
		stamp := time.Now().Add(-time.Second).UnixMicro()
		fmt.Fprintf(w, event, fmt.Sprintf("%c%d ", stampMark, stamp))
	})
	if r.Answered != 3 || r.P50US < 1_000_000 {
		t.Errorf("%+v", r)
	}
}

// A stream that is cut, or not billed, makes the run invalid.
func TestBrokenSlowStreams(t *testing.T) {
	t.Parallel()
	whole := func(w http.ResponseWriter, r *http.Request) { answerSlowly(w, r, 5, time.Millisecond) }
	for name, h := range map[string]http.HandlerFunc{
		"not billed": whole,
		"cut": func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			answerSlowly(rec, r, 4, time.Millisecond)
			w.Write(append(rec.Body.Bytes(), `"settled"`...))
		},
		"refused": func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			answerSlowly(rec, r, 5, time.Millisecond)
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write(append(rec.Body.Bytes(), `"settled"`...))
		},
	} {
		r := slowly(t, "stream", slowSpec{Chunks: 5, Billed: true}, h)
		rep := report{Streams: []streamSample{{Gateway: "purser", slowResult: r}}}
		if r.Failed != 3 || rep.checkValid() == nil {
			t.Errorf("%s: %+v", name, r)
		}
		var out bytes.Buffer
		if rep.printStreams(&out); !strings.Contains(out.String(), "INVALID") {
			t.Errorf("%s: %s", name, out.String())
		}
	}
}
