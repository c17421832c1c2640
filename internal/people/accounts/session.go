package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// Lifetimes of a sign-in session.
const (
	sessionIdleTimeout    = 12 * time.Hour     // without a page view
	sessionMaxAge         = 7 * 24 * time.Hour // at most
	sessionExtendStep     = time.Minute        // smallest extension that is written
	pendingSessionTimeout = 10 * time.Minute   // from the password to the second step
)

// Keys of a session's data.
const (
	accountKey = "account_id"
	startedKey = "started_us"
	epochKey   = "epoch"
	proofKey   = "proof"
	provenKey  = "proven_us"
)

// A Proof is the level of authentication of a session.
type Proof string

// The proofs of a session.
const (
	ProofPending Proof = "one-of-two" // password accepted, second step pending: not signed in
	ProofSingle  Proof = "one"        // signed in to an account without a second step
	ProofMFA     Proof = "two"        // signed in by two steps, or by a passkey with user verification
)

// A Session is one browser in which an account is signed in.
type Session struct {
	ID        string // for revocation; useless as a cookie
	Agent     string
	StartedUS int64
	SeenUS    int64
}

// newSession holds the columns of a session that starts.
type newSession struct {
	accountID         string
	proof             Proof
	agent             string
	startedUS, seenUS int64
	expiresUS         int64
}

type newSessionKey struct{}

// Sessions manages sign-in sessions. The cookie holds a random token; the table holds the token's
// hash.
type Sessions struct {
	store *Store
	scs   *scs.SessionManager
	turns web.Turns // of heavy pages
}

// NewSessions returns the sessions of store. Set secure wherever the pages are served over https:
// it binds the cookie to exactly this host and keeps it off unencrypted connections.
func NewSessions(store *Store, secure bool) *Sessions {
	// scs.New would also start a store in memory, whose goroutine never ends.
	return &Sessions{store: store, scs: &scs.SessionManager{
		Store:            scsStore{store},
		Codec:            scs.GobCodec{},
		Lifetime:         sessionMaxAge,
		IdleTimeout:      sessionIdleTimeout,
		HashTokenInStore: true,
		Cookie: scs.SessionCookie{
			Name:     web.SessionCookie(secure),
			Secure:   secure,
			HttpOnly: true,
			Path:     "/",
			SameSite: http.SameSiteLaxMode,
		},
	}}
}

type currentSessionKey struct{}

// currentSession is the session of the request, in the context of With.
type currentSession struct {
	Account
	proof     Proof
	tokenHash string
	startedUS int64
	provenUS  int64 // when its user proved who they are; 0 = an identity provider did not say
}

// With loads the session of the request into its context; CurrentAccount returns the account.
func (s *Sessions) With(h web.Handler) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		token := ""
		if c, err := r.Cookie(s.scs.Cookie.Name); err == nil {
			token = c.Value
		}
		ctx, err := s.scs.Load(r.Context(), token)
		if err != nil {
			return fmt.Errorf("accounts: session: %w", err)
		}
		if accountID := s.scs.GetString(ctx, accountKey); accountID != "" {
			if ctx, err = s.resumeSession(ctx, accountID); err != nil {
				return err
			}
		}
		return h(w, r.WithContext(ctx))
	}
}

// resumeSession puts the account into ctx and extends its session. It only updates an existing row:
// an upsert could restore a session that was signed out meanwhile.
func (s *Sessions) resumeSession(ctx context.Context, accountID string) (context.Context, error) {
	a, err := s.store.Get(ctx, accountID)
	if errors.Is(err, sql.ErrNoRows) ||
		err == nil && (a.Deactivated || a.Unconfirmed || a.SessionEpoch != s.scs.GetInt64(ctx, epochKey)) {
		return ctx, nil
	} else if err != nil {
		return nil, err
	}
	web.Log(ctx, slog.String("account_id", accountID))
	c := currentSession{
		Account:   a,
		proof:     Proof(s.scs.GetString(ctx, proofKey)),
		tokenHash: id.Hash(s.scs.Token(ctx)),
		startedUS: s.scs.GetInt64(ctx, startedKey),
		provenUS:  s.scs.GetInt64(ctx, provenKey),
	}
	if c.proof == ProofPending { // is not extended
		return context.WithValue(ctx, currentSessionKey{}, c), nil
	}
	now := s.store.now()
	end := computeSessionEnd(time.UnixMicro(c.startedUS), now)
	err = extendSession(ctx, s.store.db, c.tokenHash, now.UnixMicro(), end.UnixMicro(),
		sessionExtendStep.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("accounts: session: %w", err)
	}
	return context.WithValue(web.WithFormAccount(ctx, a.Email), currentSessionKey{}, c), nil
}

