package apps

import (
	"cmp"
	"context"
	"crypto/subtle"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A Store stores apps and authenticates their servers.
type Store struct {
	// OnChange, if set, is called after a change that affects calls: of an app, its features, access tokens or
	// connections. "" = of any app. Set it before the store is shared.
	OnChange func(appID string)
	// OnReviewed, if set, is called in the transaction of a change that a review may be about, with the app as it is
	// then.
	OnReviewed func(ctx context.Context, tx *db.Tx, after App) error

	db         *db.DB
	now        func() time.Time
	dev        bool
	management *web.Limiter // by client_id
	token      *web.Limiter // by client_id, at the token endpoint; of public clients also by address
	failures   *web.Limiter // wrong credentials, by client_id and address
	drawing    sync.Mutex   // one logo at a time
}

// NewStore returns a Store on d. With dev, apps may register loopback http
// addresses. The rates are those of decision 044.
func NewStore(d *db.DB, now func() time.Time, dev bool) *Store {
	return &Store{
		db:         d,
		now:        now,
		dev:        dev,
		management: web.NewLimiter(time.Second/100, 500, now),
		token:      web.NewLimiter(time.Second/20, 100, now),
		failures:   web.NewLimiter(time.Minute/10, 10, now),
	}
}

// NotifyChange calls OnChange.
func (s *Store) NotifyChange(appID string) {
	if s.OnChange != nil {
		s.OnChange(appID)
	}
}

// Create creates an app in the caller's transaction. It returns the app with its client secret, which is stored only as
// a hash and never shown again. An invalid member is 400 invalid_request.
func (s *Store) Create(ctx context.Context, tx *db.Tx, n New) (App, string, error) {
	if err := n.validate(s.dev); err != nil {
		return App{}, "", err
	}
	now := s.now()
	a := App{
		ID:               id.New(id.App, now),
		OwnerID:          n.OwnerID,
		Name:             n.Name,
		ClientID:         id.New(id.Client, now),
		ClientType:       n.ClientType,
		RedirectURIs:     n.RedirectURIs,
		AllowedModels:    n.AllowedModels,
		DefaultMaxTokens: n.DefaultMaxTokens,
		FitMinTokens:     DefaultFitMinTokens,
		Tier:             n.Tier,
		ProviderMode:     n.ProviderMode,
		TestAllowlist:    []string{},
		DevMargin:        n.DevMargin,
		PromptCache:      true,
		CreatedUS:        now.UnixMicro(),
	}
	secret := id.NewSecret()
	if err := insertApp(ctx, tx, a, id.Hash(secret)); err != nil {
		return App{}, "", fmt.Errorf("apps: create: %w", err)
	}
	return a, secret, nil
}

// SetRedirectURIs replaces all redirect URIs of a confidential client. An invalid URI is 400
// invalid_request. The error wraps sql.ErrNoRows if there is no such app.
func (s *Store) SetRedirectURIs(ctx context.Context, appID string, uris []string) error {
	if err := validateRedirectURIs(uris, redirectRules{dev: s.dev}); err != nil {
		return err
	}
	if err := updateList(ctx, s.db, appID, "redirect_uris", uris); err != nil {
		return fmt.Errorf("apps: redirect URIs: %w", err)
	}
	return nil
}

// SetTestAllowlist replaces the emails of the testers. A list that NormalizeAllowlist refuses is
// 400 invalid_request. The error wraps sql.ErrNoRows if there is no such app.
func (s *Store) SetTestAllowlist(ctx context.Context, appID string, emails []string) error {
	emails, err := NormalizeAllowlist(emails)
	if err != nil {
		return err
	}
	if err := updateList(ctx, s.db, appID, "test_allowlist", emails); err != nil {
		return fmt.Errorf("apps: test allowlist: %w", err)
	}
	return nil
}

// SetProviderMode sets the provider mode of an app: Mock or Live.
func (s *Store) SetProviderMode(ctx context.Context, appID, mode string) error {
	if mode != Mock && mode != Live {
		return fmt.Errorf("apps: provider mode %q", mode)
	}
	if err := updateProviderMode(ctx, s.db, appID, mode); err != nil {
		return fmt.Errorf("apps: provider mode: %w", err)
	}
	return nil
}

// Get returns an app; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, appID string) (App, error) {
	a, _, err := getApp(ctx, s.db, "id", appID)
	if err != nil {
		return App{}, fmt.Errorf("apps: get: %w", err)
	}
	return a, nil
}

