package notices

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// A Signer signs the links that turn an account's notices off without signing in. They do nothing else. They do not
// expire, because emails may be read much later.
type Signer struct{ key []byte }

// NewSigner returns the Signer of an envelope key.
func NewSigner(envelopeKey []byte) (Signer, error) {
	key, err := hkdf.Key(sha256.New, envelopeKey, nil, "purser: links that stop notices", sha256.Size)
	if err != nil {
		return Signer{}, fmt.Errorf("notices: key: %w", err)
	}
	return Signer{key}, nil
}

// A list is a kind of email that an account can turn off by a link.
type list string

// The lists. That of the notices is the plain account in a token, as links that were sent before have it.
const (
	noticeList list = ""
	digestList list = "digest"
)

// Sign returns the token that turns the notices of an account off.
func (s Signer) Sign(accountID string) string { return s.sign(accountID, noticeList) }

// SignDigest returns the token that turns the weekly summary of an account off.
func (s Signer) SignDigest(accountID string) string { return s.sign(accountID, digestList) }

func (s Signer) sign(accountID string, l list) string {
	subject := accountID
	if l != noticeList {
		subject += "~" + string(l)
	}
	return subject + "." + base64.RawURLEncoding.EncodeToString(s.sum(subject))
}

// Read returns the account and the list of a token. An id has no ~.
func (s Signer) Read(token string) (accountID string, l list, ok bool) {
	subject, text, _ := strings.Cut(token, ".")
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	accountID, name, _ := strings.Cut(subject, "~")
	l = list(name)
	return accountID, l, err == nil && hmac.Equal(sum, s.sum(subject)) && (l == noticeList || l == digestList)
}

func (s Signer) sum(subject string) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(subject))
	return m.Sum(nil)
}
