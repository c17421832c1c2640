package oauth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// seal encrypts an answer so that only whoever presents the same credential and
// idempotency key again can open it: both go into the key, neither is stored.
func seal(credential, idempotencyKey string, answer []byte) (string, error) {
	aead, err := sealing(credential, idempotencyKey)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, answer, nil)), nil
}

// open decrypts what seal made.
func open(credential, idempotencyKey, sealed string) ([]byte, error) {
	aead, err := sealing(credential, idempotencyKey)
	if err != nil {
		return nil, err
	}
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return nil, fmt.Errorf("oauth: kept answer: %w", err)
	}
	answer, err := aead.Open(nil, nil, b, nil)
	if err != nil {
		return nil, fmt.Errorf("oauth: kept answer: %w", err)
	}
	return answer, nil
}

// sealing derives the key and returns AES-GCM with a random nonce.
func sealing(credential, idempotencyKey string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(credential), []byte(idempotencyKey), "purser oauth replay", 32)
	if err != nil {
		return nil, fmt.Errorf("oauth: seal: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("oauth: seal: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("oauth: seal: %w", err)
	}
	return aead, nil
}
