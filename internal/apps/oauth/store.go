package oauth

import (
	"cmp"
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

// familyPrefix is the prefix of the ids of grant families.
const familyPrefix = "fam_"

// A Store stores authorization codes and tokens, and runs the grants of the token endpoint.
type Store struct {
	DB     *db.DB
	Ledger *store.Writer
	Now    func() time.Time
}

// A Grant is the connection, app and family of an access token.
type Grant struct {
	ConnectionID, AppID, FamilyID string
	ExpiresUS                     int64
}

// TokenResponse is the response of the token endpoint (contract §2). AllocationMC is nil on a
// refresh.
type TokenResponse struct {
	AccessToken       string    `json:"access_token"`
	TokenType         string    `json:"token_type"`
	ExpiresIn         int64     `json:"expires_in"` // seconds
	RefreshToken      string    `json:"refresh_token"`
	ConnectionID      string    `json:"connection_id"`
	AllocationMC      *money.MC `json:"allocation_mc,omitempty"`
	AllocationDisplay string    `json:"allocation_display,omitempty"`
}

// LookupAccessToken returns the grant of an access token, whatever the state of its connection. An
// unknown, expired or revoked token is 401 unauthorized.
func (s *Store) LookupAccessToken(ctx context.Context, token string) (Grant, error) {
	g, err := getAccessGrant(ctx, s.DB, id.Hash(token), s.Now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return Grant{}, web.NewBearerRefusal()
	} else if err != nil {
		return Grant{}, fmt.Errorf("oauth: access token: %w", err)
	}
	return g, nil
}

// LockGrant is LookupAccessToken in the caller's transaction, until whose end nothing revokes the token's family.
func (s *Store) LockGrant(ctx context.Context, tx *db.Tx, token string) (Grant, error) {
	g, err := lockAccessGrant(ctx, tx, id.Hash(token), s.Now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return Grant{}, web.NewBearerRefusal()
	} else if err != nil {
		return Grant{}, fmt.Errorf("oauth: access token: %w", err)
	}
	return g, nil
}

// IsRevoked reports whether an access token of a family, which may have expired, or the family was revoked.
func (s *Store) IsRevoked(ctx context.Context, token, familyID string) (bool, error) {
	revoked, err := isRevoked(ctx, s.DB, id.Hash(token), familyID)
	if err != nil {
		return false, fmt.Errorf("oauth: revoked token: %w", err)
	}
	return revoked, nil
}

// IssueTokens issues an access and a refresh token for a connection, in the caller's transaction.
// An empty familyID starts a new family.
func (s *Store) IssueTokens(ctx context.Context, tx *db.Tx,
	connectionID, appID, familyID string) (TokenResponse, error) {
	now := s.Now()
	if familyID == "" {
		familyID = id.New(familyPrefix, now)
	}
	t := TokenResponse{
		AccessToken:  id.NewSecret(),
		TokenType:    "Bearer",
		ExpiresIn:    int64(verdict.AccessTokenTTL.Seconds()),
		RefreshToken: id.NewSecret(),
		ConnectionID: connectionID,
	}
	row := verdict.Token{FamilyID: familyID, ConnectionID: connectionID, AppID: appID}
	row.Hash, row.ExpiresUS = id.Hash(t.AccessToken), now.Add(verdict.AccessTokenTTL).UnixMicro()
	if err := insertToken(ctx, tx, "access", row, now.UnixMicro()); err != nil {
		return TokenResponse{}, fmt.Errorf("oauth: issue: %w", err)
	}
	row.Hash, row.ExpiresUS = id.Hash(t.RefreshToken), now.Add(verdict.RefreshTokenTTL).UnixMicro()
	if err := insertToken(ctx, tx, "refresh", row, now.UnixMicro()); err != nil {
		return TokenResponse{}, fmt.Errorf("oauth: issue: %w", err)
	}
	return t, nil
}

// Consent is what a user approved.
type Consent struct {
	AppID, AccountID       string
	RedirectURI, Challenge string
	CapMC                  money.MC
	VelocityMC             *money.MC
	KeepCap, KeepVelocity  bool   // they stay as those of the live connection are
	OwnWork                bool   // the screen said that the app charges for work of its own
	Transcripts            bool   // the screen said that the app has what the user says written down
	ApproverID             string // who approved; "" = AccountID
	ApproverEpoch          int64  // of the approver's credentials, in the session that approved
}

// CreateCode issues the authorization code of a consent, in the caller's transaction. It can be
// exchanged once within CodeTTL; no money moves before.
func (s *Store) CreateCode(ctx context.Context, tx *db.Tx, c Consent) (code string, err error) {
	code = id.NewSecret()
	row := verdict.Code{
		AppID:       c.AppID,
		RedirectURI: c.RedirectURI,
		Challenge:   c.Challenge,
		ExpiresUS:   s.Now().Add(verdict.CodeTTL).UnixMicro(),
	}
	if row.Approval, err = newApproval(ctx, tx, c); err != nil {
		return "", fmt.Errorf("oauth: approve: %w", err)
	}
	if err := insertCode(ctx, tx, id.Hash(code), row); err != nil {
		return "", fmt.Errorf("oauth: approve: %w", err)
	}
	return code, nil
}

// newApproval returns what the code of a consent stores, with what it stands on.
func newApproval(ctx context.Context, tx *db.Tx, c Consent) (verdict.Approval, error) {
	revocations, err := store.CountRevokedConnections(ctx, tx, c.AppID, c.AccountID)
	return verdict.Approval{
		AccountID:     c.AccountID,
		AllocationMC:  c.CapMC,
		VelocityMC:    c.VelocityMC,
		KeepCap:       c.KeepCap,
		KeepVelocity:  c.KeepVelocity,
		OwnWork:       c.OwnWork,
		Transcripts:   c.Transcripts,
		ApproverID:    cmp.Or(c.ApproverID, c.AccountID),
		ApproverEpoch: &c.ApproverEpoch,
		Revocations:   &revocations,
	}, err
}

// A tokenRequest is a parsed request to the token endpoint.
type tokenRequest struct {
	Code, RedirectURI, Verifier string // authorization_code
	RefreshToken                string // refresh_token; "" = another grant
	DeviceCode                  string // device_code; "" = another grant
	Key                         string // Idempotency-Key; "" = none
	Fingerprint                 string // of the parameters
	ArrivedUS                   int64  // when the request came in
}

// credential returns the presented credential. A request has one.
func (r tokenRequest) credential() string { return r.Code + r.RefreshToken + r.DeviceCode }

// An answer is the result of a grant's transaction. A rejected one is committed too, because it may
// have counted a failure or revoked a family.
type answer struct {
	tokens        TokenResponse
	replayed      bool
	reuseDetected bool
	rejected      error
}

// runGrant runs a token request of app as one transaction: consuming the credential, moving the
// money and issuing tokens happen together or not at all.
func (s *Store) runGrant(ctx context.Context, app apps.App, req tokenRequest) (answer, error) {
	var a answer
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		a, err = s.lockAndGrant(ctx, tx, app, req)
		return err
	})
	if rejected, ok := errors.AsType[*apierr.Error](err); ok {
		return answer{rejected: rejected}, nil
	} else if err != nil {
		return answer{}, fmt.Errorf("oauth: grant: %w", err)
	}
	return a, nil
}

