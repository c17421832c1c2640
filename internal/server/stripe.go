package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/people/topups"
)

// emulateStripe starts a Stripe of our own, so that topping up works in development
// as it does for real; it tells the node at home of its events.
func emulateStripe(log *slog.Logger, home string) (topups.Config, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return topups.Config{}, fmt.Errorf("emulator: %w", err)
	}
	c := topups.Config{Key: "sk_test_emulated", WebhookSecret: "whsec_" + id.Secret(), BaseURL: "http://" + l.Addr().String()}
	srv := &http.Server{
		Handler:           emulator.NewStripe(emulator.StripeOptions{Key: c.Key, WebhookSecret: c.WebhookSecret, WebhookURL: home + "/stripe/events"}),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		log.Error("the emulator of Stripe stopped", "error", srv.Serve(l))
	}()
	log.Info("emulator of Stripe", "url", c.BaseURL)
	return c, nil
}
