package topups

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file gives free credit once for each card (decision 129).

// NewCardKey returns the key by which cards are hashed, of a derivation key: the same on every node.
func NewCardKey(derivationKey []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, derivationKey, nil, "purser: cards that paid", sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("topups: key of cards: %w", err)
	}
	return key, nil
}

// fingerprintOf returns what Stripe calls the card or bank account that paid a charge, the same in every account of
// ours; "" = Stripe does not say.
func fingerprintOf(c *stripe.Charge) string {
	d := c.Method
	if d == nil {
		return ""
	}
	var name string
	switch {
	case d.Card != nil:
		name = d.Card.Fingerprint
	case d.USBankAccount != nil:
		name = d.USBankAccount.Fingerprint
	case d.SEPADebit != nil:
		name = d.SEPADebit.Fingerprint
	case d.BACSDebit != nil:
		name = d.BACSDebit.Fingerprint
	case d.AUBECSDebit != nil:
		name = d.AUBECSDebit.Fingerprint
	case d.ACSSDebit != nil:
		name = d.ACSSDebit.Fingerprint
	case d.Paypal != nil:
		name = d.Paypal.PayerID
	case d.CashApp != nil:
		name = d.CashApp.BuyerID
	}
	if name == "" {
		return ""
	}
	return d.Type + "/" + name
}

// rememberCard remembers by what an account has paid, before the payment can be spent. If another account has paid by
// the same card before, free credit pays for no call of this one.
func (s *Store) rememberCard(ctx context.Context, tx *db.Tx, accountID string, f facts) error {
	charge := f.latestCharge()
	if charge == nil || !f.isPaid() {
		return nil
	}
	fingerprint := fingerprintOf(charge)
	if fingerprint == "" {
		return nil
	}
	m := hmac.New(sha256.New, s.CardKey)
	m.Write([]byte(fingerprint))
	card := base64.RawURLEncoding.EncodeToString(m.Sum(nil))
	isFirst, err := insertPayingCard(ctx, tx, card, accountID, s.Now().UnixMicro())
	if err != nil {
		return fmt.Errorf("topups: card: %w", err)
	}
	if isFirst {
		return nil
	}
	_, err = s.Ledger.DoTx(ctx, tx, rules.EndFreeCredit{AccountID: accountID})
	return err
}
