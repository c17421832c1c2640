package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestPendingByTheRecord: a stream that OpenAI cut is pending where the operator
// lets it keep records, shows that in its end, its receipt and its replay, and is
// then billed from the record to the micro-cent (contract §3, decision 031).
func TestPendingByTheRecord(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		p := apptest.Start(t, apptest.URL(t, e), apptest.Emulated, func(o *apptest.Options) {
			o.Environ = []string{"PURSER_PROVIDERS_OPENAI_STORE=true"}
		})
		bearer := "Bearer " + p.Connection.AccessToken
		ask := func(body, key string) (string, http.Header) {
			t.Helper()
			r := p.Call("POST", "/v1/ai/gpt-6-luna", body, "Authorization: "+bearer, "Idempotency-Key: "+key)
			defer r.Body.Close()
			text, err := io.ReadAll(r.Body)
			if err != nil || r.StatusCode != http.StatusOK {
				t.Fatalf("%d %s: %v", r.StatusCode, text, err)
			}
			return string(text), r.Header
		}
		body := func(steer string) string {
			return `{"stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"!emu words=200 ` +
				steer + `\nSpeak."}]}`
		}
		whole, _ := ask(body("pace=0s"), id.NewUUID())
		key := id.NewUUID()
		first, h := ask(body("cut=1500"), key)
		if !strings.Contains(first, `"svc_final":{"usage":null,"svc":null,"settlement":"pending"}`) {
			t.Fatalf("the stream ends with %.400s", first[max(0, len(first)-400):])
		}
		if again, h := ask(body("cut=1500"), key); h.Get("Idempotent-Replayed") != "true" ||
			!strings.Contains(again, `"settlement":"pending"`) {
			t.Errorf("the replay is %.200s", again)
		}
		type receipt struct {
			Status string `json:"status"`
			Charge *struct {
				User int64 `json:"user_charge_mc"`
			} `json:"charge"`
		}
		see := func() (r receipt) {
			t.Helper()
			resp := p.Call("GET", "/v1/requests/"+h.Get("X-Request-Id"), "", "Authorization: "+bearer)
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := see(); r.Status != "pending" || r.Charge != nil {
			t.Errorf("the receipt of a pending call: %+v", r)
		}
		deadline := time.After(time.Minute)
		for see().Status != "settled" {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-deadline:
				t.Fatalf("still %q after a minute", see().Status)
			}
		}
		// The record knows the same usage as the stream that was not cut.
		if want := charged(t, whole); see().Charge.User != want {
			t.Errorf("charged %d by the record, %d whole", see().Charge.User, want)
		}
		if again, _ := ask(body("cut=1500"), key); !strings.Contains(again, `"settlement":"settled"`) {
			t.Errorf("the replay after that ends with %.300s", again[max(0, len(again)-300):])
		}
		p.Verify()
	})
}

// charged is the user's charge in a stream's svc_final.
func charged(t *testing.T, stream string) int64 {
	t.Helper()
	for _, line := range strings.Split(stream, "\n") {
		var v struct {
			Final *struct {
				SVC struct {
					User int64 `json:"user_charge_mc"`
				} `json:"svc"`
			} `json:"svc_final"`
		}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &v) == nil && v.Final != nil {
			return v.Final.SVC.User
		}
	}
	t.Fatalf("no svc_final in %s", stream)
	return 0
}
