package stripeapi_test

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"testing"

	emulator "github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/stripeapi"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestOtherAccount takes a key of another account than the first one for what it is. A key that may not ask for its
// account, and a Stripe that does not answer, say nothing.
func TestOtherAccount(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		check := func(account, status string) error { // by a node that has just started
			s := emulator.New(emulator.Options{Key: "sk_test_key", Account: account})
			server := httptest.NewServer(s)
			defer server.Close()
			if status != "" {
				with := url.Values{"status": {status}, "path": {"/v1/account"}}
				if err := s.Steer("", "answer", with); err != nil {
					t.Fatal(err)
				}
			}
			a := &stripeapi.Account{
				Client: stripeapi.NewClient("sk_test_key", server.URL, nil, 0),
				DB:     d,
				Log:    slog.New(slog.DiscardHandler),
			}
			return a.Check(t.Context())
		}
		if err := check("acct_2", "503"); err == nil || errors.Is(err, stripeapi.ErrOtherAccount) {
			t.Error(err)
		}
		for _, c := range []struct {
			account, status string
			want            error
		}{
			{"acct_2", "403", nil},
			{"acct_1", "", nil},
			{"acct_2", "", stripeapi.ErrOtherAccount},
			{"acct_2", "403", nil},
			{"acct_1", "", nil},
		} {
			if err := check(c.account, c.status); !errors.Is(err, c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	})
}
