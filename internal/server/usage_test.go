package server_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// usageRow is a row of GET /v1/apps/{id}/usage.
type usageRow struct {
	Start        string
	Group        *string
	Calls        int64
	RefusedCalls int64 `json:"refused_calls"`
	InputTokens  int64 `json:"input_tokens"`
	ChargeMC     int64 `json:"charge_mc"`
	MarginMC     int64 `json:"margin_mc"`
	CostMC       int64 `json:"cost_mc"`
}

// TestUsage: however the usage of an app is divided and paged, its sums are those of the request log.
func TestUsage(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			checkUsage(t, apptest.Start(t, apptest.URL(t, e)).Node)
		})
	}
}

func checkUsage(t *testing.T, p *nodetest.Node) {
	c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	const hello = `{"messages":[{"role":"user","content":"Hello"}]}`
	for _, headers := range [][]string{nil, {"X-Svc-Feature: chat"}, {"X-Svc-Feature: made-up"}} {
		for _, model := range []string{"gpt-6-luna", "no-such-model"} {
			resp := p.Call("POST", "/v1/ai/"+model, hello, headers...)
			_ = resp.Body.Close()
		}
	}
	var log []loggedRequest
	a := c.Do(t, "GET", "/v1/apps/"+p.App.ID+"/requests", "")
	if err := json.Unmarshal([]byte(a.Body), &log); err != nil {
		t.Fatal(err)
	}
	var want usageRow
	for _, row := range log {
		if row.Status == "refused" {
			want.RefusedCalls++
			continue
		}
		want.Calls++
		want.ChargeMC += row.UserChargeMC
	}
	for _, interval := range []string{"day", "week", "month"} {
		for _, by := range []string{"none", "model", "feature", "connection"} {
			for _, limit := range []string{"1", "100"} {
				query := "?interval=" + interval + "&group_by=" + by + "&limit=" + limit
				var sum usageRow
				for after, n := "", 0; ; n++ {
					var rows []usageRow
					a := c.Do(t, "GET", "/v1/apps/"+p.App.ID+"/usage"+query+after, "")
					if err := json.Unmarshal([]byte(a.Body), &rows); err != nil || a.Status != 200 || n > 20 {
						t.Fatalf("%s: %v %v", query, a, err)
					}
					for _, row := range rows {
						sum.Calls += row.Calls
						sum.RefusedCalls += row.RefusedCalls
						sum.ChargeMC += row.ChargeMC
						if (row.Group == nil) != (by == "none") || row.CostMC+row.MarginMC > row.ChargeMC {
							t.Errorf("%s: %+v", query, row)
						}
					}
					m := nextPage.FindStringSubmatch(a.Header.Get("Link"))
					if m == nil {
						break
					}
					u, err := url.Parse(m[1])
					if err != nil {
						t.Fatal(err)
					}
					after = "&after=" + url.QueryEscape(u.Query().Get("after"))
				}
				if sum != want {
					t.Errorf("%s: %+v, the request log has %+v", query, sum, want)
				}
			}
		}
	}
	for _, bad := range []string{
		"from=yesterday", "to=2026-02-30", "from=2026-01-02&to=2026-01-01", "from=2020-01-01&to=2026-01-01",
		"interval=hour", "group_by=user", "after=!", "after=YQ", "limit=0",
	} {
		if a := c.Do(t, "GET", "/v1/apps/"+p.App.ID+"/usage?"+bad, ""); a.Status != 400 {
			t.Errorf("%s: %v, want 400", bad, a)
		}
	}
	other := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: "wrong"}
	if a := other.Do(t, "GET", "/v1/apps/"+p.App.ID+"/usage", ""); a.Status != 401 {
		t.Errorf("a wrong secret: %v", a)
	}
}
