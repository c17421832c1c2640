package oauth

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/money"
)

// A Request is an authorize request that passed every check (spec §4.1).
type Request struct {
	RedirectURI string
	State       string
	Challenge   string   // base64url(SHA-256(verifier))
	RequestedMC money.MC // pre-fills the spend cap; 0 = not given
	Features    []string // slugs, as asked for
}

// A Refusal is why an authorize request cannot go on. One with a Page is told to
// the person; the others go back to the app as the error of RFC 6749 §4.1.2.1.
type Refusal struct {
	Page               string
	Code, Description  string
	RedirectURI, State string // where to, when there is no Page
}

// Bounds of what an app may send along.
const (
	maxStateBytes = 2048
	maxFeatures   = 20
)

// ClientID returns the client that the request names; false when it names none
// that could exist, or several.
func ClientID(q url.Values) (string, bool) {
	v, ok := once(q, "client_id")
	printable := !strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c > '~' })
	return v, ok && v != "" && len(v) <= 100 && printable
}

// Check judges an authorize request to app. Whatever is wrong with the redirect
// address is told to the person, since nobody else can be trusted with it; the
// address must equal a registered one byte by byte.
func Check(app apps.App, q url.Values) (Request, *Refusal) {
	redirectURI, ok := once(q, "redirect_uri")
	switch {
	case !ok || redirectURI == "":
		return Request{}, &Refusal{Page: "The app did not say where to return to: it sent no redirect_uri, or several."}
	case !slices.Contains(app.RedirectURIs, redirectURI):
		return Request{}, &Refusal{Page: "The app asked to return to an address that it has not registered."}
	}
	if app.Suspension != nil { // the service does not send people to an app that it suspended
		return Request{}, &Refusal{Page: app.Name + " is suspended and can’t accept new connections."}
	}
	req := Request{RedirectURI: redirectURI}
	refuse := func(code, description string) (Request, *Refusal) {
		return Request{}, &Refusal{Code: code, Description: description, RedirectURI: redirectURI, State: req.State}
	}
	if req.State, ok = once(q, "state"); !ok || req.State == "" {
		req.State = ""
		return refuse("invalid_request", "state: required, once")
	}
	for name, values := range q {
		if len(values) > 1 && known[name] {
			return refuse("invalid_request", name+": must come once")
		}
	}
	if code, description := req.read(q); code != "" {
		return refuse(code, description)
	}
	if app.Suspended {
		return refuse("unauthorized_client", "the app is disabled by its developer and takes no new connections")
	}
	return req, nil
}

// known are the parameters that may come once only. Others are ignored, as RFC
// 6749 §3.1 asks.
var known = map[string]bool{
	"response_type": true, "response_mode": true, "client_id": true, "redirect_uri": true, "code_challenge": true,
	"code_challenge_method": true, "state": true, "requested_allocation_mc": true, "features": true,
}

// read fills in the parameters that need no app to judge, or says what is wrong.
func (req *Request) read(q url.Values) (code, description string) {
	switch responseType := q.Get("response_type"); {
	case responseType == "":
		return "invalid_request", "response_type: required"
	case responseType != "code":
		return "unsupported_response_type", "response_type: must be code"
	}
	if mode := q.Get("response_mode"); mode != "" && mode != "query" {
		return "invalid_request", "response_mode: must be query"
	}
	if len(req.State) > maxStateBytes || !utf8.ValidString(req.State) {
		return "invalid_request", "state: must be UTF-8 text of at most " + strconv.Itoa(maxStateBytes) + " bytes"
	}
	if q.Get("code_challenge_method") != "S256" {
		return "invalid_request", "code_challenge_method: required, must be S256"
	}
	req.Challenge = q.Get("code_challenge")
	if !base64url43(req.Challenge) {
		return "invalid_request", "code_challenge: required, must be base64url(SHA-256(verifier)), 43 characters"
	}
	if q.Has("requested_allocation_mc") {
		amount, ok := parseAmount(q.Get("requested_allocation_mc"))
		if !ok {
			return "invalid_request", "requested_allocation_mc: must be a positive integer, in micro-cents"
		}
		req.RequestedMC = amount
	}
	req.Features = slugs(q.Get("features"))
	return "", ""
}

// once returns the value of a parameter that came exactly once.
func once(q url.Values, name string) (string, bool) {
	if len(q[name]) != 1 {
		return "", false
	}
	return q[name][0], true
}

// parseAmount reads a positive number of micro-cents; one that is larger than any
// amount may be stands for the largest.
func parseAmount(s string) (money.MC, bool) {
	if s == "" || len(s) > 100 || strings.Trim(s, "0123456789") != "" || strings.Trim(s, "0") == "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil { // digits only, so it is out of range
		return money.Max, true
	}
	return min(money.MC(n), money.Max), true
}

// slugs splits a list of feature slugs; what is no slug is dropped.
func slugs(list string) []string {
	var found []string
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		ok := s != "" && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
		if ok && len(found) < maxFeatures && !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found
}

// Location is the address that the browser is sent back to: the redirect address
// untouched, with the answer's parameters behind it (RFC 6749 §4.1.2, RFC 9207).
// Parameters without a value are left out.
func Location(redirectURI string, params map[string]string) string {
	q := url.Values{}
	for name, v := range params {
		if v != "" {
			q.Set(name, v)
		}
	}
	separator := "?"
	if before, query, has := strings.Cut(redirectURI, "?"); has && before != "" {
		separator = "&"
		if query == "" || strings.HasSuffix(query, "&") {
			separator = ""
		}
	}
	return redirectURI + separator + q.Encode()
}
