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

// Sign returns the token that turns the notices of an account off.
func (s Signer) Sign(accountID string) string {
	return accountID + "." + base64.RawURLEncoding.EncodeToString(s.sum(accountID))
}

// Read returns the account of a token.
func (s Signer) Read(token string) (accountID string, ok bool) {
	accountID, text, _ := strings.Cut(token, ".")
	sum, err := base64.RawURLEncoding.Strict().DecodeString(text)
	isAccount := !strings.Contains(accountID, "~") // which tokens of another list had, and there is none any more
	return accountID, isAccount && err == nil && hmac.Equal(sum, s.sum(accountID))
}

func (s Signer) sum(accountID string) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(accountID))
	return m.Sum(nil)
}
