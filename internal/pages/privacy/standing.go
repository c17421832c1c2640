package privacy

import (
	"context"
	"fmt"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxRows bounds the lists of an account that are read in one query: connections, payments, security events. The
// ledger is read in steps.
const maxRows = 100_000

// A standing is the data that decides whether an account can be closed.
type standing struct {
	balance      rules.Balance
	live         int  // connections that are not revoked
	held         bool // a call is in progress, or its charge is pending
	paying       bool // a payment is pending
	unpaid       bool // of these, none is paid: closing the account ends them
	users        int  // connections of other accounts to the account's live apps
	apps         []apps.App
	testAccounts []accounts.Account
}

// loadStanding loads the standing of an account; q may be a transaction.
func (s *Store) loadStanding(ctx context.Context, q db.Queryer, a accounts.Account) (st standing, err error) {
	if st.balance, err = store.GetBalance(ctx, q, a.ID); err != nil {
		return st, fmt.Errorf("privacy: balance: %w", err)
	}
	connections, err := store.ConnectionsOfAccount(ctx, q, a.ID, maxRows)
	if err != nil {
		return st, fmt.Errorf("privacy: connections: %w", err)
	}
	for _, c := range connections {
		st.held = st.held || c.HeldMC > 0
		if c.Status != rules.Revoked {
			st.live++
		}
	}
	holds, err := countHolds(ctx, q, a.ID) // a call on free credit holds nothing of its connection
	if err != nil {
		return st, fmt.Errorf("privacy: holds: %w", err)
	}
	st.held = st.held || holds > 0
	payments, err := store.PaymentsOfAccount(ctx, q, a.ID, maxRows)
	if err != nil {
		return st, fmt.Errorf("privacy: payments: %w", err)
	}
	st.unpaid = s.Topups.IsConfigured()
	for _, p := range payments {
		if p.Status == rules.PaymentPending {
			st.paying, st.unpaid = true, st.unpaid && !p.Paid()
		}
	}
	if st.users, err = countUsers(ctx, q, a.ID); err != nil {
		return st, fmt.Errorf("privacy: users: %w", err)
	}
	if st.apps, err = apps.ListOwned(ctx, q, a.ID); err != nil {
		return st, err
	}
	st.testAccounts, err = accounts.ListTestAccounts(ctx, q, a.ID)
	return st, err
}

// expectedObstacles lists the obstacles that closing does not remove by itself.
func (st standing) expectedObstacles() []ui.Obstacle {
	st.paying = st.paying && !st.unpaid
	return st.obstacles()
}

// obstacles lists what the user must do before the account can be closed, in that order. A balance below a cent is no
// obstacle: it cannot be refunded to a card.
func (st standing) obstacles() (list []ui.Obstacle) {
	add := func(link *ui.Link, format string, args ...any) {
		list = append(list, ui.Obstacle{Text: fmt.Sprintf(format, args...), Link: link})
	}
	if st.held {
		add(&ui.Link{Href: "/connections", Text: "Your connections"},
			"A call is still in progress, or its charge is pending. This takes a few minutes at most. Pause or revoke "+
				"the connection to prevent new calls.")
	}
	if st.paying {
		add(&ui.Link{Href: "/top-ups", Text: "Your top-ups"},
			"A top-up is in progress. If you don’t pay for it, it expires within a day.")
	}
	sum := st.balance.AvailableMC + st.balance.ReservedMC
	switch {
	case st.balance.AvailableMC < 0:
		add(nil, "Your balance is %s, because a payment was reversed after it was spent. Contact support.",
			st.balance.AvailableMC.Display())
	case sum >= money.Cent && st.balance.ReservedMC > 0:
		add(&ui.Link{Href: "/connections", Text: "Revoke your connections"},
			"You still have %s: %s ready to use and %s reserved for apps. Revoke their connections, then contact "+
				"support for a refund to your card.",
			sum.Display(), st.balance.AvailableMC.Display(), st.balance.ReservedMC.Display())
	case sum >= money.Cent:
		add(nil, "You still have %s. Spend it, or contact support for a refund to your card.", sum.Display())
	}
	if st.users > 0 {
		add(&ui.Link{Href: "/developer", Text: "Your apps"},
			"Users are connected to your live apps, over %d connection%s. Revoke those first: your app can, by DELETE "+
				"/v1/connections/{id}.", st.users, plural(st.users))
	}
	return list
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
