package oauth

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// family is the prefix of the ids of token families.
const family = "fam_"

// A Store keeps codes and tokens, and turns one into the other.
type Store struct {
	DB     *db.DB
	Ledger *store.Writer
	Now    func() time.Time
}

// A Grant is what an access token stands for.
type Grant struct {
	ConnectionID, AppID, FamilyID string
	ExpiresUS                     int64
}

// Tokens is the Token response (spec §2). AllocationMC is nil on a refresh.
type Tokens struct {
	AccessToken       string    `json:"access_token"`
	TokenType         string    `json:"token_type"`
	ExpiresIn         int64     `json:"expires_in"` // seconds
	RefreshToken      string    `json:"refresh_token"`
	ConnectionID      string    `json:"connection_id"`
	AllocationMC      *money.MC `json:"allocation_mc,omitempty"`
	AllocationDisplay string    `json:"allocation_display,omitempty"`
}

// Lookup returns what an access token stands for, whatever the state of its
// connection. A token that is unknown, expired or revoked is 401 unauthorized.
func (s *Store) Lookup(ctx context.Context, token string) (Grant, error) {
	g, err := findAccess(ctx, s.DB, id.Hash(token), s.Now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return Grant{}, web.NewBearerRefusal()
	} else if err != nil {
		return Grant{}, fmt.Errorf("oauth: access token: %w", err)
	}
	return g, nil
}

// Issue makes an access and a refresh token for a connection, in the caller's
// transaction. An empty familyID begins a family.
func (s *Store) Issue(ctx context.Context, tx *db.Tx, connectionID, appID, familyID string) (Tokens, error) {
	now := s.Now()
	if familyID == "" {
		familyID = id.New(family, now)
	}
	t := Tokens{
		AccessToken:  id.NewSecret(),
		TokenType:    "Bearer",
		ExpiresIn:    int64(verdict.AccessTokenTTL.Seconds()),
		RefreshToken: id.NewSecret(),
		ConnectionID: connectionID,
	}
	row := verdict.Token{FamilyID: familyID, ConnectionID: connectionID, AppID: appID}
	row.Hash, row.ExpiresUS = id.Hash(t.AccessToken), now.Add(verdict.AccessTokenTTL).UnixMicro()
	if err := insertToken(ctx, tx, "access", row, now.UnixMicro()); err != nil {
		return Tokens{}, fmt.Errorf("oauth: issue: %w", err)
	}
	row.Hash, row.ExpiresUS = id.Hash(t.RefreshToken), now.Add(verdict.RefreshTokenTTL).UnixMicro()
	if err := insertToken(ctx, tx, "refresh", row, now.UnixMicro()); err != nil {
		return Tokens{}, fmt.Errorf("oauth: issue: %w", err)
	}
	return t, nil
}

// Consent is what a person approved: the code that is made of it can be exchanged
// once, within a minute.
type Consent struct {
	AppID, AccountID       string
	RedirectURI, Challenge string
	CapMC                  money.MC
	VelocityMC             *money.MC
}

// Approve returns the authorization code of a consent, in the caller's
// transaction. No money moves yet.
func (s *Store) Approve(ctx context.Context, tx *db.Tx, c Consent) (code string, err error) {
	code = id.NewSecret()
	row := verdict.Code{
		AppID:        c.AppID,
		AccountID:    c.AccountID,
		RedirectURI:  c.RedirectURI,
		Challenge:    c.Challenge,
		AllocationMC: c.CapMC,
		VelocityMC:   c.VelocityMC,
		ExpiresUS:    s.Now().Add(verdict.CodeTTL).UnixMicro(),
	}
	if err := insertCode(ctx, tx, id.Hash(code), row); err != nil {
		return "", fmt.Errorf("oauth: approve: %w", err)
	}
	return code, nil
}

// A TokenRequest is a well-formed request to the token endpoint.
type TokenRequest struct {
	Code, RedirectURI, Verifier string // authorization_code
	RefreshToken                string // refresh_token; "" = the other grant
	Key                         string // Idempotency-Key; "" = none
	Fingerprint                 string // of the parameters
	ArrivedUS                   int64  // when the request came in
}

func (r TokenRequest) credential() string { return r.Code + r.RefreshToken }

// An answer is what a grant's transaction found. One with a refusal is committed
// too: it may have counted a failure or revoked a family.
type answer struct {
	tokens        Tokens
	replayed      bool
	reuseDetected bool
	rejected      error
}

