package oauth

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// sealResponse encrypts a token response under a key derived from the credential and the
// idempotency key, neither of which is stored: only a retry with both can open it.
func sealResponse(credential, idempotencyKey string, answer []byte) (string, error) {
	aead, err := newReplayAEAD(credential, idempotencyKey)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, answer, nil)), nil
}

// openResponse decrypts a response of sealResponse.
func openResponse(credential, idempotencyKey, sealed string) ([]byte, error) {
	aead, err := newReplayAEAD(credential, idempotencyKey)
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

// newReplayAEAD returns AES-GCM with random nonces under the key derived by HKDF.
func newReplayAEAD(credential, idempotencyKey string) (cipher.AEAD, error) {
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
