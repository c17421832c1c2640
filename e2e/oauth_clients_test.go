package e2e

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestOAuthClients runs oauth/clients.mjs: openid-client, oauth4webapi and Auth.js, as they are published, connect,
// refresh, call, manage and revoke.
func TestOAuthClients(t *testing.T) {
	t.Parallel()
	installNode(t, "oauth")
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		register(t, p, "http://localhost:3999/auth/callback/purser")
		with, err := json.Marshal(map[string]string{
			"baseURL":      p.BaseURL,
			"authURL":      p.AuthURL,
			"appID":        p.App.ID,
			"clientID":     p.App.ClientID,
			"clientSecret": p.App.ClientSecret,
			"redirectURI":  p.App.RedirectURI,
			"publicID":     p.PublicApp.ClientID,
			"email":        p.Developer.Email,
			"password":     p.Developer.Password,
		})
		if err != nil {
			t.Fatal(err)
		}
		node := exec.CommandContext(soon(t), "node", "clients.mjs", string(with))
		var told strings.Builder
		node.Dir, node.Stderr = "oauth", &told
		out, err := node.Output()
		if got := strings.Fields(string(out)); err != nil || len(got) != 4 {
			t.Fatalf("%v after %s: %s", err, got, told.String())
		}
	})
}

// TestOAuth2Library connects and refreshes by golang.org/x/oauth2, which chooses by itself how to authenticate, and
// reads from its error why a grant was refused.
func TestOAuth2Library(t *testing.T) {
	t.Parallel()
	onNode(t, func(t *testing.T, p *servertest.Process) {
		config := client(p)
		config.Endpoint.AuthStyle = oauth2.AuthStyleAutoDetect
		first := grant(t, p, "5", "")
		refresh := func(token string) (*oauth2.Token, error) {
			return config.TokenSource(t.Context(), &oauth2.Token{
				RefreshToken: token,
				Expiry:       time.Now().Add(-time.Minute),
			}).Token()
		}
		second, err := refresh(first.RefreshToken)
		if err != nil || second.RefreshToken == first.RefreshToken || second.AccessToken == first.AccessToken {
			t.Fatalf("refreshed: %v", err)
		}
		manage(t, p, "POST", "/v1/connections/"+first.Extra("connection_id").(string)+"/revoke", "", nil)
		_, err = refresh(second.RefreshToken)
		failed, ok := errors.AsType[*oauth2.RetrieveError](err)
		if !ok {
			t.Fatalf("refreshed a revoked connection: %v", err)
		}
		var body struct {
			Error struct {
				Code    string
				Details struct{ Reason string }
			}
		}
		if err := json.Unmarshal(failed.Body, &body); err != nil || body.Error.Code != "invalid_grant" ||
			body.Error.Details.Reason != "connection_revoked" {
			t.Errorf("%v in %s", err, failed.Body)
		}
	})
}
