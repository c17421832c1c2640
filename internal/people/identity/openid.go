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

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// OpenID says by which OpenID Connect provider people may sign in; the zero one =
// by none.
type OpenID struct {
	Name         string // as people know it: "Continue with NAME"
	Issuer       string // as the provider spells it, to the slash
	ClientID     string
	ClientSecret string
}

// On reports whether there is a provider.
func (o OpenID) On() bool { return o.Issuer != "" }

// Check refuses half a configuration.
func (o OpenID) Check() error {
	for _, k := range []struct{ name, value string }{{"issuer", o.Issuer}, {"name", o.Name}, {"client_id", o.ClientID}, {"client_secret", o.ClientSecret}} {
		if o != (OpenID{}) && k.value == "" {
			return fmt.Errorf("oidc.%s: required with the other settings of oidc", k.name)
		}
	}
	return nil
}

// String keeps the secret out of whatever prints it.
func (o OpenID) String() string { return "login at " + o.Issuer }

// What is asked of the provider takes no longer than this, and brings no more.
const (
	openIDTimeout = 10 * time.Second
	openIDMaxBody = 1 << 20
	openIDKeeps   = time.Hour        // what a provider says of itself, until it is asked again
	openIDRests   = 15 * time.Second // after it did not answer: meanwhile nobody waits for it
)

// errAway is that the provider does not answer, or not as one does.
var errAway = errors.New("identity: the provider is away")

// errAnswer is an answer that says nothing to be believed.
var errAnswer = errors.New("identity: not an answer to trust")

// A RelyingParty is what we are to the provider. It may be used by many goroutines.
type RelyingParty struct {
	OpenID
	origins []string // where our pages are reached; the last one is taken for what is none of them
	now     func() time.Time
	client  *http.Client
	starts  *web.Limiter // ways to the provider, by client; an office may share an address

	turn  sync.Mutex // held by whoever asks the provider about itself
	mu    sync.Mutex // guards those below, never for long
	found *discovered
	asked time.Time // when it was last asked about itself
	err   error     // what came of it
}

// discovered is what a provider says of itself (OpenID Connect Discovery §3).
type discovered struct {
	provider *oidc.Provider
	verifier *oidc.IDTokenVerifier
	style    oauth2.AuthStyle
	saysIss  bool // its answers name it (RFC 9207)
}

// NewRelyingParty returns the party for a provider, nil if there is none. It asks
// nothing yet: a provider that is away keeps no node from starting.
func NewRelyingParty(o OpenID, now func() time.Time, origins ...string) *RelyingParty {
	if !o.On() {
		return nil
	}
	return &RelyingParty{
		OpenID: o, origins: origins, now: now, starts: web.NewLimiter(2*time.Second, 30, now),
		client: &http.Client{
			Timeout: openIDTimeout, Transport: bounded{http.DefaultTransport},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("identity: a provider's endpoint may not lead elsewhere")
			},
		},
	}
}

// name is the provider's, "" if there is none.
func (p *RelyingParty) name() string {
	if p == nil {
		return ""
	}
	return p.Name
}

// bounded cuts answers that are too long.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, openIDMaxBody), resp.Body}
	}
	return resp, err
}

// origin is where the browser of r reaches us: cookies of one host are not sent to
// another, so it comes back to where it started. Only addresses of the
// configuration are ever named to the provider, whatever the request says.
func (p *RelyingParty) origin(r *http.Request) string {
	for _, o := range p.origins {
		if u, err := url.Parse(o); err == nil && u.Host == r.Host {
			return o
		}
	}
	return p.origins[len(p.origins)-1]
}

// discover returns what the provider says of itself, asked at most once in a while.
func (p *RelyingParty) discover(ctx context.Context) (*discovered, error) {
	if d, err, known := p.known(); known {
		return d, err
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	if d, err, known := p.known(); known { // somebody else has just asked
		return d, err
	}
	d, err := p.ask(context.WithoutCancel(ctx)) // the client has a limit; somebody else may wait for it
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked, p.err = p.now(), err
	if err == nil {
		p.found = d
	} else if p.found != nil { // better old than none
		return p.found, nil
	}
	return p.found, err
}

// known returns what needs no asking.
func (p *RelyingParty) known() (d *discovered, err error, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	age := p.now().Sub(p.asked)
	switch {
	case p.asked.IsZero():
		return nil, nil, false
	case p.err == nil:
		return p.found, nil, age < openIDKeeps
	case p.found != nil:
		return p.found, nil, age < openIDRests
	}
	return nil, p.err, age < openIDRests
}

func (p *RelyingParty) ask(ctx context.Context) (*discovered, error) {
	ctx = oidc.ClientContext(ctx, p.client)
	provider, err := oidc.NewProvider(ctx, p.Issuer)
	if err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", errAway, err)
	}
	var said struct {
		Iss     bool     `json:"authorization_response_iss_parameter_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Keys    string   `json:"jwks_uri"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, fmt.Errorf("%w: discovery: %w", errAway, err)
	}
	for _, endpoint := range []string{provider.Endpoint().AuthURL, provider.Endpoint().TokenURL, said.Keys} {
		if err := checkEndpoint(p.Issuer, endpoint); err != nil {
			return nil, fmt.Errorf("%w: discovery: %w", errAway, err)
		}
	}
	d := &discovered{
		provider: provider, style: oauth2.AuthStyleInHeader, saysIss: said.Iss,
		verifier: provider.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}), // never takes "none" or a shared secret
	}
	if len(said.Methods) > 0 && !slices.Contains(said.Methods, "client_secret_basic") {
		d.style = oauth2.AuthStyleInParams
	}
	return d, nil
}