// lockAndGrant locks the presented code or token, so that concurrent requests with it run one after
// the other.
func (s *Store) lockAndGrant(ctx context.Context, tx *db.Tx, app apps.App, req tokenRequest) (answer, error) {
	// The app may have been suspended or gone live since its credentials were checked;
	// from here on neither can happen before this is committed.
	app, err := apps.LockShared(ctx, tx, app.ID)
	if err != nil {
		return answer{}, err
	}
	if app.Suspended {
		return reject(verdict.AppSuspended), nil
	}
	run, err := s.lockCredential(ctx, tx, app, req)
	if err != nil {
		return answer{}, err
	}
	if req.Key == "" {
		return run()
	}
	a, found, err := s.findReplay(ctx, tx, app.ID, req)
	if found || err != nil {
		return a, err
	}
	if a, err = run(); err != nil || a.rejected != nil || a.replayed {
		return a, err
	}
	return a, s.saveReplay(ctx, tx, app.ID, req, a.tokens)
}

// lockCredential locks the row of the presented code or token and returns the grant to run.
func (s *Store) lockCredential(ctx context.Context, tx *db.Tx, app apps.App,
	req tokenRequest) (run func() (answer, error), err error) {
	if req.RefreshToken != "" {
		t, err := lockRefreshToken(ctx, tx, id.Hash(req.RefreshToken), s.Now().UnixMicro())
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		return func() (answer, error) { return s.rotateRefreshToken(ctx, tx, app, req, t) }, nil
	}
	if req.DeviceCode != "" {
		c, err := lockDeviceCode(ctx, tx, "hash", id.Hash(req.DeviceCode))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return nil, err
		}
		return func() (answer, error) { return s.pollDeviceCode(ctx, tx, app, req, c) }, nil
	}
	c, err := lockCode(ctx, tx, id.Hash(req.Code))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	return func() (answer, error) { return s.exchangeCode(ctx, tx, app, req, c) }, nil
}

