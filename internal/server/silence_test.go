package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// emulating starts a node whose live providers are all at one address, and may
// be silent for so long.
func emulating(t *testing.T, e db.Engine, header, idle time.Duration, at http.Handler) (n *node, url string) {
	t.Helper()
	srv := httptest.NewServer(at)
	t.Cleanup(srv.Close)
	url = dbtest.URL(t, e)
	n = startNode(t, url, nil)
	for _, p := range []provider.Provider{
		openai.New(srv.URL+"/v1", "k", openai.Timeouts(header, idle)),
		anthropic.New(srv.URL, "k", anthropic.Timeouts(header, idle)),
		google.New(srv.URL, "k", google.Timeouts(header, idle)),
	} {
		n.inference.Providers[p.Name()] = upstream.NewReliable(p, n.DB.Now, slog.New(slog.DiscardHandler),
			n.reportAlarm)
	}
	return n, url
}

// ask makes one call of 100 tokens and returns its answer.
func (n *node) ask(model, key, text string, stream bool) (int, string) {
	n.t.Helper()
	body := fmt.Sprintf(`{"stream":%t,"max_tokens":400,"messages":[{"role":"user","content":%q}]}`, stream, text)
	req, err := http.NewRequest("POST", n.base+"/v1/ai/"+model, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header = http.Header{
		"Authorization":   {"Bearer " + n.seeded.Connection.AccessToken},
		"Content-Type":    {"application/json"},
		"Idempotency-Key": {key},
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Error(err)
	}
	return resp.StatusCode, string(b)
}

// row is what the ledger has of a key.
func (n *node) row(key string) (settlement string, cost, charge, hold int64) {
	n.t.Helper()
	err := n.DB.QueryRowContext(n.t.Context(),
		`SELECT settlement, provider_cost_mc, user_charge_mc, hold_amount_mc FROM ledger WHERE type = 'spend' AND `+
			`key = $1`, key).Scan(&settlement, &cost, &charge, &hold)
	if err != nil {
		n.t.Errorf("key %s: %v", key, err)
	}
	return settlement, cost, charge, hold
}

// TestSilentProvider: a provider that says nothing is given up; what was
// delivered is billed as an estimate, and nothing stays held (F-17, F-18). The
// alarms of usage and of keys are counted.
func TestSilentProvider(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		n, url := emulating(t, e, 1500*time.Millisecond, time.Second, emulator.New(emulator.Options{}))
		for _, model := range []string{"gpt-6-luna", "claude-haiku-4-5", "gemini-3.8-flash"} {
			for _, c := range []struct {
				name, script string
				stream       bool
				status       int
			}{
				{"before the headers", "hang", false, 502}, {"before the headers", "hang", true, 502},
				{"within a whole answer", "hang=5 words=50", false, 502},
				{"within a stream", "hang=8 words=50", true, 200},
			} {
				where, key := model+", "+c.name, id.NewUUID()
				begun := time.Now()
				status, body := n.ask(model, key, "!emu "+c.script, c.stream)
				if took := time.Since(begun); status != c.status || took < 200*time.Millisecond ||
					took > 20*time.Second || !strings.Contains(body, `"code":"provider_error"`) {
					t.Errorf("%s: %s, %d %s", where, took, status, body)
				}
				if c.status == 200 {
					if settlement, _, charge, hold := n.row(key); settlement != "estimated" || charge <= 0 ||
						charge > hold || !strings.HasSuffix(body, "data: [DONE]\n\n") {
						t.Errorf("%s: %s, charged %d of %d: %s", where, settlement, charge, hold, body)
					}
					if _, again := n.ask(model, key, "!emu "+c.script, c.stream); again != body {
						t.Errorf("%s: replayed %s, first %s", where, again, body)
					}
				}
				var held int64
				if err := n.DB.QueryRowContext(t.Context(),
					`SELECT SUM(held_mc) FROM connections`).Scan(&held); err != nil || held != 0 {
					t.Errorf("%s: %d held, %v", where, held, err)
				}
				if status, body := n.ask(model, id.NewUUID(), "Hello", c.stream); status != 200 {
					t.Errorf("after %s: %d %s", where, status, body)
				}
			}
			n.ask(model, id.NewUUID(), "!emu status=401", false)
			for _, lie := range []string{"10,0,0,9000", "30000,0,0,9", "10,30000,0,9"} {
				key := id.NewUUID()
				n.ask(model, key, "!emu usage="+lie, false)
				if settlement, _, charge, hold := n.row(key); settlement != "estimated" || charge > hold {
					t.Errorf("%s: usage %s is %s, charged %d of %d", model, lie, settlement, charge, hold)
				}
			}
			if _, got := fetch(t, n.metrics+"/metrics"); !strings.Contains(got,
				`purser_alarms_total{alarm="absurd usage",subject="`+model+`"} `) {
				t.Errorf("%s: absurd usage raises no alarm", model)
			}
		}
		if _, got := fetch(t, n.metrics+"/metrics"); strings.Count(got,
			`purser_alarms_total{alarm="the key is refused",`) != 3 {
			t.Errorf("keys that are refused raise no alarm:\n%s", got)
		}
		n.stop()
		n.verify(url)
	})
}

