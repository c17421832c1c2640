package inference

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
	"github.com/purserhq/purser/internal/ledger"
)

// caller is whom a token stands for: a connection, its app and the app's features.
type caller struct {
	ConnectionID string
	AccountID    string
	Status       ledger.Status
	App          apps.App
	Features     map[string]features.Feature
	expires      time.Time // not remembered beyond
}

// A Caller is whom a token stands for, for services beside this one.
type Caller = caller

// Find returns the caller of a request, or 401. One that may not call is returned
// too: Allowed says why not.
func (s *Callers) Find(r *http.Request) (*Caller, error) { return s.find(r) }

// Allowed says whether the caller may make calls at all (403).
func (c *caller) Allowed() error { return c.allowed() }

// known is how long callers and their apps are remembered. The money's own state is
// never taken from here: the hold reads it in its transaction.
const known = 2 * time.Second

// Callers finds callers by token, and remembers active ones for two seconds. The app
// with its features is remembered for all its users: most callers come once.
type Callers struct {
	DB       *db.DB
	Tokens   *oauth.Store
	Apps     *apps.Store
	Features *features.Store
	Now      func() time.Time
	cache    *otter.Cache[string, *caller]
	services *otter.Cache[string, *service]
}

// service is the half of a caller that all users of an app share.
type service struct {
	app      apps.App
	features map[string]features.Feature
	until    time.Time // no caller is remembered for longer
}

// NewCallers returns an empty cache over the stores.
func NewCallers(d *db.DB, t *oauth.Store, a *apps.Store, f *features.Store, now func() time.Time) *Callers {
	return &Callers{
		DB: d, Tokens: t, Apps: a, Features: f, Now: now,
		cache:    otter.Must(&otter.Options[string, *caller]{MaximumSize: 20_000, ExpiryCalculator: otter.ExpiryWriting[string, *caller](known)}),
		services: otter.Must(&otter.Options[string, *service]{MaximumSize: 2_000, ExpiryCalculator: otter.ExpiryWriting[string, *service](known)}),
	}
}

// Forget drops what is remembered, after something here changed it.
func (s *Callers) Forget() {
	s.cache.InvalidateAll()
	s.services.InvalidateAll()
}

// find returns the caller of a request, or 401. A caller that may not call is
// returned too; allowed says why not.
func (s *Callers) find(r *http.Request) (*caller, error) {
	token, err := web.Bearer(r)
	if err != nil {
		return nil, err
	}
	hash := id.Hash(token)
	if c, ok := s.cache.GetIfPresent(hash); ok && s.Now().Before(c.expires) {
		return c, nil
	}
	c, err := s.load(r.Context(), token)
	if err != nil {
		return nil, err
	}
	if c.allowed() == nil {
		s.cache.Set(hash, c)
	}
	return c, nil
}

func (s *Callers) load(ctx context.Context, token string) (*caller, error) {
	grant, err := s.Tokens.Lookup(ctx, token)
	if err != nil {
		return nil, err
	}
	conn, err := ledger.GetConnection(ctx, s.DB, grant.ConnectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, apierr.Unauthorized.Errorf("the access token's connection does not exist")
	} else if err != nil {
		return nil, err
	}
	v, err := s.service(ctx, grant.AppID)
	if err != nil {
		return nil, err
	}
	c := &caller{ConnectionID: conn.ID, AccountID: conn.AccountID, Status: conn.Status, App: v.app, Features: v.features, expires: time.UnixMicro(grant.ExpiresUS)}
	if v.until.Before(c.expires) {
		c.expires = v.until
	}
	return c, nil
}

func (s *Callers) service(ctx context.Context, appID string) (*service, error) {
	if v, ok := s.services.GetIfPresent(appID); ok && s.Now().Before(v.until) {
		return v, nil
	}
	v := &service{features: map[string]features.Feature{}, until: s.Now().Add(known)}
	var err error
	if v.app, err = s.Apps.Get(ctx, appID); err != nil {
		return nil, err
	}
	list, err := s.Features.OfApp(ctx, appID)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		v.features[f.Slug] = f
	}
	if !v.app.Suspended { // it shall work again at once when it is lifted
		s.services.Set(appID, v)
	}
	return v, nil
}

// allowed says whether the caller may make calls at all (403). The hold decides
// again, in its transaction.
func (c *caller) allowed() error {
	switch {
	case c.App.Suspended:
		return apierr.AppSuspended.On(c.ConnectionID, "this app is switched off; keep its grants, they work again when it is lifted")
	case c.Status == ledger.Revoked:
		return apierr.ConnectionRevoked.On(c.ConnectionID, "the user revoked this connection; ask for a new one")
	case c.Status == ledger.Frozen:
		return apierr.ConnectionFrozen.On(c.ConnectionID, "this connection is paused until its user resumes it")
	}
	return nil
}
