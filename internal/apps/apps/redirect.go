package apps

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
)

// Limits of redirect URIs.
const (
	maxRedirectURIs     = 50
	maxRedirectURIBytes = 2000
)

// redirectRules are the conditions of redirect URIs.
type redirectRules struct {
	dev    bool // http on every loopback host, also localhost
	public bool // http on a loopback address: RFC 8252 §7.3
}

func validateRedirectURIs(uris []string, rules redirectRules) error {
	if len(uris) > maxRedirectURIs {
		return apierr.InvalidRequest.Errorf("redirect_uris: at most %d", maxRedirectURIs)
	}
	seen := map[string]bool{}
	for i, uri := range uris {
		if rule := findRedirectProblem(uri, rules); rule != "" {
			return apierr.InvalidRequest.Errorf("redirect_uris[%d]: %s", i, rule)
		}
		if seen[uri] {
			return apierr.InvalidRequest.Errorf("redirect_uris[%d]: comes twice", i)
		}
		seen[uri] = true
	}
	return nil
}

// findRedirectProblem returns the rule that a redirect URI breaks, "" if none (decision 032).
// Registered URIs are compared byte by byte, so it refuses URIs that two parsers could read in two ways.
func findRedirectProblem(uri string, rules redirectRules) string {
	switch {
	case len(uri) > maxRedirectURIBytes:
		return "must be at most " + strconv.Itoa(maxRedirectURIBytes) + " bytes"
	case strings.ContainsFunc(uri, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", c)
	}):
		return "must be plain ASCII without spaces, backslashes or quotes"
	case strings.Contains(uri, "#"):
		return "must have no fragment"
	case strings.Contains(uri, "*"):
		return "must have no wildcard"
	}
	u, err := url.Parse(uri)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || !strings.HasPrefix(uri, u.Scheme+"://") {
		return "must be an absolute address such as https://app.example.com/callback"
	}
	if u.User != nil || strings.Contains(u.Host, "@") {
		return "must have no user or password"
	}
	switch {
	case u.Scheme == "https":
	case rules.dev && u.Scheme == "http" && isLoopback(u.Hostname()):
	case rules.public && u.Scheme == "http" && isLoopbackAddress(u.Hostname()):
	case rules.dev:
		return "must begin with https://, or with http:// on a loopback host"
	case rules.public:
		return "must begin with https://, or with http://127.0.0.1 or http://[::1]"
	default:
		return "must begin with https://"
	}
	return findHostProblem(u)
}

// findHostProblem checks host, port and path.
func findHostProblem(u *url.URL) string {
	host := u.Hostname()
	if a, err := netip.ParseAddr(host); err != nil || a.Zone() != "" {
		for label := range strings.SplitSeq(strings.ToLower(host), ".") {
			if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				return "must have a host name or address"
			}
		}
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || port[0] == '0' {
			return "must have a port from 1 to 65535, or none"
		}
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return "must have no . or .. in its path"
		}
	}
	return ""
}

// isLoopbackAddress reports whether a host is a loopback address that apps on a device may return to (RFC 8252 §7.3).
// The name localhost is not one: another program or a resolver may answer to it (§8.3).
func isLoopbackAddress(host string) bool { return host == "127.0.0.1" || host == "::1" }

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}
