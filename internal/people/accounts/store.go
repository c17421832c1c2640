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
	"github.com/purserhq/purser/internal/base/web"
)

// A Store reads and writes accounts.
type Store struct {
	db       *db.DB
	now      func() time.Time
	failures *web.Limiter // failed sign-ins by address and e-mail
	waiting  waiting      // events that are not written yet
}

// NewStore returns a Store on d. Failed sign-ins are throttled to 10 a minute by
// address and e-mail (decisions, Beyond the contract).
func NewStore(d *db.DB, now func() time.Time) *Store {
	return &Store{db: d, now: now, failures: web.NewLimiter(time.Minute/10, 10, now)}
}

// New is what Create needs.
type New struct {
	Email       string
	Password    string // "" = nobody can sign in as it
	Hashed      string // of HashPassword, in place of Password
	Sandbox     bool   // a test account of OwnerID
	Developer   bool
	Operator    bool
	OwnerID     string
	Unconfirmed bool   // its address is still to be proved
	TesterID    string // whose test account it is, if not the developer's own: one for each tester
}

// Create adds an account in the caller's transaction. A taken or malformed e-mail,
// a weak password, a 26th test account and a tester's second one are 400
// invalid_request.
func (s *Store) Create(ctx context.Context, tx *db.Tx, n New) (Account, error) {
	email, err := NormalEmail(n.Email)
	if err != nil {
		return Account{}, err
	}
	if n.Password != "" {
		if n.Hashed, err = HashPassword(ctx, n.Password); err != nil {
			return Account{}, err
		}
	}
	if n.Sandbox != (n.OwnerID != "") || n.TesterID != "" && !n.Sandbox {
		return Account{}, apierr.InvalidRequest.Errorf("owner_id: every test account has an owner, and no other account has one")
	}
	if n.Sandbox {
		if err := roomForTestAccount(ctx, tx, n.OwnerID, n.TesterID); err != nil {
			return Account{}, err
		}
	}
	now := s.now()
	a := Account{
		ID: id.New(id.Account, now), Email: email, Sandbox: n.Sandbox, Developer: n.Developer,
		Operator: n.Operator, OwnerID: n.OwnerID, TesterID: n.TesterID, Notices: true, Unconfirmed: n.Unconfirmed, HasPassword: n.Hashed != "", CreatedUS: now.UnixMicro(),
	}
	err = insert(ctx, tx, a, n.Hashed)
	if db.IsDuplicate(err) {
		return Account{}, apierr.InvalidRequest.Errorf("email: another account has this address")
	} else if err != nil {
		return Account{}, fmt.Errorf("accounts: create: %w", err)
	}
	return a, nil
}

// roomForTestAccount locks the developer's row, so that of two that arrive
// together only one is the 25th.
func roomForTestAccount(ctx context.Context, tx *db.Tx, ownerID, testerID string) error {
	owner, err := Lock(ctx, tx, ownerID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !owner.Developer {
		return apierr.InvalidRequest.Errorf("owner_id: must be a developer's account")
	} else if err != nil {
		return fmt.Errorf("accounts: owner: %w", err)
	}
	list, err := ownedBy(ctx, tx, ownerID)
	if err != nil {
		return fmt.Errorf("accounts: test accounts: %w", err)
	}
	if len(list) >= MaxTestAccounts {
		return NoRoom()
	}
	if testerID != "" && slices.ContainsFunc(list, func(a Account) bool { return a.TesterID == testerID }) {
		return apierr.InvalidRequest.Errorf("a tester has one test account of a developer, and you have yours: connect as it")
	}
	return nil
}

// NoRoom refuses a 26th test account (spec §8).
func NoRoom() error {
	return apierr.InvalidRequest.Errorf("a developer has at most %d test accounts", MaxTestAccounts)
}

// Deactivate ends the use of a test account, in the caller's transaction: nobody
// can sign in as it any more, and it no longer counts as one of the 25. What it
// is connected to is the caller's to revoke. It locks the account; the error
// wraps sql.ErrNoRows when the developer has no such test account in use.
func (s *Store) Deactivate(ctx context.Context, tx *db.Tx, developerID, accountID string) error {
	a, err := Lock(ctx, tx, accountID)
	if err != nil {
		return err
	}
	if a.OwnerID != developerID || a.Deactivated {
		return fmt.Errorf("accounts: deactivate: %w", sql.ErrNoRows)
	}
	if err := deactivate(ctx, tx, accountID, s.now().UnixMicro()); err != nil {
		return fmt.Errorf("accounts: deactivate: %w", err)
	}
	return nil
}

// Get returns an account; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, accountID string) (Account, error) {
	return GetAccount(ctx, s.db, accountID)
}

