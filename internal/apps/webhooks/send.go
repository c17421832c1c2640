package webhooks

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/purserhq/purser/internal/base/dial"
)

// Bounds of one attempt (decision 040; F-76).
const (
	attemptTimeout = 15 * time.Second
	maxAnswer      = 64 << 10
)

// wireServer is the public-looking address at which a cloud serves secrets to its virtual machines.
var wireServer = netip.MustParsePrefix("168.63.129.16/32")

var guardian = ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(wireServer))

// What is refused at the moment that it is dialled.
var (
	errPrivate = errors.New("not a public address")
	errOwn     = errors.New("this service itself")
)

// isAllowed reports whether webhooks may go to an address.
func (a Addresses) isAllowed(ip netip.Addr) bool {
	for _, p := range a.Allow {
		if p.Contains(ip.Unmap()) {
			return true
		}
	}
	return guardian.SafeAddr(ip) == nil
}

// checkDial is asked before each connection, with the address that it goes to, so
// that no spelling and no name server leads elsewhere (F-79).
func (a Addresses) checkDial(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || !a.isAllowed(to.Addr()) {
		return errPrivate
	}
	if slices.ContainsFunc(a.Own, func(own string) bool { return isSameHost(&url.URL{Host: address}, own) }) {
		return errOwn // a URL of this service that is an address, under another name (F-78)
	}
	return nil
}

// newClient returns a client for webhooks. It follows no redirect (F-77), knows no
// proxy, which would be what the address check sees, and keeps no connections, so
// that each attempt is checked.
func newClient(a Addresses, resolver *net.Resolver, roots *tls.Config) *http.Client {
	dialer := &net.Dialer{Resolver: resolver, Control: a.checkDial}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dial.By(dialer),
			TLSClientConfig:        roots,
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxAnswer,
		},
	}
}

// NewClient returns a client that reaches the addresses that webhooks may reach, and follows no redirect.
func (a Addresses) NewClient() *http.Client { return newClient(a, nil, nil) }

// An attemptOutcome is the result of one attempt.
type attemptOutcome struct {
	status  int    // HTTP status, 0 = no response
	failed  string // for the developer; "" = delivered
	excerpt string // the beginning of the response's body
	begun   time.Time
	took    time.Duration
}

// postDelivery makes one attempt. Only the status decides (F-82). It reads a small body to its end,
// so that the receiver can finish writing.
func postDelivery(ctx context.Context, client *http.Client, to string, header http.Header, body []byte) attemptOutcome {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return attemptOutcome{failed: "the URL cannot be called"}
	}
	r.Header = header
	answer, err := client.Do(r)
	if err != nil {
		return attemptOutcome{failed: describeError(err)}
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxFailureExcerpt)) // errors in the body do not matter
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer-int64(len(text)))
	_ = answer.Body.Close()
	o := attemptOutcome{status: answer.StatusCode, excerpt: makeExcerpt(text, maxFailureExcerpt)}
	switch {
	case o.status >= 200 && o.status < 300:
		o.excerpt = makeExcerpt(text, maxSuccessExcerpt)
	case o.status >= 300 && o.status < 400:
		o.failed = fmt.Sprintf("answered %d: redirects are not followed", o.status)
	default:
		o.failed = fmt.Sprintf("answered %d", o.status)
	}
	return o
}

// describeError describes for the developer why there was no response. An unknown host and a host
// with a private address have the same text, so that it reveals nothing about our network.
func describeError(err error) string {
	var wrong *tls.CertificateVerificationError
	var dns *net.DNSError
	switch timed, ok := errors.AsType[net.Error](err); {
	case errors.Is(err, errPrivate), errors.As(err, &dns):
		return "its host has no public address"
	case errors.Is(err, errOwn):
		return "its host is this service itself"
	case errors.Is(err, context.DeadlineExceeded), ok && timed.Timeout():
		return "no answer within 15 seconds"
	case errors.As(err, &wrong):
		return "its TLS certificate is not valid"
	}
	return "the connection failed before an answer"
}
