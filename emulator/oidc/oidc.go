// Package oidc emulates an OpenID Connect provider: discovery, keys, a page on which a person is chosen, codes with
// PKCE, and userinfo. It makes the checks of a real provider, and can be set to answer wrongly. It keeps everything in
// memory.
package oidc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The client that the provider knows.
const (
	ClientID     = "purser-at-home"
	ClientSecret = "a secret of the client + more/" // holds what must be encoded in Basic
)

// Options say how a provider works.
type Options struct {
	Issuer    string           // how it is reached, without a slash at the end
	People    []Person         // who can sign in; none = anybody, by any address
	Redirects []string         // redirect URIs of the client
	Now       func() time.Time // nil = time.Now
}

// A Person can sign in at the provider.
type Person struct {
	Subject, Email string
	Verified       bool
}

// A Provider answers as an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	mux    *http.ServeMux
	issuer string
	key    *ecdsa.PrivateKey
	now    func() time.Time

	mu     sync.Mutex
	wrong  Wrong
	people []Person
	backTo []string
	grants map[string]grant  // by code
	access map[string]Person // by access token
	known  map[string]known  // by the cookie of a browser
	asked  int               // for discovery
}

// Wrong lists faults of the provider.
type Wrong struct {
	Down    bool                 // answers 503 to everything
	Claims  func(map[string]any) // changes those of ID tokens
	Header  map[string]string    // in place of that of ID tokens
	Unkeyed bool                 // signs with a key that it does not publish
	Iss     string               // the issuer that it names when it redirects back
	Thin    bool                 // the ID token has no address: only userinfo tells it
	Info    func(map[string]any) // changes what userinfo says
	Expired bool                 // the client's secret has expired
	InForm  bool                 // takes the client's secret in the form only
	Issuer  string               // of the discovery document
}

// A grant is the sign-in that a code was issued for.
type grant struct {
	person                     Person
	asked                      time.Time // when the person gave their credentials
	redirect, challenge, nonce string
	until                      time.Time
}

// known is the session of a browser at the provider: whoever has it chooses the same person by a click, without
// credentials, unless the client asks for them (OpenID Connect Core §3.1.2.1).
type known struct {
	subject string
	asked   time.Time
}

const sessionCookie = "emulated-provider"

// New returns a provider.
func New(o Options) (*Provider, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("oidc: %w", err)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	p := &Provider{
		mux:    http.NewServeMux(),
		issuer: o.Issuer,
		key:    key,
		now:    o.Now,
		people: o.People,
		backTo: o.Redirects,
		grants: map[string]grant{},
		access: map[string]Person{},
		known:  map[string]known{},
	}
	p.mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	p.mux.HandleFunc("GET /keys", p.serveKeys)
	p.mux.HandleFunc("GET /authorize", p.ask)
	p.mux.HandleFunc("POST /authorize", p.authorize)
	p.mux.HandleFunc("POST /token", p.token)
	p.mux.HandleFunc("GET /userinfo", p.userinfo)
	return p, nil
}

// ServeHTTP answers one request.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.state().Down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	p.mux.ServeHTTP(w, r)
}

// AllowRedirect registers a redirect URI of the client.
func (p *Provider) AllowRedirect(redirectURI string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backTo = append(p.backTo, redirectURI)
}

// Misbehave sets the provider's faults from now on. The zero Wrong removes them.
func (p *Provider) Misbehave(w Wrong) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = w
}

// Asked returns the number of requests for discovery.
func (p *Provider) Asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

func (p *Provider) state() Wrong {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrong
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	p.asked++
	p.mu.Unlock()
	methods, issuer := []string{"client_secret_basic", "client_secret_post"}, p.issuer
	if p.state().InForm {
		methods = methods[1:]
	}
	if other := p.state().Issuer; other != "" {
		issuer = other
	}
	writeAnswer(w, http.StatusOK, map[string]any{
		"issuer":                                         issuer,
		"authorization_endpoint":                         p.issuer + "/authorize",
		"token_endpoint":                                 p.issuer + "/token",
		"jwks_uri":                                       p.issuer + "/keys",
		"userinfo_endpoint":                              p.issuer + "/userinfo",
		"id_token_signing_alg_values_supported":          []string{"none", "HS256", "ES256"},
		"response_types_supported":                       []string{"code"},
		"subject_types_supported":                        []string{"public"},
		"token_endpoint_auth_methods_supported":          methods,
		"authorization_response_iss_parameter_supported": true,
	})
}

func writeAnswer(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	point, err := p.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeAnswer(w, http.StatusOK,
		map[string]any{"keys": []any{map[string]string{
			"kty": "EC",
			"crv": "P-256",
			"alg": "ES256",
			"use": "sig",
			"kid": "1",
			"x":   encode(point[1:33]),
			"y":   encode(point[33:]),
		}}})
}

var page = template.Must(template.New(
	"").Parse(`<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Who are you?</title>
<link rel="icon" href="data:,"></head><body><main><h1>Who are you?</h1><form method="post">
{{range .}}<p><button name="sub" value="{{.Subject}}">{{.Email}}</button></p>
{{else}}<p><label>Email <input name="email" type="email" required autofocus></label> <button>Sign in</button></p>{{end}}
<p><button name="sub" value="" formnovalidate>Nobody</button></p></form></main></body></html>`))

