package server_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// TestRequestLog lists an app's calls, billed and refused, by pages and filters. The receipt of each row agrees.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			checkRequestLog(t, apptest.Start(t, apptest.URL(t, e)).Node)
		})
	}
}

func checkRequestLog(t *testing.T, p *nodetest.Node) {
	c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	list := func(query string) (rows []loggedRequest, next string) {
		t.Helper()
		a := c.Do(t, "GET", "/v1/apps/"+p.App.ID+"/requests"+query, "")
		if err := json.Unmarshal([]byte(a.Body), &rows); err != nil || a.Status != 200 {
			t.Fatalf("%s: %v %v", query, a, err)
		}
		if m := nextPage.FindStringSubmatch(a.Header.Get("Link")); m != nil {
			u, err := url.Parse(m[1])
			if err != nil {
				t.Fatal(err)
			}
			next = u.Query().Get("starting_after")
		}
		return rows, next
	}
	earlier, _ := list("")
	since := time.Now().UTC().Format(time.RFC3339)
	var want []string // newest first
	call := func(model, body string, headers ...string) {
		t.Helper()
		resp := p.Call("POST", "/v1/ai/"+model, body, headers...)
		want = append([]string{resp.Header.Get("X-Request-Id")}, want...)
		_ = resp.Body.Close()
	}
	const hello = `{"messages":[{"role":"user","content":"Hello"}]}`
	call("gpt-6-luna", hello)
	call("gpt-6-luna", hello, "X-Svc-Feature: chat")
	call("no-such-model", hello)
	call("gpt-6-luna", `{"messages":[{"role":"user","content":"Hello"}],"max_tokens":2000000000}`)
	call("gpt-6-luna", hello, "X-Svc-Feature: chat")
	made := slices.Clone(want)
	// ids of one millisecond are in any order
	slices.SortFunc(want, func(a, b string) int { return strings.Compare(b, a) })
	all, next := list("")
	if len(all) != len(earlier)+len(want) || next != "" {
		t.Fatalf("%d rows, next %q; made %v\n%v", len(all), next, want, all)
	}
	all = all[:len(want)]
	for i, row := range all {
		if row.ID != want[i] || row.ConnectionID != p.Connection.ID {
			t.Errorf("row %d is %+v, want %s", i, row, want[i])
		}
		var receipt struct {
			Status  string
			Feature *string
			Charge  *struct {
				UserChargeMC int64 `json:"user_charge_mc"`
			}
		}
		a := c.Do(t, "GET", "/v1/requests/"+row.ID, "")
		if err := json.Unmarshal([]byte(a.Body), &receipt); err != nil {
			t.Fatal(err)
		}
		if receipt.Status != row.Status || (receipt.Charge == nil) != (row.UserChargeMC == 0) ||
			receipt.Charge != nil && receipt.Charge.UserChargeMC != row.UserChargeMC {
			t.Errorf("%+v and its receipt %s", row, a.Body)
		}
	}
	for query, rows := range map[string]string{
		"?status=2xx":                    "0 3 4",
		"?status=4xx":                    "1 2",
		"?status=400":                    "1 2",
		"?status=5xx":                    "",
		"?model=gpt-6-luna":              "0 3 4",
		"?model=none":                    "",
		"?feature=chat":                  "0 3",
		"?feature=chat&status=4xx":       "",
		"?connection=" + p.Connection.ID: "0 1 2 3 4",
		"?connection=conn_x":             "",
		"?feature=none":                  "",
	} {
		got, _ := list(query + "&since=" + since)
		var at []string
		for _, row := range got {
			if i := slices.Index(made, row.ID); i >= 0 {
				at = append(at, strconv.Itoa(i))
			}
		}
		slices.Sort(at)
		if strings.Join(at, " ") != rows {
			t.Errorf("%s: rows %v, want %s", query, at, rows)
		}
	}
	for query, rows := range map[string]int{
		"?limit=2":                           len(earlier) + len(want),
		"?limit=1&status=2xx&since=" + since: 3,
	} {
		var paged []string
		for at := query; at != ""; {
			page, next := list(at)
			for _, row := range page {
				paged = append(paged, row.ID)
			}
			if at = ""; next != "" {
				at = query + "&starting_after=" + next
			}
		}
		if len(paged) != rows || !slices.IsSortedFunc(paged, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("%s: by pages %v", query, paged)
		}
	}
	for query, says := range map[string]string{"?status=teapot": "status:", "?status=6xx": "status:",
		"?since=yesterday": "since:", "?starting_after=led_1": "starting_after:", "?limit=0": "limit:"} {
		if a := c.Do(t, "GET", "/v1/apps/"+p.App.ID+"/requests"+query, ""); a.Status != 400 ||
			!strings.HasPrefix(a.Message, says) {
			t.Errorf("%s: %v", query, a)
		}
	}
}

// TestCallsAreFollowed reads the billed calls of an app in the order of settlement, while they are made.
func TestCallsAreFollowed(t *testing.T) {
	t.Parallel()
	p := apptest.Start(t, apptest.URL(t, db.SQLite))
	c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	collection := "/v1/apps/" + p.App.ID + "/requests"
	at, got := collection+"?limit=2&settled_after=0", []string(nil)
	var want []string
	for range 3 {
		resp := p.Call("POST", "/v1/ai/gpt-6-luna", `{"messages":[{"role":"user","content":"Hello"}]}`)
		want = append(want, resp.Header.Get("X-Request-Id"))
		_ = resp.Body.Close()
	}
	testkit.Eventually(t, testkit.Patience, "the calls in the order of settlement", func() bool {
		a := c.Do(t, "GET", at, "")
		var rows []loggedRequest
		if err := json.Unmarshal([]byte(a.Body), &rows); err != nil || a.Status != 200 || len(rows) > 2 {
			t.Fatalf("%s: %v %v", at, a, err)
		}
		for _, row := range rows {
			got = append(got, row.ID)
		}
		at = collection + "?limit=2&settled_after=" + a.Header.Get("Svc-After")
		if full := len(rows) == 2; strings.Contains(a.Header.Get("Link"), "settled_after=") != full {
			t.Errorf("of %d rows: Link %q", len(rows), a.Header.Get("Link"))
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("followed %v, made %v", got, want)
	}
	for query, says := range map[string]string{"?settled_after=99-x": "settled_after:",
		"?settled_after=": "settled_after:", "?settled_after=0&status=2xx": "status:",
		"?settled_after=0&limit=0": "limit:"} {
		if a := c.Do(t, "GET", collection+query, ""); a.Status != 400 || !strings.HasPrefix(a.Message, says) {
			t.Errorf("%s: %v", query, a)
		}
	}
}

var nextPage = regexp.MustCompile(`<([^<>]*)>; rel="next"`)

type loggedRequest struct {
	ID           string
	Status       string
	ConnectionID string `json:"connection_id"`
	UserChargeMC int64  `json:"user_charge_mc"`
}
