// Package sandbox holds the test accounts of a developer: people who do not
// exist, with money that is not real, as whom sandbox apps are tried (contract §2,
// Account; §5, Sandbox; §8). They belong to the developer, over all apps, and are
// made by the developer's server or on the consent page. Nothing is ever sent to
// their addresses. That their money and real money never meet is checked where
// money moves, by package ledger.
package sandbox

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// StartingBalance is the balance of a new test account (contract §5, Sandbox).
const StartingBalance = 1000 * money.Dollar

// A Store creates, funds and deletes test accounts.
type Store struct {
	db     *db.DB
	people *accounts.Store
	ledger *store.Writer
	now    func() time.Time
	made   *web.Limiter // new accounts with a password, by developer
}

// NewStore returns a Store on d. A developer can create at most 100 accounts in a burst and then
// one per second, because hashing a password is expensive.
func NewStore(d *db.DB, people *accounts.Store, w *store.Writer, now func() time.Time) *Store {
	return &Store{
		db:     d,
		people: people,
		ledger: w,
		now:    now,
		made:   web.NewLimiter(time.Second, 100, now),
	}
}

// A TestAccount is a test account with its balance.
type TestAccount struct {
	accounts.Account
	Balance rules.Balance
	// Tester is the email of the tester it was created for, if the developer's apps name that address: a tester's other
	// address is no business of the developer's. "" = none, or the developer.
	Tester string
}

// List returns the developer's test accounts, oldest first.
func (s *Store) List(ctx context.Context, developerID string) ([]TestAccount, error) {
	list, err := s.people.ListTestAccounts(ctx, developerID)
	if err != nil {
		return nil, err
	}
	out := make([]TestAccount, len(list))
	for i, a := range list {
		if out[i], err = s.describe(ctx, a); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Store) describe(ctx context.Context, a accounts.Account) (TestAccount, error) {
	t := TestAccount{Account: a}
	var err error
	if t.Balance, err = store.GetBalance(ctx, s.db, a.ID); err != nil {
		return TestAccount{}, fmt.Errorf("sandbox: balance: %w", err)
	}
	if a.TesterID == "" {
		return t, nil
	}
	person, err := s.people.Get(ctx, a.TesterID)
	if err != nil {
		return TestAccount{}, err
	}
	invited, err := apps.ListOwned(ctx, s.db, a.OwnerID)
	if slices.ContainsFunc(invited, func(app apps.App) bool { return app.MayTest(person) }) {
		t.Tester = person.Email
	}
	return t, err
}

// Create creates a test account with a password, which is never shown again. A 26th account is 400 invalid_request, and
// a request above the rate limit 429.
func (s *Store) Create(ctx context.Context, developerID string) (TestAccount, string, error) {
	if list, err := s.people.ListTestAccounts(ctx, developerID); err != nil {
		return TestAccount{}, "", err
	} else if len(list) >= accounts.MaxTestAccounts {
		return TestAccount{}, "", accounts.TestAccountLimitError() // before the password is hashed
	}
	if wait, ok := s.made.Allow(developerID); !ok {
		e := apierr.RateLimited.Errorf("too many new test accounts; see the header Retry-After")
		e.RetryAfter = wait
		return TestAccount{}, "", e
	}
	password := id.NewSecret()[:20]
	hashed, err := accounts.HashNewPassword(ctx, password)
	if err != nil {
		return TestAccount{}, "", err
	}
	var a accounts.Account
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = s.CreateTx(ctx, tx, accounts.NewAccount{OwnerID: developerID, PasswordHash: hashed})
		return err
	})
	if err != nil {
		return TestAccount{}, "", err
	}
	t, err := s.describe(ctx, a)
	return t, password, err
}

// CreateTx creates the test account of n.OwnerID with its starting balance, in the caller's
// transaction. Its email is in the reserved domain .invalid and receives nothing.
func (s *Store) CreateTx(ctx context.Context, tx *db.Tx, n accounts.NewAccount) (accounts.Account, error) {
	n.Email, n.Sandbox = strings.ToLower(id.New("test-", s.now()))+"@test.invalid", true
	a, err := s.people.Create(ctx, tx, n)
	if err != nil {
		return accounts.Account{}, err
	}
	_, err = s.ledger.DoTx(ctx, tx, rules.TopUp{AccountID: a.ID, Sandbox: true, AmountMC: StartingBalance})
	return a, err
}

// requireTestAccount returns an error that wraps sql.ErrNoRows unless the developer has this active test account.
func (s *Store) requireTestAccount(ctx context.Context, developerID, accountID string) error {
	a, err := s.people.Get(ctx, accountID)
	if err == nil && (a.OwnerID != developerID || a.Deactivated) {
		return fmt.Errorf("sandbox: find: %w", sql.ErrNoRows)
	}
	return err
}

// Fund adds fake money. The error wraps sql.ErrNoRows if the developer has no such active test
// account. An invalid amount is 400.
func (s *Store) Fund(ctx context.Context, developerID, accountID string, amountMC money.MC) (TestAccount, error) {
	var a accounts.Account
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if a, err = accounts.Lock(ctx, tx, accountID); err != nil {
			return err
		}
		if a.OwnerID != developerID || a.Deactivated {
			return sql.ErrNoRows
		}
		_, err = s.ledger.DoTx(ctx, tx, rules.TopUp{AccountID: a.ID, Sandbox: true, AmountMC: amountMC})
		return err
	})
	if err != nil {
		return TestAccount{}, fmt.Errorf("sandbox: fund: %w", err)
	}
	return s.describe(ctx, a)
}

// Delete deactivates a test account and revokes its connections. Its ledger rows stay. The error wraps sql.ErrNoRows if
// the developer has no such active test account.
func (s *Store) Delete(ctx context.Context, developerID, accountID string) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.DeleteTx(ctx, tx, developerID, accountID)
	})
}

// DeleteTx is Delete in the caller's transaction.
func (s *Store) DeleteTx(ctx context.Context, tx *db.Tx, developerID, accountID string) error {
	if err := s.people.Deactivate(ctx, tx, developerID, accountID); err != nil {
		return fmt.Errorf("sandbox: delete: %w", err)
	}
	list, err := listLiveConnections(ctx, tx, accountID)
	if err != nil {
		return fmt.Errorf("sandbox: delete: %w", err)
	}
	for _, connectionID := range list {
		if _, err := s.ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: connectionID}); err != nil {
			return fmt.Errorf("sandbox: delete: %w", err)
		}
	}
	return nil
}
