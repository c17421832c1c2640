package anthropic

import (
	"testing"

	"github.com/purserhq/purser/internal/models/provider"
)

// TestEdge37UsageIsCumulative: reports replace, class by class; they are never
// added up, and what a later one leaves out stays.
func TestEdge37UsageIsCumulative(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		first string
		later []string
		want  *provider.Usage
	}{
		"output later": {`{"input_tokens":25,"output_tokens":1}`, []string{`{"output_tokens":15}`},
			&provider.Usage{Input: 25, Output: 15}},
		"all again": {`{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}`,
			[]string{`{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":15}`}, &provider.Usage{
				Input:  25,
				Cached: 7,
				Output: 15,
			}},
		"cached not lost": {`{"input_tokens":2,"cache_read_input_tokens":100,"cache_creation_input_tokens":50,"output_tokens":1}`, []string{
			`{"output_tokens":3}`,
		}, &provider.Usage{
			Input:      2,
			Cached:     100,
			CacheWrite: 50,
			Output:     3,
		}},
		"null changes nothing": {`{"input_tokens":2,"cache_read_input_tokens":9,"output_tokens":1}`,
			[]string{`{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":3}`}, &provider.Usage{
				Input:  2,
				Cached: 9,
				Output: 3,
			}},
		"input corrected": {`{"input_tokens":2,"output_tokens":1}`,
			[]string{`{"input_tokens":4,"output_tokens":3}`}, &provider.Usage{Input: 4, Output: 3}},
		"several reports": {`{"input_tokens":2,"output_tokens":1}`,
			[]string{`{"output_tokens":3}`, `{"output_tokens":8}`}, &provider.Usage{Input: 2, Output: 8}},
		"fewer than the first said": {`{"input_tokens":2,"output_tokens":8}`, []string{`{"output_tokens":3}`},
			&provider.Usage{Input: 2, Output: 3}},
		"thinking is part of it": {`{"input_tokens":2,"output_tokens":1}`,
			[]string{`{"output_tokens":8,"output_tokens_details":{"thinking_tokens":8}}`}, &provider.Usage{
				Input:     2,
				Output:    8,
				Reasoning: 8,
			}},
		"unknown members": {`{"input_tokens":2,"output_tokens":1,"service_tier":"standard","speed":{}}`,
			[]string{`{"output_tokens":3,"server_tool_use":null}`}, &provider.Usage{Input: 2, Output: 3}},
		"all zero": {`{"input_tokens":0,"output_tokens":0}`, []string{`{"output_tokens":0}`}, &provider.Usage{}},

		"provisional output only": {`{"input_tokens":2,"output_tokens":1}`, nil, nil},
		"no report":               {`null`, []string{`null`}, nil},
		"no input":                {`{"output_tokens":1}`, []string{`{"output_tokens":1}`}, nil},
		"negative":                {`{"input_tokens":-2,"output_tokens":1}`, []string{`{"output_tokens":1}`}, nil},
		"negative output":         {`{"input_tokens":2,"output_tokens":1}`, []string{`{"output_tokens":-1}`}, nil},
		"negative cache": {`{"input_tokens":2,"cache_read_input_tokens":-5}`, []string{`{"output_tokens":1}`},
			nil},
		"fraction":   {`{"input_tokens":2.5}`, []string{`{"output_tokens":1}`}, nil},
		"exponent":   {`{"input_tokens":2e3}`, []string{`{"output_tokens":1}`}, nil},
		"text":       {`{"input_tokens":"2"}`, []string{`{"output_tokens":1}`}, nil},
		"above 2^53": {`{"input_tokens":9007199254740993}`, []string{`{"output_tokens":1}`}, nil},
		"long":       {`{"input_tokens":99999999999999999999}`, []string{`{"output_tokens":1}`}, nil},
		"sum above 2^53": {`{"input_tokens":9007199254740992}`, []string{`{"output_tokens":9007199254740992}`},
			nil},
		"twice": {`{"input_tokens":2,"input_tokens":3}`, []string{`{"output_tokens":1}`}, nil},
		"more thought than said": {`{"input_tokens":2}`,
			[]string{`{"output_tokens":1,"output_tokens_details":{"thinking_tokens":2}}`}, nil},
		"falling":     {`{"input_tokens":2}`, []string{`{"output_tokens":9}`, `{"output_tokens":8}`}, nil},
		"a list":      {`[]`, []string{`{"output_tokens":1}`}, nil},
		"once absurd": {`{"input_tokens":2}`, []string{`{"output_tokens":-9}`, `{"output_tokens":8}`}, nil},
	} {
		u := newUsage()
		u.addReport(value(c.first), true)
		for _, raw := range c.later {
			u.addReport(value(raw), false)
		}
		got := u.makeUsage()
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

func value(raw string) []byte {
	if raw == "null" {
		return nil
	}
	return []byte(raw)
}

// TestEdge39CacheWrites: OpenAI's prompt includes what was cached, and its parts
// give the same classes back.
func TestEdge39CacheWrites(t *testing.T) {
	t.Parallel()
	u := provider.Usage{Input: 3, Cached: 100, CacheWrite: 40, Output: 9, Reasoning: 4}
	raw := provider.AppendUsage(nil, &u)
	want := `{"prompt_tokens":143,"completion_tokens":9,"total_tokens":152,"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":40},"completion_tokens_details":{"reasoning_tokens":4}}`
	if string(raw) != want {
		t.Errorf("%s", raw)
	}
	if back := provider.ParseUsage(raw); back == nil || *back != u {
		t.Errorf("%+v", back)
	}
}

// FuzzUsage: whatever is reported, what is billed can be true.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`{"input_tokens":25,"cache_read_input_tokens":7,"output_tokens":1}`),
		[]byte(`{"output_tokens":8,"output_tokens_details":{"thinking_tokens":8}}`))
	f.Add([]byte(`{"input_tokens":-1}`), []byte(`{"output_tokens":1e3}`))
	f.Fuzz(func(t *testing.T, first, later []byte) {
		u := newUsage()
		u.addReport(first, true)
		u.addReport(later, false)
		if got := u.makeUsage(); got != nil {
			if back := provider.ParseUsage(provider.AppendUsage(nil, got)); back == nil || *back != *got {
				t.Errorf("%+v, back %+v", got, back)
			}
		}
	})
}
