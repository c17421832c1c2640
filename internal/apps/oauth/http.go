package oauth

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the authorization surface and the token endpoint.
type Handler struct {
	Store    *Store
	Accounts *accounts.Store
	Sandbox  *sandbox.Store
	Sessions *accounts.Sessions
	Apps     *apps.Store
	Features *features.Store
	Catalog  *catalog.Source
	FeeRate  func() money.PPM // the service fee now, for the consent page
	Kept     bool             // OpenAI may store requests; the consent screen says so
	// Addresses without a trailing slash. AuthURL is also the issuer.
	AuthURL, BaseURL, DashboardURL string

	counted recentSet // steps of visits that are in the consent counts
}

// Mount adds the routes of contract §4.1, discovery and revocation.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /oauth/authorize", h.Sessions.With(h.showConsent))
	rt.HandlePage("POST /oauth/authorize", h.Sessions.With(h.submitConsent))
	rt.Handle("POST /oauth/token", h.handleToken)
	rt.Handle("POST /oauth/revoke", h.handleRevoke)
	rt.Handle("GET /.well-known/oauth-authorization-server", h.handleDiscovery)
	newDeviceFlow(h).mount(rt)
}

// deviceGrant is the grant type of the device flow (RFC 8628 §3.4).
const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code"

// handleToken is POST /oauth/token.
func (h *Handler) handleToken(w http.ResponseWriter, r *http.Request) error {
	arrived := h.Store.Now()
	app, form, err := h.authenticateClient(w, r, h.Apps.AuthenticateToken)
	if err != nil {
		return err
	}
	req, err := readTokenRequest(app.ClientID, r.Header, form, arrived)
	if err != nil {
		return err
	}
	if app.Suspended {
		return newInvalidGrant(verdict.AppSuspended)
	}
	a, err := h.Store.runGrant(r.Context(), app, req)
	if err != nil {
		return err
	}
	if a.reuseDetected {
		h.Apps.NotifyChange(app.ID)
		web.Log(r.Context(), slog.Bool("family_revoked", true))
	}
	if a.rejected != nil {
		return a.rejected
	}
	if a.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	return web.WriteJSON(w, http.StatusOK, a.tokens)
}

// handleRevoke is POST /oauth/revoke (RFC 7009). It answers 200 for every token, so that it reveals nothing.
func (h *Handler) handleRevoke(w http.ResponseWriter, r *http.Request) error {
	app, form, err := h.authenticateClient(w, r, h.Apps.Authenticate)
	if err != nil {
		return err
	}
	token, err := requireParam(form, "token")
	if err != nil {
		return err
	}
	if err := h.Store.RevokeToken(r.Context(), app.ID, token); err != nil {
		return err
	}
	h.Apps.NotifyChange(app.ID)
	return web.WriteJSON(w, http.StatusOK, struct{}{})
}

// authenticateClient reads the form and authenticates the app, for every endpoint: by authenticate or, for a public
// client, by its client_id. A client that is not accepted learns nothing about its form.
func (h *Handler) authenticateClient(w http.ResponseWriter, r *http.Request,
	authenticate func(context.Context, *http.Request) (apps.App, error)) (app apps.App, form url.Values, err error) {
	w.Header().Set("Cache-Control", "no-store")
	form, formErr := web.ReadForm(r)
	if form.Get("grant_type") == deviceGrant {
		web.UseErrorBody(r.Context(), encodeOAuthError)
	}
	if len(r.Header["Authorization"]) == 0 && form.Get("client_id") != "" && !form.Has("client_secret") {
		app, err = h.Apps.IdentifyPublic(r.Context(), r, form.Get("client_id"))
	} else {
		app, err = authenticate(r.Context(), r)
	}
	if err != nil {
		return apps.App{}, form, err
	}
	return app, form, formErr
}

// readTokenRequest parses the form of a token request by the client clientID. Errors are 400.
func readTokenRequest(clientID string, header http.Header, form url.Values,
	arrived time.Time) (req tokenRequest, err error) {
	req.ArrivedUS = arrived.UnixMicro()
	req.Fingerprint = id.Hash(form.Encode())
	if req.Key, err = readIdempotencyKey(header); err != nil {
		return tokenRequest{}, err
	}
	if err := checkClientParams(clientID, form); err != nil {
		return tokenRequest{}, err
	}
	grantType, err := requireParam(form, "grant_type")
	if err != nil {
		return tokenRequest{}, err
	}
	fields := map[string]*string{}
	switch grantType {
	case "authorization_code":
		fields["code"], fields["redirect_uri"], fields["code_verifier"] = &req.Code, &req.RedirectURI, &req.Verifier
	case "refresh_token":
		fields["refresh_token"] = &req.RefreshToken
	case deviceGrant:
		fields["device_code"] = &req.DeviceCode
	default:
		return tokenRequest{}, apierr.UnsupportedGrantType.Errorf(
			"grant_type: must be authorization_code, refresh_token or %s", deviceGrant)
	}
	for name, dst := range fields {
		if *dst, err = requireParam(form, name); err != nil {
			return tokenRequest{}, err
		}
	}
	return req, nil
}

// checkClientParams checks the parameters about the client, which was authenticated by its
// credentials or its client_id.
func checkClientParams(clientID string, form url.Values) error {
	if named, has := form["client_id"]; has && named[0] != clientID {
		return apierr.InvalidRequest.Errorf("client_id: must be that of the Basic credentials, or absent")
	}
	if form.Has("client_secret") {
		return apierr.InvalidRequest.Errorf("client_secret: belongs into the Basic credentials only")
	}
	return nil
}

func requireParam(form url.Values, name string) (string, error) {
	if v := form.Get(name); v != "" {
		return v, nil
	}
	return "", apierr.InvalidRequest.Errorf("%s: required, in the body", name)
}

// readIdempotencyKey returns the optional key in normalized form.
func readIdempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return "", nil
	}
	key, ok := id.ParseUUID(values[0])
	if len(values) > 1 || !ok {
		return "", apierr.InvalidRequest.Errorf("Idempotency-Key: must be one UUID, or absent")
	}
	return key, nil
}

// handleDiscovery is GET /.well-known/oauth-authorization-server (RFC 8414).
func (h *Handler) handleDiscovery(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=3600")
	methods := []string{"client_secret_basic", "none"} // none: public clients
	return web.WriteJSON(w, http.StatusOK, map[string]any{
		"issuer":                                         h.AuthURL,
		"authorization_endpoint":                         h.AuthURL + "/oauth/authorize",
		"token_endpoint":                                 h.BaseURL + "/oauth/token",
		"token_endpoint_auth_methods_supported":          methods,
		"device_authorization_endpoint":                  h.BaseURL + "/oauth/device_authorization",
		"revocation_endpoint":                            h.BaseURL + "/oauth/revoke",
		"revocation_endpoint_auth_methods_supported":     methods,
		"response_types_supported":                       []string{"code"},
		"response_modes_supported":                       []string{"query"},
		"grant_types_supported":                          []string{"authorization_code", "refresh_token", deviceGrant},
		"code_challenge_methods_supported":               []string{"S256"},
		"authorization_response_iss_parameter_supported": true,
	})
}
