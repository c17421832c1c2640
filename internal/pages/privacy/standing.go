package privacy

import (
	"context"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxRows bounds the lists of an account that are read in one query: connections, payments, security events. The
// ledger is read in steps.
const maxRows = 100_000

// maxNamed is the number of apps or connections that a row names.
const maxNamed = 5

// maxUsers is how many connections to the apps of an account are counted.
const maxUsers = 1000

// A standing is the data that decides whether an account can be closed.
type standing struct {
	balance      rules.Balance
	live         int // connections that are not revoked
	apps         []apps.App
	testAccounts []accounts.Account
	rows         []row // in the order of the kinds
}

// A kind is a kind of thing that an account owes or is owed. closing.go says what becomes of each when the account is
// closed.
type kind string

const (
	runningCalls  kind = "calls"          // calls that run, charges that are pending, and holds of an app's own work
	topUps        kind = "top-ups"        // payments that are not credited yet, and charges of a card that have begun
	unpaidTopUps  kind = "unpaid top-ups" // checkouts that nobody has paid yet
	returns       kind = "returns"        // refunds on their way to a card
	debt          kind = "debt"           // a balance below zero
	balance       kind = "balance"        // available or reserved
	users         kind = "users"          // other accounts that are connected to the account's live apps
	sharedApps    kind = "shared apps"    // apps of the account on which others work
	payoutsBegun  kind = "payouts"        // of margin, whose transfer is not confirmed
	margin        kind = "margin"         // earned, not paid yet, and the developer has said whom to pay
	marginUnnamed kind = "margin unnamed" // earned, not paid yet, and nobody is named whom to pay
	marginLapsing kind = "margin lapsing" // as marginUnnamed, and less than a payout; or this server pays nobody
	marginHeld    kind = "margin held"    // earned, not paid while an app is suspended by the service
	marginDebt    kind = "margin debt"    // paid to the developer, and returned to users since
)

// A row is one thing that an account owes or is owed.
type row struct {
	kind         kind
	amountMC     money.MC
	reservedMC   money.MC // of a balance: the part that is reserved for apps
	returnableMC money.MC // of a balance: the part that cards can take back now
	count        int
	names        []string // of apps, or ids of connections: the first of them
	fromUS       int64    // when the last of a margin can be paid; 0 = not known
}

// loadStanding loads the standing of an account; q may be a transaction.
func (s *Store) loadStanding(ctx context.Context, q db.Queryer, a accounts.Account) (st standing, err error) {
	if st.balance, err = store.GetBalance(ctx, q, a.ID); err != nil {
		return st, fmt.Errorf("privacy: balance: %w", err)
	}
	st.balance.AccountID = a.ID // of one that has no balance yet
	if st.apps, err = apps.ListOwned(ctx, q, a.ID); err != nil {
		return st, err
	}
	if st.testAccounts, err = accounts.ListTestAccounts(ctx, q, a.ID); err != nil {
		return st, err
	}
	for _, add := range []func(context.Context, db.Queryer, accounts.Account, *standing) error{
		s.addCalls, s.addPayments, s.addUsers, s.addMargin,
	} {
		if err := add(ctx, q, a, &st); err != nil {
			return st, err
		}
	}
	return st, nil
}

func (st *standing) add(r row) { st.rows = append(st.rows, r) }

func (s *Store) addCalls(ctx context.Context, q db.Queryer, a accounts.Account, st *standing) error {
	connections, err := store.ConnectionsOfAccount(ctx, q, a.ID, maxRows)
	if err != nil {
		return fmt.Errorf("privacy: connections: %w", err)
	}
	held := false
	for _, c := range connections {
		held = held || c.HeldMC > 0
		if c.Status != rules.Revoked {
			st.live++
		}
	}
	holds, err := countHolds(ctx, q, a.ID) // a call on free credit holds nothing of its connection
	if err != nil {
		return fmt.Errorf("privacy: holds: %w", err)
	}
	if held || holds > 0 {
		st.add(row{kind: runningCalls, count: max(holds, 1)})
	}
	return nil
}

// addPayments adds the money that is on its way, and the balance. A balance below a cent is left out: no card takes it.
func (s *Store) addPayments(ctx context.Context, q db.Queryer, _ accounts.Account, st *standing) error {
	b := st.balance
	t, err := s.Topups.LoadStanding(ctx, q, b)
	if err != nil {
		return err
	}
	if !s.Topups.IsConfigured() { // without Stripe no checkout can be ended
		t.UnderWayMC, t.UnpaidMC = t.UnderWayMC+t.UnpaidMC, 0
	}
	for _, r := range []row{
		{kind: topUps, amountMC: t.UnderWayMC},
		{kind: unpaidTopUps, amountMC: t.UnpaidMC},
		{kind: returns, amountMC: t.ReturningMC},
		{kind: debt, amountMC: max(-b.AvailableMC, 0)},
	} {
		if r.amountMC > 0 {
			st.add(r)
		}
	}
	if sum := b.AvailableMC + b.ReservedMC; b.AvailableMC >= 0 && sum >= money.Cent {
		st.add(row{kind: balance, amountMC: sum, reservedMC: b.ReservedMC, returnableMC: t.ReturnableMC})
	}
	return nil
}

func (s *Store) addUsers(ctx context.Context, q db.Queryer, a accounts.Account, st *standing) error {
	connections, err := listUsers(ctx, q, a.ID, maxUsers)
	if err != nil {
		return fmt.Errorf("privacy: users: %w", err)
	}
	if n := len(connections); n > 0 {
		slices.Sort(connections)
		st.add(row{kind: users, count: n, names: connections[:min(n, maxNamed)]})
	}
	shared, err := listSharedApps(ctx, q, a.ID)
	if err != nil {
		return fmt.Errorf("privacy: shared apps: %w", err)
	}
	if len(shared) > 0 {
		st.add(row{kind: sharedApps, count: len(shared), names: shared[:min(len(shared), maxNamed)]})
	}
	return nil
}

func (s *Store) addMargin(ctx context.Context, q db.Queryer, a accounts.Account, st *standing) error {
	p, err := s.Payouts.LoadStanding(ctx, q, a.ID)
	if err != nil {
		return err
	}
	if p.UnderWayMC > 0 {
		st.add(row{kind: payoutsBegun, amountMC: p.UnderWayMC})
	}
	if p.HeldMC >= money.Cent {
		names := p.Held[:min(len(p.Held), maxNamed)]
		st.add(row{kind: marginHeld, amountMC: p.HeldMC, count: len(p.Held), names: names})
	}
	r := row{amountMC: p.UnpaidMC - p.UnderWayMC - p.HeldMC, fromUS: p.FromUS}
	switch {
	case r.amountMC < 0:
		r.kind, r.amountMC = marginDebt, -r.amountMC
	case r.amountMC < money.Cent:
		return nil
	case p.On && p.Payable:
		r.kind = margin
	case p.On && r.amountMC >= p.MinimumMC:
		r.kind = marginUnnamed
	default:
		r.kind = marginLapsing
	}
	st.add(r)
	return nil
}

// endCheckouts turns the checkouts that are left after ExpireUnpaid into payments under way: Stripe ends none that was
// paid, such as by a bank debit, whose money comes days later.
func (st *standing) endCheckouts() {
	for i, r := range st.rows {
		if r.kind == unpaidTopUps {
			st.rows[i].kind = topUps
		}
	}
}
