package web

import (
	"errors"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
)

func TestTurns(t *testing.T) {
	t.Parallel()
	var turns Turns
	refusedAs := func(code apierr.Code, err error) bool {
		e, ok := errors.AsType[*apierr.Error](err)
		return ok && e.Code == code && e.RetryAfter == turnWait
	}
	leave, err := turns.Take("wac_1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := turns.Take("wac_1"); !refusedAs(apierr.RateLimited, err) {
		t.Errorf("the same account: %v", err)
	}
	other, err := turns.Take("wac_2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := turns.Take("wac_3"); !refusedAs(apierr.Unavailable, err) {
		t.Errorf("one too many: %v", err)
	}
	leave()
	for _, account := range []string{"wac_3", "wac_2"} {
		if _, err := turns.Take(account); (err == nil) != (account == "wac_3") {
			t.Errorf("%s after one has left: %v", account, err)
		}
	}
	other()
	if _, err := turns.Take("wac_1"); err != nil {
		t.Errorf("it can come again: %v", err)
	}
}
