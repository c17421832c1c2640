package purser

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestVersion compares the version with the one of all SDKs.
func TestVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../VERSION")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(text)) != Version {
		t.Errorf("Version is %q, ../VERSION has %q", Version, text)
	}
}

// TestActions compares the table of codes with the one of all SDKs.
func TestActions(t *testing.T) {
	t.Parallel()
	type rule struct {
		Status            int
		Action            Action
		Reasons           map[string]Action
		NotRetryable      Action `json:"not_retryable"`
		NoRetryAfter      Action `json:"no_retry_after"`
		ClientCredentials Action `json:"client_credentials"`
	}
	var table struct {
		Codes, OAuth, SDK map[string]rule
		ByStatus          map[string]Action `json:"by_status"`
	}
	text, err := os.ReadFile("../conformance/errors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &table); err != nil {
		t.Fatal(err)
	}
	if all := len(table.Codes) + len(table.OAuth) + len(table.SDK); all != len(codes) {
		t.Errorf("%d codes here, %d in the table", len(codes), all)
	}
	for _, group := range []map[string]rule{table.Codes, table.OAuth, table.SDK} {
		for code, want := range group {
			got := codes[code]
			if got.status != want.Status || got.action != want.Action || got.notRetryable != want.NotRetryable ||
				got.noRetryAfter != want.NoRetryAfter || got.byClient != want.ClientCredentials ||
				len(got.reasons) != len(want.Reasons) {
				t.Errorf("%s: %+v, want %+v", code, got, want)
			}
			for reason, action := range want.Reasons {
				if got.reasons[reason] != action {
					t.Errorf("%s: %s: %s, want %s", code, reason, got.reasons[reason], action)
				}
			}
		}
	}
	for status := 400; status < 600; status++ {
		want, ok := table.ByStatus[strconv.Itoa(status)]
		if !ok && status >= 500 {
			want = ActionRetry
		} else if !ok {
			want = ActionFixRequest
		}
		if got := chooseByStatus(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}

func TestErrorEnvelope(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 402, map[string]any{"error": map[string]any{
			"code":          "allocation_exhausted",
			"message":       "too much",
			"type":          "insufficient_funds",
			"connection_id": "conn_1",
			"increase_url":  "https://purser.example.com/increase",
			"review_url":    nil,
			"doc_url":       "https://purser.example.com/docs/errors#allocation_exhausted",
			"details":       map[string]any{"required_mc": 9007199254740993, "reason": "too_large"},
		}})
	})
	_, err := c.WithToken("token").Call(t.Context(), "gpt-6-luna", question)
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if refused.Status != 402 || refused.Action != ActionRaiseCap || refused.ShouldRetry || refused.ReviewURL != "" ||
		refused.IncreaseURL == "" || refused.DocURL == "" || refused.ConnectionID != "conn_1" ||
		refused.RequestID != "req_1" || refused.Detail("required_mc") != "9007199254740993" {
		t.Errorf("%+v", refused)
	}
}

// TestRetries tells by the answers how often a call is tried, and how long it waits.
func TestRetries(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		code   string
		header map[string]string
	}
	tests := map[string]struct {
		answers []answer // the last one repeats
		tries   int
		waits   []time.Duration // at least
		ok      bool
	}{
		"503, then an answer": {[]answer{{503, "unavailable", map[string]string{"Retry-After": "7"}}, {200, "", nil}},
			2, []time.Duration{7 * time.Second}, true},
		"502 for ever": {[]answer{{502, "provider_error", nil}}, 3, []time.Duration{250e6, 500e6}, false},
		"429 that can wait": {[]answer{
			{429, "rate_limited", map[string]string{"Retry-After": "2"}},
			{200, "", nil},
		}, 2, []time.Duration{2e9}, true},
		"429 for long":     {[]answer{{429, "rate_limited", map[string]string{"Retry-After": "61"}}}, 1, nil, false},
		"429 without time": {[]answer{{429, "risk_throttled", nil}}, 1, nil, false},
		"told not to": {[]answer{{502, "provider_error", map[string]string{"X-Should-Retry": "false"}}}, 1, nil,
			false},
		"402":           {[]answer{{402, "allocation_exhausted", nil}}, 1, nil, false},
		"a fixed token": {[]answer{{401, "unauthorized", nil}}, 1, nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries, keys := 0, map[string]bool{}
			c, now := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
				a := test.answers[min(tries, len(test.answers)-1)]
				tries++
				keys[r.Header.Get("Idempotency-Key")] = true
				for name, value := range a.header {
					w.Header().Set(name, value)
				}
				if a.status == 200 {
					writeCompletion(w)
					return
				}
				refuse(w, a.status, a.code)
			})
			answer, err := c.WithToken("token").Call(t.Context(), "gpt-6-luna", question)
			if tries != test.tries || (err == nil) != test.ok || len(keys) != 1 || keys[""] {
				t.Errorf("%d tries with the keys %v: %v", tries, keys, err)
			}
			if test.ok && (answer.Text != "Because." || answer.Bill.UserChargeMC != 9600 ||
				answer.RequestID != "req_1") {
				t.Errorf("%+v", answer)
			}
			if len(now.sleeps) != len(test.waits) {
				t.Fatalf("waited %v", now.sleeps)
			}
			for i, least := range test.waits {
				if now.sleeps[i] < least {
					t.Errorf("waited %v, want at least %v", now.sleeps, test.waits)
				}
			}
		})
	}
}

