package inference

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

// FuzzParse: whatever comes, it is read or refused by name; what is read stays
// inside the bounds of spec §8.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}],"max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}`,
		`{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"a":1}}]},{"role":"tool","tool_call_id":"c","content":"x"}],"tools":[{"type":"function","function":{"name":"f","parameters":{}}}],"tool_choice":{"type":"function","function":{"name":"f"}}}`,
		`{"messages":[{"role":"user","content":"a"}],"stop":["x"],"response_format":{"type":"json_object"},"n":1,"api_base":null}`,
		`{"model":"m","messages":[{"role":"developer","content":"a","name":"b"},{"role":"assistant","content":"","refusal":"no"}],"stop":"\u2028","max_completion_tokens":9223372036854775807,"top_p":1e-7}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk=","detail":"low"}}]}],"temperature":2,"reasoning_effort":"none"}`,
		`{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","strict":true}},{"type":"function","function":{"name":"g","description":"b"}}],"tool_choice":"required","parallel_tool_calls":false}`,
		`{"messages":[{"role":"user","content":"a"}],"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}},"service_tier":"auto","modalities":["text"],"logprobs":false,"top_logprobs":0}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":""}},{"id":"d","function":{"name":"f","arguments":"x"}}]},{"role":"tool","tool_call_id":"d","content":"x"},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":""}]}]}`,
		`{"messages":[{"role":"tool","tool_call_id":"` + strings.Repeat("é", 99) + `","content":"x"}]}`,
		`{"messages":[{"role":"user","content":"\ud83e\uddfe \u0000"}],"messages":[]}`,
		`{"messages":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `,"` + strings.Repeat("a.", 99) + `":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		var e *apierr.Error
		if err != nil {
			if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || e.Message == "" || len(e.Message) > 1000 || !utf8.ValidString(e.Message) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		if len(p.Messages) == 0 || len(p.Messages) > maxMessages || len(p.Tools) > maxTools || p.Images > maxImages || p.MaxTokens < 0 || len(p.Stop) > 4 {
			t.Fatalf("read past the bounds: %+v", p)
		}
		if (p.ToolChoice.Mode != "" || p.ParallelToolCalls != nil) && len(p.Tools) == 0 {
			t.Fatalf("a choice among no tools: %+v", p)
		}
		if c := p.ToolChoice; (c.Mode == "function") != (c.Name != "") || c.Name != "" && !slices.ContainsFunc(p.Tools, func(x provider.Tool) bool { return x.Name == c.Name }) {
			t.Fatalf("a choice of none: %+v", p)
		}
		for _, m := range p.Messages {
			for _, text := range append([]string{m.Text, m.Name, m.ToolCallID, m.Refusal}, p.Stop...) {
				if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
					t.Fatalf("%q was read", text)
				}
			}
		}
		if again, err := parse(data); err != nil || len(again.Messages) != len(p.Messages) {
			t.Fatalf("read twice, it differs: %v", err)
		}
	})
}

// FuzzFingerprint: route, feature and body cannot be shifted into each other.
func FuzzFingerprint(f *testing.F) {
	f.Add("ai/m", "a", []byte("b"), "ai/ma", "", []byte("b"))
	f.Add("ai/m", "", []byte("ab"), "ai/m", "a", []byte("b"))
	f.Fuzz(func(t *testing.T, path1, feature1 string, body1 []byte, path2, feature2 string, body2 []byte) {
		if len(path1)|len(feature1)|len(path2)|len(feature2) > 1<<15 {
			return
		}
		same := path1 == path2 && feature1 == feature2 && string(body1) == string(body2)
		if got := fingerprint(route{path: path1}, feature1, body1) == fingerprint(route{path: path2}, feature2, body2); got != same {
			t.Errorf("(%q %q %q) and (%q %q %q): equal %v", path1, feature1, body1, path2, feature2, body2, got)
		}
	})
}

// FuzzWithBlock: an answer with its bill is JSON, and the provider's members survive.
func FuzzWithBlock(f *testing.F) {
	f.Add(`{"id":"x","choices":[{}]}`, "chat", false)
	f.Add("{\"a\":{\"svc\":1}} \n", "", true)
	f.Fuzz(func(t *testing.T, body, feature string, estimated bool) {
		var members map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &members) != nil || len(members) == 0 || !strings.HasPrefix(body, "{") {
			return
		}
		if !featureSlug.MatchString(feature) {
			feature = ""
		}
		e := rules.Entry{ID: "led_x", Feature: feature, Settlement: rules.Settled, PaidBy: "wallet", Usage: `{"input":1,"cached":0,"cache_write":0,"output":2,"reasoning":0}`,
			Amounts: rules.Amounts{ProviderCostMC: 1, UserChargeMC: 1}, RemainingMC: money.Dollar}
		if estimated {
			e.Settlement = rules.Estimated
		}
		var out map[string]json.RawMessage
		if err := json.Unmarshal(withBlock([]byte(body), &e), &out); err != nil {
			t.Fatalf("%v in %s", err, withBlock([]byte(body), &e))
		}
		for name := range members {
			if _, ok := out[name]; !ok {
				t.Errorf("%q is lost", name)
			}
		}
		if !strings.Contains(string(out["svc"]), `"user_charge_mc":1`) {
			t.Errorf("the bill is lost: %s", out["svc"])
		}
	})
}
