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
}

// ErrNoTokens is the error of a TokenStore that has no tokens of a connection.
var ErrNoTokens = errors.New("purser: no tokens of this connection in the store")

// A TokenStore keeps the tokens of connections. Its methods are used by many goroutines.
type TokenStore interface {
	// Load returns the tokens of a connection. The error is ErrNoTokens if there are none.
	Load(ctx context.Context, connectionID string) (Tokens, error)
	// Save replaces the tokens of a connection. They must be safe when it returns: the previous ones no longer work.
	Save(ctx context.Context, connectionID string, tokens Tokens) error
	// Delete removes the tokens of a connection, if there are any.
	Delete(ctx context.Context, connectionID string) error
	// Lock waits until no one else has the lock of a connection, in any process that shares the store. The lock is held
	// while a refresh token is used.
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

// requestTokens sends a request to the token endpoint. A repeated key gets the same tokens again for 60 seconds.
func (c *Client) requestTokens(ctx context.Context, form url.Values, key string) (tokenResponse, error) {
	r := c.formRequest("/oauth/token", form)
	r.header.Set("Idempotency-Key", key)
	r.repeatable = true
	answer, err := c.send(ctx, r)
	if err != nil {
		return tokenResponse{}, err
	}
	return decode[tokenResponse](answer.body)
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

// refreshKey returns the Idempotency-Key of a refresh. It follows from the refresh token, so that a
// process that repeats a refresh whose answer another one has lost gets the same tokens (60 seconds long).
func refreshKey(refreshToken string) string {
	sum := sha256.Sum256([]byte("purser token\n" + refreshToken))
	return formatUUID([16]byte(sum[:16]), 8)
}

// refresh returns a fresh access token of a connection. rejected is a token that the service did not accept, or "".
func (c *Client) refresh(ctx context.Context, connectionID, rejected string) (string, error) {
	unlock, err := c.options.Tokens.Lock(ctx, connectionID)
	if err != nil {
		return "", err
	}
	defer unlock()
	tokens, err := c.loadTokens(ctx, connectionID)
	if err != nil {
		return "", err
	}
	if tokens.isFresh(c.clock.now()) && tokens.AccessToken != rejected {
		return tokens.AccessToken, nil // another goroutine or process was first
	}
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {tokens.RefreshToken}}
	response, err := c.requestTokens(ctx, form, refreshKey(tokens.RefreshToken))
	if err != nil {
		return "", err
	}
	fresh := response.tokens(connectionID, c.clock.now())
	// The old refresh token no longer works: save the new one even if the caller has stopped waiting.
	if err := c.options.Tokens.Save(context.WithoutCancel(ctx), connectionID, fresh); err != nil {
		return "", err
	}
	return fresh.AccessToken, nil
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

// saveNewConnection stores the first tokens of a connection.
func (c *Client) saveNewConnection(ctx context.Context, t tokenResponse) (*Connection, error) {
	ctx = context.WithoutCancel(ctx) // the tokens can't be had twice
	unlock, err := c.options.Tokens.Lock(ctx, t.ConnectionID)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := c.options.Tokens.Save(ctx, t.ConnectionID, t.tokens(t.ConnectionID, c.clock.now())); err != nil {
		return nil, err
	}
	return &Connection{client: c, id: t.ConnectionID, allocationMC: t.AllocationMC}, nil
}
