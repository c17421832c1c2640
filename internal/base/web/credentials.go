package web

import (
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
)

// A credential is at most this long, in bytes. Ours are below 100.
const maxCredentialBytes = 1024

// Basic returns the client id and secret of HTTP Basic credentials (spec §5;
// RFC 7617, so they are not percent-decoded; ours hold no character that RFC
// 6749 §2.3.1 would encode). The error is that of BasicRefused.
func Basic(r *http.Request) (id, secret string, err error) {
	encoded, ok := credential(r, "Basic")
	if !ok {
		return "", "", BasicRefused()
	}
	plain, derr := base64.StdEncoding.Strict().DecodeString(encoded)
	if derr != nil || !plainText(string(plain)) {
		return "", "", BasicRefused()
	}
	id, secret, ok = strings.Cut(string(plain), ":")
	if !ok || id == "" || secret == "" {
		return "", "", BasicRefused()
	}
	return id, secret, nil
}

// Bearer returns the access token of the request (spec §5, RFC 6750 §2.1). The
// error is that of BearerRefused, without an error code in the challenge when no
// credentials came at all.
func Bearer(r *http.Request) (string, error) {
	token, ok := credential(r, "Bearer")
	if ok && b64token(token) {
		return token, nil
	}
	err := BearerRefused()
	if len(r.Header["Authorization"]) == 0 {
		err.Challenge = `Bearer realm="purser"`
	}
	return "", err
}

// BasicRefused is the 401 for missing, malformed, unknown and wrong client
// credentials: one answer, which does not tell them apart.
func BasicRefused() *apierr.Error {
	e := apierr.Unauthorized.Errorf("This request needs the client_id and client_secret of an app, as HTTP Basic credentials.")
	e.Challenge = `Basic realm="purser", charset="UTF-8"`
	return e
}

// BearerRefused is the 401 for missing, invalid and expired access tokens.
func BearerRefused() *apierr.Error {
	e := apierr.Unauthorized.Errorf("The access token is missing, invalid or expired. Refresh it once and try again.")
	e.Challenge = `Bearer realm="purser", error="invalid_token"`
	return e
}

// credential returns what follows the scheme in the only Authorization header.
func credential(r *http.Request, scheme string) (string, bool) {
	values := r.Header["Authorization"]
	if len(values) != 1 || len(values[0]) > maxCredentialBytes {
		return "", false
	}
	got, rest, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(got, scheme) {
		return "", false
	}
	return strings.TrimLeft(rest, " "), true
}

// b64token checks the grammar of RFC 6750 §2.1.
func b64token(s string) bool {
	body := strings.TrimRight(s, "=")
	for _, c := range []byte(body) {
		if !isAlphaNum(c) && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}
