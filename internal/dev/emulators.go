package dev

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/people/topups"
)

// emulateProviders serves the three providers' APIs, and returns how to reach
// them. store lets the emulated OpenAI keep records of calls.
func emulateProviders(log *slog.Logger, store bool) (map[string]config.Provider, error) {
	l, err := listenLoopback()
	if err != nil {
		return nil, err
	}
	serve(log, "providers", l, emulator.New(emulator.Options{}))
	return emulatedProviders("http://"+l.Addr().String(), store), nil
}

// emulatedProviders returns how to reach the three providers of an emulator at url.
func emulatedProviders(url string, store bool) map[string]config.Provider {
	return map[string]config.Provider{
		"openai":    {BaseURL: url + "/v1", Keys: []string{"emulated-key"}, Store: store},
		"anthropic": {BaseURL: url, Keys: []string{"emulated-key"}},
		"google":    {BaseURL: url, Keys: []string{"emulated-key"}},
	}
}

// emulateStripe serves Stripe's API, so that topping up works in development as in
// production. It sends its events to the node at nodeURL.
func emulateStripe(log *slog.Logger, nodeURL string, now func() time.Time) (topups.Config, error) {
	l, err := listenLoopback()
	if err != nil {
		return topups.Config{}, err
	}
	c := topups.Config{
		Key:           "sk_test_emulated",
		WebhookSecret: "whsec_" + id.NewSecret(),
		BaseURL:       "http://" + l.Addr().String(),
	}
	serve(log, "stripe", l, stripe.New(stripe.Options{
		Key:           c.Key,
		WebhookSecret: c.WebhookSecret,
		WebhookURL:    nodeURL + "/stripe/events",
		Now:           now,
	}))
	return c, nil
}

// serveForNow serves h on loopback at url until closeServer is called.
func serveForNow(h http.Handler) (closeServer func(), url string, err error) {
	l, err := listenLoopback()
	if err != nil {
		return nil, "", err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // until it is closed
	return func() { _ = s.Close() }, "http://" + l.Addr().String(), nil
}

func listenLoopback() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	return l, nil
}

// serve answers until the process ends: calls that are finished during a stop
// still need the emulator.
func serve(log *slog.Logger, name string, l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		log.Error("emulator stopped", "emulator", name, "error", s.Serve(l))
	}()
	log.Info("emulator started", "emulator", name, "url", "http://"+l.Addr().String())
}