// GetByClientID returns the app of a client id; the error wraps sql.ErrNoRows when
// there is none.
func (s *Store) GetByClientID(ctx context.Context, clientID string) (App, error) {
	a, _, err := getApp(ctx, s.db, "client_id", clientID)
	if err != nil {
		return App{}, fmt.Errorf("apps: by client id: %w", err)
	}
	return a, nil
}

// ListOwned returns a developer's apps, newest first, with or without a transaction.
func ListOwned(ctx context.Context, q db.Queryer, ownerID string) ([]App, error) {
	list, err := listOwned(ctx, q, ownerID)
	if err != nil {
		return nil, fmt.Errorf("apps: of owner: %w", err)
	}
	return list, nil
}

// LockOwned locks a developer's apps until tx ends: a transaction that connects a user to one of them has ended, or
// finds it as tx leaves it.
func LockOwned(ctx context.Context, tx *db.Tx, ownerID string) error {
	if err := lockOwned(ctx, tx, ownerID); err != nil {
		return fmt.Errorf("apps: lock owned: %w", err)
	}
	return nil
}

// GetMembership returns an app with the role of an account in it. The error wraps sql.ErrNoRows if there is no such app
// or the account has no role in it.
func (s *Store) GetMembership(ctx context.Context, appID, accountID string) (Membership, error) {
	m, err := getMembership(ctx, s.db, appID, accountID)
	if err != nil {
		return Membership{}, fmt.Errorf("apps: membership: %w", err)
	}
	return m, nil
}

// LockApp returns an app and locks it until tx ends, as LockMembership does. The error wraps sql.ErrNoRows if there is
// none.
func LockApp(ctx context.Context, tx *db.Tx, appID string) (App, error) {
	a, err := lockApp(ctx, tx, appID, tx.Engine.ForUpdate())
	if err != nil {
		return App{}, fmt.Errorf("apps: lock: %w", err)
	}
	return a, nil
}

// LockMembership is GetMembership that locks the app until tx ends. Package members locks it before each change of its
// members, so the role stays as it is until then. The role is read by a second statement: on PostgreSQL, the one that
// waits for the lock sees the members from before.
func LockMembership(ctx context.Context, tx *db.Tx, appID, accountID string) (Membership, error) {
	if _, err := LockApp(ctx, tx, appID); err != nil {
		return Membership{}, err
	}
	m, err := getMembership(ctx, tx, appID, accountID)
	if err != nil {
		return Membership{}, fmt.Errorf("apps: lock membership: %w", err)
	}
	return m, nil
}

// ListMemberships returns the apps in which an account has a role, newest first.
func (s *Store) ListMemberships(ctx context.Context, accountID string) ([]Membership, error) {
	return ListMemberships(ctx, s.db, accountID)
}

// ListMemberships is the method of that name, with or without a transaction.
func ListMemberships(ctx context.Context, q db.Queryer, accountID string) ([]Membership, error) {
	list, err := listMemberships(ctx, q, accountID)
	if err != nil {
		return nil, fmt.Errorf("apps: memberships: %w", err)
	}
	return list, nil
}

// SecretOverlap is how long a client secret that was replaced with an overlap still works (decision 038).
const SecretOverlap = 24 * time.Hour

// ReplaceSecret gives an app a new client secret and returns it. With overlap, the present secret still works for
// SecretOverlap; without, it ends immediately. One that was replaced before ends in both cases. The error wraps
// sql.ErrNoRows if there is no such app.
func (s *Store) ReplaceSecret(ctx context.Context, appID string, overlap bool) (string, error) {
	var untilUS *int64
	if overlap {
		end := s.now().Add(SecretOverlap).UnixMicro()
		untilUS = &end
	}
	secret := id.NewSecret()
	if err := updateSecret(ctx, s.db, appID, id.Hash(secret), untilUS); err != nil {
		return "", fmt.Errorf("apps: replace secret: %w", err)
	}
	return secret, nil
}

// DeleteSecret invalidates an app's client secrets in the caller's transaction: it stores the hash of a random secret
// that is not returned.
func (s *Store) DeleteSecret(ctx context.Context, tx *db.Tx, appID string) error {
	if err := updateSecret(ctx, tx, appID, id.Hash(id.NewSecret()), nil); err != nil {
		return fmt.Errorf("apps: delete secret: %w", err)
	}
	return nil
}

