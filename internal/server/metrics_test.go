package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestLongLogIsAnAlarm: the log of a SQLite file that something keeps from beginning anew is told once, when it is
// long.
func TestLongLogIsAnAlarm(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	if _, err := d.ExecContext(t.Context(), `CREATE TABLE written (n INTEGER)`); err != nil || d.LogSize() == 0 {
		t.Errorf("the log of a file has %d bytes, %v", d.LogSize(), err)
	}
	var told lines
	s := &Server{log: slog.New(slog.NewTextHandler(&told, nil))}
	for _, size := range []int64{0, longLog - 1, longLog, longLog + 1, 5, longLog} {
		s.noteLogSize(size)
	}
	if n := strings.Count(told.b.String(), "level=ERROR"); n != 2 {
		t.Errorf("told %d times", n)
	}
}

// heavy is a provider that reads 13 tokens where we count 10; asked to fail,
// it is overloaded.
type heavy struct{}

func (heavy) Name() string { return "openai" }

func (heavy) Complete(_ context.Context, r *provider.Request) (*provider.Response, error) {
	if strings.Contains(r.Turns[0].Blocks[0].Text, "fail") {
		return nil, &provider.Error{Status: 529, Message: "overloaded"}
	}
	counted := tokens.CountRequest(r, "gpt-6")
	return &provider.Response{
		Body:  []byte(`{"object":"chat.completion","choices":[]}`),
		Usage: &provider.Usage{Input: counted * 13 / 10, Output: 5},
	}, nil
}

func (heavy) Stream(context.Context, *provider.Request) (provider.Stream, error) {
	return nil, &provider.Error{Message: "no streams"}
}

// node is a server of this process: a live app at a provider of the test, with
// metrics and with prices that the test rewrites.
type node struct {
	*Server
	t             *testing.T
	seeded        sample.Data
	base, metrics string
	prices        string
	stop          func()
}

// unusual are thresholds that no test reaches: tests spend faster than people.
var unusual = limits.RiskThresholds{FloorMC: money.Dollar, Warn: 1_000_000, Throttle: 1_000_000, Freeze: 1_000_000}

// startNode starts a node whose calls to OpenAI go to p; nil = as its settings say.
func startNode(t *testing.T, url string, p provider.Provider, changes ...func(*config.Config)) *node {
	t.Helper()
	n := &node{t: t, prices: filepath.Join(t.TempDir(), "prices.yaml")}
	n.write("date: 2026-11-21\nmodels: [{id: gpt-4o-mini, off: true}]\n")
	listener := func() (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, "http://" + l.Addr().String()
	}
	l, base := listener()
	n.base = base
	c := config.Config{
		Database:     url,
		BaseURL:      base,
		AuthURL:      base,
		DashboardURL: base,
		Policy:       policy.Default,
		Lease:        time.Minute,
		PricesFile:   n.prices,
		EnvelopeKeys: [][]byte{make([]byte, 32)},
	}
	c.Policy.SandboxDayMC, c.Policy.SandboxTotalDayMC = money.Max, money.Max
	c.Policy.Risk = unusual
	for _, change := range changes {
		change(&c)
	}
	var err error
	if n.Server, err = Open(t.Context(), c, slog.New(slog.DiscardHandler), true); err != nil {
		t.Fatal(err)
	}
	n.metricsListener, n.metrics = listener()
	if p != nil {
		n.inference.Providers["openai"] = p
	}
	if n.seeded, err = seed(t, n.Server); err != nil {
		t.Fatal(err)
	}
	if _, err := n.DB.ExecContext(t.Context(), `UPDATE apps SET provider_mode = 'live'`); err != nil {
		t.Fatal(err)
	}
	n.Mount(ui.Home{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx, []net.Listener{l}) }()
	n.stop = func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}
	return n
}

func (n *node) write(prices string) {
	n.t.Helper()
	if err := os.WriteFile(n.prices, []byte(prices+"...\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// call makes one call and returns its status and its hold.
func (n *node) call(model, text string) (int, int64) {
	n.t.Helper()
	body := fmt.Sprintf(`{"max_tokens":10,"messages":[{"role":"user","content":%q}]}`, text)
	req, err := http.NewRequest("POST", n.base+"/v1/ai/"+model, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.seeded.Connection.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id.NewUUID())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	var v struct {
		SVC struct {
			Hold int64 `json:"hold_amount_mc"`
		} `json:"svc"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		n.t.Fatal(err)
	}
	return resp.StatusCode, v.SVC.Hold
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestMetrics runs live calls whose input is counted too low: the metrics show
// it, the alarm counts, the next holds are higher, and a restart remembers.
func TestMetrics(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			url := dbtest.URL(t, e)
			n := startNode(t, url, heavy{})
			text := strings.Repeat("metered ", 300)
			_, first := n.call("gpt-6-luna", text)
			for range 49 {
				n.call("gpt-6-luna", text)
			}
			status, corrected := n.call("gpt-6-luna", text)
			if status != 200 || corrected*100 < first*125 {
				t.Errorf("%d: %d is held after 50 calls, %d at first", status, corrected, first)
			}
			if status, _ := n.call("gpt-6-luna", "fail"); status != 502 {
				t.Errorf("failed with %d", status)
			}
			if status, _ := n.call("gpt-4o-mini", text); status != 400 {
				t.Errorf("a model that is off answered %d", status)
			}
			version := n.catalog.Current().Version()
			n.write("models: [")
			n.catalog.Reload()
			_, got := fetch(t, n.metrics+"/metrics")
			for _, line := range []string{
				`purser_calls_total{model="gpt-6-luna",outcome="settled",provider="openai"} 51`,
				`purser_calls_total{model="gpt-6-luna",outcome="failed",provider="openai"} 1`,
				`purser_call_seconds_count{model="gpt-6-luna",provider="openai"} 52`,
				`purser_provider_errors_total{provider="openai",status="529"} 1`,
				`purser_refused_calls_total{code="invalid_request"} 1`,
				`purser_refused_calls_total{code="provider_error"} 1`,
				`purser_estimate_calls_total{model="gpt-6-luna"} 51`,
				`purser_estimate_alarms_total{model="gpt-6-luna"} 50`,
				`purser_estimate_factor{model="gpt-6-luna"} 1.29`,
				`purser_estimate_ratio{model="gpt-6-luna"} 1.29`,
				`purser_prices_info{version="` + version + `"} 1`,
				`purser_prices_broken 1`,
				`purser_prices_failures_total 1`,
			} {
				if !strings.Contains(got, "\n"+line) {
					t.Errorf("%s is missing", line)
				}
			}
			if t.Failed() {
				t.Log(got)
			}
			if status, text := fetch(t, n.base+"/metrics"); status != 404 || strings.Contains(text, "purser_") {
				t.Errorf("apps are answered %d %s", status, text)
			}
			if status, _ := fetch(t, n.metrics+"/v1/models"); status != 404 {
				t.Errorf("the metrics' address answers %d for the API", status)
			}
			n.stop()
			again := startNode(t, url, heavy{})
			if _, hold := again.call("gpt-6-luna", text); hold != corrected {
				t.Errorf("after a restart %d is held, before %d", hold, corrected)
			}
			again.stop()
			var out bytes.Buffer
			if findings, err := audit.VerifyAndPrint(context.Background(), url, &out, time.Now()); err != nil ||
				findings > 0 {
				t.Errorf("ledger verify: %d findings, %v\n%s", findings, err, out.String())
			}
		})
	}
}
