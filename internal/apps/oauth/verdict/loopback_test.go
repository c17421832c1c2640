package verdict

import "testing"

// RFC 8252 §7.3 and §8.3: the port of a public client's loopback address is ignored, and nothing else of it.
func TestLoopbackRedirects(t *testing.T) {
	t.Parallel()
	registered := []string{
		"http://127.0.0.1/cb", "http://[::1]:9/cb?x=1", "http://[::1]?y=1", "http://localhost:7/cb", callback,
		":7/path",
	}
	for _, c := range []struct {
		uri  string
		want bool // of a public client; a confidential one needs the same bytes
	}{
		{"http://127.0.0.1/cb", true},
		{"http://127.0.0.1:1/cb", true},
		{"http://127.0.0.1:65535/cb", true},
		{"http://[::1]/cb?x=1", true},
		{"http://[::1]:9/cb?x=1", true},
		{"http://[::1]:10/cb?x=1", true},
		{"http://[::1]:10?y=1", true},
		{"http://localhost:7/cb", true},
		{callback, true},

		{"http://localhost:8/cb", false},
		{"http://127.0.0.1:1/cb/", false},
		{"http://127.0.0.1:1/cb?", false},
		{"http://127.0.0.1:1/cb#", false},
		{"http://127.0.0.1:1", false},
		{"http://127.0.0.1:/cb", false},
		{"http://127.0.0.1:0/cb", false},
		{"http://127.0.0.1:01/cb", false},
		{"http://127.0.0.1:+1/cb", false},
		{"http://127.0.0.1:65536/cb", false},
		{"http://127.0.0.1:99999999999999999999/cb", false},
		{"http://127.0.0.1:1@evil.example/cb", false},
		{"http://127.0.0.1@evil.example/cb", false},
		{"http://127.0.0.1.evil.example/cb", false},
		{"http://127.0.0.11/cb", false},
		{"http://127.0.0.2/cb", false},
		{"https://127.0.0.1/cb", false},
		{"HTTP://127.0.0.1/cb", false},
		{"http://[::1]:9/cb", false},
		{"http://[::2]:9/cb?x=1", false},
		{"https://app.example.com:443/callback", false},
		{":8/path", false},
		{"", false},
	} {
		if got := (App{RedirectURIs: registered, Public: true}).allowsRedirect(c.uri); got != c.want {
			t.Errorf("public, %q: %t", c.uri, got)
		}
		same := false
		for _, r := range registered {
			same = same || r == c.uri
		}
		if got := (App{RedirectURIs: registered}).allowsRedirect(c.uri); got != same {
			t.Errorf("confidential, %q: %t", c.uri, got)
		}
	}
}
