package providerkeys

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
)

// A Store tests, seals and unseals provider keys.
type Store struct {
	db       *db.DB
	box      *seal.Box
	now      func() time.Time
	baseURLs map[string]string // by provider; the default is its public address
	tests    *web.Limiter      // by account
	opened   keyCache
}

// NewStore returns a Store on d that seals with box, and tests keys at baseURLs,
// or at the providers' public addresses.
func NewStore(d *db.DB, box *seal.Box, now func() time.Time, baseURLs map[string]string) *Store {
	return &Store{
		db:       d,
		box:      box,
		now:      now,
		baseURLs: baseURLs,
		tests:    web.NewLimiter(time.Minute/20, 20, now),
	}
}

// Put tests a developer's key at the provider and stores it in place of an earlier one. A malformed
// key and a refused key are 400 invalid_request, and a test without a result is 502 provider_error.
// More than 20 tests a minute are 429 rate_limited, so that the endpoint cannot be used to test stolen keys.
func (s *Store) Put(ctx context.Context, accountID, provider string, key Secret) (Key, error) {
	if !IsKnownProvider(provider) {
		return Key{}, errUnknownProvider()
	}
	if err := key.validate(); err != nil {
		return Key{}, err
	}
	if wait, ok := s.tests.Allow(accountID); !ok {
		e := apierr.RateLimited.Errorf("too many provider keys to test; see the header Retry-After")
		e.RetryAfter = wait
		return Key{}, e
	}
	if err := testKey(ctx, testTimeout, provider, s.baseURLs[provider], key); err != nil {
		return Key{}, err
	}
	sealed, err := s.box.Seal([]byte(key.Reveal()), keyPlace(accountID, provider))
	if err != nil {
		return Key{}, err
	}
	stored := Key{
		AccountID: accountID,
		Provider:  provider,
		Last4:     key.last4(),
		TestedUS:  s.now().UnixMicro(),
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		stored, err = upsertKey(ctx, tx, stored, sealed)
		return err
	})
	if err != nil {
		return Key{}, fmt.Errorf("providerkeys: put: %w", err)
	}
	s.opened.dropCached(accountID, provider)
	return stored, nil
}

// DeleteAccountKeys deletes all keys of a developer, in the transaction that closes the account.
func (s *Store) DeleteAccountKeys(ctx context.Context, tx *db.Tx, accountID string) error {
	if err := deleteAccountKeys(ctx, tx, accountID); err != nil {
		return fmt.Errorf("providerkeys: erase: %w", err)
	}
	return nil
}

// Get returns a developer's unsealed key. The error wraps sql.ErrNoRows if there is none.
func (s *Store) Get(ctx context.Context, accountID, provider string) (Secret, error) {
	sealed, err := getSealed(ctx, s.db, accountID, provider)
	if err != nil {
		return Secret{}, fmt.Errorf("providerkeys: get: %w", err)
	}
	plain, err := s.box.Open(sealed, keyPlace(accountID, provider))
	if err != nil {
		return Secret{}, fmt.Errorf("providerkeys: get: %s of %s: %w", provider, accountID, err)
	}
	return NewSecret(string(plain)), nil
}

// GetCached is Get with a cache, for the hot path. Its result is at most two seconds old. Changes
// on this node take effect immediately.
func (s *Store) GetCached(ctx context.Context, accountID, provider string) (key Secret, found bool, err error) {
	began := s.now()
	if o, ok := s.opened.getCached(accountID, provider, began); ok {
		return o.key, o.found, nil
	}
	generation := s.opened.beginRead()
	key, err = s.Get(ctx, accountID, provider)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Secret{}, false, err
	}
	s.opened.putCached(accountID, provider, cachedKey{key, err == nil, began.Add(cacheTTL)}, generation)
	return key, err == nil, nil
}

// List returns the public properties of a developer's keys, by provider.
func (s *Store) List(ctx context.Context, accountID string) ([]Key, error) {
	list, err := listKeys(ctx, s.db, accountID)
	if err != nil {
		return nil, fmt.Errorf("providerkeys: list: %w", err)
	}
	return list, nil
}

// Delete deletes a key. The error wraps sql.ErrNoRows if there is none.
func (s *Store) Delete(ctx context.Context, accountID, provider string) error {
	if err := deleteKey(ctx, s.db, accountID, provider); err != nil {
		return fmt.Errorf("providerkeys: delete: %w", err)
	}
	s.opened.dropCached(accountID, provider)
	return nil
}

func errUnknownProvider() error {
	return apierr.NotFound.Errorf("no such provider: there are openai, anthropic and google")
}

// SealedColumn is the column of developers' provider keys, for a change of the envelope key.
func (s *Store) SealedColumn() seal.Column {
	return seal.TableColumn(s.db, "provider_keys.sealed", listSealed, replaceSealed, func(id string) seal.Place {
		account, provider, _ := strings.Cut(id, " ")
		return keyPlace(account, provider)
	})
}
