// Package operator performs what operators do: it reviews go-live requests, suspends apps and lifts
// suspensions, refunds charges, pauses connections and grants roles (contract §2, §3). Service
// performs the actions; Handler serves them as the API under /v1/operator/. The operator's pages in
// package operatorpages use the same Service. Every action and its entry in the audit log are one transaction.
package operator

import (
	"crypto/subtle"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// A Handler serves /v1/operator/.
type Handler struct {
	Service *Service
	Token   string // of the operator; "" = there is no such API

	failures *web.Limiter // wrong tokens, by address
}

// Mount adds the routes. Without a token there are none: each is a 404 like any
// address that does not exist.
func (h *Handler) Mount(rt *web.Router) {
	if h.Token == "" {
		return
	}
	h.failures = web.NewLimiter(time.Minute/10, 10, h.Service.Now)
	rt.Handle("GET /v1/operator/go-live", h.only(h.requests))
	rt.Handle("POST /v1/operator/go-live/{id}/approve", h.only(h.approve))
	rt.Handle("POST /v1/operator/go-live/{id}/refuse", h.only(h.refuse))
	rt.Handle("GET /v1/operator/suspended-apps", h.only(h.suspended))
	rt.Handle("GET /v1/operator/apps/{id}", h.only(h.app))
	rt.Handle("POST /v1/operator/apps/{id}/suspend", h.only(h.suspend))
	rt.Handle("POST /v1/operator/apps/{id}/lift", h.only(h.lift))
	rt.Handle("POST /v1/operator/ledger/{id}/reverse", h.only(h.reverse))
	rt.Handle("POST /v1/operator/connections/{id}/freeze", h.only(h.freeze))
	rt.Handle("POST /v1/operator/connections/{id}/resume", h.only(h.resume))
	rt.Handle("POST /v1/operator/roles", h.only(h.grant))
	rt.Handle("GET /v1/operator/log", h.only(h.log))
}

// only lets the operator through. Ten wrong tokens a minute from one address are
// answered 401, more are 429, so that nobody guesses.
func (h *Handler) only(f web.Handler) web.Handler {
	want := []byte(id.Hash(h.Token)) // of one length, so that the comparison tells nothing
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Cache-Control", "no-store")
		from := web.ClientAddress(r)
		if wait, ok := h.failures.Peek(from); !ok {
			e := apierr.RateLimited.Errorf(
				"Too many wrong tokens from this address. Wait as long as the header Retry-After says.")
			e.RetryAfter = wait
			return e
		}
		token, err := web.Bearer(r)
		if err != nil || subtle.ConstantTimeCompare([]byte(id.Hash(token)), want) != 1 {
			h.failures.Allow(from)
			e := apierr.Unauthorized.Errorf("Send the operator's token as a bearer token.")
			e.Challenge = `Bearer realm="purser operator"`
			return e
		}
		return f(w, r)
	}
}

// reasonBody is the body of actions that somebody must be able to understand later.
type reasonBody struct {
	Reason web.Field[string] `json:"reason"`
}

// readReason returns the reason of an action, which people will read.
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
