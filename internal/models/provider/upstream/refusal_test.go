package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestReasonsAreScrubbed(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.":                "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value is supported.",
		"Function tools with reasoning_effort are not supported for gpt-6-luna in /v1/chat/completions. Set reasoning_effort to 'none'.": "Function tools with reasoning_effort are not supported for gpt-6-luna in /v1/chat/completions. Set reasoning_effort to 'none'.",
		"messages.[1].content.[0].image_url: expected a string, at line 1.2.3":                                                           "messages.[1].content.[0].image_url: expected a string, at line 1.2.3",
		"Incorrect API key provided: sk-proj-****************3Kd8. See https://platform.openai.com/account/api-keys.":                    "Incorrect API key provided: [removed] See [removed]",
		"Request too large for gpt-6-luna in organization 'org-AbCdEfGh' (proj_12345678)":                                                "Request too large for gpt-6-luna in organization '[removed]' ([removed])",
		"Organization 8812 is disabled; contact support@openai.com or help.openai.com/x":                                                 "[removed] is disabled; contact [removed] or [removed]",
		"Authorization: Bearer abc.def is wrong at 10.0.0.7:8443, request req_1a2b3c":                                                    "Authorization: [removed] is wrong at [removed], request [removed]",
		" two\n\tlines\x00 and\x1b[31m colour ":                                                                                          "two lines and [31m colour",
		"":                                                                                                                               "it gave no reason",
		"\n\t":                                                                                                                           "it gave no reason",
	} {
		if got := CleanMessage(message); got != want {
			t.Errorf("%q: %q", message, got)
		}
	}
	long := CleanMessage(strings.Repeat("日本 ", 1000))
	if n := utf8.RuneCountInString(long); n != maxReason+1 || !utf8.ValidString(long) {
		t.Errorf("%d characters", n)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		header string
		want   time.Duration
	}{
		{"Retry-After: 3", 3 * time.Second}, {"Retry-After: 0.25", 250 * time.Millisecond},
		{"Retry-After-Ms: 120", 120 * time.Millisecond},
		{"Retry-After: Sat, 21 Nov 2026 12:00:30 GMT", 30 * time.Second},
		{"Retry-After: Sat, 21 Nov 2026 11:00:00 GMT", 0},
		{"Retry-After: Sat, 21 Nov 2037 12:00:30 GMT", time.Hour}, {"Retry-After: 1e300", time.Hour},
		{"Retry-After: Inf", time.Hour},
		{"Retry-After: -5", 0}, {"Retry-After: NaN", 0}, {"Retry-After: soon", 0}, {"X: 1", 0},
	} {
		name, value, _ := strings.Cut(c.header, ": ")
		h := http.Header{}
		h.Set(name, value)
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %v, want %v", c.header, got, c.want)
		}
	}
	both := http.Header{"Retry-After": {"9"}, "Retry-After-Ms": {"1500"}}
	if got := RetryAfter(both, now); got != 1500*time.Millisecond {
		t.Error(fmt.Sprint("milliseconds come first: ", got))
	}
}