// TestRetriesOfPosts checks that a POST without a key is only repeated when it was not done.
func TestRetriesOfPosts(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int64{500: 1, 502: 1, 503: 3, 429: 3} {
		var tries atomic.Int64
		c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			w.Header().Set("Retry-After", "1")
			refuse(w, status, "test")
		})
		_, err := c.TestAccounts.Fund(t.Context(), "app_1", "wac_1", 5)
		if tries.Load() != want || asError(err).ShouldRetry != (want > 1) {
			t.Errorf("%d: %d tries, want %d: %v", status, tries.Load(), want, err)
		}
	}
}

func TestNetworkErrors(t *testing.T) {
	t.Parallel()
	var tries atomic.Int64
	c, _ := newTestClient(t, func(_ http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		panic(http.ErrAbortHandler)
	})
	_, err := c.WithToken("token").Call(t.Context(), "gpt-6-luna", question)
	refused := asError(err)
	if tries.Load() != 3 || refused == nil || refused.Code != CodeConnectionError || refused.Action != ActionRetry ||
		!refused.ShouldRetry || refused.Unwrap() == nil {
		t.Errorf("%d tries: %v", tries.Load(), err)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of the client after the body
		<-r.Context().Done()
	})
	c.options.Timeout, c.options.MaxRetries = time.Millisecond, -1
	_, err := c.WithToken("token").Call(t.Context(), "gpt-6-luna", question)
	if !errors.Is(err, context.DeadlineExceeded) || asError(err) == nil || t.Context().Err() != nil {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.WithToken("token").Call(ctx, "gpt-6-luna", question); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	var asked []string
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		user, password, _ := r.BasicAuth()
		if user != "cid_test" || password != "secret" {
			refuse(w, 401, "unauthorized")
			return
		}
		if r.URL.Query().Get("starting_after") == "" { // the host of a link is ignored
			w.Header().Set("Link",
				`<https://attacker.example/v1/connections?limit=2&starting_after=conn_2>; rel="next"`)
			writeJSON(w, 200, []any{map[string]any{"id": "conn_1", "new_member": 1}, map[string]any{"id": "conn_2"}})
			return
		}
		writeJSON(w, 200, []any{map[string]any{"id": "conn_3"}})
	})
	for range 2 { // an iterator can be used twice
		asked = nil
		var ids []string
		for info, err := range c.Connections.List(t.Context(), ListOptions{PageSize: 2}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, info.ID)
			if info.ID == "conn_1" && !strings.Contains(string(info.Raw), "new_member") {
				t.Errorf("Raw is %s", info.Raw)
			}
		}
		if strings.Join(ids, " ") != "conn_1 conn_2 conn_3" || len(asked) != 2 ||
			asked[0] != "/v1/connections?limit=2" || asked[1] != "/v1/connections?limit=2&starting_after=conn_2" {
			t.Errorf("%v by %v", ids, asked)
		}
	}
	for range c.Connections.List(t.Context(), ListOptions{}) {
		break
	}
	if len(asked) != 3 {
		t.Errorf("a list that is left asked for %v", asked)
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	var issuer string
	var exchanged url.Values
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/.well-known/oauth-authorization-server" {
			writeJSON(w, 200, map[string]any{"issuer": issuer, "authorization_endpoint": issuer + "/oauth/authorize"})
			return
		}
		_ = r.ParseForm()
		exchanged = r.PostForm
		writeTokens(w, 1)
	})
	issuer = "https://auth.example.com"
	attempt, err := c.Connect.Start(t.Context(), ConnectOptions{AllocationMC: 5, Features: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(attempt.URL)
	if err != nil {
		t.Fatal(err)
	}
	q := address.Query()
	if address.Host != "auth.example.com" || q.Get("state") != attempt.State || q.Get("features") != "a,b" ||
		q.Get("requested_allocation_mc") != "5" || len(q.Get("code_challenge")) != 43 {
		t.Errorf("%s", attempt.URL)
	}
	finish := func(query string) error {
		_, err := c.Connect.Finish(t.Context(), "/callback?"+query, attempt)
		return err
	}
	state := "state=" + attempt.State
	for query, code := range map[string]string{
		"code=x&state=other&iss=" + issuer:                CodeStateMismatch,
		"code=x&iss=" + issuer:                            CodeStateMismatch,
		"code=x&" + state:                                 CodeIssuerMismatch,
		"code=x&iss=https://other.example&" + state:       CodeIssuerMismatch,
		"error=access_denied&iss=" + issuer + "&" + state: "access_denied",
	} {
		if refused := asError(finish(query)); refused == nil || refused.Code != code || exchanged != nil {
			t.Errorf("%s: %v", query, refused)
		}
	}
	connection, err := c.Connect.Finish(t.Context(), "/callback?code=x&iss="+issuer+"&"+state, attempt)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := c.options.Tokens.Load(t.Context(), "conn_1")
	if err != nil || connection.ID() != "conn_1" || connection.AllocationMC() != 500_000_000 ||
		exchanged.Get("code_verifier") != attempt.Verifier || tokens.RefreshToken != "refresh-1" ||
		!tokens.ExpiresAt.Equal(testTime.Add(15*time.Minute)) {
		t.Errorf("%+v by %v: %v", tokens, exchanged, err)
	}
}

func TestDevice(t *testing.T) {
	t.Parallel()
	answers := []string{"authorization_pending", "slow_down", "authorization_pending", ""}
	c, now := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		if _, _, ok := r.BasicAuth(); ok || r.PostForm.Get("client_id") != "cid_test" {
			t.Error("a public client sends its id alone")
		}
		if r.URL.Path == "/oauth/device_authorization" {
			writeJSON(w, 200, map[string]any{"device_code": "secret", "user_code": "WDJB-MJHT", "interval": 5})
			return
		}
		answer := answers[0]
		answers = answers[1:]
		if answer == "" {
			writeTokens(w, 1)
			return
		}
		writeJSON(w, 400, map[string]any{"error": answer, "error_description": "Wait."})
	})
	c.options.ClientSecret = ""
	device, err := c.Device.Start(t.Context(), ConnectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	connection, err := c.Device.Wait(t.Context(), device)
	if err != nil || connection.ID() != "conn_1" {
		t.Fatal(connection, err)
	}
	if waits := now.sleeps; len(waits) != 3 || waits[0] != 5e9 || waits[1] != 10e9 || waits[2] != 10e9 {
		t.Errorf("waited %v", now.sleeps)
	}
	answers = []string{"access_denied"}
	if _, err := c.Device.Wait(t.Context(), device); asError(err).Action != ActionAskUser {
		t.Errorf("%v", err)
	}
}

