package stripe

import (
	"cmp"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
)

// This file emulates Connect: the accounts of people who are paid, their onboarding page, and transfers to them.

// A connectedAccount is an account with the link of its onboarding.
type connectedAccount struct {
	account            object
	returnURL, refresh string
}

// createAccount serves POST /v1/accounts, of express accounts that ask for transfers.
func (s *Server) createAccount(r *http.Request) (object, *apiError) {
	f := r.PostForm
	if f.Get("type") != "express" || f.Get("capabilities[transfers][requested]") != "true" {
		return nil, badRequest("Only express accounts that ask for transfers are emulated.")
	}
	id := newID("acct_")
	s.connected[id] = &connectedAccount{account: object{
		"id":                id,
		"object":            "account",
		"type":              "express",
		"email":             f.Get("email"),
		"metadata":          readMetadata(f),
		"details_submitted": false,
		"payouts_enabled":   false,
		"charges_enabled":   false,
		"capabilities":      object{"transfers": "inactive"},
	}}
	return s.connected[id].account, nil
}

// retrieveOwnAccount serves GET /v1/account.
func (s *Server) retrieveOwnAccount(*http.Request) (object, *apiError) {
	return object{"id": cmp.Or(s.o.Account, "acct_emulated"), "object": "account", "type": "standard"}, nil
}

// retrieveAccount serves GET /v1/accounts/{id}.
func (s *Server) retrieveAccount(r *http.Request) (object, *apiError) {
	a := s.connected[r.PathValue("id")]
	if a == nil {
		return nil, noAccess(r.PathValue("id"))
	}
	return a.account, nil
}

// noAccess is the 403 for a connected account that does not exist, or is not ours.
func noAccess(id string) *apiError {
	return &apiError{
		status: http.StatusForbidden,
		kind:   "invalid_request_error",
		code:   "account_invalid",
		message: "The provided key does not have access to account '" + id + "' (or that account does not exist). " +
			"Application access may have been revoked.",
	}
}

// createAccountLink serves POST /v1/account_links.
func (s *Server) createAccountLink(r *http.Request) (object, *apiError) {
	f := r.PostForm
	a := s.connected[f.Get("account")]
	switch {
	case a == nil:
		return nil, noAccess(f.Get("account"))
	case f.Get("type") != "account_onboarding" || f.Get("return_url") == "" || f.Get("refresh_url") == "":
		return nil, badRequest("Missing required param.")
	}
	a.returnURL, a.refresh = f.Get("return_url"), f.Get("refresh_url")
	return object{
		"object":     "account_link",
		"created":    s.o.Now().Unix(),
		"expires_at": s.o.Now().Unix() + 300,
		"url":        fmt.Sprintf("http://%s/connect/%s", r.Host, f.Get("account")),
	}, nil
}

// createTransfer serves POST /v1/transfers. As Stripe does, it refuses an account that cannot be paid.
func (s *Server) createTransfer(r *http.Request) (object, *apiError) {
	f := r.PostForm
	cents, err := strconv.ParseInt(f.Get("amount"), 10, 64)
	a := s.connected[f.Get("destination")]
	switch {
	case a == nil:
		return nil, missingParam("destination", f.Get("destination"))
	case err != nil || cents <= 0 || f.Get("currency") != "usd":
		return nil, badRequest("Invalid positive integer")
	case s.transfersFail == "balance":
		return nil, &apiError{
			status:   http.StatusBadRequest,
			kind:     "invalid_request_error",
			code:     "balance_insufficient",
			isStored: true,
			message:  "You have insufficient available funds in your Stripe account.",
		}
	case a.account["payouts_enabled"] != true || s.transfersFail == "refuse":
		failed := badRequest("Your destination account needs to have at least one of the following capabilities " +
			"enabled: transfers")
		failed.code, failed.isStored = "insufficient_capabilities_for_transfer", true
		return nil, failed
	}
	t := object{
		"id":              newID("tr_"),
		"object":          "transfer",
		"amount":          cents,
		"amount_reversed": int64(0),
		"reversed":        false,
		"currency":        "usd",
		"destination":     f.Get("destination"),
		"transfer_group":  f.Get("transfer_group"),
		"metadata":        readMetadata(f),
		"livemode":        false,
		"created":         s.o.Now().Unix(),
	}
	s.transfers = append(s.transfers, t)
	return t, nil
}

// Transfers returns what was paid to connected accounts, oldest first, as Stripe shows it.
func (s *Server) Transfers() (list [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.transfers {
		list = append(list, encodeJSON(t))
	}
	return list
}

// steerTransfers lets transfers fail, or returns those that there are.
func (s *Server) steerTransfers(w steering) error {
	switch do := w.with.Get("status"); do {
	case "balance", "refuse", "":
		s.transfersFail = do
	case "reversed":
		for _, t := range s.transfers {
			if id := w.with.Get("id"); id != "" && id != t["id"] {
				continue
			}
			t["reversed"], t["amount_reversed"] = true, t["amount"]
		}
	default:
		return fmt.Errorf("cannot let transfers be %q", do)
	}
	return nil
}

// onboardingPage stands in for Stripe's onboarding.
var onboardingPage = template.Must(template.New("connect").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><title>Emulated onboarding</title>
<style>
body{font:16px/1.5 sans-serif;max-width:26rem;margin:3rem auto;padding:0 1rem}
button{font:inherit;display:block;width:100%;padding:.7rem;margin:.6rem 0;border-radius:.5rem;border:1px solid #888}
button{cursor:pointer}
button.pay{background:#1a5cff;color:#fff;border-color:#1a5cff}small{opacity:.75}
</style></head>
<body><h1>Emulated onboarding</h1><p>This page stands in for Stripe’s. It asks for no name, bank account or proof.</p>
<form method="post">
<button class="pay" name="do" value="enable">Answer everything</button>
<button name="do" value="submit">Answer, but Stripe still has to check it</button>
<button name="do" value="leave">Go back without an answer</button></form>
<p><small>{{.}}</small></p></body></html>
`))

// showOnboarding serves GET /connect/{id}.
func (s *Server) showOnboarding(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	a := s.connected[r.PathValue("id")]
	s.mu.Unlock()
	if a == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = onboardingPage.Execute(w, r.PathValue("id")) // the client may have disconnected
}

// clickOnboarding serves POST /connect/{id}: a click on a button of the page.
func (s *Server) clickOnboarding(w http.ResponseWriter, r *http.Request) {
	id, do := r.PathValue("id"), r.FormValue("do")
	s.mu.Lock()
	a := s.connected[id]
	s.mu.Unlock()
	if a == nil {
		http.NotFound(w, r)
		return
	}
	if do != "leave" {
		if err := s.Steer(id, do, url.Values{}); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	http.Redirect(w, r, a.returnURL, http.StatusSeeOther)
}

// onboard changes what Stripe knows of a connected account.
func (s *Server) onboard(id, do string) error {
	a := s.connected[id]
	if a == nil {
		return fmt.Errorf("no account %q", id)
	}
	switch do {
	case "enable":
		a.account["details_submitted"], a.account["payouts_enabled"] = true, true
		a.account["capabilities"] = object{"transfers": "active"}
	case "submit":
		a.account["details_submitted"] = true
	case "restrict":
		a.account["payouts_enabled"] = false
		a.account["capabilities"] = object{"transfers": "inactive"}
	case "restrict-payouts":
		a.account["payouts_enabled"] = false
	case "restrict-transfers":
		a.account["capabilities"] = object{"transfers": "inactive"}
	default:
		return fmt.Errorf("cannot %q", do)
	}
	return nil
}
