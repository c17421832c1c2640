// Package callers resolves access tokens to callers: the connection that a token was
// issued for, its app, and the app's features (contract §4.3, §5). Text calls and voice
// sessions ask it first.
package callers

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
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
	Child        *rules.Child                 // whose token it is; nil = the connection's own
	TokenExpires time.Time                    // when the access token expires
	familyID     string                       // the grant family of the access token; "" = a child's token
	app          *cachedApp                   // what App and Features are of
	expires      time.Time                    // when its cache entry ends, at the latest
}

// CheckAllowed returns why the caller may make no calls, a 403, or nil. It reads cached
// state: the hold checks again in its transaction.
func (c *Caller) CheckAllowed() error {
	switch {
	case c.App.Suspended:
		return apierr.AppSuspended.On(c.ConnectionID,
			"this app is suspended; keep its tokens, they work again when the suspension is lifted")
	case c.Child != nil && c.Child.EndedUS != nil:
		return apierr.ConnectionRevoked.On(c.ConnectionID,
			"this part of the connection has ended; ask who gave it for another")
	case c.Status == rules.Revoked:
		return apierr.ConnectionRevoked.On(
			c.ConnectionID,
			"this connection was revoked; ask the user to connect again",
		)
	case c.Status == rules.Frozen:
		return apierr.ConnectionFrozen.On(c.ConnectionID, "this connection is paused until its user resumes it")
	}
	return nil
}

// IsOutdated reports whether the caller must be resolved again, because too much time has passed since it was.
func (c *Caller) IsOutdated(now time.Time) bool { return !now.Before(c.expires) }

// Log adds the caller to the log line of its request.
func (c *Caller) Log(ctx context.Context) {
	web.Log(ctx, slog.String("connection_id", c.ConnectionID), slog.String("app_id", c.App.ID),
		slog.String("account_id", c.AccountID))
}

// ChildID returns the child whose budget pays for the caller's calls; "" = none.
func (c *Caller) ChildID() string {
	if c.Child == nil {
		return ""
	}
	return c.Child.ID
}

// CheckFeature returns why the caller may not call a feature, or nil. "" is a call without one.
func (c *Caller) CheckFeature(slug string) error {
	if c.Child == nil || len(c.Child.Features) == 0 || slices.Contains(c.Child.Features, slug) {
		return nil
	}
	return apierr.InvalidRequest.On(c.ConnectionID, "X-Svc-Feature: this token may be used for %s only",
		strings.Join(c.Child.Features, ", "))
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

	callerCache cache[*Caller]    // by the token's hash
	appCache    cache[*cachedApp] // by id
	forgotten   atomic.Int64      // how often something was dropped from them
}

// A cache is an otter.Cache. As a field, that type would be compiled anew in each package that knows Resolver (see
// web.Limiter).
type cache[V any] interface {
	GetIfPresent(key string) (V, bool)
	Set(key string, v V) (V, bool)
	Invalidate(key string) (V, bool)
	InvalidateAll()
}

// A lazyClock is the clock of a cache that drops what has expired when it is asked for, or when it needs the room:
// without ticks it has no goroutine that wakes each second.
type lazyClock struct{}

func (lazyClock) NowNano() int64                      { return time.Now().UnixNano() }
func (lazyClock) Tick(time.Duration) <-chan time.Time { return nil }

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
			Clock:            lazyClock{},
		}),
		appCache: otter.Must(&otter.Options[string, *cachedApp]{
			MaximumSize:      maxApps,
			ExpiryCalculator: otter.ExpiryWriting[string, *cachedApp](cacheTTL),
			Clock:            lazyClock{},
		}),
	}
}

// Forget drops an app, with all callers of it, from the caches, after this process has changed something that they
// hold; "" = all apps. Other apps keep theirs: one app that changes all the time must not slow down the calls of all.
func (s *Resolver) Forget(appID string) {
	s.forgotten.Add(1)
	if appID != "" {
		s.appCache.Invalidate(appID)
		return
	}
	s.callerCache.InvalidateAll()
	s.appCache.InvalidateAll()
}

// ForgetTokens drops the callers of tokens from the cache, by their hashes.
func (s *Resolver) ForgetTokens(hashes []string) {
	s.forgotten.Add(1)
	for _, hash := range hashes {
		s.callerCache.Invalidate(hash)
	}
}

// Resolve is ResolveAny for what tokens of children may not do: 401.
func (s *Resolver) Resolve(r *http.Request) (*Caller, error) {
	c, err := s.ResolveAny(r)
	if err == nil && c.Child != nil {
		e := apierr.Unauthorized.Errorf("this token is of a part of a connection: it makes calls, but cannot do this")
		e.Challenge = `Bearer realm="purser", error="insufficient_scope"`
		return nil, e
	}
	return c, err
}

// ResolveAny returns the caller of a request's access token, or 401. A caller that may
// make no calls is returned too: CheckAllowed gives the reason. Errors of the request name its connection then.
func (s *Resolver) ResolveAny(r *http.Request) (*Caller, error) {
	c, err := s.resolve(r)
	if err == nil {
		web.SetConnection(r.Context(), c.ConnectionID)
	}
	return c, err
}

