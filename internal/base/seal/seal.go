// Package seal encrypts secrets at rest under the operator's envelope key (decision 007): secrets that Purser must
// read again, such as provider keys. A secret that only has to be recognized is hashed instead.
//
// A sealed value is bound to its place: it does not open in another row, column or table, so write access to the
// database is not enough to exchange secrets.
package seal

import (
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// KeySize is the length of an envelope key in bytes.
const KeySize = 32

// format is the first byte of each sealed value. A nonce follows, then what XChaCha20-Poly1305 makes of the secret.
const format = 1

// A Box seals and opens values under one or more envelope keys: the first seals, all open. So a key is replaced while
// nodes run: each node gets the new one as its second, then as its first, Reseal runs, and the old one goes. It is safe
// for concurrent use.
type Box struct{ aeads []cipher.AEAD }

// A Place is where a value is stored: table, column, and the key of the row.
type Place []string

// encode returns the place as bytes that differ for different places.
func (p Place) encode() []byte { return fmt.Appendf(nil, "%q", []string(p)) }

// New returns a Box under envelope keys of KeySize bytes each, of which there must be one.
func New(envelopeKeys ...[]byte) (*Box, error) {
	if len(envelopeKeys) == 0 {
		return nil, errors.New("seal: no envelope key")
	}
	b := &Box{}
	for _, key := range envelopeKeys {
		a, err := chacha20poly1305.NewX(key)
		if err != nil {
			return nil, fmt.Errorf("seal: the envelope key must have %d bytes", KeySize)
		}
		b.aeads = append(b.aeads, a)
	}
	return b, nil
}

// Seal encrypts plain for a place under the first key. Each call returns another ciphertext.
func (b *Box) Seal(plain []byte, at Place) ([]byte, error) {
	a := b.aeads[0]
	sealed := make([]byte, 1+a.NonceSize(), 1+a.NonceSize()+len(plain)+a.Overhead())
	sealed[0] = format
	nonce := sealed[1:]
	if _, err := rand.Read(nonce); err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return a.Seal(sealed, nonce, plain, at.encode()), nil
}

var errNotOpened = errors.New("seal: does not open: changed, moved, or sealed under another envelope key")

// Open decrypts a value that was sealed for the same place under one of the keys.
func (b *Box) Open(sealed []byte, at Place) ([]byte, error) {
	plain, _, err := b.open(sealed, at)
	return plain, err
}

// open also returns which key has sealed the value.
func (b *Box) open(sealed []byte, at Place) (plain []byte, key int, err error) {
	const from = 1 + chacha20poly1305.NonceSizeX
	if len(sealed) < from || sealed[0] != format {
		return nil, 0, errNotOpened
	}
	for i, a := range b.aeads {
		if plain, err := a.Open(nil, sealed[1:from], sealed[from:], at.encode()); err == nil {
			return plain, i, nil
		}
	}
	return nil, 0, errNotOpened // the causes add nothing
}
