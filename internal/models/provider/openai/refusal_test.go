package openai

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// TestStatuses: only what is wrong with the request is the app's business.
func TestStatuses(t *testing.T) {
	t.Parallel()
	body := `{"error":{"message":"Something about org-AbCdEfGh12 and ` + sampleKey +
		`","type":"x","param":null,"code":null}}`
	for _, status := range []int{201, 204, 304, 401, 402, 403, 404, 405, 408, 409, 418, 429, 500, 502, 503, 504, 529,
		599} {
		for _, stream := range []bool{false, true} {
			err := run(serve(t, answers(status, body, "Retry-After", "2")), stream)
			if e := fault(t, err); e.Status != status || e.RetryAfter != 2*time.Second {
				t.Errorf("status %d: %+v", status, e)
			}
		}
	}
	for _, status := range []int{400, 413, 422} {
		for _, stream := range []bool{false, true} {
			err := run(serve(t, answers(status, body)), stream)
			var e *provider.Error
			if !errors.As(err, &e) || e.Kind != provider.Rejected || e.Status != status {
				t.Fatalf("status %d: %v", status, err)
			}
			if want := "the provider refused the request: Something about [removed] and [removed]"; e.Message != want {
				t.Errorf("status %d: %q", status, e.Message)
			}
			if strings.Contains(err.Error(), sampleKey) {
				t.Errorf("the log shows our key: %v", err)
			}
		}
	}
	for _, code := range []string{"billing_hard_limit_reached", "insufficient_quota", "invalid_api_key"} {
		err := run(serve(t, answers(400, `{"error":{"message":"You are out of money","code":"`+code+`"}}`)), false)
		fault(t, err)
	}
}

func TestRefusalsWithoutAReason(t *testing.T) {
	t.Parallel()
	for what, body := range map[string]string{
		"no text":  "",
		"a page":   "<html>",
		"a list":   `[{"error":{"message":"m"}}]`,
		"a string": `{"error":"m"}`,
		"huge":     strings.Repeat("x", 1<<20),
	} {
		err := run(serve(t, answers(400, body)), false)
		var e *provider.Error
		if !errors.As(err, &e) || e.Kind != provider.Rejected ||
			e.Message != "the provider refused the request: it gave no reason" {
			t.Errorf("%s: %v", what, err)
		}
	}
}
