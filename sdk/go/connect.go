package purser

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// A ConnectService lets users connect their balance in a browser: the authorization code flow of OAuth 2.0 with PKCE.
type ConnectService struct {
	client   *Client
	metadata *metadataCache
}

// ConnectOptions are what an app proposes to a user.
type ConnectOptions struct {
	AllocationMC int64    // the spend cap that the consent screen suggests, in micro-cents; 0: the service's default
	Features     []string // slugs of the features that the consent screen lists; empty: all
}

// setParameters adds the options to the parameters of a request.
func (o ConnectOptions) setParameters(parameters url.Values) {
	if o.AllocationMC != 0 {
		parameters.Set("requested_allocation_mc", strconv.FormatInt(o.AllocationMC, 10))
	}
	if len(o.Features) > 0 {
		parameters.Set("features", strings.Join(o.Features, ","))
	}
}

// An Attempt is one attempt of a user to connect. Keep State and Verifier in the user's session until the callback.
type Attempt struct {
	URL      string `json:"url"`      // where to send the browser
	State    string `json:"state"`    // ties the callback to the session
	Verifier string `json:"verifier"` // secret; ties the code to the app
}

// Start begins an attempt. It asks the service for its addresses once.
func (s ConnectService) Start(ctx context.Context, o ConnectOptions) (Attempt, error) {
	metadata, err := s.client.loadMetadata(ctx, s.metadata)
	if err != nil {
		return Attempt{}, err
	}
	attempt := Attempt{State: newSecret(), Verifier: newSecret()}
	challenge := sha256.Sum256([]byte(attempt.Verifier))
	parameters := url.Values{
		"response_type":         {"code"},
		"client_id":             {s.client.options.ClientID},
		"redirect_uri":          {s.client.options.RedirectURI},
		"state":                 {attempt.State},
		"code_challenge":        {base64.RawURLEncoding.EncodeToString(challenge[:])},
		"code_challenge_method": {"S256"},
	}
	o.setParameters(parameters)
	attempt.URL = metadata.AuthorizationEndpoint + "?" + parameters.Encode()
	return attempt, nil
}

// Finish ends an attempt with the URL that the user came back to, such as r.URL.String(). It checks state and issuer,
// exchanges the code, and saves the tokens. The error has the code access_denied if the user declined.
func (s ConnectService) Finish(ctx context.Context, callbackURL string, attempt Attempt) (*Connection, error) {
	callback, err := url.Parse(callbackURL)
	if err != nil {
		return nil, fmt.Errorf("purser: callback: %w", err)
	}
	parameters := callback.Query()
	if state := parameters.Get("state"); state == "" || state != attempt.State {
		return nil, newOwnError(CodeStateMismatch, nil, "the callback is not that of this attempt")
	}
	metadata, err := s.client.loadMetadata(ctx, s.metadata)
	if err != nil {
		return nil, err
	}
	if issuer := parameters.Get("iss"); issuer != metadata.Issuer { // RFC 9207
		return nil, newOwnError(CodeIssuerMismatch, nil, "the callback is from %q", issuer)
	}
	if code := parameters.Get("error"); code != "" {
		refused := &Error{Code: code, Message: parameters.Get("error_description")}
		refused.Action = chooseAction(refused, false)
		return nil, refused
	}
	return s.client.connect(ctx, url.Values{
		"grant_type":    {"authorization_code"},
		"code":          {parameters.Get("code")},
		"redirect_uri":  {s.client.options.RedirectURI},
		"code_verifier": {attempt.Verifier},
	}, newUUID())
}

// A metadata is what the SDK reads of the metadata of RFC 8414.
type metadata struct {
	Issuer                string `json:"issuer"`
	AuthorizationEndpoint string `json:"authorization_endpoint"`
}

type metadataCache struct {
	mu     sync.Mutex
	loaded *metadata
}

// loadMetadata returns the service's metadata. It asks for it once.
func (c *Client) loadMetadata(ctx context.Context, cache *metadataCache) (metadata, error) {
	cache.mu.Lock()
	defer cache.mu.Unlock()
	if cache.loaded != nil {
		return *cache.loaded, nil
	}
	answer, err := c.send(ctx, request{
		method:     http.MethodGet,
		path:       "/.well-known/oauth-authorization-server",
		timeout:    c.timeout(defaultTimeout),
		repeatable: true,
	})
	if err != nil {
		return metadata{}, err
	}
	loaded, err := decode[metadata](answer.body)
	if err != nil {
		return metadata{}, err
	}
	cache.loaded = &loaded
	return loaded, nil
}

// newSecret returns 256 random bits as text for URLs.
func newSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
