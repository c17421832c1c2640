package web

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
)

// maxCredentialBytes bounds the length of a credential. Ours are below 100 bytes.
const maxCredentialBytes = 1024

// Basic returns the user id and password of HTTP Basic credentials (contract §5, RFC 7617) as they were sent. The error
// is that of NewBasicRefusal.
func Basic(r *http.Request) (id, secret string, err error) {
	encoded, ok := readCredential(r, "Basic")
	if !ok {
		return "", "", NewBasicRefusal()
	}
	plain, derr := base64.StdEncoding.Strict().DecodeString(encoded)
	if derr != nil || !isPlainText(string(plain)) {
		return "", "", NewBasicRefusal()
	}
	id, secret, ok = strings.Cut(string(plain), ":")
	if !ok || id == "" || secret == "" {
		return "", "", NewBasicRefusal()
	}
	return id, secret, nil
}

// BasicClient returns the client id and secret of HTTP Basic credentials. RFC 6749 §2.3.1 asks clients to form-encode
// both first; half of the libraries do (decision 038). Our ids and secrets have neither "%" nor "+", so a pair with one
// of them is encoded, and is decoded. A pair that cannot be decoded is returned as it was sent.
func BasicClient(r *http.Request) (id, secret string, err error) {
	id, secret, err = Basic(r)
	if err != nil || !strings.ContainsAny(id+secret, "%+") {
		return id, secret, err
	}
	plainID, errID := url.QueryUnescape(id)
	plainSecret, errSecret := url.QueryUnescape(secret)
	if errID != nil || errSecret != nil || !isPlainText(plainID+plainSecret) {
		return id, secret, nil
	}
	return plainID, plainSecret, nil
}

// Bearer returns the access token of the request (contract §5, RFC 6750 §2.1). The error is that of NewBearerRefusal;
// without any credentials, its challenge has no error code.
func Bearer(r *http.Request) (string, error) {
	token, ok := readCredential(r, "Bearer")
	if ok && isB64Token(token) {
		return token, nil
	}
	err := NewBearerRefusal()
	if len(r.Header["Authorization"]) == 0 {
		err.Challenge = `Bearer realm="purser"`
	}
	return "", err
}

// NewBasicRefusal returns the 401 for client credentials that are missing, malformed, unknown or wrong. It is the same
// for all of them.
func NewBasicRefusal() *apierr.Error {
	e := apierr.Unauthorized.Errorf(
		"This request needs the client_id and client_secret of an app, as HTTP Basic credentials.")
	e.Challenge = `Basic realm="purser", charset="UTF-8"`
	return e
}

// NewBearerRefusal returns the 401 for access tokens that are missing, invalid or expired.
func NewBearerRefusal() *apierr.Error {
	e := apierr.Unauthorized.Errorf("The access token is missing, invalid or expired. Refresh it once and try again.")
	e.Challenge = `Bearer realm="purser", error="invalid_token"`
	return e
}

// RefuseTokenInURL refuses an access token in the address, which would be in the logs of everybody between.
func RefuseTokenInURL(r *http.Request) error {
	for _, name := range []string{"key", "access_token", "api_key"} {
		if r.URL.Query().Has(name) {
			err := NewBearerRefusal()
			err.Message = "a token in the address ends up in logs; send it as x-goog-api-key, and revoke this one"
			return err
		}
	}
	return nil
}

// readCredential returns the text after the scheme in the Authorization header, of which there must be one.
func readCredential(r *http.Request, scheme string) (string, bool) {
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

// isB64Token reports whether s is a b64token of RFC 6750 §2.1.
func isB64Token(s string) bool {
	body := strings.TrimRight(s, "=")
	for _, c := range []byte(body) {
		if !isAlphaNum(c) && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}

// ReadIdempotencyKey returns the request's Idempotency-Key, a UUID in lower case. One that is missing, sent twice or
// no UUID is 400.
func ReadIdempotencyKey(r *http.Request) (string, error) {
	if values := r.Header["Idempotency-Key"]; len(values) == 1 {
		if key, ok := id.ParseUUID(values[0]); ok {
			return key, nil
		}
	}
	return "", apierr.InvalidRequest.Errorf(
		"Idempotency-Key: required, one UUID such as 3f2504e0-4f89-41d3-9a0c-0305e82c3301")
}