// EraseAccount erases what the apps of an account that is closed say about their developer, and takes the account's
// address out of the testers of all apps, in the caller's transaction.
func (s *Store) EraseAccount(ctx context.Context, tx *db.Tx, a accounts.Account) error {
	if err := eraseProfiles(ctx, tx, a.ID); err != nil {
		return fmt.Errorf("apps: erase: %w", err)
	}
	list, err := listTested(ctx, tx, a.Email)
	if err != nil {
		return fmt.Errorf("apps: erase: %w", err)
	}
	for _, appID := range list {
		locked, err := LockApp(ctx, tx, appID)
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(locked.TestAllowlist, func(email string) bool { return email == a.Email })
		if err := updateList(ctx, tx, appID, "test_allowlist", rest); err != nil {
			return fmt.Errorf("apps: erase: %w", err)
		}
	}
	return nil
}

// ErrUnchanged is the error for an app that is already in the requested state.
var ErrUnchanged = errors.New("nothing to change")

// Lock returns an app and locks it until tx ends. The error wraps sql.ErrNoRows if there is none.
func (s *Store) Lock(ctx context.Context, tx *db.Tx, appID string) (App, error) {
	return LockApp(ctx, tx, appID)
}

// LockShared returns an app and locks it for reading until tx ends: no transaction can change it,
// and others can lock it for reading too. The error wraps sql.ErrNoRows if there is none.
func LockShared(ctx context.Context, tx *db.Tx, appID string) (App, error) {
	a, err := lockApp(ctx, tx, appID, tx.Engine.ForShare())
	if err != nil {
		return App{}, fmt.Errorf("apps: lock shared: %w", err)
	}
	return a, nil
}

// Patch changes an app and returns it. What needs a review of a live app waits for it as proposed. An invalid member is
// 400 invalid_request. offered reports whether a model can be called now.
func (s *Store) Patch(ctx context.Context, appID string, c Change, offered func(model string) bool) (App, error) {
	return s.updateReviewed(ctx, appID, func(ctx context.Context, tx *db.Tx, a App) (App, error) {
		after, err := c.applyTo(a, rules{dev: s.dev, offered: offered, nowUS: s.now().UnixMicro()})
		if err != nil {
			return a, err
		}
		after = c.hold(a, after)
		return after, RecordMargin(ctx, tx, a.Tier, MarginChange{
			AppID:     a.ID,
			Before:    a.DevMargin,
			After:     after.DevMargin,
			ChangedUS: s.now().UnixMicro(),
		})
	})
}

// Suspend suspends an app for the service, in the caller's transaction. by is ByOperator or ByRisk. It returns
// ErrUnchanged if the service has already suspended the app.
func (s *Store) Suspend(ctx context.Context, tx *db.Tx, appID, by, reason string) (before, after App, err error) {
	return s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) {
		return a.suspend(by, reason, s.now().UnixMicro())
	})
}

// Lift ends a suspension by the service, in the caller's transaction. It returns ErrUnchanged if there is none.
func (s *Store) Lift(ctx context.Context, tx *db.Tx, appID string) (before, after App, err error) {
	return s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) { return a.lift(s.now().UnixMicro()) })
}

// Promote moves an app to a tier above the sandbox, in the caller's transaction, and sets the provider mode live
// (contract §3, App tier).
func (s *Store) Promote(ctx context.Context, tx *db.Tx, appID, tier string) (before, after App, err error) {
	return s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) {
		a.Tier, a.ProviderMode = tier, Live
		return a, nil
	})
}

// ListSuspended returns apps that the developer or the service has suspended, in the order of their ids, after the id
// after.
func (s *Store) ListSuspended(ctx context.Context, after string, limit int) ([]App, error) {
	list, err := listSuspended(ctx, s.db, after, limit)
	if err != nil {
		return nil, fmt.Errorf("apps: suspended: %w", err)
	}
	return list, nil
}

// ListSuspendedByOperator returns the apps that an operator has suspended at a time or later.
func (s *Store) ListSuspendedByOperator(ctx context.Context, sinceUS int64) ([]App, error) {
	return listSuspendedByOperator(ctx, s.db, sinceUS)
}

