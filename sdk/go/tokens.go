package purser

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Tokens are the tokens of one connection. They are secret.
type Tokens struct {
	ConnectionID string    `json:"connection_id"`
	AccessToken  string    `json:"access_token"`
	RefreshToken string    `json:"refresh_token"` // works once
	ExpiresAt    time.Time `json:"expires_at"`    // of the access token
	// RefreshKey is the Idempotency-Key of a refresh that has begun; "" = none. With it a process that goes on after a
	// crash or a lost answer gets the same new tokens.
	RefreshKey string `json:"refresh_key,omitempty"`
}

// ErrNoTokens is the error of a TokenStore that has no tokens of a connection.
var ErrNoTokens = errors.New("purser: no tokens of this connection in the store")

// A TokenStore keeps the tokens of connections. Its methods are used by many goroutines.
type TokenStore interface {
	// Load returns the tokens of a connection. The error is ErrNoTokens if there are none.
	Load(ctx context.Context, connectionID string) (Tokens, error)
	// Save replaces the tokens of a connection, with all their fields. They must be safe when it returns, or when the
	// lock is released: the previous ones no longer work. It is called before and after a refresh, each time under a
	// lock of its own.
	Save(ctx context.Context, connectionID string, tokens Tokens) error
	// Delete removes the tokens of a connection, if there are any.
	Delete(ctx context.Context, connectionID string) error
	// Lock waits until no one else has the lock of a connection, in any process that shares the store, for example in a
	// transaction with SELECT … FOR UPDATE that unlock commits. The lock is held while a refresh token is used.
	Lock(ctx context.Context, connectionID string) (unlock func(), err error)
}

// A MemoryTokenStore keeps tokens until the process ends.
type MemoryTokenStore struct {
	mu     sync.Mutex
	tokens map[string]Tokens
	locks  locks
}

// NewMemoryTokenStore returns an empty store.
func NewMemoryTokenStore() *MemoryTokenStore { return &MemoryTokenStore{tokens: map[string]Tokens{}} }

// Load returns the tokens of a connection.
func (s *MemoryTokenStore) Load(_ context.Context, connectionID string) (Tokens, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens, ok := s.tokens[connectionID]
	if !ok {
		return Tokens{}, ErrNoTokens
	}
	return tokens, nil
}

// Save replaces the tokens of a connection.
func (s *MemoryTokenStore) Save(_ context.Context, connectionID string, tokens Tokens) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[connectionID] = tokens
	return nil
}

// Delete removes the tokens of a connection.
func (s *MemoryTokenStore) Delete(_ context.Context, connectionID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, connectionID)
	return nil
}

// Lock waits until no other goroutine has the lock of a connection.
func (s *MemoryTokenStore) Lock(ctx context.Context, connectionID string) (unlock func(), err error) {
	return s.locks.lock(ctx, connectionID)
}

// locks are the locks of one process, by name.
type locks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed by unlock
}

func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		released, isHeld := l.held[name]
		if !isHeld {
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			released = make(chan struct{})
			l.held[name] = released
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				defer l.mu.Unlock()
				delete(l.held, name)
				close(released)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// refreshMargin is how long before its end an access token is replaced.
const refreshMargin = time.Minute

// isFresh reports whether the access token can be used.
func (t Tokens) isFresh(now time.Time) bool {
	return t.AccessToken != "" && now.Add(refreshMargin).Before(t.ExpiresAt)
}

type tokenResponse struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ExpiresIn    int64  `json:"expires_in"`    // seconds
	ConnectionID string `json:"connection_id"` // not in the answer to a refresh
	AllocationMC int64  `json:"allocation_mc"`
}

// Time limits of a request that uses up a token or a code. What the service has done, it answers again to the same key:
// a first try whose answer does not come is given up soon.
const (
	exchangeLimit = 15 * time.Second // with all tries and waits
	firstTryLimit = 5 * time.Second  // where another one may follow
)

