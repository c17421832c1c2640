package accounts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alexedwards/scs/v2"

	"purser/internal/id"
	"purser/internal/web"
)

// Lifetimes of a browser session: without a page view, and at most.
const (
	sessionIdle  = 12 * time.Hour
	sessionLimit = 7 * 24 * time.Hour
	sessionSlack = time.Minute // the end moves in steps of this
)

// Members of a session.
const (
	accountKey = "account_id"
	startedKey = "started_us"
)

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
	if errors.Is(err, sql.ErrNoRows) || err == nil && a.Deactivated {
		return ctx, nil
	} else if err != nil {
		return nil, err
	}
	end := s.store.now().Add(sessionIdle)
	if last := time.UnixMicro(s.scs.GetInt64(ctx, startedKey)).Add(sessionLimit); last.Before(end) {
		end = last
	}
	err = extendSession(ctx, s.store.db, id.Hash(s.scs.Token(ctx)), end.UnixMicro(), sessionSlack.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("accounts: session: %w", err)
	}
	return context.WithValue(ctx, currentKey{}, a), nil
}

// Current returns who is signed in in the browser, inside of With.
func Current(ctx context.Context) (Account, bool) {
	a, ok := ctx.Value(currentKey{}).(Account)
	return a, ok
}

// Start signs a in, inside of With. The token is always a new one, so that a
// token which somebody planted in the browser before is worth nothing.
func (s *Sessions) Start(ctx context.Context, w http.ResponseWriter, a Account) error {
	if err := s.scs.Clear(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	if err := s.scs.RenewToken(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.scs.Put(ctx, accountKey, a.ID)
	s.scs.Put(ctx, startedKey, s.store.now().UnixMicro())
	token, end, err := s.scs.Commit(ctx)
	if err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.cookie(ctx, w, token, end)
	return nil
}

// End signs out, inside of With.
func (s *Sessions) End(ctx context.Context, w http.ResponseWriter) error {
	if err := s.scs.Destroy(ctx); err != nil {
		return fmt.Errorf("accounts: session: %w", err)
	}
	s.cookie(ctx, w, "", time.Time{})
	return nil
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

// CommitCtx saves a session that begins. Its end goes by our clock; scs has none
// that tests could move.
func (s rows) CommitCtx(ctx context.Context, tokenHash string, data []byte, _ time.Time) error {
	return saveSession(ctx, s.db, tokenHash, data, s.now().Add(sessionIdle).UnixMicro())
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
