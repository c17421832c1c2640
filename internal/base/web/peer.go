package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientAddress returns the IP address of the client. Attempts are counted by it, and users see it with their sign-ins.
func ClientAddress(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// ClientNetwork returns what requests of a client are counted by; see NetworkOf.
func ClientNetwork(r *http.Request) string { return NetworkOf(ClientAddress(r)) }

// NetworkOf returns the network that an IP address stands for in limits: an IPv4 address itself, and the /64 of an IPv6
// address, all of which one subscriber has.
func NetworkOf(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}

// TrustProxies takes the client's address from X-Forwarded-For when the peer is a trusted proxy: the last entry that
// is not itself a trusted proxy. The client can forge the entries before that one, and the whole header when the peer
// is not trusted.
func TrustProxies(proxies []netip.Prefix, h http.Handler) http.Handler {
	if len(proxies) == 0 {
		return h
	}
	isTrusted := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddr(ClientAddress(r))
		chain := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		for i := len(chain) - 1; err == nil && i >= 0 && isTrusted(peer.Unmap()); i-- {
			var next netip.Addr
			if next, err = parseHop(chain[i]); err == nil {
				peer = next
				r.RemoteAddr = netip.AddrPortFrom(peer.Unmap(), 0).String()
			}
		}
		h.ServeHTTP(w, r)
	})
}

// parseHop returns the address of one entry of X-Forwarded-For. Some proxies add the port, and some write an IPv6
// address in brackets. A zone is dropped: it means something on the proxy alone, and may be any text of the client's.
func parseHop(entry string) (netip.Addr, error) {
	entry = strings.TrimSpace(entry)
	if a, err := netip.ParseAddrPort(entry); err == nil {
		return a.Addr().WithZone(""), nil
	}
	if inner, ok := strings.CutPrefix(entry, "["); ok {
		entry = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(entry)
	return a.WithZone(""), err
}
