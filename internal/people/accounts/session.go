package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// Lifetimes of a browser session: without a page view, and at most.
const (
	sessionIdle  = 12 * time.Hour
	sessionLimit = 7 * 24 * time.Hour
	sessionSlack = time.Minute      // the end moves in steps of this
	halfLimit    = 10 * time.Minute // from the password to the second step
)

// Members of a session.
const (
	accountKey = "account_id"
	startedKey = "started_us"
	epochKey   = "epoch"
	proofKey   = "proof"
)

// A Proof is what somebody has shown of who they are.
type Proof string

// The proofs of a session.
const (
	OneOfTwo Proof = "one-of-two" // the password of an account that wants a second step: not signed in yet
	One      Proof = "one"        // all that the account asks for
	Two      Proof = "two"        // a second step, or a passkey that asked for more than presence
)

// A Session is one browser in which somebody is signed in.
type Session struct {
	ID        string // to revoke it by; of no use as a cookie
	Agent     string
	StartedUS int64
	SeenUS    int64
}

// beginning is what is stored of a session when it begins.
type beginning struct {
	accountID         string
	proof             Proof
	agent             string
	startedUS, seenUS int64
	expiresUS         int64
}

type beginningKey struct{}

// Sessions remembers in a browser who signed in. The cookie holds a random
// token; the table holds its hash.
type Sessions struct {
	store *Store
	scs   *scs.SessionManager
}

// NewSessions returns the sessions of store. If secure, which it is wherever the
// pages are served over https, the cookie is bound to exactly this host and never
// sent in the clear.
func NewSessions(store *Store, secure bool) *Sessions {
	m := scs.New()
	m.Store = rows{store}
	m.Lifetime, m.IdleTimeout = sessionLimit, sessionIdle
	m.HashTokenInStore = true
	m.Cookie.Name, m.Cookie.Secure = "purser", secure
	if secure {
		m.Cookie.Name = "__Host-purser"
	}
	m.Cookie.HttpOnly, m.Cookie.Path, m.Cookie.SameSite = true, "/", http.SameSiteLaxMode
	m.Cookie.Persist = false
	return &Sessions{store: store, scs: m}
}

type currentKey struct{}

// current is what a session of the browser says, inside of With.
type current struct {
	Account
	proof     Proof
	tokenHash string
	startedUS int64
}

// With gives h the session of the browser; Current tells whose it is.
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
			if ctx, err = s.resume(ctx, accountID); err != nil {
				return err
			}
		}
		return h(w, r.WithContext(ctx))
	}
}

// resume puts the account into ctx and moves the end of its session. It only
// ever changes a row that exists: writing the session anew could bring back one
// that was signed out meanwhile.
func (s *Sessions) resume(ctx context.Context, accountID string) (context.Context, error) {
	a, err := s.store.Get(ctx, accountID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (a.Deactivated || a.Unconfirmed || a.Epoch != s.scs.GetInt64(ctx, epochKey)) {
		return ctx, nil
	} else if err != nil {
		return nil, err
	}
	c := current{a, Proof(s.scs.GetString(ctx, proofKey)), id.Hash(s.scs.Token(ctx)), s.scs.GetInt64(ctx, startedKey)}
	if c.proof == OneOfTwo { // its end stays where it is
		return context.WithValue(ctx, currentKey{}, c), nil
	}
	now := s.store.now()
	end := endOf(time.UnixMicro(c.startedUS), now)
	err = extendSession(ctx, s.store.db, c.tokenHash, now.UnixMicro(), end.UnixMicro(), sessionSlack.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("accounts: session: %w", err)
	}
	return context.WithValue(ctx, currentKey{}, c), nil
}

// endOf is when a session that began then, and is used now, ends.
func endOf(started, now time.Time) time.Time {
	end, last := now.Add(sessionIdle), started.Add(sessionLimit)
	if last.Before(end) {
		return last
	}
	return end
}

// Current returns who is signed in in the browser, inside of With. Whoever still
// owes the second step is not.
func Current(ctx context.Context) (Account, bool) {
	c, ok := ctx.Value(currentKey{}).(current)
	return c.Account, ok && c.proof != OneOfTwo
}

// Half returns whose password was right in the browser, inside of With, if the
// second step is still to come.
func Half(ctx context.Context) (Account, bool) {
	c, ok := ctx.Value(currentKey{}).(current)
	return c.Account, ok && c.proof == OneOfTwo
}

// MFA reports whether the session of r passed a second step, inside of With: a
// one-time code, or a passkey that asked for more than presence. The operator's
// pages ask it.
func MFA(r *http.Request) bool {
	c, ok := r.Context().Value(currentKey{}).(current)
	return ok && c.proof == Two
}

// ThisSession is the id of the browser's session among SessionsOf, inside of With.
func ThisSession(ctx context.Context) string {
	c, _ := ctx.Value(currentKey{}).(current)
	return c.tokenHash
}

// Browser names the browser of r inside of With, for what is asked of it alone: by
// its session, or by a cookie of its own while it has none. "" = neither.
func (s *Sessions) Browser(r *http.Request) string {
	if session := ThisSession(r.Context()); session != "" {
		return session
	}
	c, err := r.Cookie(s.visitor())
	if err != nil || c.Value == "" {
		return ""
	}
	return id.Hash(c.Value)
}

// Visit is Browser that gives a browser without a session a new cookie, which
// lasts for as long as the question does.
func (s *Sessions) Visit(w http.ResponseWriter, r *http.Request, lasts time.Duration) string {
	if session := ThisSession(r.Context()); session != "" {
		return session
	}
	token := id.Secret()
	http.SetCookie(w, &http.Cookie{
		Name: s.visitor(), Value: token, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: s.scs.Cookie.Secure, SameSite: http.SameSiteLaxMode,
	})
	return id.Hash(token)
}

func (s *Sessions) visitor() string { return s.scs.Cookie.Name + "-visit" }

// Start signs a in, inside of With, as far as proof goes. The token is always a
// new one, so that a token which somebody planted in the browser before is worth
// nothing.
func (s *Sessions) Start(w http.ResponseWriter, r *http.Request, a Account, proof Proof) error {
	return s.start(w, r, a, proof, s.store.now())
}

// Continue is Start for whoever is signed in and has just ended all sessions of
// the account by a change of it. The new one is as old as theirs was: nobody has
// shown again who they are.
func (s *Sessions) Continue(w http.ResponseWriter, r *http.Request, a Account, proof Proof) error {
	c, ok := r.Context().Value(currentKey{}).(current)
	if !ok || c.ID != a.ID {
		return errors.New("accounts: there is no session to continue")
	}
	return s.start(w, r, a, proof, time.UnixMicro(c.startedUS))
}

func (s *Sessions) start(w http.ResponseWriter, r *http.Request, a Account, proof Proof, started time.Time) error {
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
	s.scs.Put(ctx, epochKey, a.Epoch)
	s.scs.Put(ctx, proofKey, string(proof))
	end := endOf(started, now)
	if proof == OneOfTwo {
		end = now.Add(halfLimit)
	}
	ctx = context.WithValue(ctx, beginningKey{}, beginning{a.ID, proof, ClientOf(r).Agent, started.UnixMicro(), now.UnixMicro(), end.UnixMicro()})
	token, cookieEnd, err := s.scs.Commit(ctx)
	if err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.cookie(ctx, w, token, cookieEnd)
	if proof == OneOfTwo {
		return nil
	}
	return s.store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.store.Record(ctx, tx, a.ID, SignedIn, ClientOf(r))
	})
}