// run does a token request of app as one transaction: consuming what was
// presented, moving the money and issuing tokens happen together or not at all.
func (s *Store) run(ctx context.Context, app apps.App, req TokenRequest) (answer, error) {
	var a answer
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = s.grant(ctx, tx, app, req)
		return err
	})
	if rejected, ok := errors.AsType[*apierr.Error](err); ok {
		return answer{rejected: rejected}, nil
	} else if err != nil {
		return answer{}, fmt.Errorf("oauth: grant: %w", err)
	}
	return a, nil
}

// grant locks what is presented, so that of several requests with it one goes
// first; the others then find what that one did.
func (s *Store) grant(ctx context.Context, tx *db.Tx, app apps.App, req TokenRequest) (answer, error) {
	// The app may have been suspended or gone live since its credentials were checked;
	// from here on neither can happen before this is committed.
	app, err := apps.Share(ctx, tx, app.ID)
	if err != nil {
		return answer{}, err
	}
	if app.Suspended {
		return answer{rejected: errSuspended}, nil
	}
	run, err := s.lock(ctx, tx, app, req)
	if err != nil {
		return answer{}, err
	}
	if req.Key == "" {
		return run()
	}
	a, found, err := s.replay(ctx, tx, app.ID, req)
	if found || err != nil {
		return a, err
	}
	if a, err = run(); err != nil || a.rejected != nil {
		return a, err
	}
	return a, s.keep(ctx, tx, app.ID, req, a.tokens)
}

// lock takes the row of the presented code or refresh token, and returns what to
// do with it.
func (s *Store) lock(ctx context.Context, tx *db.Tx, app apps.App,
	req TokenRequest) (run func() (answer, error), err error) {
	if req.RefreshToken != "" {
		t, err := lockRefresh(ctx, tx, id.Hash(req.RefreshToken))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		return func() (answer, error) { return s.refresh(ctx, tx, app, req, t) }, nil
	}
	c, err := lockCode(ctx, tx, id.Hash(req.Code))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	return func() (answer, error) { return s.exchange(ctx, tx, app, req, c) }, nil
}

var errInvalidGrant = apierr.InvalidGrant.Errorf(
	"The code or token is not valid: unknown, expired, already used, or not issued to this app with this " +
		"redirect_uri and code_verifier.")

var errSuspended = apierr.AppSuspended.Errorf(
	"The app is suspended. No tokens are issued until the suspension is lifted. Keep the ones you have.")

// exchange turns a code into a connection with its money and into tokens. The
// zero row stands for a code that does not exist.
func (s *Store) exchange(ctx context.Context, tx *db.Tx, app apps.App, req TokenRequest, c verdict.Code) (answer, error) {
	now, hash := s.Now(), id.Hash(req.Code)
	if c.AppID == "" {
		return answer{rejected: errInvalidGrant}, nil
	}
	switch c.JudgeExchange(app.ID, req.RedirectURI, req.Verifier, req.ArrivedUS, now.UnixMicro()) {
	case verdict.Reject:
		return answer{rejected: errInvalidGrant}, nil
	case verdict.RejectAndCount:
		return answer{rejected: errInvalidGrant}, countFailure(ctx, tx, hash)
	case verdict.RevokeFamily:
		return answer{rejected: errInvalidGrant, reuseDetected: true},
			revokeFamily(ctx, tx, *c.FamilyID, now.UnixMicro())
	}
	account, err := accounts.Lock(ctx, tx, c.AccountID) // it must not be deactivated beside us
	if err != nil {
		return answer{}, err
	}
	// the app went live, or the account was closed, between consent and exchange
	if decideRole(app, account) != verdict.Self || account.Deactivated {
		return answer{rejected: errInvalidGrant}, nil
	}
	res, err := s.Ledger.DoTx(ctx, tx, rules.Connect{
		ConnectionID:    id.New(id.Connection, now),
		AppID:           app.ID,
		AccountID:       c.AccountID,
		Sandbox:         app.Tier == apps.Sandbox,
		MaxMC:           maxCap(app),
		RequestedMC:     c.AllocationMC,
		VelocityLimitMC: c.VelocityMC,
	})
	if err != nil {
		return answer{}, err
	}
	familyID := id.New(family, now)
	err = useCode(ctx, tx, hash, res.Connection.ID, familyID, now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, errInvalidGrant // undoes the connection
	} else if err != nil {
		return answer{}, err
	}
	tokens, err := s.Issue(ctx, tx, res.Connection.ID, app.ID, familyID)
	tokens.AllocationMC, tokens.AllocationDisplay = &res.Connection.AllocationMC, res.Connection.AllocationMC.Display()
	return answer{tokens: tokens}, err
}

