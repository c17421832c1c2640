package apierr

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestTable holds the codes to the statuses of contract §7.
func TestTable(t *testing.T) {
	t.Parallel()
	want := map[string]int{
		"invalid_request":              400,
		"feature_model_not_configured": 400,
		"invalid_grant":                400,
		"unsupported_grant_type":       400,
		"invalid_ticket":               401,
		"unauthorized":                 401,
		"allocation_exhausted":         402,
		"feature_cost_exceeded":        402,
		"connection_revoked":           403,
		"connection_frozen":            403,
		"app_suspended":                403,
		"model_not_allowed":            403,
		"call_stopped":                 403,
		"idempotency_key_reused":       409,
		"rate_limited":                 429,
		"risk_throttled":               429,
		"daily_limit_reached":          429,
		"app_spend_limited":            429,
		"too_many_sessions":            429,
		"sandbox_live_cost_limited":    429,
		"provider_error":               502,
		"not_found":                    404,
		"method_not_allowed":           405,
		"internal_error":               500,
		"unavailable":                  503,
	}
	if len(All) != len(want) {
		t.Errorf("%d codes, want %d", len(All), len(want))
	}
	for _, c := range All {
		if want[c.Name] != c.Status || c.Type == "" {
			t.Errorf("%s: status %d, type %q", c.Name, c.Status, c.Type)
		}
		if found, ok := ByName(c.Name); !ok || found != c {
			t.Errorf("%s is not found by its name", c.Name)
		}
	}
	if AllocationExhausted.Type != "insufficient_funds" || !AllocationExhausted.Increase || !ConnectionFrozen.Review {
		t.Error("402 and 403 lost what their envelopes carry")
	}
	if _, ok := ByName("nothing"); ok {
		t.Error("found a code that is not there")
	}
}

// TestEveryCodeHasASection: the page that doc_url leads to has a section for each code (decision 082).
func TestEveryCodeHasASection(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/guide/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range All {
		if !strings.Contains(string(page), "\n## "+c.Name+"\n") {
			t.Errorf("docs/guide/errors.md has no section %s", c.Name)
		}
	}
}

func TestCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("secret detail")
	err := error(ProviderError.On("conn_1", "failed").WithCause(cause))
	var e *Error
	if !errors.Is(err, cause) || !errors.As(err, &e) || e.Message != "failed" || e.ConnectionID != "conn_1" {
		t.Errorf("%+v", err)
	}
}