// verify audits the database.
func (n *node) verify(url string) {
	n.t.Helper()
	var out bytes.Buffer
	if findings, err := audit.VerifyAndPrint(context.Background(), url, &out, time.Now()); err != nil || findings > 0 {
		n.t.Errorf("ledger verify: %d findings, %v\n%s", findings, err, out.String())
	}
}

// TestPricesChangeWithinACall: a call costs what was agreed to when it was held
// for, whatever becomes of the price or the model meanwhile (F-28).
func TestPricesChangeWithinACall(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		var gate gate
		n, url := emulating(t, e, time.Minute, time.Minute, gate.before(emulator.New(emulator.Options{})))
		for _, stream := range []bool{false, true} {
			for _, model := range []string{"gpt-6-luna", "claude-haiku-4-5", "gemini-3.8-flash"} {
				n.write("date: 2026-11-21\nmodels: [{id: gpt-4o-mini, off: true}]\n")
				n.catalog.Reload()
				const text = "!emu usage=1000,0,0,100 words=20"
				before := id.NewUUID()
				n.ask(model, before, text, stream)
				_, want, charge, _ := n.row(before)
				key, done := id.NewUUID(), make(chan int)
				arrived, open := gate.close()
				go func() {
					status, _ := n.ask(model, key, text, stream)
					done <- status
				}()
				<-arrived
				n.write("date: 2026-11-21\nmodels: [{id: " + model + ", off: true}]\n")
				n.catalog.Reload()
				if status, body := n.ask(model, id.NewUUID(), text, stream); status != 400 {
					t.Errorf("%s is retired: %d %s", model, status, body)
				}
				open()
				if status := <-done; status != 200 {
					t.Errorf("%s, stream %t: the call in flight ends with %d", model, stream, status)
				}
				if settlement, got, total, _ := n.row(key); settlement != "settled" || got != want ||
					total != charge || want <= 0 {
					t.Errorf("%s, stream %t: %s at %d, before %d", model, stream, settlement, got, want)
				}
			}
		}
		n.stop()
		n.verify(url)
	})
}

// gate keeps a provider's answers back for as long as a test wants them to be.
type gate struct{ closed atomic.Pointer[barrier] }

type barrier struct{ arrived, opened chan struct{} }

// close stops the next request, says when it is there, and returns what lets it pass.
func (g *gate) close() (arrived <-chan struct{}, open func()) {
	b := &barrier{make(chan struct{}), make(chan struct{})}
	g.closed.Store(b)
	return b.arrived, func() { close(b.opened) }
}

func (g *gate) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := g.closed.Swap(nil); b != nil {
			close(b.arrived)
			<-b.opened
		}
		h.ServeHTTP(w, r)
	})
}