// checkRequest checks an authorization request before anything is shown.
func (p *Provider) checkRequest(w http.ResponseWriter, q url.Values) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	scopes := strings.Fields(q.Get("scope"))
	if q.Get("client_id") == ClientID && slices.Contains(p.backTo, q.Get("redirect_uri")) &&
		q.Get("response_type") == "code" && slices.Contains(scopes, "openid") && slices.Contains(scopes, "email") &&
		q.Get("code_challenge_method") == "S256" && len(q.Get("code_challenge")) == 43 && q.Get("state") != "" &&
		q.Get("nonce") != "" {
		return true
	}
	http.Error(w, "not a request that I know", http.StatusBadRequest)
	return false
}

func (p *Provider) ask(w http.ResponseWriter, r *http.Request) {
	if !p.checkRequest(w, r.URL.Query()) {
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, p.people)
}

func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if !p.checkRequest(w, q) {
		return
	}
	back := url.Values{"state": {q.Get("state")}, "iss": {p.issuer}}
	if other := p.state().Iss; other != "" {
		back.Set("iss", other)
	}
	person, ok := p.choose(r)
	if !ok {
		back.Set("error", "access_denied")
		back.Set("error_description", "<b>Call 555-0100 at once</b>")
	} else {
		code := rand.Text()
		back.Set("code", code)
		asked := p.askCredentials(w, r, person)
		p.mu.Lock()
		p.grants[code] = grant{person, asked, q.Get("redirect_uri"), q.Get("code_challenge"), q.Get("nonce"),
			p.now().Add(time.Minute)}
		p.mu.Unlock()
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// askCredentials returns when the person has last given credentials in the browser of r: now, unless the browser has a
// session of that person which is young enough for the client.
func (p *Provider) askCredentials(w http.ResponseWriter, r *http.Request, person Person) time.Time {
	q, now := r.URL.Query(), p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, err := r.Cookie(sessionCookie); err == nil && q.Get("prompt") != "login" {
		k, ok := p.known[c.Value]
		age, limited := strconv.Atoi(q.Get("max_age"))
		if ok && k.subject == person.Subject &&
			(limited != nil || now.Sub(k.asked) < time.Duration(age)*time.Second) {
			return k.asked
		}
	}
	value := rand.Text()
	p.known[value] = known{person.Subject, now}
	http.SetCookie(w, &http.Cookie{Name: sessionCookie, Value: value, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteLaxMode})
	return now
}

// choose returns the person of the form; false = nobody.
func (p *Provider) choose(r *http.Request) (Person, bool) {
	email, pressed := r.PostFormValue("email"), r.PostForm.Has("sub")
	if len(p.people) == 0 && !pressed && strings.Contains(email, "@") {
		subject := sha256.Sum256([]byte(email))
		return Person{Subject: hex.EncodeToString(subject[:8]), Email: email, Verified: true}, true
	}
	i := slices.IndexFunc(p.people, func(one Person) bool { return one.Subject == r.PostFormValue("sub") })
	if i < 0 {
		return Person{}, false
	}
	return p.people[i], true
}

// client reports whether a request of the token endpoint is of our client.
func (p *Provider) client(r *http.Request) bool {
	if p.state().Expired {
		return false
	}
	if p.state().InForm {
		return r.PostFormValue("client_id") == ClientID && r.PostFormValue("client_secret") == ClientSecret
	}
	user, secret, _ := r.BasicAuth()
	user, _ = url.QueryUnescape(user)
	secret, _ = url.QueryUnescape(secret)
	return user == ClientID && secret == ClientSecret
}

func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	if !p.client(r) {
		writeAnswer(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	code := r.PostFormValue("code")
	p.mu.Lock()
	g, ok := p.grants[code]
	delete(p.grants, code)
	p.mu.Unlock()
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || r.PostFormValue("grant_type") != "authorization_code" || r.PostFormValue("redirect_uri") != g.redirect ||
		encode(challenge[:]) != g.challenge || p.now().After(g.until) {
		writeAnswer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	access := rand.Text()
	p.mu.Lock()
	p.access[access] = g.person
	p.mu.Unlock()
	claims := map[string]any{
		"iss":       p.issuer,
		"aud":       ClientID,
		"sub":       g.person.Subject,
		"iat":       p.now().Unix(),
		"exp":       p.now().Add(5 * time.Minute).Unix(),
		"auth_time": g.asked.Unix(),
		"nonce":     g.nonce,
	}
	wrong := p.state()
	if !wrong.Thin {
		maps.Copy(claims, about(g.person))
	}
	if wrong.Claims != nil {
		wrong.Claims(claims)
	}
	writeAnswer(w, http.StatusOK, map[string]any{
		"access_token": access,
		"token_type":   "Bearer",
		"expires_in":   300,
		"id_token":     p.signToken(claims, wrong),
	})
}

func about(one Person) map[string]any {
	return map[string]any{"sub": one.Subject, "email": one.Email, "email_verified": one.Verified}
}

func (p *Provider) userinfo(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	one, ok := p.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	p.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	said := about(one)
	if f := p.state().Info; f != nil {
		f(said)
	}
	writeAnswer(w, http.StatusOK, said)
}

// signToken makes a token (RFC 7515). With alg none it has no signature, with HS256 one by
// the public key.
func (p *Provider) signToken(claims map[string]any, wrong Wrong) string {
	header := map[string]string{"alg": "ES256", "typ": "JWT", "kid": "1"}
	if wrong.Header != nil {
		header = wrong.Header
	}
	text := encode(marshal(header)) + "." + encode(marshal(claims))
	key := p.key
	if wrong.Unkeyed {
		key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	sum := sha256.Sum256([]byte(text))
	if header["alg"] == "none" {
		return text + "."
	}
	r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature[:])
}

func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
