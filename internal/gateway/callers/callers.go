// Package callers resolves access tokens to callers: the connection that a token was
// issued for, its app, and the app's features (contract §4.3, §5). Text calls and voice
// sessions ask it first.
package callers

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A Caller is what an access token resolves to. It is shared by concurrent calls, so
// it is never changed.
type Caller struct {
	ConnectionID string
	AccountID    string
	Status       rules.ConnectionStatus
	App          apps.App
	Features     map[string]*features.Feature // by slug
	TokenExpires time.Time                    // when the access token expires
	expires      time.Time                    // when its cache entry ends, at the latest
}

// CheckAllowed returns why the caller may make no calls, a 403, or nil. It reads cached
// state: the hold checks again in its transaction.
func (c *Caller) CheckAllowed() error {
	switch {
	case c.App.Suspended:
		return apierr.AppSuspended.On(c.ConnectionID,
			"this app is suspended; keep its tokens, they work again when the suspension is lifted")
	case c.Status == rules.Revoked:
		return apierr.ConnectionRevoked.On(c.ConnectionID, "this connection was revoked; ask the user to connect again")
	case c.Status == rules.Frozen:
		return apierr.ConnectionFrozen.On(c.ConnectionID, "this connection is paused until its user resumes it")
	}
	return nil
}

// Callers and apps are cached for cacheTTL. The balance and the status that a hold
// depends on are not taken from here: the hold reads them in its transaction.
const (
	cacheTTL   = 2 * time.Second
	maxCallers = 20_000
	maxApps    = 2_000
)

// A Resolver resolves access tokens to callers. It caches callers that may make calls,
// and apps with their features for all their users: most callers come once.
type Resolver struct {
	db       *db.DB
	tokens   *oauth.Store
	apps     *apps.Store
	features *features.Store
	now      func() time.Time

	callerCache *otter.Cache[string, *Caller]    // by the token's hash
	appCache    *otter.Cache[string, *cachedApp] // by id
}

// cachedApp is the part of a caller that all users of an app share.
type cachedApp struct {
	app      apps.App
	features map[string]*features.Feature
	expires  time.Time // no caller of the app is cached for longer
}

// NewResolver returns a Resolver over the stores, with empty caches.
func NewResolver(
	d *db.DB, tokens *oauth.Store, appStore *apps.Store, featureStore *features.Store, now func() time.Time,
) *Resolver {
	return &Resolver{
		db: d, tokens: tokens, apps: appStore, features: featureStore, now: now,
		callerCache: otter.Must(&otter.Options[string, *Caller]{
			MaximumSize:      maxCallers,
			ExpiryCalculator: otter.ExpiryWriting[string, *Caller](cacheTTL),
		}),
		appCache: otter.Must(&otter.Options[string, *cachedApp]{
			MaximumSize:      maxApps,
			ExpiryCalculator: otter.ExpiryWriting[string, *cachedApp](cacheTTL),
		}),
	}
}

// Forget empties the caches, after this process has changed something that they hold.
func (s *Resolver) Forget() {
	s.callerCache.InvalidateAll()
	s.appCache.InvalidateAll()
}

// Resolve returns the caller of a request's access token, or 401. A caller that may
// make no calls is returned too: CheckAllowed gives the reason.
func (s *Resolver) Resolve(r *http.Request) (*Caller, error) {
	token, err := web.Bearer(r)
	if err != nil {
		return nil, err
	}
	hash := id.Hash(token)
	if c, ok := s.callerCache.GetIfPresent(hash); ok && s.now().Before(c.expires) {
		return c, nil
	}
	c, err := s.loadCaller(r.Context(), token)
	if err != nil {
		return nil, err
	}
	if c.CheckAllowed() == nil {
		s.callerCache.Set(hash, c)
	}
	return c, nil
}

func (s *Resolver) loadCaller(ctx context.Context, token string) (*Caller, error) {
	grant, err := s.tokens.LookupAccessToken(ctx, token)
	if err != nil {
		return nil, err
	}
	conn, err := store.GetConnection(ctx, s.db, grant.ConnectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, apierr.Unauthorized.Errorf("the access token's connection does not exist")
	} else if err != nil {
		return nil, err
	}
	a, err := s.loadApp(ctx, grant.AppID)
	if err != nil {
		return nil, err
	}
	c := &Caller{
		ConnectionID: conn.ID,
		AccountID:    conn.AccountID,
		Status:       conn.Status,
		App:          a.app,
		Features:     a.features,
		TokenExpires: time.UnixMicro(grant.ExpiresUS),
		expires:      time.UnixMicro(grant.ExpiresUS),
	}
	if a.expires.Before(c.expires) {
		c.expires = a.expires
	}
	return c, nil
}

func (s *Resolver) loadApp(ctx context.Context, appID string) (*cachedApp, error) {
	if a, ok := s.appCache.GetIfPresent(appID); ok && s.now().Before(a.expires) {
		return a, nil
	}
	a := &cachedApp{features: map[string]*features.Feature{}, expires: s.now().Add(cacheTTL)}
	var err error
	if a.app, err = s.apps.Get(ctx, appID); err != nil {
		return nil, err
	}
	list, err := s.features.ListAll(ctx, appID)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		a.features[f.Slug] = &f
	}
	if !a.app.Suspended { // calls work again as soon as the suspension is lifted
		s.appCache.Set(appID, a)
	}
	return a, nil
}