// computeSessionEnd returns when a session ends that started at started and is used at now.
func computeSessionEnd(started, now time.Time) time.Time {
	end, last := now.Add(sessionIdleTimeout), started.Add(sessionMaxAge)
	if last.Before(end) {
		return last
	}
	return end
}

// CurrentAccount returns the signed-in account, in the context of With. An account whose second step is
// pending is not signed in.
func CurrentAccount(ctx context.Context) (Account, bool) {
	c, ok := ctx.Value(currentSessionKey{}).(currentSession)
	return c.Account, ok && c.proof != ProofPending
}

// PendingSecondStep returns the account whose password was accepted and whose second step is
// pending, in the context of With.
func PendingSecondStep(ctx context.Context) (Account, bool) {
	c, ok := ctx.Value(currentSessionKey{}).(currentSession)
	return c.Account, ok && c.proof == ProofPending
}

// HasMFA reports whether the session of r passed a second step: a one-time code, or a passkey with
// user verification. It needs the context of With. The operator's pages require it.
func HasMFA(r *http.Request) bool {
	c, ok := r.Context().Value(currentSessionKey{}).(currentSession)
	return ok && c.proof == ProofMFA
}

// CurrentSessionID returns the id of the request's session, as in ListSessions, in the context of
// With.
func CurrentSessionID(ctx context.Context) string {
	c, _ := ctx.Value(currentSessionKey{}).(currentSession)
	return c.tokenHash
}

// BrowserID identifies the browser of r, in the context of With: by its session, or by the visitor
// cookie while it has no session. "" = neither.
func (s *Sessions) BrowserID(r *http.Request) string {
	if session := CurrentSessionID(r.Context()); session != "" {
		return session
	}
	c, err := r.Cookie(s.visitorCookieName())
	if err != nil || c.Value == "" {
		return ""
	}
	return id.Hash(c.Value)
}

// EnsureBrowserID is BrowserID that sets a visitor cookie, valid for lifetime, when there is no
// session.
func (s *Sessions) EnsureBrowserID(w http.ResponseWriter, r *http.Request, lifetime time.Duration) string {
	if session := CurrentSessionID(r.Context()); session != "" {
		return session
	}
	token := id.NewSecret()
	http.SetCookie(w, &http.Cookie{
		Name:     s.visitorCookieName(),
		Value:    token,
		Path:     "/",
		MaxAge:   int(lifetime.Seconds()),
		HttpOnly: true,
		Secure:   s.scs.Cookie.Secure,
		SameSite: http.SameSiteLaxMode,
	})
	return id.Hash(token)
}

// askAgain has sign-ins at an identity provider within the next minutes ask for the user's credentials: this browser
// wants to sign in again, or as somebody else. It is a hint; what counts is when the provider says that it asked.
func (s *Sessions) askAgain(w http.ResponseWriter) {
	http.SetCookie(w, &http.Cookie{
		Name:     s.againCookieName(),
		Value:    "1",
		Path:     "/",
		MaxAge:   int(reauthWindow.Seconds()),
		HttpOnly: true,
		Secure:   s.scs.Cookie.Secure,
		SameSite: http.SameSiteLaxMode,
	})
}

// AsksAgain reports whether the browser of r signs in again, or as somebody else.
func (s *Sessions) AsksAgain(r *http.Request) bool {
	_, err := r.Cookie(s.againCookieName())
	return err == nil
}

func (s *Sessions) againCookieName() string { return s.scs.Cookie.Name + "-again" }

func (s *Sessions) visitorCookieName() string { return s.scs.Cookie.Name + "-visit" }

// Start signs in a with the given proof, in the context of With. It always sets a new token, which
// prevents session fixation. The user has just proved who they are, by a password, a code or a passkey.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, a Account, proof Proof) error {
	now := s.store.now()
	return s.startSession(w, r, a, proof, now, now.UnixMicro())
}

// StartProvenAt is Start for a user whom an identity provider has authenticated at provenUS, long ago perhaps; 0 = it
// did not say when.
func (s *Sessions) StartProvenAt(w http.ResponseWriter, r *http.Request, a Account, proof Proof, provenUS int64) error {
	return s.startSession(w, r, a, proof, s.store.now(), provenUS)
}

