package backup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"filippo.io/age"
)

// ParseRecipient reads the public key of an identity, age1….
func ParseRecipient(text string) (age.Recipient, error) {
	r, err := age.ParseX25519Recipient(text)
	if err != nil {
		return nil, errors.New("must be a public key of age, age1…; make one with: purser backup key FILE")
	}
	return r, nil
}

// ReadIdentities reads a file of private keys, as CreateIdentity and age-keygen write it.
func ReadIdentities(path string) ([]age.Identity, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	list, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("%s: is no file of identities", path) // the cause may repeat a key
	}
	return list, nil
}

// CreateIdentity writes a new private key to a new file that only its owner can read, and returns the public key.
func CreateIdentity(path string) (recipient string, err error) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	recipient = identity.Recipient().String()
	_, err = fmt.Fprintf(f, "# public key: %s\n%s\n", recipient, identity)
	return recipient, errors.Join(err, f.Sync(), f.Close())
}

// minPassphrase is the shortest passphrase, in bytes.
const minPassphrase = 12

// ReadPassphrase reads a passphrase from the first line of a file, and returns it as the key that encrypts and the one
// that decrypts.
func ReadPassphrase(path string) (age.Recipient, age.Identity, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	line = strings.TrimSuffix(line, "\r")
	if len(line) < minPassphrase {
		return nil, nil, fmt.Errorf("%s: the passphrase must have at least %d characters", path, minPassphrase)
	}
	recipient, err := age.NewScryptRecipient(line)
	if err != nil {
		return nil, nil, err
	}
	identity, err := age.NewScryptIdentity(line)
	return recipient, identity, err
}
