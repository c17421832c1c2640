package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// A Store reads and writes accounts.
type Store struct {
	db     *db.DB
	now    func() time.Time
	limits signInLimits
	queue  eventQueue // events not written yet
	enders map[Thing]ender

	// RolesWithoutSecondStep lets accounts without two-step verification have a role on the operator's pages, in
	// purser dev.
	RolesWithoutSecondStep bool
}

// NewStore returns a Store on d. Failed sign-ins are throttled as decision 044 says.
func NewStore(d *db.DB, now func() time.Time) *Store {
	return &Store{
		db:     d,
		now:    now,
		limits: newSignInLimits(now),
		enders: map[Thing]ender{SignInSession: deleteAccountSessions},
	}
}

// NewAccount is the input of Create.
type NewAccount struct {
	Email        string
	Password     string // "" = cannot sign in by a password
	PasswordHash string // of HashPassword, instead of Password
	Sandbox      bool   // a test account of OwnerID
	Developer    bool
	Operator     bool
	OwnerID      string
	Unconfirmed  bool   // its email must still be confirmed
	TesterID     string // the tester whose test account it is; "" = the developer's own
}

// Create adds an account in the caller's transaction. These are 400 invalid_request: a malformed
// email or one of another account, a weak password, a 26th test account, and a second test account
// of a tester.
func (s *Store) Create(ctx context.Context, tx *db.Tx, n NewAccount) (Account, error) {
	normalize := NormalizeNewEmail
	if n.Sandbox {
		normalize = NormalizeEmail
	}
	email, err := normalize(n.Email)
	if err != nil {
		return Account{}, err
	}
	if n.Password != "" {
		if n.PasswordHash, err = HashNewPassword(ctx, n.Password); err != nil {
			return Account{}, err
		}
	}
	if n.Sandbox != (n.OwnerID != "") || n.TesterID != "" && !n.Sandbox {
		return Account{},
			apierr.InvalidRequest.Errorf("owner_id: every test account has an owner, and no other account has one")
	}
	if n.Sandbox {
		if err := checkTestAccountLimit(ctx, tx, n.OwnerID, n.TesterID); err != nil {
			return Account{}, err
		}
	}
	now := s.now()
	a := Account{
		ID:          id.New(id.Account, now),
		Email:       email,
		Sandbox:     n.Sandbox,
		Developer:   n.Developer,
		Operator:    n.Operator,
		OwnerID:     n.OwnerID,
		TesterID:    n.TesterID,
		Notices:     true,
		Unconfirmed: n.Unconfirmed,
		HasPassword: n.PasswordHash != "",
		CreatedUS:   now.UnixMicro(),
	}
	err = insertAccount(ctx, tx, a, n.PasswordHash)
	if db.IsDuplicate(err) {
		return Account{}, apierr.InvalidRequest.Errorf("email: another account has this address")
	} else if err != nil {
		return Account{}, fmt.Errorf("accounts: create: %w", err)
	}
	return a, nil
}

// checkTestAccountLimit returns 400 invalid_request if the developer may not have another test
// account. It locks the developer's row, so that concurrent requests cannot exceed the limit.
func checkTestAccountLimit(ctx context.Context, tx *db.Tx, ownerID, testerID string) error {
	owner, err := Lock(ctx, tx, ownerID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !owner.Developer {
		return apierr.InvalidRequest.Errorf("owner_id: must be a developer's account")
	} else if err != nil {
		return fmt.Errorf("accounts: owner: %w", err)
	}
	list, err := listTestAccounts(ctx, tx, ownerID)
	if err != nil {
		return fmt.Errorf("accounts: test accounts: %w", err)
	}
	if len(list) >= MaxTestAccounts {
		return TestAccountLimitError()
	}
	if testerID != "" && slices.ContainsFunc(list, func(a Account) bool { return a.TesterID == testerID }) {
		return apierr.InvalidRequest.Errorf(
			"a tester has at most one test account per developer; connect with the one you have")
	}
	return nil
}

// TestAccountLimitError returns the error of a 26th test account (contract §8).
func TestAccountLimitError() error {
	return apierr.InvalidRequest.Errorf("a developer has at most %d test accounts", MaxTestAccounts)
}

// Deactivate deletes a test account, in the caller's transaction: it can no longer sign in and no
// longer counts towards the limit. The caller revokes its connections. It locks the account; the
// error wraps sql.ErrNoRows when the developer has no such test account.
func (s *Store) Deactivate(ctx context.Context, tx *db.Tx, developerID, accountID string) error {
	a, err := Lock(ctx, tx, accountID)
	if err != nil {
		return err
	}
	if a.OwnerID != developerID || a.Deactivated {
		return fmt.Errorf("accounts: deactivate: %w", sql.ErrNoRows)
	}
	if err := updateDeactivated(ctx, tx, accountID, s.now().UnixMicro()); err != nil {
		return fmt.Errorf("accounts: deactivate: %w", err)
	}
	return nil
}

// Get returns an account; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, accountID string) (Account, error) {
	return GetAccount(ctx, s.db, accountID)
}

