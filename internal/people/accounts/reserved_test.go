package accounts_test

import (
	"context"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// Nobody takes an address that we make. An account that did so earlier can be closed, and keeps no other from it.
func TestReservedAddresses(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		people, ctx := accounts.NewStore(d, d.Now), t.Context()
		var owner, squatter accounts.Account
		if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			for _, email := range []string{"wac_1@closed.invalid", "Wac_1@Closed.Invalid ", "a@test.invalid",
				"wac_1@closed"} {
				if _, err := people.Create(ctx, tx, accounts.NewAccount{Email: email}); err == nil {
					t.Errorf("%q was taken", email)
				}
			}
			if owner, err = people.Create(ctx, tx, accounts.NewAccount{Email: "owner@example.com"}); err != nil {
				return err
			}
			squatter, err = people.Create(ctx, tx, accounts.NewAccount{Email: "squatter@example.com"})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := d.ExecContext(ctx, `UPDATE accounts SET email = LOWER($1) || '@closed.invalid' WHERE id = $2`,
			owner.ID, squatter.ID); err != nil {
			t.Fatal(err)
		}
		for _, a := range []accounts.Account{owner, squatter} {
			if err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				return people.CloseAccount(ctx, tx, a.ID)
			}); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
}
