// Package operator performs what operators do: it reviews go-live requests, suspends apps and accounts and lifts
// suspensions, refunds charges, pauses connections, invites users, helps those who lost their second factor and grants
// roles (contract §2, §3). Service
// performs the actions; Handler serves them as the API under /v1/operator/. The operator's pages in
// package operatorpages use the same Service. Every action and its entry in the audit log are one transaction.
package operator

import (
	"context"
	"crypto/subtle"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/operator/.
type Handler struct {
	Service *Service
	Tokens  []string // of the operator, TOKEN or NAME:TOKEN; none = the API is off

	failures *web.Limiter // wrong tokens, by address
}

// Mount adds the routes. Without a token it adds none.
func (h *Handler) Mount(rt *web.Router) {
	if len(h.Tokens) == 0 {
		return
	}
	h.failures = web.NewLimiter(time.Minute/10, 10, h.Service.Now)
	rt.Handle("GET /v1/operator/go-live", h.requireToken(h.requests))
	rt.Handle("POST /v1/operator/go-live/{id}/approve", h.requireToken(h.approve))
	rt.Handle("POST /v1/operator/go-live/{id}/refuse", h.requireToken(h.refuse))
	rt.Handle("GET /v1/operator/suspended-apps", h.requireToken(h.suspended))
	rt.Handle("GET /v1/operator/apps", h.requireToken(h.apps))
	rt.Handle("GET /v1/operator/apps/{id}", h.requireToken(h.app))
	rt.Handle("POST /v1/operator/apps/{id}/suspend", h.requireToken(h.suspend))
	rt.Handle("POST /v1/operator/apps/{id}/lift", h.requireToken(h.lift))
	rt.Handle("GET /v1/operator/charges", h.requireToken(h.charges))
	rt.Handle("GET /v1/operator/ledger/{id}", h.requireToken(h.entry))
	rt.Handle("POST /v1/operator/ledger/{id}/reverse", h.requireToken(h.reverse))
	rt.Handle("GET /v1/operator/connections", h.requireToken(h.connections))
	rt.Handle("POST /v1/operator/connections/{id}/freeze", h.requireToken(h.freeze))
	rt.Handle("POST /v1/operator/connections/{id}/resume", h.requireToken(h.resume))
	rt.Handle("POST /v1/operator/connections/{id}/revoke", h.requireToken(h.revoke))
	rt.Handle("GET /v1/operator/safety-identifiers/{identifier}", h.requireToken(h.identified))
	h.mountAccounts(rt)
	rt.Handle("GET /v1/operator/settings", h.requireToken(h.settings))
	rt.Handle("POST /v1/operator/settings", h.requireToken(h.changeSettings))
	rt.Handle("POST /v1/operator/settings/{id}/withdraw", h.requireToken(h.withdrawSettings))
	rt.Handle("POST /v1/operator/secrets/reseal", h.requireToken(h.reseal))
	rt.Handle("POST /v1/operator/reconciliations", h.requireToken(h.reconcile))
	rt.Handle("GET /v1/operator/reconciliations/{id}", h.requireToken(h.reconciliation))
	rt.Handle("POST /v1/operator/roles", h.requireToken(h.grant))
	rt.Handle("GET /v1/operator/log", h.requireToken(h.log))
}

// mountAccounts adds the routes about accounts.
func (h *Handler) mountAccounts(rt *web.Router) {
	d := h.Service
	rt.Handle("POST /v1/operator/invitations", h.requireToken(h.invite))
	rt.Handle("GET /v1/operator/accounts", h.requireToken(h.accounts))
	rt.Handle("GET /v1/operator/accounts/{id}", h.requireToken(h.account))
	rt.Handle("POST /v1/operator/accounts/{id}/suspend", h.requireToken(h.changeAccount(d.SuspendAccount)))
	rt.Handle("POST /v1/operator/accounts/{id}/lift", h.requireToken(h.liftAccount))
	rt.Handle("POST /v1/operator/accounts/{id}/close", h.requireToken(h.closeAccount))
	rt.Handle("POST /v1/operator/accounts/{id}/settle", h.requireToken(h.settleAccount))
	rt.Handle("GET /v1/operator/mails", h.requireToken(h.mails))
	rt.Handle("POST /v1/operator/mails/{id}/resend", h.requireToken(h.resendMail))
	rt.Handle("POST /v1/operator/accounts/{id}/goodwill", h.requireToken(h.giveGoodwill))
	rt.Handle("POST /v1/operator/accounts/{id}/sign-out", h.requireToken(h.changeAccount(d.SignOut)))
	rt.Handle("POST /v1/operator/accounts/{id}/reset-two-step", h.requireToken(h.changeAccount(d.ResetTwoStep)))
}

// requireToken serves f to requests with the operator's token. Wrong tokens are 401, and 429 beyond ten a minute from
// one address, which keeps the log short. The right token is served all the same: an address may be a proxy's, and a
// token cannot be guessed.
func (h *Handler) requireToken(f web.Handler) web.Handler {
	var wanted [][]byte // hashes have equal lengths, so that the comparison reveals nothing
	names := make([]string, len(h.Tokens))
	for i, text := range h.Tokens {
		name, token := SplitToken(text)
		names[i], wanted = name, append(wanted, []byte(id.Hash(token)))
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Cache-Control", "no-store")
		from := web.ClientNetwork(r)
		token, err := web.Bearer(r)
		right := -1
		for i, want := range wanted {
			if subtle.ConstantTimeCompare([]byte(id.Hash(token)), want) == 1 {
				right = i
			}
		}
		if err != nil || right < 0 {
			if wait, ok := h.failures.Peek(from); !ok {
				e := apierr.RateLimited.Errorf(
					"Too many wrong tokens from this address. Wait as long as the header Retry-After says.")
				e.RetryAfter = wait
				return e
			}
			h.failures.Allow(from)
			e := apierr.Unauthorized.Errorf("Send the operator's token as a bearer token.")
			e.Challenge = `Bearer realm="purser operator"`
			return e
		}
		if names[right] != "" {
			r = r.WithContext(context.WithValue(r.Context(), actorKey{}, names[right]))
		}
		return f(w, r)
	}
}

// SplitToken returns the name and the secret of a token in the settings, NAME:TOKEN or TOKEN.
func SplitToken(text string) (name, secret string) {
	if name, secret, named := strings.Cut(text, ":"); named {
		return name, secret
	}
	return "", text
}

// actorKey is the key of a context value: the name of the token that a request has sent.
type actorKey struct{}

// actorOf returns who acts, for the audit log: the name of the token, or the address of a token without a name.
func actorOf(r *http.Request) string {
	if name, ok := r.Context().Value(actorKey{}).(string); ok {
		return name
	}
	return web.ClientAddress(r)
}

// reasonBody is the body of actions that require a reason.
type reasonBody struct {
	Reason web.Field[string] `json:"reason"`
}

// readReason returns the reason of an action.
func readReason(r *http.Request) (string, error) {
	var b reasonBody
	if err := web.ReadJSON(r, &b); err != nil {
		return "", err
	}
	if !b.Reason.Set || b.Reason.Null {
		return "", apierr.InvalidRequest.Errorf("reason: required")
	}
	return CheckReason(b.Reason.Value)
}

// readOptionalReason returns the reason of an action that needs none; "" = none. The body may be missing, too.
func readOptionalReason(r *http.Request) (string, error) {
	if r.ContentLength == 0 {
		return "", nil
	}
	var b reasonBody
	if err := web.ReadJSON(r, &b); err != nil {
		return "", err
	}
	if b.Reason.Value == "" {
		return "", nil
	}
	return CheckReason(b.Reason.Value)
}
