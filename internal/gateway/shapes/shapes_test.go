package shapes

import (
	"errors"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

func TestRenameMember(t *testing.T) {
	t.Parallel()
	upper := func(s string) string { return strings.ToUpper(s) }
	for before, after := range map[string]string{
		"max_tokens: m allows at most 5":          "MAX_TOKENS: m allows at most 5",
		"messages[12].tool_calls[0].id: required": "MESSAGES[12].TOOL_CALLS[0].ID: required",
		"the provider says: no":                   "the provider says: no",
		"Idempotency-Key: required":               "Idempotency-Key: required",
	} {
		original := apierr.InvalidRequest.Errorf("%s", before)
		var e *apierr.Error
		err := RenameMember(original, upper)
		if !errors.As(err, &e) || e.Message != after || original.Message != before {
			t.Errorf("%q became %q, and the original %q", before, e.Message, original.Message)
		}
	}
	other := errors.New("max_tokens: x")
	if err := RenameMember(other, upper); err != other {
		t.Errorf("an error that is not for clients: %v", err)
	}
	limited := apierr.RateLimited.Errorf("calls: too many")
	if err := RenameMember(limited, upper); err != error(limited) {
		t.Errorf("another code: %v", err)
	}
}