// invalidGrants are the messages of 400 invalid_grant, by reason.
var invalidGrants = map[verdict.Reason]string{
	verdict.Expired: "The code or token has expired. Codes live for 60 seconds, refresh tokens for 90 days. Connect " +
		"again.",
	verdict.Used: "The code or token was already used, or ended because one of its family was used twice or revoked. " +
		"Use the newest refresh token, or connect again.",
	verdict.Unknown:             "The code or token is unknown. It was not issued to this app.",
	verdict.RedirectURIMismatch: "redirect_uri: is not the one of the authorize request, byte by byte.",
	verdict.VerifierMismatch: "code_verifier: does not match the code_challenge of the authorize request (S256, 43 " +
		"to 128 characters).",
	verdict.ConnectionRevoked: "The connection was revoked, or the consent no longer holds. This is final: clear the " +
		"tokens and connect again.",
	verdict.AppSuspended: "The app is suspended. No tokens are issued until the suspension is lifted. Keep the ones " +
		"you have.",
}

// newInvalidGrant returns 400 invalid_grant with its reason (decision 033). It names no connection, so that unknown
// tokens and those of other clients get the same bytes.
func newInvalidGrant(reason verdict.Reason) *apierr.Error {
	e := apierr.InvalidGrant.Errorf("%s", invalidGrants[reason])
	e.Details = map[string]any{"reason": reason}
	return e
}

// reject returns the answer 400 invalid_grant.
func reject(reason verdict.Reason) answer { return answer{rejected: newInvalidGrant(reason)} }

// exchangeCode turns a code into a connection with its allocation, and into tokens. The zero row
// stands for an unknown code.
func (s *Store) exchangeCode(ctx context.Context, tx *db.Tx, app apps.App, req tokenRequest,
	c verdict.Code) (answer, error) {
	now, hash := s.Now(), id.Hash(req.Code)
	if c.AppID == "" {
		return reject(verdict.Unknown), nil
	}
	judged, reason := c.JudgeExchange(app.ID, req.RedirectURI, req.Verifier, req.ArrivedUS, now.UnixMicro())
	rejected := reject(reason)
	switch judged {
	case verdict.Reject:
		return rejected, nil
	case verdict.RejectAndCount:
		return rejected, countFailure(ctx, tx, hash)
	case verdict.RevokeFamily:
		rejected.reuseDetected = true
		return rejected, s.endFamily(ctx, tx, *c.FamilyID)
	}
	return s.connect(ctx, tx, app, c.Approval,
		func(connectionID, familyID string) error {
			return consumeCode(ctx, tx, hash, connectionID, familyID, now.UnixMicro())
		})
}