func TestMessages(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"content":"Hello","role":"user"}`,
		`{"content":[{"type":"text","text":"What is it?"},` +
			`{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}],"role":"user"}`,
		`{"content":null,"extra_content":{"google":{"thought":"x"}},"role":"assistant",` +
			`"tool_calls":[{"extra_content":{"y":1},"function":` +
			`{"name":"weather","arguments":"{}"},"id":"call_1","type":"function"}]}`,
		`{"content":"sunny","role":"tool","tool_call_id":"call_1"}`,
	} {
		var m Message
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		var want, got any
		_ = json.Unmarshal([]byte(text), &want)
		_ = json.Unmarshal(again, &got)
		if a, b := mustJSON(want), mustJSON(got); a != b {
			t.Errorf("%s became %s", a, b)
		}
	}
	body, err := json.Marshal(ChatRequest{
		Messages: []Message{UserMessage("Hello")},
		Tools:    []Tool{{Name: "weather", Parameters: map[string]any{"type": "object"}}},
		Extra:    map[string]any{"seed": 1},
		Feature:  "chat",
	})
	const want = `{"messages":[{"role":"user","content":"Hello"}],"seed":1,` +
		`"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object"}}}]}`
	if err != nil || string(body) != want {
		t.Errorf("%s: %v", body, err)
	}
}

func mustJSON(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}

// Waiting for a device goes on through outages, more slowly and with one key, until the code ends.
func TestDeviceOutlastsOutages(t *testing.T) {
	t.Parallel()
	answers := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { writeHTML(w, 502) },
		func(w http.ResponseWriter) { writeHTML(w, 200) },
		func(w http.ResponseWriter) { // cut
			w.Header().Set("Content-Length", "900")
			_, _ = w.Write([]byte(`{"access_token": "a`))
		},
		func(w http.ResponseWriter) { writeJSON(w, 400, map[string]any{"error": "authorization_pending"}) },
		func(w http.ResponseWriter) { refuse(w, 503, "unavailable") },
		func(w http.ResponseWriter) { writeTokens(w, 1) },
	}
	keys, polls := map[string]bool{}, 0
	c, now := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		polls++
		answers[polls-1](w)
	})
	c.options.MaxRetries = 0
	connection, err := c.Device.Wait(t.Context(), DeviceCode{DeviceCode: "d", Interval: 5, ExpiresIn: 600})
	want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}
	if err != nil || connection.ID() != "conn_1" || len(keys) != 1 || !slices.Equal(now.sleeps, want) {
		t.Errorf("waited %s with %d keys: %v", now.sleeps, len(keys), err)
	}

	c, now = newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { writeHTML(w, 502) })
	c.options.MaxRetries = 0
	_, err = c.Device.Wait(t.Context(), DeviceCode{DeviceCode: "d", Interval: 5, ExpiresIn: 60})
	if refused := asError(err); refused == nil || refused.Code != "expired_token" ||
		now.now().Sub(testTime) > time.Minute {
		t.Errorf("after %s: %v", now.now().Sub(testTime), err)
	}

	c, now = newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { writeHTML(w, 404) })
	_, err = c.Device.Wait(t.Context(), DeviceCode{DeviceCode: "d", Interval: 5, ExpiresIn: 60})
	if refused := asError(err); refused == nil || refused.Status != 404 || len(now.sleeps) != 0 {
		t.Errorf("a wrong address: %v after %s", err, now.sleeps)
	}
}