// requestTokens sends a request to the token endpoint. A repeated key gets the same tokens again.
func (c *Client) requestTokens(ctx context.Context, form url.Values, key string) (tokenResponse, error) {
	r := c.formRequest("/oauth/token", form)
	r.header.Set("Idempotency-Key", key)
	r.repeatable = true
	r.limit, r.firstTry = c.exchangeLimit, c.firstTryLimit
	answer, err := c.send(ctx, r)
	if err != nil {
		return tokenResponse{}, err
	}
	t, err := decode[tokenResponse](answer.body)
	if err != nil || t.AccessToken == "" || t.RefreshToken == "" || t.ExpiresIn <= 0 {
		return tokenResponse{}, newOwnError(CodeInvalidResponse, err, "the answer has no tokens")
	}
	return t, nil
}

// runToEnd runs work that uses up a token or a code. It goes on when its caller stops waiting, because what the service
// has done must be stored.
func runToEnd[T any](ctx context.Context, work func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work(context.WithoutCancel(ctx))
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// tokens returns what to store of a response for a connection.
func (t tokenResponse) tokens(connectionID string, now time.Time) Tokens {
	return Tokens{
		ConnectionID: connectionID,
		AccessToken:  t.AccessToken,
		RefreshToken: t.RefreshToken,
		ExpiresAt:    now.Add(time.Duration(t.ExpiresIn) * time.Second).UTC().Truncate(time.Second),
	}
}

// formRequest returns a request of an OAuth endpoint. A public client has no secret and sends its id in the body.
func (c *Client) formRequest(path string, form url.Values) request {
	r := request{
		method:  http.MethodPost,
		path:    path,
		header:  http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
		timeout: c.timeout(defaultTimeout),
	}
	if c.options.ClientSecret == "" {
		form.Set("client_id", c.options.ClientID)
	} else {
		c.setClientCredentials(r.header)
		r.byClient = true
	}
	r.body = []byte(form.Encode())
	return r
}

// An unsavedTokens are new tokens that the store could not save.
type unsavedTokens struct {
	tokens   Tokens
	replaced string // the used refresh token that the store still has
}

// A renewal is a refresh in sections of the connection's lock.
type renewal struct {
	connectionID string
	rejected     string // an access token that the service did not accept, or ""
	begun        string // the refresh token whose key this renewal has saved, or ""
}

// refresh returns a fresh access token of a connection. rejected is a token that the service did not accept, or "".
func (c *Client) refresh(ctx context.Context, connectionID, rejected string) (string, error) {
	r := &renewal{connectionID: connectionID, rejected: rejected}
	for {
		token, err := c.runLocked(ctx, connectionID, func(ctx context.Context) (string, error) {
			return c.renew(ctx, r)
		})
		if token != "" || err != nil {
			return token, err
		}
	}
}

// runLocked runs work under the lock of a connection. The caller may stop waiting, but work goes on.
func (c *Client) runLocked(ctx context.Context, connectionID string,
	work func(ctx context.Context) (string, error)) (string, error) {
	// A store may tie a lock to its context. That ends with the caller's while it waits, and later with the work.
	locked, release := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, release)
	unlock, err := c.options.Tokens.Lock(locked, connectionID)
	if err == nil && !stop() {
		unlock()
		err = ctx.Err()
	}
	if err != nil {
		release()
		return "", err
	}
	return runToEnd(ctx, func(ctx context.Context) (string, error) {
		defer release()
		defer unlock()
		return work(ctx)
	})
}

// renew does the next step of a renewal, under the lock: it saves the Idempotency-Key, or sends it. It returns "" if
// another step follows. The lock may be a transaction, which a crash rolls back, so the key is saved in a section of
// its own. A store that can't save the key could not save the new tokens either, so that nothing is sent.
func (c *Client) renew(ctx context.Context, r *renewal) (string, error) {
	tokens, err := c.loadNewest(ctx, r.connectionID)
	if err != nil {
		return "", err
	}
	isGood := func(t Tokens) bool { return t.isFresh(c.clock.now()) && t.AccessToken != r.rejected }
	if isGood(tokens) {
		return tokens.AccessToken, nil // another goroutine or process was first
	}
	isOwn := tokens.RefreshToken == r.begun
	if tokens.RefreshKey == "" && !isOwn {
		tokens.RefreshKey = newUUID()
		if err := c.options.Tokens.Save(ctx, r.connectionID, tokens); err != nil {
			return "", err
		}
		c.unsaved.Delete(r.connectionID)
		r.begun = tokens.RefreshToken
		return "", nil
	}
	fresh, err := c.exchangeRefreshToken(ctx, tokens)
	if err != nil || isOwn || isGood(fresh) {
		return fresh.AccessToken, err
	}
	return "", nil // the answer to another process's refresh may be old
}