// checkEndpoint refuses what would send people, or our secret, in the clear where
// the issuer does not.
func checkEndpoint(issuer, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && strings.HasPrefix(issuer, "http:")) {
		return fmt.Errorf("endpoint %q is not one to use", endpoint)
	}
	return nil
}

func (p *RelyingParty) config(d *discovered, origin string) *oauth2.Config {
	endpoint := d.provider.Endpoint()
	endpoint.AuthStyle = d.style
	return &oauth2.Config{
		ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: endpoint, RedirectURL: origin + callbackPath,
		Scopes: []string{oidc.ScopeOpenID, "email"},
	}
}

// wayOut is the address at the provider that asks people who they are.
func (p *RelyingParty) wayOut(d *discovered, origin string, t trip) string {
	return p.config(d, origin).AuthCodeURL(t.state, oidc.Nonce(t.nonce()), oauth2.S256ChallengeOption(t.verifier()))
}

// A login is who the provider says that somebody is.
type login struct {
	issuer, subject string
	email           string // normal; "" = none that can be used
	verified        bool   // the provider knows that the address is theirs
}

// claims are those of an ID token that go-oidc does not look at, and of the
// userinfo endpoint.
type claims struct {
	Party    string `json:"azp"`
	Email    string `json:"email"`
	Verified truth  `json:"email_verified"`
}

// truth is a boolean, which some providers send as a text.
type truth bool

func (t *truth) UnmarshalJSON(text []byte) error {
	*t = truth(string(text) == "true" || string(text) == `"true"`)
	return nil
}

// arrive checks that an answer comes from the provider, and exchanges its code for
// who the person is (OpenID Connect Core §3.1.3).
func (p *RelyingParty) arrive(ctx context.Context, origin string, t trip, answer url.Values) (login, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return login{}, err
	}
	if iss := answer.Get("iss"); iss != p.Issuer && (iss != "" || d.saysIss) {
		return login{}, fmt.Errorf("%w: one of %q", errAnswer, iss)
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := p.config(d, origin).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(t.verifier()))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response.StatusCode < 500 {
		return login{}, fmt.Errorf("%w: the code was refused: %d %s", errAnswer, refused.Response.StatusCode, refused.ErrorCode)
	} else if err != nil {
		return login{}, fmt.Errorf("%w: token: %w", errAway, err)
	}
	raw, _ := token.Extra("id_token").(string)
	said, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return login{}, fmt.Errorf("%w: ID token: %w", errAnswer, err)
	}
	c, err := p.check(said, t)
	if err == nil && c.Email == "" {
		c, err = d.more(ctx, said.Subject, token, c)
	}
	if err != nil {
		return login{}, err
	}
	l := login{issuer: p.Issuer, subject: said.Subject, verified: bool(c.Verified)}
	if email, err := accounts.NormalizeEmail(c.Email); err == nil {
		l.email = email
	}
	return l, nil
}

// check does what go-oidc leaves to its caller.
func (p *RelyingParty) check(said *oidc.IDToken, t trip) (c claims, err error) {
	if err := said.Claims(&c); err != nil {
		return c, fmt.Errorf("%w: claims: %w", errAnswer, err)
	}
	switch {
	case !same(said.Nonce, t.nonce()):
		err = fmt.Errorf("%w: ID token of another sign-in", errAnswer)
	case c.Party != p.ClientID && (c.Party != "" || len(said.Audience) > 1):
		err = fmt.Errorf("%w: ID token issued to %q", errAnswer, c.Party)
	case said.Subject == "" || len(said.Subject) > 255 || strings.ContainsRune(said.Subject, 0):
		err = fmt.Errorf("%w: ID token without a subject", errAnswer)
	}
	return c, err
}

// more asks for the address where the ID token has none: with a code, providers
// may tell it there only (OpenID Connect Core §5.4).
func (d *discovered) more(ctx context.Context, subject string, token *oauth2.Token, c claims) (claims, error) {
	if d.provider.UserInfoEndpoint() == "" {
		return c, nil
	}
	info, err := d.provider.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return c, fmt.Errorf("%w: userinfo: %w", errAway, err)
	}
	if info.Subject != subject {
		return c, fmt.Errorf("%w: userinfo of somebody else", errAnswer)
	}
	return claims{Email: info.Email, Verified: truth(info.EmailVerified)}, nil
}
