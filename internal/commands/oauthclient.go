package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/retry"
)

// parseServer returns the address of a service without a trailing slash. Tokens go there, so that
// http is for this machine only.
func parseServer(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be an address such as https://purser.example.com")
	}
	ip, err := netip.ParseAddr(u.Hostname())
	local := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	if u.Scheme != "https" && !(u.Scheme == "http" && local) {
		return "", errors.New("must begin with https://, or with http:// on this machine")
	}
	return strings.TrimRight(address, "/"), nil
}

// A service is the metadata of an authorization server (RFC 8414), as far as a login needs it.
type service struct {
	Issuer             string `json:"issuer"`
	TokenEndpoint      string `json:"token_endpoint"`
	DeviceEndpoint     string `json:"device_authorization_endpoint"`
	RevocationEndpoint string `json:"revocation_endpoint"`
}

// deviceCodes is the answer to a device (RFC 8628 §3.2).
type deviceCodes struct {
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`
	VerificationURI         string `json:"verification_uri"`
	VerificationURIComplete string `json:"verification_uri_complete"`
	ExpiresIn               int64  `json:"expires_in"` // seconds
	Interval                int64  `json:"interval"`   // seconds; 0 = 5
}

func (d deviceCodes) interval() time.Duration {
	return time.Duration(cmp.Or(d.Interval, 5)) * time.Second
}

// tokens is an answer of the token endpoint.
type tokens struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	ConnectionID string `json:"connection_id"`
	ExpiresIn    int64  `json:"expires_in"` // seconds
	expiresAt    time.Time
}

// An oauthRefusal is an error answer, in the envelope or in the form of RFC 6749.
type oauthRefusal struct {
	status                int
	code, message, reason string
}

func (r oauthRefusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("answered %d; is this the address of a Purser service?", r.status)
	}
	return r.code + ": " + r.message
}

// isTemporary reports whether the same request may succeed later.
func (r oauthRefusal) isTemporary() bool {
	return r.status >= 500 || r.status == http.StatusTooManyRequests
}

// maxOAuthBytes bounds an answer.
const maxOAuthBytes = 1 << 20

// oauthClient is a public client of a service.
type oauthClient struct{ http http.Client }

func newOAuthClient() *oauthClient {
	return &oauthClient{http.Client{
		Timeout: 15 * time.Second,
		// A redirect must not get the tokens.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// send sends a request and decodes the answer into dst. An answer other than 200 is an oauthRefusal.
func (o *oauthClient) send(r *http.Request, dst any) error {
	resp, err := o.http.Do(r)
	if err != nil {
		if _, ok := errors.AsType[net.Error](err); ok { // the text has method and URL
			return fmt.Errorf("can’t reach the service: %w", err)
		}
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOAuthBytes))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("can’t reach the service: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return parseRefusal(resp.StatusCode, body)
	}
	if err := json.Unmarshal(body, dst); err != nil {
		return fmt.Errorf("%s: the answer is not JSON: %w", r.URL.Redacted(), err)
	}
	return nil
}

// parseRefusal reads an error answer.
func parseRefusal(status int, body []byte) oauthRefusal {
	r := oauthRefusal{status: status}
	var plain struct {
		Error       string
		Description string `json:"error_description"`
		Details     struct{ Reason string }
	}
	var envelope struct {
		Error struct {
			Code, Message string
			Details       struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &plain) == nil {
		r.code, r.message, r.reason = plain.Error, plain.Description, plain.Details.Reason
	} else if json.Unmarshal(body, &envelope) == nil {
		r.code, r.message, r.reason = envelope.Error.Code, envelope.Error.Message, envelope.Error.Details.Reason
	}
	return r
}

// post sends a form to an endpoint. key is an Idempotency-Key; "" = none.
func (o *oauthClient) post(ctx context.Context, endpoint, key string, form url.Values, dst any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return o.send(r, dst)
}

// readMetadata reads the metadata of a service. Its caller checks it.
func (o *oauthClient) readMetadata(ctx context.Context, server string) (s service, err error) {
	address := server + "/.well-known/oauth-authorization-server"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return service{}, err
	}
	return s, o.send(r, &s)
}

// discover reads the metadata of a service and checks that it is what the user named (RFC 8414 §3.3).
func (o *oauthClient) discover(ctx context.Context, server string) (service, error) {
	s, err := o.readMetadata(ctx, server)
	if err != nil {
		return service{}, err
	}
	if s.Issuer != server {
		return service{}, exitError{fmt.Errorf("--server: the service calls itself %q; use that address", s.Issuer),
			exitUsage}
	}
	for _, endpoint := range []string{s.TokenEndpoint, s.DeviceEndpoint, s.RevocationEndpoint} {
		if _, err := parseServer(endpoint); err != nil {
			return service{}, fmt.Errorf("the service names the endpoint %q, which %w", endpoint, err)
		}
	}
	return s, nil
}

// startDevice asks for the codes of a device.
func (o *oauthClient) startDevice(ctx context.Context, s service, clientID string) (d deviceCodes, err error) {
	if err := o.post(ctx, s.DeviceEndpoint, "", url.Values{"client_id": {clientID}}, &d); err != nil {
		if refusal, ok := errors.AsType[oauthRefusal](err); ok && refusal.code == "invalid_client" {
			err = fmt.Errorf("--client: %s is no public client of this service", clientID)
		}
		return d, err
	}
	for _, text := range []string{d.UserCode, d.VerificationURI, d.VerificationURIComplete} {
		if text == "" || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return d, errors.New("the service sent a code that can’t be shown")
		}
	}
	return d, nil
}

// pollDevice asks for the tokens of a device once.
func (o *oauthClient) pollDevice(ctx context.Context, s service, clientID, deviceCode, key string) (tokens, error) {
	return o.exchange(ctx, s.TokenEndpoint, key, url.Values{
		"grant_type":  {"urn:ietf:params:oauth:grant-type:device_code"},
		"device_code": {deviceCode},
		"client_id":   {clientID},
	})
}

// exchange sends one request for tokens.
func (o *oauthClient) exchange(ctx context.Context, endpoint, key string, form url.Values) (t tokens, err error) {
	asked := time.Now()
	if err := o.post(ctx, endpoint, key, form, &t); err != nil {
		return tokens{}, err
	}
	if t.AccessToken == "" || t.RefreshToken == "" {
		return tokens{}, errors.New("the service sent no tokens")
	}
	t.expiresAt = asked.Add(time.Duration(t.ExpiresIn) * time.Second)
	return t, nil
}

// maxRefreshTries is how often a refresh whose answer did not come is sent.
const maxRefreshTries = 3

// refresh exchanges the refresh token of a login with its RefreshKey.
func (o *oauthClient) refresh(ctx context.Context, l login) (tokens, error) {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {l.RefreshToken}, "client_id": {l.ClientID}}
	tries := 0
	t, err := retry.Do(ctx, retry.Backoff{First: 200 * time.Millisecond, Max: 2 * time.Second},
		func(ctx context.Context) (tokens, error) {
			tries++
			return o.exchange(ctx, l.TokenEndpoint, l.RefreshKey, form)
		},
		func(err error) bool {
			refusal, refused := errors.AsType[oauthRefusal](err)
			return tries < maxRefreshTries && (!refused || refusal.isTemporary())
		})
	if refusal, ok := errors.AsType[oauthRefusal](err); ok && refusal.code == "invalid_grant" {
		return tokens{}, describeEndedLogin(refusal)
	}
	return t, err
}

// describeEndedLogin says why a login no longer works, and what to do.
func describeEndedLogin(r oauthRefusal) error {
	switch r.reason {
	case "app_suspended":
		return errors.New("the app is suspended; your login works again when the suspension is lifted")
	case "connection_revoked":
		return errors.New("the connection was revoked; run purser login to connect again")
	case "expired":
		return errors.New("the login has expired; run purser login")
	}
	return errors.New("the login has ended; run purser login")
}

// revoke ends all tokens of a login.
func (o *oauthClient) revoke(ctx context.Context, l login) error {
	form := url.Values{"token": {l.RefreshToken}, "client_id": {l.ClientID}}
	var done struct{}
	return o.post(ctx, l.RevocationEndpoint, "", form, &done)
}
