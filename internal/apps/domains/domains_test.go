package domains

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
)

var loopback = webhooks.Addresses{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}

// newTestChecker returns a Checker for which every domain is a server with the handler and has the TXT records.
func newTestChecker(t *testing.T, rules webhooks.Addresses, h http.HandlerFunc, records ...string) *Checker {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	client := rules.NewClient()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial(ctx, network, s.Listener.Addr().String())
	}
	return &Checker{client, func(_ context.Context, domain string) ([]string, error) {
		if domain != "example.com." {
			return nil, errors.New("another domain")
		}
		return records, nil
	}}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	file := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != FilePath {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_, _ = w.Write([]byte(text))
		}
	}
	none := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }
	redirect := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == FilePath {
			http.Redirect(w, r, "/app_1", http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("app_1"))
	}
	for _, c := range []struct {
		name    string
		rules   webhooks.Addresses
		file    http.HandlerFunc
		records []string
		proven  bool
	}{
		{"nothing", loopback, none, nil, false},
		{"the file", loopback, file("app_1\n"), nil, true},
		{"the file at a private address", webhooks.Addresses{}, file("app_1\n"), nil, false},
		{"one of several lines", loopback, file("app_2\r\n app_1 \r\n"), nil, true},
		{"another app's file", loopback, file("app_11\n"), nil, false},
		{"a page that names the app", loopback, file("<html>app_1</html>"), nil, false},
		{"far down in a large file", loopback, file(strings.Repeat("x\n", 4096) + "app_1\n"), nil, false},
		{"a redirect", loopback, redirect, nil, false},
		{"the record", loopback, none, []string{"v=spf1 -all", "purser-domain=app_1"}, true},
		{"another app's record", loopback, none, []string{"purser-domain=app_2"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := newTestChecker(t, c.rules, c.file, c.records...).Check(t.Context(), "example.com", "app_1")
			e, refused := errors.AsType[*apierr.Error](err)
			if proven := err == nil; proven != c.proven || !proven && (!refused || e.Code != apierr.InvalidRequest) {
				t.Errorf("%v, want proven=%t", err, c.proven)
			}
		})
	}
	if err := newTestChecker(t, loopback, none).Check(t.Context(), "", "app_1"); err == nil {
		t.Error("no domain is proven")
	}
}

// A domain that never answers holds no request.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c := newTestChecker(t, loopback, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if err := c.Check(ctx, "example.com", "app_1"); err == nil {
		t.Error("a silent domain is proven")
	}
}
