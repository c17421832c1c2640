package webhooks_test

import (
	"context"
	"testing"

	"purser/internal/ledger"
	"purser/internal/webhooks"
)

func freeze(conn string) ledger.Command { return ledger.Freeze{ConnectionID: conn} }

// run runs a node; the returned function stops it and waits.
func run(t *testing.T, d *webhooks.Dispatcher) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