func (s *Resolver) resolve(r *http.Request) (*Caller, error) {
	token, err := web.Bearer(r)
	if err != nil {
		return nil, err
	}
	hash := id.Hash(token)
	if c, ok := s.callerCache.GetIfPresent(hash); ok && !c.IsOutdated(s.now()) && s.hasApp(c) {
		return c, nil
	}
	before := s.forgotten.Load()
	c, err := s.loadCaller(r.Context(), token)
	if err != nil {
		return nil, err
	}
	if c.CheckAllowed() == nil {
		remember(s, s.callerCache, hash, c, before)
	}
	return c, nil
}

// remember caches what was loaded since forgotten was before. What was loaded before something was dropped from the
// caches may be what was dropped, so it is not kept.
func remember[V any](s *Resolver, in cache[V], key string, v V, before int64) {
	in.Set(key, v)
	if s.forgotten.Load() != before { // Forget counts before it drops: whichever comes last drops
		in.Invalidate(key)
	}
}

// hasApp reports whether the app of a cached caller is still in the cache: Forget drops only that.
func (s *Resolver) hasApp(c *Caller) bool {
	a, ok := s.appCache.GetIfPresent(c.App.ID)
	return ok && a == c.app
}

// LockGrant returns the grant of a request's access token, or 401, in the caller's transaction. It reads no cache, and
// nothing revokes the grant before the transaction ends.
func (s *Resolver) LockGrant(ctx context.Context, tx *db.Tx, r *http.Request) (oauth.Grant, error) {
	token, err := web.Bearer(r)
	if err != nil {
		return oauth.Grant{}, err
	}
	return s.tokens.LockGrant(ctx, tx, token)
}

// IsRevoked reports whether the token of a request that who came with was revoked since. The expiry of a token does not
// count, nor does a child's end: who watches the connection sees it.
func (s *Resolver) IsRevoked(ctx context.Context, r *http.Request, who *Caller) (bool, error) {
	token, err := web.Bearer(r)
	if err != nil || who.Child != nil {
		return false, err
	}
	return s.tokens.IsRevoked(ctx, token, who.familyID)
}

func (s *Resolver) loadCaller(ctx context.Context, token string) (*Caller, error) {
	child, err := s.findChild(ctx, token)
	if err != nil {
		return nil, err
	}
	var grant oauth.Grant
	if child == nil {
		if grant, err = s.tokens.LookupAccessToken(ctx, token); err != nil {
			return nil, err
		}
	} else {
		grant.ConnectionID, grant.ExpiresUS = child.ConnectionID, child.ExpiresUS
	}
	conn, err := store.GetConnection(ctx, s.db, grant.ConnectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, apierr.Unauthorized.Errorf("the access token's connection does not exist")
	} else if err != nil {
		return nil, err
	}
	if child != nil && child.EndedBy == rules.EndedByRevoked && conn.Status != rules.Revoked {
		return nil, web.NewBearerRefusal() // with its grant family, as the token that made it
	}
	a, err := s.loadApp(ctx, conn.AppID)
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
		familyID:     grant.FamilyID,
		app:          a,
		expires:      time.UnixMicro(grant.ExpiresUS),
	}
	if a.expires.Before(c.expires) {
		c.expires = a.expires
	}
	if child != nil {
		c.Child, c.App.AllowedModels = child, allowedBoth(c.App.AllowedModels, child.Models)
	}
	return c, nil
}

// ChildTokenPrefix begins the tokens of children.
const ChildTokenPrefix = "cht_"

// findChild returns the child of a token, or nil for a token of another kind. A child whose time is over has ended,
// even before the ledger says so.
func (s *Resolver) findChild(ctx context.Context, token string) (*rules.Child, error) {
	if !strings.HasPrefix(token, ChildTokenPrefix) {
		return nil, nil
	}
	child, err := store.GetChildOfToken(ctx, s.db, id.Hash(token))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, web.NewBearerRefusal()
	} else if err != nil {
		return nil, err
	}
	if child.EndedUS == nil && child.ExpiresUS <= s.now().UnixMicro() {
		child.EndedUS = &child.ExpiresUS
	}
	return &child, nil
}

// allowedBoth returns the models that both lists allow. An empty list allows every model.
func allowedBoth(ofApp, ofChild []string) []string {
	switch {
	case len(ofChild) == 0:
		return ofApp
	case len(ofApp) == 0:
		return ofChild
	}
	both := []string{}
	for _, model := range ofChild {
		if slices.Contains(ofApp, model) {
			both = append(both, model)
		}
	}
	if len(both) == 0 {
		return []string{"none"} // the app's list has changed: no model has this name
	}
	return both
}

func (s *Resolver) loadApp(ctx context.Context, appID string) (*cachedApp, error) {
	if a, ok := s.appCache.GetIfPresent(appID); ok && s.now().Before(a.expires) {
		return a, nil
	}
	before := s.forgotten.Load()
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
		remember(s, s.appCache, appID, a, before)
	}
	return a, nil
}
