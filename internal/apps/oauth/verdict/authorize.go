package verdict

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/money"
)

// A Request is a valid authorization request (contract §4.1).
type Request struct {
	RedirectURI string
	State       string
	Challenge   string   // base64url(SHA-256(verifier))
	RequestedMC money.MC // pre-fills the spend cap; 0 = not given
	Features    []string // slugs, as requested
}

// A Rejection is the error of an authorization request. One with a Page is shown to the user; the
// others are returned to the app as the error of RFC 6749 §4.1.2.1.
type Rejection struct {
	Page               string
	Code, Description  string
	RedirectURI, State string // where to redirect, without a Page
}

// An App is what the checks need to know of an app.
type App struct {
	Name               string
	RedirectURIs       []string
	Public             bool // a public client: the port of its loopback redirect URIs is ignored
	Suspended          bool // by its developer or by the service
	SuspendedByService bool
}

// Bounds of an authorization request.
const (
	maxStateBytes = 2048
	maxFeatures   = 20
)

// ReadClientID returns the client_id of a request; false when it is missing, repeated or malformed.
func ReadClientID(q url.Values) (string, bool) {
	v := getSingle(q, "client_id")
	printable := !strings.ContainsFunc(v, func(c rune) bool { return c <= ' ' || c > '~' })
	return v, v != "" && len(v) <= 100 && printable
}

// CheckRequest validates an authorization request to app. Errors of the redirect URI are shown to the
// user, because the URI cannot be trusted; it must equal a registered one byte by byte, except for the port of a
// public client's loopback address.
func CheckRequest(app App, q url.Values) (Request, *Rejection) {
	redirectURI := getSingle(q, "redirect_uri")
	switch {
	case redirectURI == "":
		return Request{},
			&Rejection{Page: "The app did not say where to return to: it sent no redirect_uri, or several."}
	case !app.allowsRedirect(redirectURI):
		return Request{}, &Rejection{Page: "The app asked to return to an address that it has not registered."}
	}
	if app.SuspendedByService { // do not send users to an app that the service suspended
		return Request{}, &Rejection{Page: app.Name + " is suspended and can’t accept new connections."}
	}
	req := Request{RedirectURI: redirectURI}
	reject := func(code, description string) (Request, *Rejection) {
		return Request{}, &Rejection{
			Code:        code,
			Description: description,
			RedirectURI: redirectURI,
			State:       req.State,
		}
	}
	if req.State = getSingle(q, "state"); req.State == "" {
		return reject("invalid_request", "state: required, once")
	}
	for name, values := range q {
		if len(values) > 1 && singleParams[name] {
			return reject("invalid_request", name+": must come once")
		}
	}
	if code, description := req.readParams(q); code != "" {
		return reject(code, description)
	}
	if app.Suspended {
		return reject("unauthorized_client", "the app is disabled by its developer and takes no new connections")
	}
	return req, nil
}

// allowsRedirect reports whether a redirect URI is registered.
func (a App) allowsRedirect(uri string) bool {
	if slices.Contains(a.RedirectURIs, uri) {
		return true
	}
	address, rest, ok := splitLoopback(uri)
	return a.Public && ok && slices.ContainsFunc(a.RedirectURIs, func(registered string) bool {
		to, path, ok := splitLoopback(registered)
		return ok && to == address && path == rest
	})
}

// splitLoopback splits a loopback redirect URI into its address, such as http://127.0.0.1, and what
// follows the port. An app on a user's device listens on any free port, so the port is ignored (RFC 8252 §7.3).
func splitLoopback(uri string) (address, rest string, ok bool) {
	for _, address = range []string{"http://127.0.0.1", "http://[::1]"} {
		if rest, ok = strings.CutPrefix(uri, address); ok {
			break
		}
	}
	if !ok {
		return "", "", false
	}
	if after, has := strings.CutPrefix(rest, ":"); has {
		rest = strings.TrimLeft(after, "0123456789")
		port, err := strconv.Atoi(strings.TrimSuffix(after, rest))
		if err != nil || port > 65535 || after[0] == '0' {
			return "", "", false
		}
	}
	return address, rest, rest == "" || rest[0] == '/' || rest[0] == '?'
}

// singleParams are the parameters that must not be repeated. Unknown ones are ignored (RFC 6749 §3.1).
var singleParams = map[string]bool{
	"response_type": true, "response_mode": true, "client_id": true, "redirect_uri": true, "code_challenge": true,
	"code_challenge_method": true, "state": true, "requested_allocation_mc": true, "features": true,
}

// readParams reads the parameters that do not depend on the app, or returns the error.
func (req *Request) readParams(q url.Values) (code, description string) {
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
	if !isBase64URL43(req.Challenge) {
		return "invalid_request", "code_challenge: required, must be base64url(SHA-256(verifier)), 43 characters"
	}
	if problem := req.readProposal(q); problem != "" {
		return "invalid_request", problem
	}
	return "", ""
}

// readProposal reads what the app proposes for the consent screen. It returns what is wrong; "" = nothing.
func (req *Request) readProposal(q url.Values) (problem string) {
	if q.Has("requested_allocation_mc") {
		amount, ok := parseAmount(q.Get("requested_allocation_mc"))
		if !ok {
			return "requested_allocation_mc: must be a positive integer, in micro-cents"
		}
		req.RequestedMC = amount
	}
	req.Features = splitSlugs(q.Get("features"))
	return ""
}

// getSingle returns the value of a parameter that occurs exactly once; of any other "".
func getSingle(q url.Values, name string) string {
	if len(q[name]) != 1 {
		return ""
	}
	return q[name][0]
}

// parseAmount parses a positive number of micro-cents; a number above money.Max becomes money.Max.
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

// splitSlugs splits a list of feature slugs and drops invalid ones.
func splitSlugs(list string) []string {
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

// RedirectLocation returns the URL of the redirect back to the app: the redirect URI unchanged, with the
// parameters of the response appended (RFC 6749 §4.1.2, RFC 9207). Empty parameters are left out.
func RedirectLocation(redirectURI string, params map[string]string) string {
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