func (s *Store) updateLocked(ctx context.Context, appID string, f func(App) (App, error)) (after App, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, after, err = s.updateLockedTx(ctx, tx, appID, f)
		return err
	})
	return after, err
}

func (s *Store) updateLockedTx(ctx context.Context, tx *db.Tx, appID string,
	f func(App) (App, error)) (before, after App, err error) {
	if before, err = s.Lock(ctx, tx, appID); err != nil {
		return before, before, err
	}
	if after, err = f(before); err != nil {
		return before, before, err
	}
	if err := updateApp(ctx, tx, after); err != nil {
		return before, before, fmt.Errorf("apps: change: %w", err)
	}
	return before, after, nil
}

// Authenticate returns the app whose client credentials a management request has in HTTP Basic (contract §5). Missing,
// unknown and wrong credentials get the same 401 after the same time. Too many requests, and too many failures from one
// address, are 429 rate_limited. Suspended apps are returned too.
func (s *Store) Authenticate(ctx context.Context, r *http.Request) (App, error) {
	return s.authenticate(ctx, r, s.management)
}

// AuthenticateToken is Authenticate with the lower rate limit of the token endpoint.
func (s *Store) AuthenticateToken(ctx context.Context, r *http.Request) (App, error) {
	return s.authenticate(ctx, r, s.token)
}

// IdentifyPublic returns the app of a public client, which sends its client_id without a secret (decision 065). Unknown
// and confidential clients get the 401 of missing credentials. The devices of one client share its
// client_id, so too many requests from one address are 429 rate_limited. Suspended apps are returned too.
func (s *Store) IdentifyPublic(ctx context.Context, r *http.Request, clientID string) (App, error) {
	a, err := s.GetByClientID(ctx, clientID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && a.ClientType != Public {
		return App{}, web.NewBasicRefusal()
	} else if err != nil {
		return App{}, err
	}
	if wait, ok := s.token.Allow(clientID + " " + web.ClientNetwork(r)); !ok {
		return App{}, rateLimitError(wait, "too many requests with this client_id from this address")
	}
	web.Log(ctx, slog.String("app_id", a.ID))
	return a, nil
}

// dummySecretHash is compared where there is no hash: for an unknown client id and without a previous secret. So the
// response time does not reveal whether there is one.
var dummySecretHash = id.Hash(id.NewSecret())

// match reports whether hash is that of the present or the previous secret.
func (h secretHashes) match(hash string) bool {
	present := subtle.ConstantTimeCompare([]byte(hash), []byte(cmp.Or(h.present, dummySecretHash)))
	previous := subtle.ConstantTimeCompare([]byte(hash), []byte(cmp.Or(h.previous, dummySecretHash)))
	return present|previous == 1
}

func (s *Store) authenticate(ctx context.Context, r *http.Request, rate *web.Limiter) (App, error) {
	clientID, secret, err := web.BasicClient(r)
	if err != nil {
		return App{}, err
	}
	attempts := id.Hash(clientID + " " + web.ClientNetwork(r)) // of fixed length, because clients choose the input
	if wait, ok := s.failures.Peek(attempts); !ok {
		return App{}, rateLimitError(wait, "too many wrong credentials for this client_id from this address")
	}
	a, secrets, err := getApp(ctx, s.db, "client_id", clientID)
	found := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return App{}, fmt.Errorf("apps: authenticate: %w", err)
	}
	if a.OldSecretUntilUS <= s.now().UnixMicro() {
		secrets.previous = ""
	}
	if same := secrets.match(id.Hash(secret)); !same || !found {
		s.failures.Allow(attempts)
		return App{}, web.NewBasicRefusal()
	}
	if wait, ok := rate.Allow(clientID); !ok {
		return App{}, rateLimitError(wait, "too many requests with this client_id")
	}
	web.Log(ctx, slog.String("app_id", a.ID))
	return a, nil
}

func rateLimitError(wait time.Duration, message string) error {
	e := apierr.RateLimited.Errorf("%s; see the header Retry-After", message)
	e.RetryAfter = wait
	return e
}

// Search returns apps, newest first, after the id after: those whose id or client id is text or whose name contains it.
// An empty text matches all apps.
func (s *Store) Search(ctx context.Context, text, after string, limit int) ([]App, error) {
	list, err := searchApps(ctx, s.db, text, after, limit)
	if err != nil {
		return nil, fmt.Errorf("apps: search: %w", err)
	}
	return list, nil
}
