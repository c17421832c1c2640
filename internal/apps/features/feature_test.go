package features

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
)

func offered(model string) bool { return model == "gpt-5.6-terra" }

func TestRatesAreReadExactly(t *testing.T) {
	t.Parallel()
	const refused = money.PPM(-1)
	for _, c := range []struct {
		literal string
		want    money.PPM
	}{
		{`0`, 0}, {`-0`, 0}, {`0.0`, 0}, {`1`, 1_000_000}, {`0.15`, 150_000}, {`0.1500000000`, 150_000},
		{`0.000001`, 1}, {`1e-06`, 1}, {`1E-6`, 1}, {`1.5e-1`, 150_000}, {`1e+1`, 10_000_000}, {`10`, 10_000_000},
		{`10.000000`, 10_000_000},
		{`0.29`, 290_000}, {`0.57`, 570_000}, {`1.005`, 1_005_000}, {`9.999999`, 9_999_999}, {`0e999`, refused},
		{`0.0000001`, refused}, {`0.1500001`, refused}, {`10.000001`, refused}, {`11`, refused}, {`-0.1`, refused},
		{`-1`, refused},
		{`1e20`, refused}, {`1e999999999`, refused}, {`1e-999999999`, refused},
		{`0.15000000000000000000000000000000000000001`, refused},
		{`"0.15"`, refused}, {`true`, refused}, {`[]`, refused}, {`{}`, refused},
	} {
		got, ok := apps.ParseRate(jsontext.Value(c.literal))
		if ok != (c.want != refused) || ok && got != c.want {
			t.Errorf("%s: %d %t, want %d", c.literal, got, ok, c.want)
		}
	}
}

// The bodies that POST takes and refuses, and what the refusal names.
func TestNewFeatures(t *testing.T) {
	t.Parallel()
	const base = `"slug":"s","display_name":"S","description":"D"`
	for _, c := range []struct{ body, want string }{
		{`{` + base + `}`, ""},
		{`{"slug":"` + strings.Repeat("a", 40) + `","display_name":"` + strings.Repeat("ü", 80) + `","description":"` +
			strings.Repeat("ü", 500) + `"}`, ""},
		{`{"slug":"0-9","display_name":"S","description":"D","max_cost_per_call_mc":0,"max_tokens":1,"rate_limit":1,"default_model":"gpt-5.6-terra","dev_margin_rate":0}`, ""},
		{`{` + base + `,"max_cost_per_call_mc":null,"max_tokens":null,"rate_limit":null,"default_model":null,"dev_margin_rate":null}`, ""},
		{`{}`, "slug: required"},
		{`{"display_name":"S","description":"D"}`, "slug: required"},
		{`{"slug":null,"display_name":"S","description":"D"}`, "slug: required"},
		{`{"slug":"s","description":"D"}`, "display_name: required"},
		{`{"slug":"s","display_name":"S"}`, "description: required"},
		{`{"slug":"s","display_name":null,"description":"D"}`, "display_name: must be a string"},
		{`{"slug":"","display_name":"S","description":"D"}`, "slug: "},
		{`{"slug":"A","display_name":"S","description":"D"}`, "slug: "},
		{`{"slug":"a_b","display_name":"S","description":"D"}`, "slug: "},
		{`{"slug":"a\n","display_name":"S","description":"D"}`, "slug: "},
		{`{"slug":"` + strings.Repeat("a", 41) + `","display_name":"S","description":"D"}`, "slug: "},
		{`{"slug":"s","display_name":"","description":"D"}`, "display_name: must have 1 to 80"},
		{`{"slug":"s","display_name":"` + strings.Repeat("ü", 81) + `","description":"D"}`,
			"display_name: must have 1 to 80"},
		{`{"slug":"s","display_name":"a\u202eb","description":"D"}`, "display_name: must not hold"},
		{`{"slug":"s","display_name":"a\tb","description":"D"}`, "display_name: must not hold"},
		{`{"slug":"s","display_name":"S","description":" "}`, "description: must have 1 to 500"},
		{`{"slug":"s","display_name":"S","description":"` + strings.Repeat("d", 501) + `"}`,
			"description: must have 1 to 500"},
		{`{"slug":"s","display_name":"S","description":"a\u2067b"}`, "description: must not hold"},
		{`{"slug":7,"display_name":"S","description":"D"}`, "slug: must be a string"},
		{`{` + base + `,"max_cost_per_call_mc":-1}`, "max_cost_per_call_mc: "},
		{`{` + base + `,"max_cost_per_call_mc":1000000000000001}`, "max_cost_per_call_mc: "},
		{`{` + base + `,"max_cost_per_call_mc":1.5}`, "max_cost_per_call_mc: must be an integer"},
		{`{` + base + `,"max_cost_per_call_mc":"5"}`, "max_cost_per_call_mc: must be an integer"},
		{`{` + base + `,"max_tokens":0}`, "max_tokens: "},
		{`{` + base + `,"max_tokens":1000000001}`, "max_tokens: "},
		{`{` + base + `,"max_tokens":99999999999999999999}`, "max_tokens: is out of range"},
		{`{` + base + `,"rate_limit":0}`, "rate_limit: "},
		{`{` + base + `,"rate_limit":1000000001}`, "rate_limit: "},
		{`{` + base + `,"default_model":"gpt-0"}`, "default_model: "},
		{`{` + base + `,"default_model":""}`, "default_model: "},
		{`{` + base + `,"dev_margin_rate":0.0000001}`, "dev_margin_rate: "},
		{`{` + base + `,"dev_margin_rate":10.1}`, "dev_margin_rate: "},
		{`{` + base + `,"dev_margin_rate":"0.1"}`, "dev_margin_rate: "},
		{`{` + base + `,"price":1}`, "price: is not a member"},
		{`{` + base + `,"Slug":"t"}`, "Slug: is not a member"},
		{`{` + base + `,"slug":"t"}`, "slug: must come once"},
		{`[]`, "body: must be a JSON object"},
		{`null`, "body: must be a JSON object"},
	} {
		var change Change
		err := web.Decode([]byte(c.body), &change)
		if err == nil {
			_, err = change.makeFeature("app_1", offered)
		}
		wantRefusal(t, c.body, err, c.want)
	}
}

