// Package seal encrypts secrets at rest (decisions, Names and shapes) under the
// operator's envelope key: provider keys now, whatever must be read again and
// never be shown later. What only has to be recognized is hashed instead.
//
// A sealed value is bound to its place: in another row, column or table it does
// not open, so whoever can write to the database cannot swap secrets about.
package seal

import (
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
)

// KeySize is the length of an envelope key in bytes.
const KeySize = 32

// keyID is the first byte of everything sealed: which envelope key it was. There
// is one as yet; a second one gets the next number, and both open.
const keyID = 1

// A Box seals and opens. It may be used by many goroutines.
type Box struct{ aead *subtle.XChaCha20Poly1305 }

// A Place is where a value is stored: its table, its column, and the row's key.
type Place []string

// bytes spells the place so that no two places are spelled alike.
func (p Place) bytes() []byte { return fmt.Appendf(nil, "%q", []string(p)) }

// New returns a Box under an envelope key of KeySize bytes.
func New(envelopeKey []byte) (*Box, error) {
	a, err := subtle.NewXChaCha20Poly1305(envelopeKey)
	if err != nil {
		return nil, fmt.Errorf("seal: the envelope key must have %d bytes", KeySize)
	}
	return &Box{a}, nil
}

// Seal encrypts plain for a place, differently each time.
func (b *Box) Seal(plain []byte, at Place) ([]byte, error) {
	sealed, err := b.aead.Encrypt(plain, at.bytes())
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return append([]byte{keyID}, sealed...), nil
}

var errClosed = errors.New("seal: does not open: changed, moved, or sealed under another envelope key")

// Open decrypts what was sealed for this very place.
func (b *Box) Open(sealed []byte, at Place) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != keyID {
		return nil, errClosed
	}
	plain, err := b.aead.Decrypt(sealed[1:], at.bytes())
	if err != nil {
		return nil, errClosed // the cause says no more
	}
	return plain, nil
}