// refresh rotates a refresh token. The zero row stands for one that does not
// exist.
func (s *Store) refresh(ctx context.Context, tx *db.Tx, app apps.App, req TokenRequest, t verdict.Token) (answer, error) {
	if t.Hash == "" {
		return answer{rejected: errInvalidGrant}, nil
	}
	connection, err := store.GetConnection(ctx, tx, t.ConnectionID)
	if err != nil {
		return answer{}, err
	}
	nowUS := s.Now().UnixMicro()
	switch t.JudgeRefresh(app.ID, connection.Status == rules.Revoked, req.ArrivedUS, nowUS) {
	case verdict.Reject, verdict.RejectAndCount:
		return answer{rejected: errInvalidGrant}, nil
	case verdict.RevokeFamily:
		return answer{rejected: errInvalidGrant, reuseDetected: true}, revokeFamily(ctx, tx, t.FamilyID, nowUS)
	}
	tokens, err := s.Issue(ctx, tx, t.ConnectionID, t.AppID, t.FamilyID)
	if err != nil {
		return answer{}, err
	}
	err = useRefresh(ctx, tx, t.Hash, id.Hash(tokens.RefreshToken), nowUS)
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, errInvalidGrant // undoes the tokens
	}
	return answer{tokens: tokens}, err
}

var errKeyReused = apierr.IdempotencyKeyReused.Errorf(
	"Idempotency-Key: was used with other parameters in the last minute; use a new one")

// replay answers a request again that was answered under the same key.
func (s *Store) replay(ctx context.Context, tx *db.Tx, appID string,
	req TokenRequest) (a answer, found bool, err error) {
	fingerprint, sealed, err := findReplay(ctx, tx, appID, req.Key, s.Now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, false, nil
	} else if err != nil {
		return answer{}, false, err
	}
	if fingerprint != req.Fingerprint {
		return answer{rejected: errKeyReused}, true, nil
	}
	plain, err := open(req.credential(), req.Key, sealed)
	if err != nil {
		return answer{}, false, err
	}
	a.replayed = true
	if err := json.Unmarshal(plain, &a.tokens); err != nil {
		return answer{}, false, fmt.Errorf("oauth: kept answer: %w", err)
	}
	return a, true, nil
}

// keep stores an answer for a retry with the same key.
func (s *Store) keep(ctx context.Context, tx *db.Tx, appID string, req TokenRequest, t Tokens) error {
	plain, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("oauth: keep answer: %w", err)
	}
	sealed, err := seal(req.credential(), req.Key, plain)
	if err != nil {
		return err
	}
	now := s.Now()
	err = insertReplay(ctx, tx, appID, req.Key, req.Fingerprint, sealed, now.UnixMicro(),
		now.Add(verdict.ReplayTTL).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return errKeyReused // by a request at the same time; this one is undone
	}
	return err
}

// Revoke makes a token of app worthless, a refresh token with its whole family
// (RFC 7009). Unknown tokens and those of other apps are no error. The connection
// and its money stay; revoking it is another matter (spec §4.5).
func (s *Store) Revoke(ctx context.Context, appID, token string) error {
	hash, nowUS := id.Hash(token), s.Now().UnixMicro()
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		kind, familyID, err := findToken(ctx, tx, hash, appID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case kind == "refresh":
			return revokeFamily(ctx, tx, familyID, nowUS)
		}
		return revokeToken(ctx, tx, hash, nowUS)
	})
	if err != nil {
		return fmt.Errorf("oauth: revoke: %w", err)
	}
	return nil
}

// Purge deletes codes, tokens and kept answers that can no longer matter.
func (s *Store) Purge(ctx context.Context) error {
	if err := purge(ctx, s.DB, s.Now().UnixMicro(), (24 * time.Hour).Microseconds()); err != nil {
		return fmt.Errorf("oauth: purge: %w", err)
	}
	return nil
}
