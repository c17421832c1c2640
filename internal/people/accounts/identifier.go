package accounts

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
)

// SafetyIdentifiers makes the names under which AI providers know accounts, for their abuse control (decision 075). A
// provider cannot find the account, and two deployments give an account different names.
type SafetyIdentifiers struct{ key []byte }

// NewSafetyIdentifiers returns the SafetyIdentifiers of an envelope key: the same on every node and after a restart.
func NewSafetyIdentifiers(envelopeKey []byte) (SafetyIdentifiers, error) {
	key, err := hkdf.Key(sha256.New, envelopeKey, nil, "purser: safety identifiers of accounts", sha256.Size)
	if err != nil {
		return SafetyIdentifiers{}, fmt.Errorf("accounts: key of safety identifiers: %w", err)
	}
	return SafetyIdentifiers{key}, nil
}

// safetyIdentifierLength is the number of characters of a safety identifier.
const safetyIdentifierLength = 2 * sha256.Size

// Identify returns the safety identifier of an account: the HMAC-SHA256 of its id in hexadecimal digits.
func (s SafetyIdentifiers) Identify(accountID string) string {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(accountID))
	return hex.EncodeToString(m.Sum(nil))
}

// IsSafetyIdentifier reports whether a text has the form of a safety identifier.
func IsSafetyIdentifier(text string) bool {
	b, err := hex.DecodeString(text)
	return err == nil && len(text) == safetyIdentifierLength && hex.EncodeToString(b) == text
}

// identifierBatch is how many accounts are compared with one query.
const identifierBatch = 5000

// FindBySafetyIdentifier returns the account that AI providers know by an identifier, or sql.ErrNoRows. It compares the
// identifiers of all accounts, which are not stored: a million take a few seconds.
func (s *Store) FindBySafetyIdentifier(ctx context.Context, ids SafetyIdentifiers, identifier string) (Account, error) {
	if !IsSafetyIdentifier(identifier) {
		return Account{}, sql.ErrNoRows
	}
	for after := ""; ; {
		list, err := listIDsAfter(ctx, s.db, after, identifierBatch)
		if err != nil {
			return Account{}, fmt.Errorf("accounts: find by safety identifier: %w", err)
		}
		for _, accountID := range list {
			if ids.Identify(accountID) == identifier {
				return s.Get(ctx, accountID)
			}
		}
		if len(list) < identifierBatch {
			return Account{}, sql.ErrNoRows
		}
		after = list[len(list)-1]
	}
}
