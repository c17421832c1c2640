package dev

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/people/topups"
)

// TestWelcomeFitsATerminal: every line of the welcome fits 80 columns, except commands to paste, and names every page
// and both emulators on localhost.
func TestWelcomeFitsATerminal(t *testing.T) {
	t.Parallel()
	const base = "http://localhost:8080"
	secret := strings.Repeat("x", 43)
	var out bytes.Buffer
	err := printWelcome(Options{Out: &out, Providers: "mock"}, &config.Config{
		Providers: map[string]config.Provider{"anthropic": {BaseURL: "http://127.0.0.1:40001"}},
		Stripe:    topups.Config{BaseURL: "http://127.0.0.1:40002"},
	}, &sample.Data{
		BaseURL:      base,
		AuthURL:      base,
		DashboardURL: base,
		Developer:    sample.Login{Email: "developer@example.com", Password: secret[:16]},
		App:          sample.App{ClientID: "cid_" + secret[:26], ClientSecret: secret},
		Connection:   sample.Connection{AccessToken: secret},
		DB:           "sqlite:purser-data/purser.db",
	})
	if err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if n := utf8.RuneCountInString(line) + 2; n > 80 && !strings.HasPrefix(line, "purser ") {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, want := range []string{
		base + "/developer", base + "/dashboard", base + "/operator", base + "/docs", base + "/reference",
		base + "/dev/mail", "http://127.0.0.1:40001", "http://127.0.0.1:40002",
	} {
		if !strings.Contains(text, " "+want+"\n") {
			t.Errorf("the welcome does not name %s:\n%s", want, text)
		}
	}
	if i := strings.IndexByte(text, '{'); i >= 0 && !strings.HasPrefix(text[i:], `{"messages"`) {
		t.Errorf("a member was not replaced: %s", text[i:])
	}
}

// TestListenOnLocalhost: the name stands for both loopback addresses with one port, and is kept in the URL.
func TestListenOnLocalhost(t *testing.T) {
	t.Parallel()
	list, err := listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeAll(list) }()
	first := list[0].Addr().String()
	if port := first[strings.LastIndexByte(first, ':'):]; listenURL("localhost:0", list[0].Addr()) !=
		"http://localhost"+port || len(list) > 1 && !strings.HasSuffix(list[1].Addr().String(), port) {
		t.Errorf("listeners at %s and others, at the URL %s", first, listenURL("localhost:0", list[0].Addr()))
	}
}
