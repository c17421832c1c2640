package world

import (
	"context"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// checkEnds checks that nothing waits without an end, days after everybody has stopped to act.
func (w *world) checkEnds() error {
	for what, query := range map[string]string{
		"holds are open":             `SELECT COUNT(*) FROM holds WHERE state = 'open'`,
		"voice sessions have no end": `SELECT COUNT(*) FROM realtime_sessions WHERE status <> 'ended'`,
	} {
		var n int
		if err := w.Server.DB.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
			return err
		} else if n > 0 {
			return fmt.Errorf("ends: %d %s", n, what)
		}
	}
	return nil
}

// checkLog checks that the product's log has no secret.
func (w *world) checkLog() error {
	secrets := map[string]string{
		"a password": bank.Password, "the operator's token": operatorToken, "Stripe's key": stripeKey,
		"Stripe's secret": stripeSecret, "a provider's key": "emulated-key",
	}
	for i, t := range w.api.tokens {
		secrets[fmt.Sprint("access token ", i)] = t.text
	}
	for id, c := range w.api.apps {
		secrets["the secret of "+id] = c.secret
	}
	text := w.log.String()
	for what, secret := range secrets {
		if strings.Contains(text, secret) {
			return fmt.Errorf("log: it has %s", what)
		}
	}
	return nil
}
