package operator_test

import (
	"encoding/json"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSettings changes settings for later by the API, lists them, and withdraws the change: each is logged once, and
// what is refused is not.
func TestSettings(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, token)
		const path, later = "/v1/operator/settings", `"from":"2040-01-01T00:00:00Z"`
		for body, says := range map[string]string{
			`{` + later + `,"reason":"why"}`:                                           "settings: required",
			`{` + later + `,"reason":"why","settings":{}}`:                             "settings: required",
			`{` + later + `,"settings":{"fee_rate":"0.04"}}`:                           "reason",
			`{` + later + `,"reason":"why","settings":{"fee_rate":"4"}}`:               "fee_rate: must be at most 1",
			`{` + later + `,"reason":"why","settings":{"fee":"0.04"}}`:                 "no such setting",
			`{` + later + `,"reason":"why","settings":{"fee_rate":"0.05"}}`:            "nothing would change",
			`{` + later + `,"reason":"why","settings":{"fee_rate":0.04}}`:              "settings",
			`{"from":"2020-01-01T00:00:00Z","reason":"a","settings":{"fee_rate":"0"}}`: "from: must be at least 10 s",
			`{"from":"soon","reason":"why","settings":{"fee_rate":"0"}}`:               "from: must be a time",
		} {
			want(t, body, b.api.Do(t, "POST", path, body), 400, says)
		}
		made := b.api.Do(t, "POST", path, `{`+later+`,"reason":"New prices.","settings":{"fee_rate":"0.04"}}`)
		want(t, "a change", made, 200, `"state":"upcoming"`)
		want(t, "a change", made, 200, `"changes":{"fee_rate":"0.04"}`)
		var v struct{ ID string }
		if err := json.Unmarshal([]byte(made.Body), &v); err != nil {
			t.Fatal(err)
		}
		list := b.api.Do(t, "GET", path, "")
		want(t, "the list", list, 200, `"state":"in_force"`)
		want(t, "the list", list, 200, v.ID)
		want(t, "the log", b.api.Do(t, "GET", "/v1/operator/log", ""), 200, `"fee_rate":"0.05"`)
		withdraw := func() int {
			return b.api.Do(t, "POST", path+"/"+v.ID+"/withdraw", `{"reason":"Too late."}`).Status
		}
		if first, second := withdraw(), withdraw(); first != 200 || second != 404 {
			t.Errorf("withdrawn with %d, again with %d", first, second)
		}
		var logged, versions int
		const counts = `SELECT (SELECT COUNT(*) FROM operator_log), (SELECT COUNT(*) FROM policies)`
		err := d.QueryRowContext(t.Context(), counts).Scan(&logged, &versions)
		if err != nil || logged != 2 || versions != 1 {
			t.Errorf("%d entries of the log, %d versions, %v", logged, versions, err)
		}
	})
}
