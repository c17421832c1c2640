package provider

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestUsageInDisjointClasses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Usage{
		sampleUsage: {Input: 176, Cached: 1024, Output: 345, Reasoning: 64},
		`{"prompt_tokens":10,"completion_tokens":0}`: {
			Input: 10,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":6}}`: {
			Input:      4,
			Cached:     6,
			Output:     5,
			SumDiffers: true,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":"15"}`: {
			Input:      10,
			Output:     5,
			SumDiffers: true,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"total_tokens":-1}`: {
			Input:      10,
			Output:     5,
			SumDiffers: true,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":null}`: {
			Input:  10,
			Output: 5,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"total_tokens":null,"completion_tokens_details":{}}`: {
			Input:  10,
			Output: 5,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":null,"cache_write_tokens":4}}`: {
			Input:      6,
			CacheWrite: 4,
			Output:     5,
		},
		`{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":6,"cache_write_tokens":4}}`: {
			Cached:     6,
			CacheWrite: 4,
			Output:     5,
		},
		`{"prompt_tokens":9007199254740992,"completion_tokens":0,"new_member":{"a":[1.5]}}`: {
			Input: 1 << 53,
		},
		"{ \"completion_tokens\" :\n7 , \"prompt_tokens\" : 3, \"completion_tokens_details\": {\"reasoning_tokens\": 7, \"x\":-1}}": {
			Input:     3,
			Output:    7,
			Reasoning: 7,
		},
	} {
		got := ParseUsage([]byte(text))
		if got == nil {
			t.Errorf("%s: unusable", text)
			continue
		}
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

func TestUsageThatCannotBeTrueCountsAsMissing(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"nothing":                     ``,
		"null":                        `null`,
		"a list":                      `[]`,
		"no counts":                   `{}`,
		"no completion":               `{"prompt_tokens":10}`,
		"null prompt":                 `{"prompt_tokens":null,"completion_tokens":5}`,
		"negative":                    `{"prompt_tokens":10,"completion_tokens":-5,"total_tokens":5}`,
		"fractional":                  `{"prompt_tokens":10,"completion_tokens":5.5}`,
		"a whole fraction":            `{"prompt_tokens":10,"completion_tokens":5.0}`,
		"an exponent":                 `{"prompt_tokens":10,"completion_tokens":5e3}`,
		"a string":                    `{"prompt_tokens":"10","completion_tokens":5}`,
		"above 2^53":                  `{"prompt_tokens":9007199254740993,"completion_tokens":0}`,
		"above 2^64":                  `{"prompt_tokens":18446744073709551626,"completion_tokens":0}`,
		"more cached than input":      `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":11}}`,
		"more cached and written":     `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":6,"cache_write_tokens":5}}`,
		"negative cached":             `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}`,
		"more reasoning than output":  `{"prompt_tokens":10,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":6}}`,
		"details that are no object":  `{"prompt_tokens":10,"completion_tokens":5,"prompt_tokens_details":7}`,
		"twice, and different":        `{"prompt_tokens":10,"completion_tokens":5,"completion_tokens":6}`,
		"twice, once null":            `{"prompt_tokens":10,"completion_tokens":5,"completion_tokens":null}`,
		"broken off":                  `{"prompt_tokens":10,"completion_tokens":5`,
		"a wrong name, by its letter": `{"Prompt_tokens":10,"completion_tokens":5}`,
	} {
		if got := ParseUsage([]byte(text)); got != nil {
			t.Errorf("%s: %+v, want unusable", what, *got)
		}
	}
}

// FuzzParseUsage: whatever it returns is true of the text.
func FuzzParseUsage(f *testing.F) {
	f.Add([]byte(sampleUsage))
	for _, s := range []string{
		`{"prompt_tokens":9007199254740992,"completion_tokens":9007199254740992}`,
		`{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":5},"completion_tokens_details":{"reasoning_tokens":5}}`,
		`{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":null,"completion_tokens_details":{"reasoning_tokens":null,"audio_tokens":1}}`,
		`{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4},"prompt_tokens_details":{"cache_write_tokens":6}}`,
		`{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":9007199254740992,"cache_write_tokens":9007199254740992}}`,
		`{"\u0070rompt_tokens":9,"completion_tokens":0005,"total_tokens":-0}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		u := ParseUsage(text)
		if u == nil {
			return
		}
		for _, n := range []int64{u.Input, u.Cached, u.CacheWrite, u.Output, u.Reasoning} {
			if n < 0 || n > 1<<53 {
				t.Errorf("%+v", *u)
			}
		}
		var raw map[string]any
		if err := json.Unmarshal(text, &raw); err != nil {
			t.Fatalf("usage out of %q: %v", text, err)
		}
		if sum := u.Input + u.Cached + u.CacheWrite; raw["prompt_tokens"] != float64(sum) {
			t.Errorf("input classes sum to %d in %s", sum, text)
		}
		if raw["completion_tokens"] != float64(u.Output) || u.Reasoning > u.Output {
			t.Errorf("output %d, reasoning %d in %s", u.Output, u.Reasoning, text)
		}
		if total, ok := raw["total_tokens"].(float64); ok && !u.SumDiffers &&
			total != float64(u.Input+u.Cached+u.CacheWrite+u.Output) {
			t.Errorf("a total of %v in %s", total, text)
		}
	})
}