// GetByEmail returns the account of an email in any spelling. The error wraps sql.ErrNoRows when
// there is none.
func (s *Store) GetByEmail(ctx context.Context, email string) (Account, error) {
	email, err := NormalizeEmail(email)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: by email: %w", sql.ErrNoRows)
	}
	return GetAccountByEmail(ctx, s.db, email)
}

// SetNotices sets whether an account receives notices about the spend of its apps. The error wraps
// sql.ErrNoRows when there is no such account.
func (s *Store) SetNotices(ctx context.Context, accountID string, on bool) error {
	if err := updateNotices(ctx, s.db, accountID, on); err != nil {
		return fmt.Errorf("accounts: notices: %w", err)
	}
	return nil
}

// SetDeveloper sets whether an account may own apps. The error wraps sql.ErrNoRows for a test
// account and when there is no such account.
func (s *Store) SetDeveloper(ctx context.Context, accountID string, on bool) error {
	if err := updateDeveloper(ctx, s.db, accountID, on); err != nil {
		return fmt.Errorf("accounts: developer: %w", err)
	}
	return nil
}

// EnableDeveloper lets an account use the console, in the caller's transaction. The error wraps
// sql.ErrNoRows for a test account and when there is no such account.
func (s *Store) EnableDeveloper(ctx context.Context, tx *db.Tx, accountID string) error {
	if err := updateDeveloper(ctx, tx, accountID, true); err != nil {
		return fmt.Errorf("accounts: developer: %w", err)
	}
	return nil
}

// ListTestAccounts returns the test accounts of a developer that are not deleted, oldest first.
func (s *Store) ListTestAccounts(ctx context.Context, developerID string) ([]Account, error) {
	return ListTestAccounts(ctx, s.db, developerID)
}

// ListTestAccounts is Store.ListTestAccounts, inside or outside of a transaction.
func ListTestAccounts(ctx context.Context, q db.Queryer, developerID string) ([]Account, error) {
	list, err := listTestAccounts(ctx, q, developerID)
	if err != nil {
		return nil, fmt.Errorf("accounts: test accounts: %w", err)
	}
	return list, nil
}

// SignIn returns the account of an email and password. An unknown email and a wrong password get
// the same 401 in the same time. Beyond a limit of failures it returns 429 rate_limited, for unknown
// emails too, beyond that of correct passwords of the account 429, too, and while too many hashes
// wait 503 unavailable. A suspended account is 401, too.
func (s *Store) SignIn(ctx context.Context, from Client, email, password string) (Account, error) {
	return s.signIn(ctx, from, email, password, false)
}

// signIn is SignIn. An attempt of a client that is signedIn is not held against other networks.
func (s *Store) signIn(ctx context.Context, from Client, email, password string, signedIn bool) (Account, error) {
	var a Account
	var hash string
	normal, err := NormalizeEmail(email)
	if err == nil {
		a, hash, err = getByEmail(ctx, s.db, normal)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return Account{}, fmt.Errorf("accounts: sign in: %w", err)
		}
		if a.Deactivated && a.SuspendedUS == 0 || a.Unconfirmed {
			hash = "" // treated as an account without a password
		}
	}
	try := s.newAttempt(from, normal, a, signedIn)
	if err := try.check(ctx); err != nil { // before it waits
		return Account{}, err
	}
	release, err := hashes.acquire(ctx, from.Network())
	if err != nil {
		return Account{}, err
	}
	defer release()
	// Check again while holding the slot, so that concurrent attempts cannot pass the limits before
	// their failures are counted.
	if err := try.check(ctx); err != nil {
		return Account{}, err
	}
	ok, err := comparePassword(password, hash)
	if err != nil {
		return Account{}, err
	}
	if !ok {
		try.fail()
		if a.ID != "" {
			s.QueueEvent(a.ID, SignInFailed, from)
		}
		return Account{}, apierr.Unauthorized.Errorf("Incorrect email or password.")
	}
	try.succeed()
	if a.SuspendedUS > 0 { // only who knows the password reads it
		return Account{}, apierr.Unauthorized.Errorf("This account is suspended. Contact support.")
	}
	return a, nil
}

// Purge deletes expired sessions, and security events that are older than keep or of closed accounts. It returns the
// number of sessions.
func (s *Store) Purge(ctx context.Context, keep time.Duration) (int64, error) {
	n, err := deleteExpiredSessions(ctx, s.db, s.now().UnixMicro())
	if err != nil {
		return 0, fmt.Errorf("accounts: purge sessions: %w", err)
	}
	if err := eraseClosed(ctx, s.db); err != nil {
		return n, fmt.Errorf("accounts: purge events of closed accounts: %w", err)
	}
	if err := deleteEventsBefore(ctx, s.db, s.now().Add(-keep).UnixMicro()); err != nil {
		return n, fmt.Errorf("accounts: purge events: %w", err)
	}
	return n, nil
}