func wantRefusal(t *testing.T, body string, err error, want string) {
	t.Helper()
	e, _ := errors.AsType[*apierr.Error](err)
	if want == "" && err != nil ||
		want != "" && (e == nil || e.Code != apierr.InvalidRequest || !strings.HasPrefix(e.Message, want)) {
		t.Errorf("%s: %v; want %q", body, err, want)
	}
}

func TestPatchesArePartial(t *testing.T) {
	t.Parallel()
	cost, tokens, model, margin := 5*money.Cent, int64(100), "retired-model", money.PPM(150_000)
	before := Feature{
		AppID:            "app_1",
		Slug:             "s",
		DisplayName:      "S",
		Description:      "D",
		MaxCostPerCallMC: &cost,
		MaxTokens:        &tokens,
		DefaultModel:     &model,
		DevMargin:        &margin,
	}
	rate := int64(7)
	for _, c := range []struct {
		body, want string
		expect     func(*Feature)
	}{
		{`{}`, "", func(*Feature) {}},
		{`{"slug":"s"}`, "", func(*Feature) {}},
		{`{"display_name":"New"}`, "", func(f *Feature) { f.DisplayName = "New" }},
		{`{"rate_limit":7,"max_tokens":null}`, "", func(f *Feature) { f.RateLimit, f.MaxTokens = &rate, nil }},
		{`{"default_model":null,"dev_margin_rate":null,"max_cost_per_call_mc":null}`, "", func(f *Feature) {
			f.DefaultModel, f.DevMargin, f.MaxCostPerCallMC = nil, nil, nil
		}},
		{`{"slug":"t"}`, "slug: cannot be changed", nil},
		{`{"slug":null}`, "slug: cannot be changed", nil},
		{`{"description":null}`, "description: must be a string", nil},
		{`{"default_model":"retired-model"}`, "default_model: ", nil},
		{`{"app_id":"app_2"}`, "app_id: is not a member", nil},
	} {
		var change Change
		err := web.Decode([]byte(c.body), &change)
		after := before
		if err == nil {
			after, err = change.applyTo(before, offered)
		}
		wantRefusal(t, c.body, err, c.want)
		if c.expect != nil {
			want := before
			c.expect(&want)
			if diff := cmp.Diff(want, after); diff != "" {
				t.Errorf("%s: %s", c.body, diff)
			}
		}
	}
}
