package apps_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestAllowlistsAreKept(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := apps.NewStore(d, newClock().now, false)
		app, _ := create(t, d, s, apps.New{Name: "Reader"})
		if err := s.SetTestAllowlist(t.Context(), app.ID,
			[]string{" Ann@Example.com", "bob@example.com", "ann@example.com"}); err != nil {
			t.Fatal(err)
		}
		got, err := s.Get(t.Context(), app.ID)
		if diff := cmp.Diff([]string{"ann@example.com", "bob@example.com"}, got.TestAllowlist); err != nil ||
			diff != "" {
			t.Errorf("kept: %v %s", err, diff)
		}
		for email, want := range map[string]bool{
			"ann@example.com": true,
			"Ann@example.com": false,
			"eve@example.com": false,
			"":                false,
		} {
			if got.MayTest(accounts.Account{Email: email}) != want {
				t.Errorf("MayTest(%q) = %t", email, !want)
			}
		}
		if got.MayTest(accounts.Account{Email: "ann@example.com", Sandbox: true}) {
			t.Error("a test account is on the list")
		}
		if err := s.SetTestAllowlist(t.Context(), app.ID, []string{"nobody"}); !isRefused(err) {
			t.Errorf("no address: %v", err)
		}
		if again, err := s.Get(t.Context(), app.ID); err != nil || len(again.TestAllowlist) != 2 {
			t.Errorf("a refused list has changed the one before: %v, %v", again.TestAllowlist, err)
		}
		if err := s.SetTestAllowlist(t.Context(), app.ID, nil); err != nil {
			t.Error(err)
		}
		if cleared, err := s.Get(t.Context(), app.ID); err != nil || len(cleared.TestAllowlist) != 0 {
			t.Errorf("cleared: %v, %v", cleared.TestAllowlist, err)
		}
		if err := s.SetTestAllowlist(t.Context(), "app_none", nil); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("an app that does not exist: %v", err)
		}
	})
}

func TestAllowlistsAreBounded(t *testing.T) {
	t.Parallel()
	many := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprintf("person%d@example.com", i))
		}
		return list
	}
	for name, c := range map[string]struct {
		in   []string
		want int // -1 = refused
	}{
		"none":              {nil, 0},
		"99":                {many(99), 99},
		"100":               {many(100), 100},
		"101":               {many(101), -1},
		"100 and one twice": {append(many(100), "PERSON7@example.com"), 100},
		"no address":        {[]string{"a@example.com", "b"}, -1},
		"empty":             {[]string{""}, -1},
		"two in one":        {[]string{"a@example.com,b@example.com"}, -1},
		"a line break":      {[]string{"a@example.com\nb@example.com"}, -1},
		"not ASCII":         {[]string{"ä@example.com"}, -1},
	} {
		got, err := apps.NormalizeAllowlist(c.in)
		if c.want < 0 && !isRefused(err) || c.want >= 0 && (err != nil || len(got) != c.want) {
			t.Errorf("%s: %d addresses, %v, want %d", name, len(got), err, c.want)
		}
	}
}

// A closing takes the address of the account, and no other, out of the testers of all apps, whatever characters it has.
func TestErasedTesters(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		s := apps.NewStore(d, newClock().now, false)
		for _, email := range []string{
			"ann@example.com",
			"a%n_b@example.com",
			"r&d@example.com",
			"o'neil@example.com",
		} {
			others := []string{"x" + email, email + ".au", "other@example.com"}
			app, _ := create(t, d, s, apps.New{Name: "Reader"})
			foreign, _ := create(t, d, s, apps.New{Name: "Writer"})
			if err := errors.Join(s.SetTestAllowlist(t.Context(), app.ID, append([]string{email}, others...)),
				s.SetTestAllowlist(t.Context(), foreign.ID, others)); err != nil {
				t.Fatal(err)
			}
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return s.EraseAccount(ctx, tx, accounts.Account{ID: "wac_none", Email: email})
			}); err != nil {
				t.Fatal(err)
			}
			for _, appID := range []string{app.ID, foreign.ID} {
				got, err := s.Get(t.Context(), appID)
				if diff := cmp.Diff(others, got.TestAllowlist); err != nil || diff != "" {
					t.Errorf("%s: %v %s", email, err, diff)
				}
			}
		}
	})
}