// loadNewest returns the tokens of a connection: those of the store, or newer ones that it could not save, which it is
// given again.
func (c *Client) loadNewest(ctx context.Context, connectionID string) (Tokens, error) {
	tokens, err := c.loadTokens(ctx, connectionID)
	if err != nil {
		return Tokens{}, err
	}
	kept, ok := c.unsaved.Load(connectionID)
	if !ok {
		return tokens, nil
	}
	unsaved := kept.(unsavedTokens)
	if unsaved.replaced != tokens.RefreshToken { // the user connected again
		c.unsaved.Delete(connectionID)
		return tokens, nil
	}
	if c.options.Tokens.Save(ctx, connectionID, unsaved.tokens) == nil {
		c.unsaved.Delete(connectionID)
	}
	return unsaved.tokens, nil
}

// exchangeRefreshToken replaces tokens, under the lock of their connection.
func (c *Client) exchangeRefreshToken(ctx context.Context, tokens Tokens) (Tokens, error) {
	id, key := tokens.ConnectionID, tokens.RefreshKey
	if key == "" { // the store has dropped it
		key = deriveRefreshKey(tokens.RefreshToken)
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}}
	response, err := c.requestTokens(ctx, form, key)
	if err != nil {
		return Tokens{}, err
	}
	fresh := response.tokens(id, c.clock.now())
	if c.options.Tokens.Save(ctx, id, fresh) != nil {
		// The old token no longer works. The new one stays in memory, and is saved before it is used.
		c.unsaved.Store(id, unsavedTokens{fresh, tokens.RefreshToken})
	}
	return fresh, nil
}

// deriveRefreshKey returns the Idempotency-Key of a refresh for a store that does not keep Tokens.RefreshKey. It
// follows from the refresh token, so that processes which share the store have the same one.
func deriveRefreshKey(refreshToken string) string {
	sum := sha256.Sum256([]byte("purser token\n" + refreshToken))
	return formatUUID([16]byte(sum[:16]), 8)
}

// loadTokens returns the tokens of a connection. Without any, the user has to connect again.
func (c *Client) loadTokens(ctx context.Context, connectionID string) (Tokens, error) {
	tokens, err := c.options.Tokens.Load(ctx, connectionID)
	if errors.Is(err, ErrNoTokens) {
		e := newOwnError(CodeNotConnected, err, "the store has no tokens of connection %q", connectionID)
		e.ConnectionID = connectionID
		return Tokens{}, e
	}
	return tokens, err
}

// connect exchanges a code for the first tokens of a connection, and saves them.
func (c *Client) connect(ctx context.Context, form url.Values, key string) (*Connection, error) {
	return runToEnd(ctx, func(ctx context.Context) (*Connection, error) {
		t, err := c.requestTokens(ctx, form, key)
		if err != nil {
			return nil, err
		}
		if t.ConnectionID == "" {
			return nil, newOwnError(CodeInvalidResponse, nil, "the answer names no connection")
		}
		unlock, err := c.options.Tokens.Lock(ctx, t.ConnectionID)
		if err != nil {
			return nil, err
		}
		defer unlock()
		if err := c.options.Tokens.Save(ctx, t.ConnectionID, t.tokens(t.ConnectionID, c.clock.now())); err != nil {
			return nil, err
		}
		return &Connection{client: c, id: t.ConnectionID, allocationMC: t.AllocationMC}, nil
	})
}
