package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// eachNode runs f against a server, and audits its database afterwards.
func eachNode(t *testing.T, f func(t *testing.T, p *nodetest.Node)) {
	t.Helper()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := apptest.Start(t, apptest.URL(t, e))
		f(t, p.Node)
		p.Verify()
	})
}

const luna = "/v1/ai/gpt-6-luna"

func prompt(text string, more ...string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return `{"max_tokens":100,"messages":[{"role":"user","content":` + string(b) + `}]` +
		strings.Join(append([]string{""}, more...), ",") + `}`
}

const streamed = `"stream":true`

// answer is a whole HTTP answer, checked against api/openapi.yaml.
type answer struct {
	status int
	header http.Header
	body   string
}

func whole(t *testing.T, resp *http.Response) answer {
	t.Helper()
	a := apitest.Read(t, resp)
	return answer{a.Status, a.Header, a.Body}
}

// billing is the svc block of an answer, streamed or not.
func (a answer) billing(t *testing.T) map[string]any {
	t.Helper()
	return apitest.Answer{Body: a.body}.Svc(t)
}

func (a answer) wantAnswer(t *testing.T, status int, code string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, `"code":"`+code+`"`) {
		t.Errorf("got %d %s, want %d %s", a.status, a.body, status, code)
	}
}

// TestThousandCopies sends one key a thousand times at once: one provider call,
// one row, a thousand equal answers.
func TestThousandCopies(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		for _, more := range [][]string{nil, {streamed}} {
			key := "Idempotency-Key: " + servertest.UUID()
			bodies := make([]string, 1000)
			var wg sync.WaitGroup
			gate := make(chan struct{}, 200) // so many sockets at once
			for i := range bodies {
				wg.Go(func() {
					gate <- struct{}{}
					defer func() { <-gate }()
					a := whole(t, p.Call("POST", luna, prompt("!mock delay=300ms", more...), key))
					bodies[i] = a.body
				})
			}
			wg.Wait()
			for i, b := range bodies {
				if b != bodies[0] || !strings.Contains(b, `"user_charge_mc"`) {
					t.Fatalf("copy %d got %s, the first %s", i, b, bodies[0])
				}
			}
		}
		if n := rowsOf(t, p); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
	})
}

