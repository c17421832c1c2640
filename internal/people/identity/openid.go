package identity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/base/shared"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// OpenIDConfig configures the OpenID Connect provider for signing in; the zero value is none.
type OpenIDConfig struct {
	Name         string // shown to users: "Continue with NAME"
	Issuer       string // exactly as the provider spells it, including a final slash
	ClientID     string
	ClientSecret string
}

// Enabled reports whether there is a provider.
func (o OpenIDConfig) Enabled() bool { return o.Issuer != "" }

// Validate returns an error for an incomplete configuration.
func (o OpenIDConfig) Validate() error {
	for _, k := range []struct{ name, value string }{
		{"issuer", o.Issuer},
		{"name", o.Name},
		{"client_id", o.ClientID},
		{"client_secret", o.ClientSecret},
	} {
		if o != (OpenIDConfig{}) && k.value == "" {
			return fmt.Errorf("oidc.%s: required with the other settings of oidc", k.name)
		}
	}
	return nil
}

// String hides the client secret.
func (o OpenIDConfig) String() string { return "login at " + o.Issuer }

// Bounds of requests to the provider.
const (
	openIDTimeout       = 10 * time.Second
	openIDMaxBody       = 1 << 20
	discoveryTTL        = time.Hour        // lifetime of the provider's metadata
	discoveryRetryAfter = 15 * time.Second // wait after a failed request for metadata
)

// errProviderDown means that the provider does not respond, or not as an OpenID provider.
var errProviderDown = errors.New("identity: the provider is away")

// errInvalidResponse means that a response failed verification.
var errInvalidResponse = errors.New("identity: not an answer to trust")

// errClientRefused means that the provider refuses us, such as for a secret that has expired: no fault of the user.
var errClientRefused = errors.New("identity: the provider refuses our client")

// An OpenIDClient is the relying party of one OpenID Connect provider. It is safe for concurrent
// use.
type OpenIDClient struct {
	OpenIDConfig
	RaiseAlarm func(alarm, subject string) // nil = nobody is told

	origins      []string // of our pages; the last is the default
	now          func() time.Time
	client       *http.Client
	startLimiter *web.Limiter // starts of a sign-in, by client address; many users may share one

	requests shared.Flight[*providerMetadata] // for metadata
	mu       sync.Mutex                       // guards the fields below
	metadata *providerMetadata
	askedAt  time.Time // time of the last request for metadata
	lastErr  error     // result of that request
}

// providerMetadata is the provider's metadata (OpenID Connect Discovery §3).
type providerMetadata struct {
	provider    *oidc.Provider
	verifier    *oidc.IDTokenVerifier
	authStyle   oauth2.AuthStyle
	sendsIssuer bool // authorization responses carry iss (RFC 9207)
}

// NewOpenIDClient returns the client of a provider, nil if none is configured. It sends no request,
// so that a node starts while the provider is down.
func NewOpenIDClient(o OpenIDConfig, now func() time.Time, origins ...string) *OpenIDClient {
	if !o.Enabled() {
		return nil
	}
	return &OpenIDClient{
		OpenIDConfig: o,
		origins:      origins,
		now:          now,
		startLimiter: web.NewLimiter(2*time.Second, 30, now),
		client: &http.Client{
			Timeout: openIDTimeout, Transport: limitedTransport{http.DefaultTransport},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("identity: a provider's endpoint may not lead elsewhere")
			},
		},
	}
}

// displayName returns the provider's name, "" if there is none.
func (p *OpenIDClient) displayName() string {
	if p == nil {
		return ""
	}
	return p.Name
}

// limitedTransport bounds the size of response bodies.
type limitedTransport struct{ http.RoundTripper }

func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, openIDMaxBody), resp.Body}
	}
	return resp, err
}

// matchOrigin returns the origin at which the browser of r reaches us, because the callback needs
// the cookies of the same host. It returns only configured origins, whatever the request says.
func (p *OpenIDClient) matchOrigin(r *http.Request) string {
	for _, o := range p.origins {
		if u, err := url.Parse(o); err == nil && canonicalHost(u.Scheme, u.Host) == canonicalHost(u.Scheme, r.Host) {
			return o
		}
	}
	return p.origins[len(p.origins)-1]
}

// canonicalHost returns a host with its port in the one spelling that is compared: in lower case, without a final dot
// and without the scheme's own port (RFC 3986 §6.2.3).
func canonicalHost(scheme, host string) string {
	host = strings.TrimSuffix(strings.ToLower(host), map[string]string{"http": ":80", "https": ":443"}[scheme])
	return strings.TrimSuffix(host, ".")
}

