package web

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
)

// The client's address is the last one that no proxy of ours has; nobody else can
// say whose it is.
func TestBehind(t *testing.T) {
	t.Parallel()
	ours := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, c := range []struct {
		name, peer string
		forwarded  []string
		proxies    []netip.Prefix
		want       string
	}{
		{"nobody is trusted", "10.0.0.1:1234", []string{"203.0.113.9"}, nil, "10.0.0.1"},
		{"a client speaks for itself", "198.51.100.7:1234", []string{"203.0.113.9"}, ours, "198.51.100.7"},
		{"one proxy", "10.0.0.1:1234", []string{"203.0.113.9"}, ours, "203.0.113.9"},
		{"the client lied to it", "10.0.0.1:1234", []string{"192.0.2.1, 203.0.113.9"}, ours, "203.0.113.9"},
		{"the client claims to be a proxy", "10.0.0.1:1234", []string{"192.0.2.1, 10.6.6.6, 203.0.113.9"}, ours,
			"203.0.113.9"},
		{"two proxies, two headers", "10.0.0.1:1234", []string{"192.0.2.1, 203.0.113.9", "10.0.0.2"}, ours,
			"203.0.113.9"},
		{"version 6, and 4 in 6", "[::ffff:10.0.0.1]:1234", []string{"2001:db9::7, 2001:db8::1"}, ours, "2001:db9::7"},
		{"a port", "10.0.0.1:1234", []string{"192.0.2.1:80, 203.0.113.9:51234"}, ours, "203.0.113.9"},
		{"brackets", "10.0.0.1:1234", []string{"[2001:db9::7]"}, ours, "2001:db9::7"},
		{"brackets and a port, two proxies", "10.0.0.1:1234", []string{"[2001:db9::7]:443, [2001:db8::1]:80"}, ours,
			"2001:db9::7"},
		{"a zone", "10.0.0.1:1234", []string{"fe80::1%anything"}, ours, "fe80::1"},
		{"a zone and a port", "10.0.0.1:1234", []string{"[fe80::1%anything]:443"}, ours, "fe80::1"},
		{"a proxy with a zone", "10.0.0.1:1234", []string{"203.0.113.9, 2001:db8::1%eth0"}, ours, "203.0.113.9"},
		{"no header", "10.0.0.1:1234", nil, ours, "10.0.0.1"},
		{"rubbish", "10.0.0.1:1234", []string{"203.0.113.9, unknown"}, ours, "10.0.0.1"},
		{"rubbish before a proxy", "10.0.0.1:1234", []string{"203.0.113.9, ::bad::, 10.0.0.2"}, ours, "10.0.0.2"},
		{"all of them ours", "10.0.0.1:1234", []string{"10.0.0.3, 10.0.0.2"}, ours, "10.0.0.3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr, r.Header = c.peer, http.Header{"X-Forwarded-For": c.forwarded}
			TrustProxies(c.proxies,
				http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					got = ClientAddress(r)
				})).ServeHTTP(nil, r)
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
