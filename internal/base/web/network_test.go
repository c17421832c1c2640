package web_test

import (
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

func TestNetworkOf(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"203.0.113.9":          "203.0.113.9",
		"::ffff:203.0.113.9":   "203.0.113.9",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2::":       "2001:db8:1:2::/64",
		"2001:db8:1:3::1":      "2001:db8:1:3::/64",
		"fe80::1%eth0":         "fe80::/64",
		"not an address":       "not an address",
		"":                     "",
	} {
		if got := web.NetworkOf(address); got != want {
			t.Errorf("%q counts as %q, want %q", address, got, want)
		}
	}
}