// discover returns the provider's metadata. It requests it at most once per discoveryTTL or
// discoveryRetryAfter.
func (p *OpenIDClient) discover(ctx context.Context) (*providerMetadata, error) {
	if d, err, known := p.getCached(); known {
		return d, err
	}
	return p.requests.Do(ctx, p.request)
}

// request requests the provider's metadata, in openIDTimeout at most, and caches the result for all.
func (p *OpenIDClient) request(ctx context.Context) (*providerMetadata, error) {
	if d, err, known := p.getCached(); known { // another goroutine has just requested it
		return d, err
	}
	d, err := p.fetchMetadata(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if errors.Is(context.Cause(ctx), shared.ErrAbandoned) { // nothing is known of the provider
		return p.metadata, err
	}
	p.askedAt, p.lastErr = p.now(), err
	if err == nil {
		p.metadata = d
	} else if p.metadata != nil { // prefer outdated metadata to an error
		return p.metadata, nil
	}
	return p.metadata, err
}

// getCached returns the last result; known is false when it must be requested again.
func (p *OpenIDClient) getCached() (d *providerMetadata, err error, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := p.now().Sub(p.askedAt)
	switch {
	case p.askedAt.IsZero():
		return nil, nil, false
	case p.lastErr == nil:
		return p.metadata, nil, age < discoveryTTL
	case p.metadata != nil:
		return p.metadata, nil, age < discoveryRetryAfter
	}
	return nil, p.lastErr, age < discoveryRetryAfter
}

func (p *OpenIDClient) fetchMetadata(ctx context.Context) (*providerMetadata, error) {
	ctx = oidc.ClientContext(ctx, p.client)
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", errProviderDown, err)
	}
	var said struct {
		Iss     bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Keys    string   `json:"jwks_uri"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", errProviderDown, err)
	}
	for _, endpoint := range []string{provider.Endpoint().AuthURL, provider.Endpoint().TokenURL, said.Keys} {
		if err := validateEndpoint(p.Issuer, endpoint); err != nil {
			return nil, fmt.Errorf("%w: discovery: %w", errProviderDown, err)
		}
	}
	d := &providerMetadata{
		provider:    provider,
		authStyle:   oauth2.AuthStyleInHeader,
		sendsIssuer: said.Iss,
		// never accepts alg "none" or HMAC
		verifier: provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}),
	}
	if len(said.Methods) > 0 && !slices.Contains(said.Methods, "client_secret_basic") {
		d.authStyle = oauth2.AuthStyleInParams
	}
	return d, nil
}

// validateEndpoint returns an error for an endpoint without TLS, unless the issuer has none either.
func validateEndpoint(issuer, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil ||
		u.Scheme != "https" && !(u.Scheme == "http" && strings.HasPrefix(issuer, "http:")) {
		return fmt.Errorf("endpoint %q is not one to use", endpoint)
	}
	return nil
}

func (p *OpenIDClient) makeOAuthConfig(d *providerMetadata, origin string) *oauth2.Config {
	endpoint := d.provider.Endpoint()
	endpoint.AuthStyle = d.authStyle
	return &oauth2.Config{
		ClientID:     p.ClientID,
		ClientSecret: p.ClientSecret,
		Endpoint:     endpoint,
		RedirectURL:  origin + callbackPath,
		Scopes:       []string{oidc.ScopeOpenID, "email"},
	}
}

// makeAuthorizationURL returns the URL of the authorization request. With again, the provider has to
// ask for the user's credentials, whether or not it still knows the browser, and to say when it did
// (OpenID Connect Core §3.1.2.1).
func (p *OpenIDClient) makeAuthorizationURL(d *providerMetadata, origin string, t authRequest, again bool) string {
	options := []oauth2.AuthCodeOption{oidc.Nonce(t.nonce()), oauth2.S256ChallengeOption(t.verifier())}
	if again {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	return p.makeOAuthConfig(d, origin).AuthCodeURL(t.state, options...)
}

// A login is an authenticated subject at the provider.
type login struct {
	issuer, subject string
	email           string // normalized; "" = none, or not valid here
	verified        bool   // the provider has verified the email
	provenUS        int64  // when the provider asked for the user's credentials; 0 = it does not say
}

// claims are the claims of the ID token that go-oidc does not verify, and of the userinfo endpoint.
type claims struct {
	AuthorizedParty string    `json:"azp"`
	Email           string    `json:"email"`
	Verified        looseBool `json:"email_verified"`
	AuthTime        float64   `json:"auth_time"` // in seconds, which some providers write with a fraction
}

// looseBool is a boolean that some providers send as a string.
type looseBool bool

func (t *looseBool) UnmarshalJSON(text []byte) error {
	*t = looseBool(string(text) == "true" || string(text) == `"true"`)
	return nil
}

// exchangeCode verifies the issuer of the authorization response and exchanges its code for a login
// (OpenID Connect Core §3.1.3).
func (p *OpenIDClient) exchangeCode(ctx context.Context, origin string, t authRequest,
	answer url.Values) (login, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return login{}, err
	}
	if iss := answer.Get("iss"); iss != p.Issuer && (iss != "" || d.sendsIssuer) {
		return login{}, fmt.Errorf("%w: one of %q", errInvalidResponse, iss)
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := p.makeOAuthConfig(d, origin).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(t.verifier()))
	if err != nil {
		return login{}, p.sortTokenError(err)
	}
	raw, _ := token.Extra("id_token").(string)
	said, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return login{}, fmt.Errorf("%w: ID token: %w", errInvalidResponse, err)
	}
	c, err := p.verifyClaims(said, t)
	if err == nil && c.Email == "" {
		c, err = d.fetchEmail(ctx, said.Subject, token, c)
	}
	if err != nil {
		return login{}, err
	}
	l := login{
		issuer:   p.Issuer,
		subject:  said.Subject,
		verified: bool(c.Verified),
		provenUS: p.readAuthTime(said),
	}
	if email, err := accounts.NormalizeNewEmail(c.Email); err == nil {
		l.email = email
	}
	return l, nil
}

// sortTokenError sorts the answer of the token endpoint (RFC 6749 §5.2): our client is refused, which is an alarm; the
// provider is away, or wants us to wait; or the code was refused, so the user starts over.
func (p *OpenIDClient) sortTokenError(err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return fmt.Errorf("%w: token: %w", errProviderDown, err)
	}
	status := refused.Response.StatusCode
	switch code := refused.ErrorCode; {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests,
		status == http.StatusRequestTimeout:
		return fmt.Errorf("%w: token: %d %s", errProviderDown, status, code)
	case code == "invalid_client", code == "unauthorized_client", code == "unsupported_grant_type",
		code == "invalid_scope", code != "invalid_grant" &&
			(status == http.StatusUnauthorized || status == http.StatusForbidden):
		if p.RaiseAlarm != nil {
			p.RaiseAlarm("the sign-in client is refused", "oidc")
		}
		return fmt.Errorf("%w: %d %s", errClientRefused, status, code)
	default:
		return fmt.Errorf("%w: the code was refused: %d %s", errInvalidResponse, status, code)
	}
}

// maxClockSkew is how far the provider's clock may be ahead of ours.
const maxClockSkew = time.Minute

// readAuthTime returns when the provider asked for the user's credentials, by the claim auth_time, and 0 if it does not
// say or names a time to come.
func (p *OpenIDClient) readAuthTime(said *oidc.IDToken) int64 {
	var c claims
	if err := said.Claims(&c); err != nil || c.AuthTime <= 0 || c.AuthTime > 1<<40 {
		return 0
	}
	asked, now := time.Unix(int64(c.AuthTime), 0), p.now()
	if asked.After(now.Add(maxClockSkew)) {
		return 0
	}
	return min(asked.UnixMicro(), now.UnixMicro())
}

// verifyClaims verifies what go-oidc leaves to its caller: nonce, authorized party and subject.
func (p *OpenIDClient) verifyClaims(said *oidc.IDToken, t authRequest) (c claims, err error) {
	if err := said.Claims(&c); err != nil {
		return c, fmt.Errorf("%w: claims: %w", errInvalidResponse, err)
	}
	switch {
	case !equalSecrets(said.Nonce, t.nonce()):
		err = fmt.Errorf("%w: ID token of another sign-in", errInvalidResponse)
	case c.AuthorizedParty != p.ClientID && (c.AuthorizedParty != "" || len(said.Audience) > 1):
		err = fmt.Errorf("%w: ID token issued to %q", errInvalidResponse, c.AuthorizedParty)
	case said.Subject == "" || len(said.Subject) > 255 || strings.ContainsRune(said.Subject, 0):
		err = fmt.Errorf("%w: ID token without a subject", errInvalidResponse)
	}
	return c, err
}

// fetchEmail reads the email from the userinfo endpoint: in the code flow, a provider may leave it
// out of the ID token (OpenID Connect Core §5.4).
func (d *providerMetadata) fetchEmail(ctx context.Context, subject string, token *oauth2.Token,
	c claims) (claims, error) {
	if d.provider.UserInfoEndpoint() == "" {
		return c, nil
	}
	info, err := d.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return c, fmt.Errorf("%w: userinfo: %w", errProviderDown, err)
	}
	if info.Subject != subject {
		return c, fmt.Errorf("%w: userinfo of another subject", errInvalidResponse)
	}
	return claims{Email: info.Email, Verified: looseBool(info.EmailVerified)}, nil
}
