package dev

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
)

// operatorTokenFile is where the token of the operator's API is kept, readable by
// its owner only. The token is never printed.
func operatorTokenFile(o Options) string { return filepath.Join(o.Data, "operator.token") }

// operatorToken reads that token, and makes one the first time.
func operatorToken(path string) (string, error) {
	if err := makeOnce(path, []byte(id.NewSecret())); err != nil {
		return "", fmt.Errorf("operator's token: %w", err)
	}
	text, err := os.ReadFile(path)
	token := strings.TrimSpace(string(text))
	if err == nil && len(token) < 32 {
		err = fmt.Errorf("%s: must have at least 32 characters", path)
	}
	return token, err
}

// envelopeKey reads the data folder's envelope key, and makes one the first time.
// Processes that start together get the same key, and a crash leaves no half of it.
func envelopeKey(path string) ([]byte, error) {
	key := make([]byte, seal.KeySize)
	rand.Read(key)
	if err := makeOnce(path, key); err != nil {
		return nil, fmt.Errorf("envelope key: %w", err)
	}
	key, err := os.ReadFile(path)
	if err == nil && len(key) != seal.KeySize {
		err = fmt.Errorf("%s: must have %d bytes", path, seal.KeySize)
	}
	return key, err
}

// makeOnce writes a secret to a file of mode 0600, unless the file is there
// already or another process is faster: it writes a temporary file and links it.
func makeOnce(path string, secret []byte) (err error) {
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-*.new") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	_, err = f.Write(secret)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