// Continue starts a session for an account that is signed in and has just ended all its sessions by
// a change. The new session keeps the start of the old one: the user has not authenticated again.
func (s *Sessions) Continue(w http.ResponseWriter, r *http.Request, a Account, proof Proof) error {
	c, ok := r.Context().Value(currentSessionKey{}).(currentSession)
	if !ok || c.ID != a.ID {
		return errors.New("accounts: there is no session to continue")
	}
	return s.startSession(w, r, a, proof, time.UnixMicro(c.startedUS), c.provenUS)
}

func (s *Sessions) startSession(w http.ResponseWriter, r *http.Request, a Account, proof Proof,
	started time.Time, provenUS int64) error {
	ctx := r.Context()
	if err := s.scs.Clear(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	if err := s.scs.RenewToken(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	now := s.store.now()
	s.scs.Put(ctx, accountKey, a.ID)
	s.scs.Put(ctx, startedKey, started.UnixMicro())
	s.scs.Put(ctx, epochKey, a.SessionEpoch)
	s.scs.Put(ctx, proofKey, string(proof))
	s.scs.Put(ctx, provenKey, provenUS)
	end := computeSessionEnd(started, now)
	if proof == ProofPending {
		end = now.Add(pendingSessionTimeout)
	}
	ctx = context.WithValue(ctx, newSessionKey{},
		newSession{a.ID, proof, ClientOf(r).Agent, started.UnixMicro(), now.UnixMicro(), end.UnixMicro()})
	token, cookieEnd, err := s.scs.Commit(ctx)
	if err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.writeCookie(ctx, w, token, cookieEnd)
	if proof == ProofPending {
		return nil
	}
	return s.store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.store.RecordEvent(ctx, tx, a.ID, SignedIn, ClientOf(r))
	})
}

// End signs out, inside of With.
func (s *Sessions) End(ctx context.Context, w http.ResponseWriter) error {
	if err := s.scs.Destroy(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.writeCookie(ctx, w, "", time.Time{})
	return nil
}

// ListSessions returns at most limit sessions of an account, the last used first.
func (s *Sessions) ListSessions(ctx context.Context, accountID string, limit int) ([]Session, error) {
	list, err := listSessions(ctx, s.store.db, accountID, s.store.now().UnixMicro(), limit)
	if err != nil {
		return nil, fmt.Errorf("accounts: sessions: %w", err)
	}
	return list, nil
}

// Revoke ends one session of an account. A session that has ended is not an error, and no event.
func (s *Sessions) Revoke(ctx context.Context, accountID, sessionID string, from Client) error {
	return s.store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if ended, err := deleteAccountSession(ctx, tx, accountID, sessionID); err != nil {
			return fmt.Errorf("accounts: revoke: %w", err)
		} else if !ended {
			return nil
		}
		return s.store.RecordEvent(ctx, tx, accountID, SessionEnded, from)
	})
}

// writeCookie sets the cookie. It replaces the Cache-Control of scs: pages must not be stored at
// all.
func (s *Sessions) writeCookie(ctx context.Context, w http.ResponseWriter, token string, end time.Time) {
	s.scs.WriteSessionCookie(ctx, w, token, end)
	w.Header().Set("Cache-Control", "no-store")
}

// scsStore is the table of sessions as scs.Store. It receives hashes of tokens, never tokens.
type scsStore struct{ *Store }

func (s scsStore) FindCtx(ctx context.Context, tokenHash string) ([]byte, bool, error) {
	data, err := getSessionData(ctx, s.db, tokenHash, s.now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// CommitCtx saves a session that starts. Start passes its columns in ctx, with an end by our clock,
// because tests cannot move that of scs.
func (s scsStore) CommitCtx(ctx context.Context, tokenHash string, data []byte, _ time.Time) error {
	b, ok := ctx.Value(newSessionKey{}).(newSession)
	if !ok {
		return errors.New("accounts: only Start saves sessions")
	}
	return insertSession(ctx, s.db, tokenHash, data, b)
}

func (s scsStore) DeleteCtx(ctx context.Context, tokenHash string) error {
	return deleteSession(ctx, s.db, tokenHash)
}

// Find, Commit and Delete complete scs.Store, which calls the variants with a context instead.
func (s scsStore) Find(tokenHash string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), tokenHash)
}

func (s scsStore) Commit(tokenHash string, data []byte, end time.Time) error {
	return s.CommitCtx(context.Background(), tokenHash, data, end)
}

func (s scsStore) Delete(tokenHash string) error {
	return s.DeleteCtx(context.Background(), tokenHash)
}
