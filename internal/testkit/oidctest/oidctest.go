// Package oidctest runs the emulated OpenID Connect provider for tests, over real HTTP.
package oidctest

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/purserhq/purser/emulator/oidc"
)

// The client that the provider knows.
const (
	ClientID     = oidc.ClientID
	ClientSecret = oidc.ClientSecret
)

type (
	// A Person can sign in at the provider.
	Person = oidc.Person
	// Wrong lists faults of the provider.
	Wrong = oidc.Wrong
)

// A Provider is running until the test ends.
type Provider struct {
	*oidc.Provider
	URL string // its issuer
}

// Start starts a provider in which people can sign in.
func Start(t testing.TB, now func() time.Time, people ...Person) *Provider {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	url := "http://" + server.Listener.Addr().String()
	p, err := oidc.New(oidc.Options{Issuer: url, People: people, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = p
	server.Start()
	t.Cleanup(server.Close)
	return &Provider{p, url}
}