// connect turns an approval that still holds into a connection with its allocation, and into tokens of a new family.
// consume uses up the code that stands for the approval, and returns sql.ErrNoRows if it was used before.
func (s *Store) connect(ctx context.Context, tx *db.Tx, app apps.App, given verdict.Approval,
	consume func(connectionID, familyID string) error) (answer, error) {
	now := s.Now()
	account, err := accounts.Lock(ctx, tx, given.AccountID) // so that it is not deactivated concurrently
	if err != nil {
		return answer{}, err
	}
	// the app went live, or the account was closed, between consent and exchange
	if decideRole(app, account) != verdict.Self || account.Deactivated {
		return reject(verdict.ConnectionRevoked), nil
	}
	approver := account
	if given.ApproverID != account.ID {
		if approver, err = accounts.GetAccount(ctx, tx, given.ApproverID); err != nil {
			return answer{}, err
		}
		if !decideRole(app, approver).UsesTestAccount() {
			return reject(verdict.ConnectionRevoked), nil
		}
	}
	res, err := s.Ledger.DoTx(ctx, tx, rules.Connect{
		ConnectionID:    id.New(id.Connection, now),
		AppID:           app.ID,
		AccountID:       given.AccountID,
		Sandbox:         app.Tier == apps.Sandbox,
		MaxMC:           maxCap(app),
		RequestedMC:     given.AllocationMC,
		VelocityLimitMC: given.VelocityMC,
		KeepCap:         given.KeepCap,
		KeepVelocity:    given.KeepVelocity,
		ApprovedUS:      given.ApprovedUS,
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.ConnectionFrozen {
		return reject(verdict.ConnectionRevoked), nil // a payment was disputed between consent and exchange
	} else if err != nil {
		return answer{}, err
	}
	// The ledger has locked the account's money, so no revocation comes after the count.
	revocations, err := store.CountRevokedConnections(ctx, tx, app.ID, account.ID)
	if err != nil {
		return answer{}, err
	}
	if !given.Holds(approver.Epoch, revocations) {
		return answer{}, newInvalidGrant(verdict.ConnectionRevoked) // undoes the connection
	}
	if res.Connection.ApprovedUS <= given.ApprovedUS { // no later approval was exchanged before
		err := saveConsents(ctx, tx, res.Connection, given.OwnWork, given.Transcripts, now.UnixMicro())
		if err != nil {
			return answer{}, err
		}
	}
	familyID := id.New(familyPrefix, now)
	err = consume(res.Connection.ID, familyID)
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, newInvalidGrant(verdict.Used) // undoes the connection
	} else if err != nil {
		return answer{}, err
	}
	tokens, err := s.IssueTokens(ctx, tx, res.Connection.ID, app.ID, familyID)
	tokens.AllocationMC, tokens.AllocationDisplay = &res.Connection.AllocationMC, res.Connection.AllocationMC.Display()
	return answer{tokens: tokens}, err
}

// rotateRefreshToken rotates a refresh token. The zero row stands for an unknown token.
func (s *Store) rotateRefreshToken(ctx context.Context, tx *db.Tx, app apps.App, req tokenRequest,
	t verdict.Token) (answer, error) {
	if t.Hash == "" {
		return reject(verdict.Unknown), nil
	}
	connection, err := store.GetConnection(ctx, tx, t.ConnectionID)
	if err != nil {
		return answer{}, err
	}
	now := s.Now()
	nowUS := now.UnixMicro()
	judged, reason := t.JudgeRefresh(app.ID, req.Key, connection.Status == rules.Revoked, req.ArrivedUS, nowUS)
	rejected := reject(reason)
	switch judged {
	case verdict.Replay:
		return s.replayRefresh(ctx, tx, app.ID, req)
	case verdict.Reject, verdict.RejectAndCount:
		return rejected, nil
	case verdict.RevokeFamily:
		rejected.reuseDetected = true
		return rejected, s.endFamily(ctx, tx, t.FamilyID)
	}
	tokens, err := s.IssueTokens(ctx, tx, t.ConnectionID, t.AppID, t.FamilyID)
	if err != nil {
		return answer{}, err
	}
	err = consumeRefreshToken(ctx, tx, t.Hash, id.Hash(tokens.RefreshToken), nowUS,
		now.Add(verdict.RefreshTokenTTL).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return answer{}, newInvalidGrant(verdict.Used) // undoes the tokens
	} else if err != nil {
		return answer{}, err
	}
	return answer{tokens: tokens}, deleteReplay(ctx, tx, t.Hash)
}

var errKeyReused = apierr.IdempotencyKeyReused.Errorf(
	"Idempotency-Key: was used with other parameters, and its answer is still kept; use a new one")

// findReplay returns the stored response of a code's request with the same key, if any. That of a refresh is for
// JudgeRefresh to give.
func (s *Store) findReplay(ctx context.Context, tx *db.Tx, appID string,
	req tokenRequest) (a answer, found bool, err error) {
	r, err := getReplay(ctx, tx, appID, req.Key, s.Now().UnixMicro())
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return answer{}, false, nil
	case err != nil:
		return answer{}, false, err
	case r.Successor != "" && r.Successor == id.Hash(req.RefreshToken):
		return answer{}, false, nil // the first use of the successor ends the stored response
	case r.Fingerprint != req.Fingerprint:
		return answer{rejected: errKeyReused}, true, nil
	case r.Successor != "":
		return answer{}, false, nil
	}
	a, err = r.open(req, s.Now())
	return a, err == nil, err
}