// End signs out, inside of With.
func (s *Sessions) End(ctx context.Context, w http.ResponseWriter) error {
	if err := s.scs.Destroy(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.cookie(ctx, w, "", time.Time{})
	return nil
}

// SessionsOf returns where an account is signed in, the browser seen last first.
func (s *Sessions) SessionsOf(ctx context.Context, accountID string) ([]Session, error) {
	list, err := sessionsOf(ctx, s.store.db, accountID, s.store.now().UnixMicro())
	if err != nil {
		return nil, fmt.Errorf("accounts: sessions: %w", err)
	}
	return list, nil
}

// Revoke ends one session of an account. There is nothing wrong if it has ended.
func (s *Sessions) Revoke(ctx context.Context, accountID, sessionID string, from Client) error {
	if err := deleteSessionOf(ctx, s.store.db, accountID, sessionID); err != nil {
		return fmt.Errorf("accounts: revoke: %w", err)
	}
	return s.store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return s.store.Record(ctx, tx, accountID, SessionEnded, from)
	})
}

// cookie sets the cookie and undoes what scs says of caches beside it: pages are
// not to be stored at all.
func (s *Sessions) cookie(ctx context.Context, w http.ResponseWriter, token string, end time.Time) {
	s.scs.WriteSessionCookie(ctx, w, token, end)
	w.Header().Set("Cache-Control", "no-store")
}

// rows is the table of sessions, in the shape that scs asks for. It is given
// hashes of tokens, never tokens.
type rows struct{ *Store }

func (s rows) FindCtx(ctx context.Context, tokenHash string) ([]byte, bool, error) {
	data, err := findSession(ctx, s.db, tokenHash, s.now().UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return data, err == nil, err
}

// CommitCtx saves a session that begins, which Start says more of than scs does.
// Its end goes by our clock; scs has none that tests could move.
func (s rows) CommitCtx(ctx context.Context, tokenHash string, data []byte, _ time.Time) error {
	b, ok := ctx.Value(beginningKey{}).(beginning)
	if !ok {
		return errors.New("accounts: only Start saves sessions")
	}
	return insertSession(ctx, s.db, tokenHash, data, b)
}

func (s rows) DeleteCtx(ctx context.Context, tokenHash string) error {
	return deleteSession(ctx, s.db, tokenHash)
}

// Find, Commit and Delete complete scs.Store; scs calls those above instead.
func (s rows) Find(tokenHash string) ([]byte, bool, error) {
	return s.FindCtx(context.Background(), tokenHash)
}

func (s rows) Commit(tokenHash string, data []byte, end time.Time) error {
	return s.CommitCtx(context.Background(), tokenHash, data, end)
}

func (s rows) Delete(tokenHash string) error {
	return s.DeleteCtx(context.Background(), tokenHash)
}
