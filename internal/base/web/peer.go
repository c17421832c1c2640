package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Address is where a request came from, without the port: what attempts are counted
// by, and what people are told about their sign-ins.
func Address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// Behind gives h the client's address of what comes through one of our own proxies:
// the last entry of X-Forwarded-For that none of them is. Entries before it are what
// the client says, and so is the whole header if it comes from anybody else.
func Behind(proxies []netip.Prefix, h http.Handler) http.Handler {
	if len(proxies) == 0 {
		return h
	}
	ours := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddr(Address(r))
		chain := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(chain) - 1; err == nil && i >= 0 && ours(peer.Unmap()); i-- {
			var next netip.Addr
			if next, err = netip.ParseAddr(strings.TrimSpace(chain[i])); err == nil {
				peer = next
				r.RemoteAddr = netip.AddrPortFrom(peer.Unmap(), 0).String()
			}
		}
		h.ServeHTTP(w, r)
	})
}