// ByEmail returns the account of an address in any spelling; the error wraps
// sql.ErrNoRows when there is none.
func (s *Store) ByEmail(ctx context.Context, email string) (Account, error) {
	email, err := NormalEmail(email)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: by e-mail: %w", sql.ErrNoRows)
	}
	a, _, err := byEmail(ctx, s.db, email)
	if err != nil {
		return Account{}, fmt.Errorf("accounts: by e-mail: %w", err)
	}
	return a, nil
}

// SetNotices says whether an account wants mail about what its apps use up; the
// error wraps sql.ErrNoRows when there is no such account.
func (s *Store) SetNotices(ctx context.Context, accountID string, on bool) error {
	if err := updateNotices(ctx, s.db, accountID, on); err != nil {
		return fmt.Errorf("accounts: notices: %w", err)
	}
	return nil
}

// SetDeveloper switches the capability to own apps on or off. Test accounts never
// have it: the error wraps sql.ErrNoRows for one, and when there is no such account.
func (s *Store) SetDeveloper(ctx context.Context, accountID string, on bool) error {
	if err := updateDeveloper(ctx, s.db, accountID, on); err != nil {
		return fmt.Errorf("accounts: developer: %w", err)
	}
	return nil
}

// TestAccounts returns the test accounts of a developer that are in use, oldest
// first.
func (s *Store) TestAccounts(ctx context.Context, developerID string) ([]Account, error) {
	return OwnedBy(ctx, s.db, developerID)
}

// OwnedBy is TestAccounts inside or outside of a transaction.
func OwnedBy(ctx context.Context, q db.Queryer, developerID string) ([]Account, error) {
	list, err := ownedBy(ctx, q, developerID)
	if err != nil {
		return nil, fmt.Errorf("accounts: test accounts: %w", err)
	}
	return list, nil
}

// SignIn returns the account that the e-mail and password belong to. An unknown
// address and a wrong password get the same 401 in the same time. After ten
// failures in a minute from one address for one e-mail it is 429 rate_limited,
// for unknown e-mails too.
func (s *Store) SignIn(ctx context.Context, from Client, email, password string) (Account, error) {
	var a Account
	var hash string
	normal, err := NormalEmail(email)
	if err == nil {
		a, hash, err = byEmail(ctx, s.db, normal)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return Account{}, fmt.Errorf("accounts: sign in: %w", err)
		}
		if a.Deactivated || a.Unconfirmed {
			hash = "" // as if it had no password
		}
	}
	if err := takeSlot(ctx); err != nil {
		return Account{}, err
	}
	defer func() { <-slots }()
	// Asked while holding the slot: a burst sent at once cannot slip by before
	// its failures are counted.
	key := id.Hash(from.Address + " " + normal)
	if wait, ok := s.failures.Peek(key); !ok {
		e := apierr.RateLimited.Errorf("Too many attempts failed. Wait a moment, then try again.")
		e.RetryAfter = wait
		return Account{}, e
	}
	ok, err := matches(password, hash)
	if err != nil {
		return Account{}, err
	}
	if !ok {
		s.failures.Allow(key)
		if a.ID != "" {
			s.Later(a.ID, SignInFailed, from)
		}
		return Account{}, apierr.Unauthorized.Errorf("That e-mail and password do not belong together.")
	}
	return a, nil
}

// Purge deletes sessions that have ended, and events of long ago. It returns how
// many sessions there were.
func (s *Store) Purge(ctx context.Context) (int64, error) {
	n, err := deleteEndedSessions(ctx, s.db, s.now().UnixMicro())
	if err != nil {
		return 0, fmt.Errorf("accounts: purge sessions: %w", err)
	}
	if err := deleteEvents(ctx, s.db, s.now().Add(-eventsKept).UnixMicro()); err != nil {
		return n, fmt.Errorf("accounts: purge events: %w", err)
	}
	return n, nil
}