// rowsOf counts the spend rows of the seeded connection.
func rowsOf(t *testing.T, p *nodetest.Node) (n int) {
	t.Helper()
	d, err := db.OpenReadOnly(t.Context(), p.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND connection_id = $1`,
		p.Connection.ID).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStreamCostsTheSame: the same prompt costs the same, streamed or not (one
// gateway of this kind booked streams at 0).
func TestStreamCostsTheSame(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		plain := whole(t, p.Call("POST", luna, prompt("What do you cost?"))).billing(t)
		stream := whole(t, p.Call("POST", luna, prompt("What do you cost?", streamed)))
		delete(plain, "allocation_remaining_mc")
		delete(plain, "allocation_remaining_display")
		for member, want := range plain {
			if got := stream.billing(t)[member]; got != want {
				t.Errorf("%s: %v streamed, %v not", member, got, want)
			}
		}
		if !strings.HasSuffix(stream.body, "data: [DONE]\n\n") ||
			!strings.HasPrefix(stream.header.Get("Content-Type"), "text/event-stream") {
			t.Errorf("stream ends with %q", stream.body[max(len(stream.body)-100, 0):])
		}
	})
}

// TestIdempotency walks the rules of keys (contract §4.3; F-36 to F-46).
func TestIdempotency(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		id := servertest.UUID()
		key := "Idempotency-Key: " + id
		first := whole(t, p.Call("POST", luna, prompt("one"), key))
		again := whole(t, p.Call("POST", luna, prompt("one"), "Idempotency-Key: "+strings.ToUpper(id)))
		if again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" ||
			again.header.Get("X-Request-Id") != first.header.Get("X-Request-Id") {
			t.Errorf("replayed %+v, first %+v", again, first)
		}
		whole(t, p.Call("POST", luna, prompt("two"), key)).wantAnswer(t, 409, "idempotency_key_reused")
		whole(t, p.Call("POST", luna, prompt("one"), key, "X-Svc-Feature: chat")).wantAnswer(t, 409,
			"idempotency_key_reused")
		whole(t, p.Call("POST", "/v1/ai/gpt-6-sol", prompt("one"), key)).wantAnswer(t, 409, "idempotency_key_reused")

		// After a 502 the key tries again, with the same body only (edge case 43).
		key = "Idempotency-Key: " + servertest.UUID()
		whole(t, p.Call("POST", luna, prompt("!mock status=502"), key)).wantAnswer(t, 502, "provider_error")
		whole(t, p.Call("POST", luna, prompt("other"), key)).wantAnswer(t, 409, "idempotency_key_reused")
		whole(t, p.Call("POST", luna, prompt("!mock status=502"), key)).wantAnswer(t, 502, "provider_error")

		// A refusal leaves the key free.
		key = "Idempotency-Key: " + servertest.UUID()
		whole(t, p.Call("POST", luna, `{"messages":[]}`, key)).wantAnswer(t, 400, "invalid_request")
		if a := whole(t, p.Call("POST", luna, prompt("fine"), key)); a.status != 200 {
			t.Errorf("after a refusal: %+v", a)
		}
	})
}

// TestFaults runs the mock provider's scripts and looks at what each costs.
func TestFaults(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		for _, c := range []struct {
			script, more string
			settlement   string // "" = not billed
		}{
			{"usage=none", "", "estimated"}, {"usage=wrong", "", "estimated"}, {"usage=fraction", "", "estimated"},
			{"usage=huge", "", "estimated"},
			{"usage=none", streamed, "estimated"}, {"usage=wrong", streamed, "estimated"},
			{"usage=huge", streamed, "estimated"},
			{"cut=5", streamed, "estimated"}, {"cut=1", streamed, ""}, {"words=30", streamed, "settled"},
		} {
			before := rowsOf(t, p)
			more := []string{}
			if c.more != "" {
				more = append(more, c.more)
			}
			a := whole(t, p.Call("POST", luna, prompt("!mock "+c.script, more...)))
			billed := rowsOf(t, p) - before
			switch {
			case c.settlement == "" && (billed != 0 || !strings.Contains(a.body, "provider_error")):
				t.Errorf("%s %s: billed %d, %s", c.script, c.more, billed, a.body)
			case c.settlement != "":
				svc := a.billing(t)
				if billed != 1 || svc["settlement"] != c.settlement ||
					svc["user_charge_mc"].(float64) > svc["hold_amount_mc"].(float64) ||
					svc["user_charge_mc"].(float64) <= 0 {
					t.Errorf("%s %s: billed %d, %v", c.script, c.more, billed, svc)
				}
			}
			if c.more != "" && !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
				t.Errorf("%s: the stream does not end with [DONE]: %s", c.script, a.body)
			}
		}
		whole(t, p.Call("POST", luna, prompt("!mock status=400"))).wantAnswer(t, 400, "invalid_request")
	})
}

// TestClientGone leaves in the middle of a stream: it is settled exactly, and
// asking again with the key gets all of it (F-31).
func TestClientGone(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		key, body := servertest.UUID(), prompt("!mock pace=50ms words=20", streamed)
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", p.BaseURL+luna, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Authorization":   {"Bearer " + p.Connection.AccessToken},
			"Content-Type":    {"application/json"},
			"Idempotency-Key": {key},
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		leave()
		_ = resp.Body.Close()
		a := whole(t, p.Call("POST", luna, body, "Idempotency-Key: "+key))
		svc := a.billing(t)
		exact := whole(t, p.Call("POST", luna, prompt("!mock pace=50ms words=20"))).billing(t)
		if svc["settlement"] != "settled" || svc["user_charge_mc"] != exact["user_charge_mc"] ||
			strings.Count(a.body, `"finish_reason":"stop"`) != 1 {
			t.Errorf("after the client left: %s", a.body)
		}
	})
}

// TestHoldIsVisible shows a call's hold while it runs, and its receipt before and after.
func TestHoldIsVisible(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		done := make(chan answer)
		go func() { done <- whole(t, p.Call("POST", luna, prompt("!mock delay=8s"))) }()
		held := func() float64 {
			var c map[string]any
			if err := json.Unmarshal([]byte(whole(t, p.Call("GET", "/v1/connection", "")).body), &c); err != nil {
				t.Fatal(err)
			}
			number := func(name string) float64 { return c[name].(float64) }
			remaining := number("allocation_mc") - number("consumed_mc") - number("held_mc")
			if number("allocation_remaining_mc") != remaining {
				t.Fatalf("remaining is not allocation − consumed − held: %v", c)
			}
			return c["held_mc"].(float64)
		}
		for deadline := time.Now().Add(2 * time.Minute); held() == 0; {
			if time.Now().After(deadline) {
				t.Fatal("no hold is seen while the call runs")
			}
		}
		a := <-done
		if held() != 0 {
			t.Error("a hold is left when the call is over")
		}
		var receipt struct {
			Status, Explanation string
			Billed              bool
			PriceVersion        string `json:"price_version"`
			Lines               []map[string]any
		}
		text := whole(t, p.Call("GET", "/v1/requests/"+a.header.Get("X-Request-Id"), "")).body
		if err := json.Unmarshal([]byte(text), &receipt); err != nil || receipt.Status != "settled" ||
			!receipt.Billed || len(receipt.Lines) != 2 || !strings.HasPrefix(receipt.PriceVersion, "2026-11-28-") {
			t.Errorf("receipt %s, %v", text, err)
		}
		refused := whole(t, p.Call("POST", luna, `{}`))
		text = whole(t, p.Call("GET", "/v1/requests/"+refused.header.Get("X-Request-Id"), "")).body
		if !strings.Contains(text, `"status":"refused"`) || !strings.Contains(text, "messages") {
			t.Errorf("receipt of a refusal: %s", text)
		}
	})
}

// TestExhausted spends an allocation to its end: the 402 is truthful, and says
// where to raise it.
func TestExhausted(t *testing.T) {
	t.Parallel()
	eachNode(t, func(t *testing.T, p *nodetest.Node) {
		a := whole(t, p.Call("POST", "/v1/ai/claude-opus-5",
			strings.Replace(prompt("hello"), `"max_tokens":100`, `"max_tokens":128000`, 1)))
		if a.status == 200 { // $3.36 of $25: it fits; nine at once do not
			var wg sync.WaitGroup
			var mu sync.Mutex
			statuses := map[int]int{}
			var last answer
			for range 16 {
				wg.Go(func() {
					a := whole(t, p.Call("POST", "/v1/ai/claude-opus-5",
						strings.Replace(prompt("!mock delay=1s"), `"max_tokens":100`, `"max_tokens":128000`, 1)))
					mu.Lock()
					defer mu.Unlock()
					if statuses[a.status]++; a.status == 402 {
						last = a
					}
				})
			}
			wg.Wait()
			if statuses[200] == 0 || statuses[402] == 0 || len(statuses) != 2 {
				t.Errorf("statuses %v", statuses)
			}
			a = last
		}
		a.wantAnswer(t, 402, "allocation_exhausted")
		// Calls in flight will end, so a higher cap is not needed: there is no increase_url.
		for _, part := range []string{`"reason":"held_by_in_flight"`, `"increase_url":null`,
			`"required_mc"`, `"remaining_mc"`, `"held_mc"`} {
			if !strings.Contains(a.body, part) {
				t.Errorf("402 lacks %s: %s", part, a.body)
			}
		}
	})
}