// writeHTML answers as a proxy does.
func writeHTML(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<html>Bad Gateway</html>"))
}

// The events of an app go on for ever: their list ends where there is nothing more, and the latest ones are one page.
func TestListsOfEventsEnd(t *testing.T) {
	t.Parallel()
	asked := 0
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		after := r.URL.Query().Get("after")
		w.Header().Set("Link", `</v1/apps/app_1/events?after=evl_1&limit=2>; rel="next"`)
		if after == "evl_1" {
			writeJSON(w, 200, []any{})
			return
		}
		writeJSON(w, 200, []any{map[string]any{"id": "evt_1"}})
	})
	for after, pages := range map[string]int{"": 1, "0": 2} {
		asked = 0
		n := 0
		for _, err := range c.Events.List(t.Context(), "app_1", EventListOptions{After: after, PageSize: 2}) {
			if n++; err != nil || n > 1 {
				t.Fatalf("event %d: %v", n, err)
			}
		}
		if n != 1 || asked != pages {
			t.Errorf("after %q: %d events of %d pages, want 1 of %d", after, n, asked, pages)
		}
	}
}

// TestRedirectsAreNotFollowed, also not by an HTTP client of the app, which would take the tokens along.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s with %v came elsewhere", r.Method, r.URL, r.Header)
	}))
	t.Cleanup(elsewhere.Close)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	c := New(Options{BaseURL: server.URL, ClientID: "cid_test", ClientSecret: "secret", HTTPClient: &http.Client{}})
	for _, validFor := range []time.Duration{time.Hour, -time.Hour} { // a call, and the refresh before one
		_, err := connect(t, c, validFor).Call(t.Context(), "gpt-6-luna", ChatRequest{})
		if refused := asError(err); refused == nil || refused.Code != "http_307" {
			t.Errorf("%v", err)
		}
	}
}
