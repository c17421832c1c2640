// Package webhooks delivers events to apps (contract §2, Webhook endpoint and Webhook delivery;
// §4.8; §6; decisions 039, 040). The ledger writes each event to the event outbox in the
// transaction of the change. A Dispatcher on each node creates one delivery per event and
// subscribed endpoint, and sends the deliveries. The table deliveries is both the queue and the
// history that the API shows.
package webhooks

import (
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// MaxPerApp is the largest number of endpoints of an app.
const MaxPerApp = 20

// The states of contract §3, Webhook endpoint.
const (
	Active   = "active"
	Disabled = "disabled"
)

// An Endpoint is a URL that receives an app's events.
type Endpoint struct {
	ID, AppID, URL string
	Events         []string // empty = every event
	Status         string   // Active or Disabled
	CreatedUS      int64
	sealed         []byte // the signing secret
}

// wants reports whether the endpoint subscribes to events of a type.
func (e *Endpoint) wants(kind string) bool {
	return len(e.Events) == 0 || slices.Contains(e.Events, kind)
}

// A Change is the body of POST and PATCH. An absent member keeps its value.
type Change struct {
	URL    web.Field[string]   `json:"url"`
	Events web.Field[[]string] `json:"events"`
	Status web.Field[string]   `json:"status"`
}

// applyTo returns e with the change, or 400 invalid_request with the member and the rule.
func (c *Change) applyTo(e Endpoint, rules Addresses) (Endpoint, error) {
	if c.URL.Set {
		if rule := rules.findProblem(c.URL.Value); rule != "" {
			return e, apierr.InvalidRequest.Errorf("url: %s", rule)
		}
		e.URL = c.URL.Value
	}
	if c.Events.Set {
		if c.Events.Null {
			return e, apierr.InvalidRequest.Errorf("events: must be an array; an empty one means every event")
		}
		for i, kind := range c.Events.Value {
			if !slices.Contains(Types, kind) {
				return e, apierr.InvalidRequest.Errorf("events[%d]: must be one of %s", i, strings.Join(Types, ", "))
			}
			if slices.Contains(c.Events.Value[:i], kind) {
				return e, apierr.InvalidRequest.Errorf("events[%d]: comes twice", i)
			}
		}
		e.Events = c.Events.Value
	}
	if c.Status.Set {
		if c.Status.Value != Active && c.Status.Value != Disabled {
			return e, apierr.InvalidRequest.Errorf("status: must be active or disabled")
		}
		e.Status = c.Status.Value
	}
	return e, nil
}

// Addresses restricts the addresses of endpoints. Public https addresses are allowed.
type Addresses struct {
	Allow []netip.Prefix // further allowed addresses; for development, and networks of the operator
	HTTP  bool           // allow http to loopback hosts; for development
	Own   []string       // URLs of this service, which are refused
}

// mayShowBodies reports whether developers may see what endpoints answer: not where the operator has opened networks of
// its own, whose servers a developer could then read.
func (a Addresses) mayShowBodies() bool { return a.HTTP || len(a.Allow) == 0 }

// findProblem returns the rule that the URL of an endpoint breaks, "" if none. The addresses of its host are checked at
// each attempt, when they are dialed.
func (a Addresses) findProblem(text string) string {
	switch {
	case text == "":
		return "required"
	case len(text) > 2000:
		return "must be at most 2000 bytes"
	case strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("\\\"<>^`{|}", c)
	}):
		return "must be plain ASCII without spaces, backslashes or quotes"
	case strings.Contains(text, "#"):
		return "must have no fragment"
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Hostname() == "" ||
		!strings.HasPrefix(text[len(u.Scheme):], "://") {
		return "must be an absolute address such as https://app.example.com/webhooks"
	}
	switch {
	case u.User != nil:
		return "must have no user or password"
	case u.Scheme != "https" && !(a.HTTP && u.Scheme == "http" && isLoopback(hostOf(u))):
		return "must begin with https://"
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !isValidPort(u.Port()):
		return "must have a port from 1 to 65535, or none"
	case slices.ContainsFunc(a.Own, func(own string) bool { return isSameHost(u, own) }):
		return "must not be this service itself"
	}
	host := hostOf(u)
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && !a.isAllowed(ip) || err != nil && isLoopback(host) && !a.HTTP:
		return "must have a public address"
	case err != nil && isNumeric(host):
		return "must have a name, or an IP address in full such as 192.0.2.1"
	}
	return ""
}

// isNumeric reports whether the last label of a host is a number, in decimal or hexadecimal. Such a host is an IPv4
// address in a short form, as 127.1 is for 127.0.0.1, and never a name (WHATWG URL, ends-in-a-number).
func isNumeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last != "" && strings.Trim(last, "0123456789") == ""
}

func isValidPort(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 1 && n <= 65535
}

// isSameHost reports whether u has the host and port of another URL.
func isSameHost(u *url.URL, other string) bool {
	o, err := url.Parse(other)
	return err == nil && portOf(u) == portOf(o) && (hostOf(u) == hostOf(o) ||
		isLoopback(hostOf(u)) && isLoopback(hostOf(o)))
}

// hostOf returns a URL's host in lower case and without a final dot.
func hostOf(u *url.URL) string { return strings.TrimSuffix(strings.ToLower(u.Hostname()), ".") }

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// isLoopback reports whether a host is this machine. The names below localhost are, too (RFC 6761 §6.3).
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && ip.Unmap().IsLoopback()
}
