// Package seal encrypts secrets at rest under the operator's envelope key (decision 007): secrets that Purser must
// read again, such as provider keys. A secret that only has to be recognized is hashed instead.
//
// A sealed value is bound to its place: it does not open in another row, column or table, so write access to the
// database is not enough to exchange secrets.
package seal

import (
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
)

// KeySize is the length of an envelope key in bytes.
const KeySize = 32

// keyID is the first byte of each sealed value, and names the envelope key. There is one key so far; another would
// get the next number, and Open would accept both.
const keyID = 1

// A Box seals and opens values. It is safe for concurrent use.
type Box struct{ aead *subtle.XChaCha20Poly1305 }

// A Place is where a value is stored: table, column, and the key of the row.
type Place []string

// encode returns the place as bytes that differ for different places.
func (p Place) encode() []byte { return fmt.Appendf(nil, "%q", []string(p)) }

// New returns a Box under an envelope key of KeySize bytes.
func New(envelopeKey []byte) (*Box, error) {
	a, err := subtle.NewXChaCha20Poly1305(envelopeKey)
	if err != nil {
		return nil, fmt.Errorf("seal: the envelope key must have %d bytes", KeySize)
	}
	return &Box{a}, nil
}

// Seal encrypts plain for a place. Each call returns another ciphertext.
func (b *Box) Seal(plain []byte, at Place) ([]byte, error) {
	sealed, err := b.aead.Encrypt(plain, at.encode())
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return append([]byte{keyID}, sealed...), nil
}

var errNotOpened = errors.New("seal: does not open: changed, moved, or sealed under another envelope key")

// Open decrypts a value that was sealed for the same place.
func (b *Box) Open(sealed []byte, at Place) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != keyID {
		return nil, errNotOpened
	}
	plain, err := b.aead.Decrypt(sealed[1:], at.encode())
	if err != nil {
		return nil, errNotOpened // the cause adds nothing
	}
	return plain, nil
}
