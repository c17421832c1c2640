package proofs

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
)

const (
	// EntrySize is the length of what a leaf says, in bytes: a tag of TagSize, and the commitment.
	EntrySize = TagSize + sha256.Size
	// TagSize is the length of a tag.
	TagSize = 16
	// SecretSize is the length of an account's secret.
	SecretSize = 32
)

// newSecret returns a secret for an account.
func newSecret() []byte {
	secret := make([]byte, SecretSize)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// Tag returns the tag of row seq of the account with a secret. It looks random to everybody else, and is the same for
// the same row: a log with one tag twice tells two histories of one account.
func Tag(secret []byte, seq int64) []byte { return derive(secret, "tag", seq)[:TagSize] }

// Blind returns what row seq is blinded by, so that nobody can guess rows and find their leaves.
func Blind(secret []byte, seq int64) []byte { return derive(secret, "blind", seq) }

func derive(secret []byte, purpose string, seq int64) []byte {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "purser log %s %d", purpose, seq)
	return mac.Sum(nil)
}

// Commitment returns the commitment to a row with a hash.
func Commitment(blind []byte, rowHash string) []byte {
	h := sha256.New()
	fmt.Fprint(h, "purser log row\n")
	h.Write(blind)
	fmt.Fprint(h, rowHash)
	return h.Sum(nil)
}

// newEntry returns the entry of row seq with a hash, of the account with a secret.
func newEntry(secret []byte, seq int64, rowHash string) []byte {
	return append(Tag(secret, seq), Commitment(Blind(secret, seq), rowHash)...)
}
