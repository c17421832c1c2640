package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// dearModel is a model whose calls without max_tokens are held for more than $1.
const dearModel = "gpt-6-astra"

// askDear asks the dear model without max_tokens.
func askDear(p *nodetest.Node, script string, stream bool, more ...string) *http.Response {
	return askDearBy(p, servertest.UUID(), script, stream, more...)
}

// askDearBy is askDear with a key.
func askDearBy(p *nodetest.Node, key, script string, stream bool, more ...string) *http.Response {
	text, _ := json.Marshal(script)
	body := fmt.Sprintf(`{"model":%q,"stream":%t,"messages":[{"role":"user","content":%s}]`, dearModel, stream, text)
	return p.Call("POST", "/v1/ai/"+dearModel, body+strings.Join(append([]string{""}, more...), ",")+"}",
		"Idempotency-Key: "+key)
}

// patchApp changes the sample app.
func patchApp(t *testing.T, p *nodetest.Node, body string) {
	t.Helper()
	req, err := http.NewRequest("PATCH", p.BaseURL+"/v1/apps/"+p.App.ID, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if a := apitest.Read(t, resp); a.Status != 200 {
		t.Fatalf("PATCH %s: %+v", body, a)
	}
}

// leave lets the sample connection of a database that no node has open spend this much.
func leave(t *testing.T, url string, amount money.MC) {
	t.Helper()
	d := dbtest.OpenURL(t, url)
	more := rules.ChangeCap{TargetMC: amount}
	err := d.QueryRowContext(t.Context(), `SELECT id FROM connections`).Scan(&more.ConnectionID)
	if err == nil {
		_, err = store.NewWriter(d, d.Now).Do(t.Context(), more)
	}
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
}

// estimated is the answer of POST /v1/estimate.
type estimated struct {
	Fits             bool
	MaxTokens        int64    `json:"max_tokens"`
	CappedBy         string   `json:"capped_by"`
	FitMinTokens     *int64   `json:"fit_min_tokens"`
	MaxTokensThatFit int64    `json:"max_tokens_that_fit"`
	MaxTokensApplied *int64   `json:"max_tokens_applied"`
	HoldMC           money.MC `json:"hold_amount_mc"`
	PaidBy           *string  `json:"paid_by"`
	Refusal          *struct{ Message string }
	Expected         estimatedCosts
	Largest          estimatedCosts
}

type estimatedCosts struct {
	OutputTokens int64    `json:"output_tokens"`
	OutputBasis  string   `json:"output_basis"`
	UserChargeMC money.MC `json:"user_charge_mc"`
	CostMC       money.MC `json:"provider_cost_mc"`
	Lines        []struct{ Class string }
}

func readEstimate(t *testing.T, resp *http.Response) (e estimated) {
	t.Helper()
	a := apitest.Read(t, resp)
	if err := json.Unmarshal([]byte(a.Body), &e); err != nil || a.Status != 200 {
		t.Fatalf("%v: %+v", err, a)
	}
	return e
}

func estimateDear(t *testing.T, p *nodetest.Node, script string, more ...string) estimated {
	t.Helper()
	text, _ := json.Marshal(script)
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%s}]`, dearModel, text)
	return readEstimate(t, p.Call("POST", "/v1/estimate", body+strings.Join(append([]string{""}, more...), ",")+"}"))
}

// TestFitRace lets 64 callers race for $1 without max_tokens, on two processes where the database
// allows it. Each call is lowered to what is left. None is refused while the floor fits, no call
// costs more than its hold and no hold more than what is left, and at the end less than the
// floor's hold remains.
func TestFitRace(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		url := servertest.URL(t, db.SQLite)
		leave(t, url, money.Dollar)
		raceForOneDollar(t, servertest.Start(t, url))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := servertest.URL(t, db.Postgres)
		leave(t, url, money.Dollar)
		raceForOneDollar(t, servertest.Start(t, url), servertest.Start(t, url))
	})
}

// racers is the result of a race.
type racers struct {
	mu       sync.Mutex
	answered int
	lowered  int
	waited   int // refusals while calls in flight held the rest
	charged  money.MC
}

func raceForOneDollar(t *testing.T, nodes ...*servertest.Process) {
	const callers = 64
	script := func(i int) string { return fmt.Sprintf("!mock words=600 case=%02d", i) } // one length for all
	patchApp(t, nodes[0].Node, `{"fit":true,"default_max_tokens":null}`)
	floor := estimateDear(t, nodes[0].Node, script(0), `"max_tokens":256`).HoldMC
	var r racers
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() { r.callUntilSpent(t, nodes[i%len(nodes)], script(i), i, floor) })
	}
	all.Wait()
	var conn struct {
		Consumed  money.MC `json:"consumed_mc"`
		Held      money.MC `json:"held_mc"`
		Remaining money.MC `json:"allocation_remaining_mc"`
	}
	shown := apitest.Read(t, nodes[0].Call("GET", "/v1/connection", ""))
	if err := json.Unmarshal([]byte(shown.Body), &conn); err != nil {
		t.Fatal(err)
	}
	if conn.Consumed != r.charged || conn.Held != 0 || conn.Remaining < 0 || conn.Remaining >= floor {
		t.Errorf("%+v; %d were charged, and the floor holds %d", conn, r.charged, floor)
	}
	if r.lowered == 0 || r.waited == 0 || r.answered < 10 {
		t.Errorf("vacuous: %d answered, %d lowered, %d waited", r.answered, r.lowered, r.waited)
	}
	t.Logf("%d answered, %d lowered, %d refusals while others held the rest, %d mc charged", r.answered, r.lowered,
		r.waited, r.charged)
	nodes[0].Verify()
}

// callUntilSpent repeats a call with new keys until the rest of the allocation does not cover its
// lowest cap. Every fourth caller sends a max_tokens that often fits as it is.
func (r *racers) callUntilSpent(t *testing.T, p *servertest.Process, script string, i int, floor money.MC) {
	var more []string
	if i%4 == 0 {
		more = []string{`"max_tokens":1500`}
	}
	key := servertest.UUID()
	for until := time.Now().Add(testkit.Patience); ; key = servertest.UUID() {
		a := apitest.Read(t, askDearBy(p.Node, key, script, i%2 == 0, more...))
		for a.Status == 200 && strings.Contains(a.Body, `data: {"error":`) && time.Now().Before(until) {
			a = apitest.Read(t, askDearBy(p.Node, key, script, i%2 == 0, more...)) // a busy machine could not record it
		}
		switch {
		case a.Status == 200:
			r.countAnswer(t, a)
		case a.Status == 402:
			d := a.Details
			if d["capped_by"] != "fit_min_tokens" || d["required_mc"] != float64(floor) ||
				d["remaining_mc"].(float64) >= float64(floor) || d["max_tokens_that_fit"].(float64) >= 256 {
				t.Errorf("refused while the floor of %d fits: %+v", floor, a)
				return
			}
			if d["reason"] != "held_by_in_flight" {
				return
			}
			r.mu.Lock()
			r.waited++
			r.mu.Unlock()
			time.Sleep(time.Duration(5+i) * time.Millisecond) // as a client would
		default:
			t.Errorf("%+v", a)
			return
		}
		if time.Now().After(until) {
			t.Error("the race does not end")
			return
		}
	}
}

func (r *racers) countAnswer(t *testing.T, a apitest.Answer) {
	svc := a.Svc(t)
	number := func(name string) money.MC { n, _ := svc[name].(float64); return money.MC(n) }
	if number("user_charge_mc") > number("hold_amount_mc") || number("max_tokens_applied") < 256 {
		t.Errorf("%v", svc)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered++
	r.charged += number("user_charge_mc")
	if n := number("max_tokens_applied"); n != 1500 && n != 128000 {
		r.lowered++
	}
}

// TestFitIsSwitchedByHeaderFeatureAndApp: without the switch the contract's refusal stands, and names a cap that is
// then admitted, while one token more is not. The header wins over the feature, the feature over the app. The block,
// the receipt and a replay show the cap that was applied, and the estimate has told the hold.
func TestFitIsSwitchedByHeaderFeatureAndApp(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		url := servertest.URL(t, e)
		leave(t, url, money.Dollar)
		p := servertest.Start(t, url).Node
		patchApp(t, p, `{"default_max_tokens":null}`)
		const text = "!mock words=5"
		refused := apitest.Read(t, askDear(p, text, false))
		if refused.Status != 402 || refused.Code != "allocation_exhausted" {
			t.Fatal(refused)
		}
		fits := int64(refused.Details["max_tokens_that_fit"].(float64))
		for _, n := range []int64{fits, fits + 1} {
			if e := estimateDear(t, p, text, fmt.Sprintf(`"max_tokens":%d`, n)); e.Fits != (n == fits) ||
				e.MaxTokensThatFit != fits || (e.Refusal == nil) != e.Fits {
				t.Errorf("%d tokens: %+v", n, e)
			}
		}
		if a := apitest.Read(t, askDear(p, text, false, fmt.Sprintf(`"max_tokens":%d`, fits+1))); a.Status != 402 {
			t.Errorf("one token more than fits: %+v", a)
		}
		feature := func(body string) {
			t.Helper()
			req, err := http.NewRequest("PATCH", p.BaseURL+"/v1/apps/"+p.App.ID+"/features/chat",
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.SetBasicAuth(p.App.ClientID, p.App.ClientSecret)
			req.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if a := apitest.Read(t, resp); a.Status != 200 {
				t.Fatalf("%+v", a)
			}
		}
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, dearModel, text)
		call := func(path string, headers ...string) apitest.Answer {
			return apitest.Read(t, p.Call("POST", path, body, headers...))
		}
		for _, tt := range []struct {
			name    string
			app     string
			feature string
			headers []string
			applied bool
		}{
			{"nothing", `{"fit":false}`, `{"fit":null}`, nil, false},
			{"header", `{"fit":false}`, `{"fit":null}`, []string{"X-Svc-Fit: 1"}, true},
			{"header over app", `{"fit":true}`, `{"fit":null}`, []string{"X-Svc-Fit: 0"}, false},
			{"app", `{"fit":true}`, `{"fit":null}`, nil, true},
			{"feature over app", `{"fit":true}`, `{"fit":false}`, []string{"X-Svc-Feature: chat"}, false},
			{"feature", `{"fit":false}`, `{"fit":true}`, []string{"X-Svc-Feature: chat"}, true},
			{"another feature", `{"fit":false}`, `{"fit":true}`, []string{"X-Svc-Feature: other"}, false},
			{"header over feature", `{"fit":true}`, `{"fit":true}`, []string{"X-Svc-Feature: chat", "X-Svc-Fit: 0"},
				false},
			{"floor of the feature", `{"fit":true}`, `{"fit_min_tokens":100000}`, []string{"X-Svc-Feature: chat"},
				false},
		} {
			patchApp(t, p, tt.app)
			feature(tt.feature)
			foretold := readEstimate(t, p.Call("POST", "/v1/estimate", body, tt.headers...))
			key := "Idempotency-Key: " + servertest.UUID()
			for _, path := range []string{"/v1/ai/" + dearModel, "/v1/chat/completions"} {
				if path == "/v1/chat/completions" {
					foretold = readEstimate(t, p.Call("POST", "/v1/estimate", body, tt.headers...))
					key = "Idempotency-Key: " + servertest.UUID()
				}
				a := call(path, append(tt.headers, key)...)
				if !tt.applied {
					if a.Status != 402 || a.Code != "allocation_exhausted" || foretold.Refusal == nil ||
						foretold.Refusal.Message != a.Message ||
						foretold.MaxTokensApplied != nil || foretold.Fits {
						t.Errorf("%s: foretold %+v, answered %+v", tt.name, foretold, a)
					}
					continue
				}
				svc := a.Svc(t)
				if a.Status != 200 || foretold.MaxTokensApplied == nil || foretold.Fits ||
					svc["max_tokens_applied"] != float64(*foretold.MaxTokensApplied) ||
					svc["hold_amount_mc"] != float64(foretold.HoldMC) || svc["paid_by"] != *foretold.PaidBy ||
					*foretold.MaxTokensApplied > fits || foretold.MaxTokens != 128000 {
					t.Errorf("%s: foretold %+v, answered %+v", tt.name, foretold, a)
				}
				receipt := apitest.Read(t, p.Call("GET", "/v1/requests/"+a.Header.Get("X-Request-Id"), ""))
				if !strings.Contains(receipt.Body,
					fmt.Sprintf(`"max_tokens_applied":%d,`, *foretold.MaxTokensApplied)) {
					t.Errorf("%s: %+v", tt.name, receipt)
				}
				// A replay is the same, whatever would fit now, and whatever the header says.
				if again := call(path, append(tt.headers, key, "X-Svc-Fit: 0")...); again.Body != a.Body {
					t.Errorf("%s: replayed as %+v", tt.name, again)
				}
			}
		}
		p.Verify()
	})
}

// TestEstimateLeavesNoTrace: an estimate has the numbers of the hold and of the charge, expects what recent calls have
// used, and changes nothing. It refuses what the call would be refused with for another reason than money.
func TestEstimateLeavesNoTrace(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := servertest.Start(t, servertest.URL(t, e)).Node
		const text = "!mock words=40"
		before := apitest.Read(t, p.Call("GET", "/v1/connection", "")).Body
		const rows = `SELECT (SELECT COUNT(*) FROM holds) + (SELECT COUNT(*) FROM refusals) +
			(SELECT COUNT(*) FROM daily_totals) + (SELECT COUNT(*) FROM counters) + (SELECT COUNT(*) FROM events) +
			(SELECT COUNT(*) FROM ledger)`
		rowsBefore := dbtest.Number(t, p.DB, rows)
		first := estimateDear(t, p, text)
		if first.MaxTokens != 4096 || first.CappedBy != "app" || !first.Fits || first.FitMinTokens != nil ||
			first.Expected.OutputBasis != "max_tokens" || first.Largest.OutputTokens != 4096 ||
			len(first.Largest.Lines) != 4 || first.Expected.UserChargeMC > first.Largest.UserChargeMC ||
			first.HoldMC != (first.Largest.UserChargeMC*105+99)/100 {
			t.Errorf("%+v", first)
		}
		if after := apitest.Read(t, p.Call("GET", "/v1/connection", "")).Body; after != before {
			t.Errorf("an estimate has changed %s to %s", before, after)
		}
		if n := dbtest.Number(t, p.DB, rows); n != rowsBefore {
			t.Errorf("an estimate has left %d rows", n-rowsBefore)
		}
		svc := apitest.Read(t, askDear(p, text, false)).Svc(t)
		second := estimateDear(t, p, text)
		if svc["hold_amount_mc"] != float64(first.HoldMC) || second.Expected.OutputBasis != "recent_calls" ||
			svc["user_charge_mc"] != float64(second.Expected.UserChargeMC) ||
			svc["provider_cost_mc"] != float64(second.Expected.CostMC) || second.HoldMC != first.HoldMC {
			t.Errorf("foretold %+v, then %+v; charged %v", first, second, svc)
		}
		const hi = `"messages":[{"role":"user","content":"Hi"}]}`
		same := map[string]string{
			"":                 `{"model":"gpt-6-luna","max_tokens":50,` + hi,
			"?shape=messages":  `{"model":"gpt-6-luna","max_tokens":50,` + hi,
			"?shape=responses": `{"model":"gpt-6-luna","max_output_tokens":50,"input":"Hi"}`,
		}
		answers := map[string]bool{}
		for query, body := range same {
			answers[apitest.Read(t, p.Call("POST", "/v1/estimate"+query, body)).Body] = true
		}
		if len(answers) != 1 {
			t.Errorf("one call in three shapes is estimated as %v", answers)
		}
		if a := apitest.Read(t, p.Call("POST", "/v1/estimate?shape=other", same[""])); a.Status != 400 {
			t.Errorf("an unknown shape: %+v", a)
		}
		tooMuch := `{"model":"gpt-6-luna","max_output_tokens":9000000,"input":"Hi"}`
		if a := apitest.Read(t, p.Call("POST", "/v1/estimate?shape=responses", tooMuch)); a.Status != 400 ||
			!strings.Contains(a.Body, "max_output_tokens: ") {
			t.Errorf("a refusal in the words of a shape: %+v", a)
		}
		for body, says := range map[string]string{
			`{` + hi:                                           "model: required",
			`{"model":"gpt-0",` + hi:                           "not offered",
			`{"model":"gpt-6-luna","messages":[]}`:             "messages: required",
			`{"model":"gpt-6-luna","n":2,` + hi:                "n: must be 1",
			`{"model":"gpt-6-luna","max_tokens":9000000,` + hi: "allows at most",
		} {
			if a := apitest.Read(t, p.Call("POST", "/v1/estimate", body)); a.Status != 400 ||
				!strings.Contains(a.Body, says) {
				t.Errorf("%s: %+v", body, a)
			}
		}
		if n := dbtest.Number(t, p.DB, "SELECT COUNT(*) FROM refusals"); n != 0 {
			t.Errorf("%d refusals of estimates are stored", n)
		}
		p.Verify()
	})
}

// TestFitSurvivesKill kills the node with kill -9 while it runs a lowered stream and a lowered whole
// call. The holds on the disk have the amounts and the terms of the lowered cap: the stream is
// billed as an estimate within its hold, the other call is released, and its key may try again
// with the cap that fits then.
func TestFitSurvivesKill(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			url := servertest.URL(t, e)
			leave(t, url, money.Dollar)
			p := servertest.Start(t, url, shortLease)
			patchApp(t, p.Node, `{"fit":true,"default_max_tokens":null}`)
			streamKey, wholeKey := servertest.UUID(), servertest.UUID()
			send := func(p *servertest.Process, key, script, members string) *http.Response {
				text, _ := json.Marshal(script)
				return p.Call("POST", "/v1/ai/"+dearModel, fmt.Sprintf(`{"messages":[{"role":"user","content":%s}]%s}`,
					text, members), "Idempotency-Key: "+key)
			}
			const slowStream, slowCall = "!mock pace=200ms words=100 chunks=100", "!mock delay=8s words=9"
			begin := func(key, script, members string) {
				address, token := p.BaseURL+"/v1/ai/"+dearModel, p.Connection.AccessToken
				go func() {
					for status := 503; status == 503; { // a busy machine may not renew its lease in time
						req, err := http.NewRequest("POST", address, strings.NewReader(
							fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]%s}`, script, members)))
						if err != nil {
							t.Error(err)
							return
						}
						req.Header = http.Header{
							"Authorization":   {"Bearer " + token},
							"Content-Type":    {"application/json"},
							"Idempotency-Key": {key},
						}
						resp, err := http.DefaultClient.Do(req)
						if err != nil {
							return // the kill ends it
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						_ = resp.Body.Close()
						status = resp.StatusCode
					}
				}()
			}
			const heldBy = `SELECT COALESCE((SELECT amount_mc FROM holds WHERE key = $1), 0)`
			begin(streamKey, slowStream, `,"stream":true,"max_tokens":12000`)
			calltest.AwaitWords(t, p.Node, streamKey)
			begin(wholeKey, slowCall, "") // gets what the stream leaves
			calltest.AwaitHold(t, p.Node, wholeKey, "open")
			streamHold, wholeHold := dbtest.Number(t, p.DB, heldBy, streamKey), dbtest.Number(t, p.DB, heldBy, wholeKey)
			if rest := int64(money.Dollar) - streamHold - wholeHold; wholeHold == 0 || rest < 0 || rest > 10_000 {
				t.Errorf("held %d and %d of $1", streamHold, wholeHold)
			}
			p.Kill()
			servertest.Verify(t, p.DB) // recomputes both holds from their terms
			p = servertest.Start(t, p.DB, shortLease)
			testkit.Eventually(t, testkit.Patience, "sweep of the holds", func() bool {
				return dbtest.Number(t, p.DB, openHolds) == 0
			})
			a := apitest.Read(t, send(p, streamKey, slowStream, `,"stream":true,"max_tokens":12000`))
			svc := a.Svc(t)
			if a.Status != 200 || svc["settlement"] != "estimated" || svc["hold_amount_mc"] != float64(streamHold) ||
				svc["max_tokens_applied"] != 12000.0 || svc["user_charge_mc"].(float64) > float64(streamHold) {
				t.Errorf("the stream: %v", svc)
			}
			remaining := float64(money.Dollar) - svc["user_charge_mc"].(float64) // the other hold was released after it
			a = apitest.Read(t, send(p, wholeKey, slowCall, ""))
			svc = a.Svc(t)
			if hold := svc["hold_amount_mc"].(float64); a.Status != 200 || hold <= float64(wholeHold) ||
				hold > remaining ||
				remaining-hold > 10_000 {
				t.Errorf("the other call, when %v remained: %v", remaining, svc)
			}
			p.Verify()
		})
	}
}
