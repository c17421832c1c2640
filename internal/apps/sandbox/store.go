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
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// StartingBalance is what a new test account has to spend (contract §5, Sandbox).
const StartingBalance = 1000 * money.Dollar

// A Store makes, funds and ends test accounts.
type Store struct {
	db     *db.DB
	people *accounts.Store
	ledger *store.Writer
	now    func() time.Time
	made   *web.Limiter // with a password, by developer
}

// NewStore returns a Store on d. Hashing a password takes a core for a while, so
// a developer makes at most 100 accounts at once with one, and then one a second.
func NewStore(d *db.DB, people *accounts.Store, w *store.Writer, now func() time.Time) *Store {
	return &Store{
		db:     d,
		people: people,
		ledger: w,
		now:    now,
		made:   web.NewLimiter(time.Second, 100, now),
	}
}

// A TestAccount is one with what it has.
type TestAccount struct {
	accounts.Account
	Balance rules.Balance
	Tester  string // e-mail of the person it was made for; "" = the developer's own
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
	if a.TesterID != "" {
		person, err := s.people.Get(ctx, a.TesterID)
		if err != nil {
			return TestAccount{}, err
		}
		t.Tester = person.Email
	}
	return t, nil
}

// Create makes a test account to sign in as, and returns it with its password,
// which is never shown again. A 26th is 400 invalid_request, haste is 429.
func (s *Store) Create(ctx context.Context, developerID string) (TestAccount, string, error) {
	if list, err := s.people.ListTestAccounts(ctx, developerID); err != nil {
		return TestAccount{}, "", err
	} else if len(list) >= accounts.MaxTestAccounts {
		return TestAccount{}, "", accounts.TestAccountLimitError() // before the price of a password
	}
	if wait, ok := s.made.Allow(developerID); !ok {
		e := apierr.RateLimited.Errorf("too many test accounts at once; see the header Retry-After")
		e.RetryAfter = wait
		return TestAccount{}, "", e
	}
	password := id.NewSecret()[:20]
	hashed, err := accounts.HashPassword(ctx, password)
	if err != nil {
		return TestAccount{}, "", err
	}
	var a accounts.Account
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = s.Open(ctx, tx, accounts.NewAccount{OwnerID: developerID, PasswordHash: hashed})
		return err
	})
	if err != nil {
		return TestAccount{}, "", err
	}
	t, err := s.describe(ctx, a)
	return t, password, err
}

// Open makes the test account of n.OwnerID that n describes, with its starting
// balance, in the caller's transaction. Its address can receive nothing: .invalid
// is reserved for that.
func (s *Store) Open(ctx context.Context, tx *db.Tx, n accounts.NewAccount) (accounts.Account, error) {
	n.Email, n.Sandbox = strings.ToLower(id.New("test-", s.now()))+"@test.invalid", true
	a, err := s.people.Create(ctx, tx, n)
	if err != nil {
		return accounts.Account{}, err
	}
	_, err = s.ledger.DoTx(ctx, tx, rules.TopUp{AccountID: a.ID, Sandbox: true, AmountMC: StartingBalance})
	return a, err
}

// requireTestAccount says whether the developer has such a test account in use, by an error
// that wraps sql.ErrNoRows if not.
func (s *Store) requireTestAccount(ctx context.Context, developerID, accountID string) error {
	a, err := s.people.Get(ctx, accountID)
	if err == nil && (a.OwnerID != developerID || a.Deactivated) {
		return fmt.Errorf("sandbox: find: %w", sql.ErrNoRows)
	}
	return err
}

// Fund adds money that is not real. The error wraps sql.ErrNoRows when the
// developer has no such test account in use; an amount that cannot be is 400.
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

// Delete ends the use of a test account: its connections are revoked, as its user
// would, and nobody signs in as it again. What it spent stays in the books. The
// error wraps sql.ErrNoRows when the developer has no such test account in use.
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

// listLiveConnections returns the ids of an account's connections that are not
// revoked. Whoever holds the account's lock knows that no more are made.
func listLiveConnections(ctx context.Context, tx *db.Tx, accountID string) ([]string, error) {
	return db.QueryAll(ctx, tx, db.ScanColumn[string], `SELECT id FROM connections
		WHERE account_id = $1 AND status <> 'revoked' ORDER BY id`, accountID)
}