// replayRefresh answers a refresh again.
func (s *Store) replayRefresh(ctx context.Context, tx *db.Tx, appID string, req tokenRequest) (answer, error) {
	now := s.Now()
	r, err := getReplay(ctx, tx, appID, req.Key, now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return reject(verdict.Used), nil // the successor was used meanwhile
	} else if err != nil {
		return answer{}, err
	}
	return r.open(req, now)
}

// open returns the answer of a stored response to a request with its credential and key. After the first minute
// the answer says how long its access token still lasts.
func (r replay) open(req tokenRequest, now time.Time) (answer, error) {
	plain, err := openResponse(req.credential(), req.Key, r.Sealed)
	if err != nil {
		return answer{}, err
	}
	a := answer{replayed: true}
	if err := json.Unmarshal(plain, &a.tokens); err != nil {
		return answer{}, fmt.Errorf("oauth: stored response: %w", err)
	}
	if age := now.Sub(time.UnixMicro(r.ExpiresUS).Add(-req.replayTTL())); age > verdict.ReplayTTL {
		a.tokens.ExpiresIn = max(1, int64((verdict.AccessTokenTTL - age).Seconds()))
	}
	return a, nil
}

// replayTTL returns how long the response to a request is stored, unless its refresh token is used before: that to a
// refresh as long as this token lives, that to a device as long as it may poll, that to a code for ReplayTTL.
func (req tokenRequest) replayTTL() time.Duration {
	switch {
	case req.RefreshToken != "":
		return verdict.RefreshTokenTTL
	case req.DeviceCode != "":
		return verdict.DeviceCodeTTL
	}
	return verdict.ReplayTTL
}

// saveReplay stores a response for a retry with the same key.
func (s *Store) saveReplay(ctx context.Context, tx *db.Tx, appID string, req tokenRequest, t TokenResponse) error {
	plain, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("oauth: keep answer: %w", err)
	}
	sealed, err := sealResponse(req.credential(), req.Key, plain)
	if err != nil {
		return err
	}
	now := s.Now()
	r := replay{Fingerprint: req.Fingerprint, Sealed: sealed, ExpiresUS: now.Add(req.replayTTL()).UnixMicro()}
	if req.RefreshToken != "" {
		r.Successor = id.Hash(t.RefreshToken)
	}
	err = insertReplay(ctx, tx, appID, req.Key, r, now.UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return errKeyReused // by a request at the same time; this one is undone
	}
	return err
}

// RevokeToken revokes a token of app, a refresh token with its whole family (RFC 7009). Unknown
// tokens and those of other apps are no error. The connection and its allocation stay (contract
// §4.5).
func (s *Store) RevokeToken(ctx context.Context, appID, token string) error {
	hash, nowUS := id.Hash(token), s.Now().UnixMicro()
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		kind, familyID, err := lockToken(ctx, tx, hash, appID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return nil
		case err != nil:
			return err
		case kind == "refresh":
			return s.endFamily(ctx, tx, familyID)
		}
		return revokeToken(ctx, tx, hash, nowUS)
	})
	if err != nil {
		return fmt.Errorf("oauth: revoke: %w", err)
	}
	return nil
}

// endFamily revokes all tokens of a grant family, and ends the children that they have made: these would go on
// spending.
func (s *Store) endFamily(ctx context.Context, tx *db.Tx, familyID string) error {
	if err := revokeFamily(ctx, tx, familyID, s.Now().UnixMicro()); err != nil {
		return err
	}
	connectionID, err := getFamilyConnection(ctx, tx, familyID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // its tokens have expired, and so have its children, which live for a shorter time
	} else if err != nil {
		return err
	}
	_, err = s.Ledger.DoTx(ctx, tx, rules.EndFamily{ConnectionID: connectionID, FamilyID: familyID})
	return err
}

// Purge deletes expired codes, tokens and stored responses.
func (s *Store) Purge(ctx context.Context) error {
	if err := deleteExpired(ctx, s.DB, s.Now().UnixMicro(), (24 * time.Hour).Microseconds()); err != nil {
		return fmt.Errorf("oauth: purge: %w", err)
	}
	return nil
}
