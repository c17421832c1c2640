package images

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"code.dny.dev/ssrf"

	"github.com/purserhq/purser/internal/base/dial"
)

// Bounds of fetching (contract §4.3; F-84).
const (
	maxURL         = 8192
	maxRedirects   = 3
	maxHeader      = 64 << 10
	imageTimeout   = 10 * time.Second // an image with all its redirects
	requestTimeout = 30 * time.Second // the images of a request
	maxParallel    = 4                // images of a request that are fetched at a time
)

// wireServer is the public-looking address at which a cloud serves secrets to its virtual machines.
var wireServer = netip.MustParsePrefix("168.63.129.16/32")

// errFetch is the one error for a URL without an image. It does not reveal whether the address is forbidden, closed,
// silent or unknown, or answers with an error (F-83).
var errFetch = errors.New("could not be fetched as an image")

// A Config has the addresses outside the public Internet that a Fetcher may reach.
type Config struct {
	Allow    []netip.Prefix // further addresses, on any port; for development and tests
	Resolver *net.Resolver  // nil = the system's
}

// A Fetcher fetches images from public addresses.
type Fetcher struct {
	allow    []netip.Prefix
	guardian *ssrf.Guardian
	dialer   *net.Dialer
	client   *http.Client
	timeout  time.Duration // for one image
}

// New returns a Fetcher. It keeps no cookies and no connections. It uses no proxy, because the address check would then
// see only the address of the proxy.
func New(c Config) *Fetcher {
	f := &Fetcher{allow: c.Allow, guardian: ssrf.New(ssrf.WithDeniedV4Prefixes(wireServer)), timeout: imageTimeout}
	f.dialer = &net.Dialer{Resolver: c.Resolver, Control: f.checkAddress}
	f.client = &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			DialContext:            dial.By(f.dialer),
			DisableKeepAlives:      true,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
	return f
}

// checkAddress checks the address of each connection before it is made.
func (f *Fetcher) checkAddress(network, address string, c syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err == nil {
		for _, p := range f.allow {
			if p.Contains(to.Addr()) {
				return nil
			}
		}
	}
	return f.guardian.Safe(network, address, c)
}

// parseURL parses a remote URL. It is the only parser, so that the checked URL is the one that is dialed.
func parseURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, errForm
	}
	u, err := url.Parse(raw)
	if err != nil || !isFetchable(u) {
		return nil, errForm
	}
	return u, nil
}

func isFetchable(u *url.URL) bool {
	return (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil
}

func checkRedirect(next *http.Request, via []*http.Request) error {
	switch last := via[len(via)-1]; {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case !isFetchable(next.URL):
		return errors.New("redirect to something that is not a plain http or https URL")
	case last.URL.Scheme == "https" && next.URL.Scheme != "https":
		return errors.New("redirect from https to http")
	}
	next.Header.Del("Referer") // the URL may hold a secret of the app
	return nil
}

// Fetch reads a whole image. reserve is that of Load; nil reserves nothing.
func (f *Fetcher) Fetch(ctx context.Context, u *url.URL, reserve func(bytes int) error) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	body, _, err := f.requestImage(ctx, u)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	var all bytes.Buffer
	if _, err := all.ReadFrom(&reservingReader{body, reserve}); err != nil {
		return nil, hideFetchError(err)
	}
	img, err := inspectImage(bytes.NewReader(all.Bytes()))
	if err != nil {
		return nil, err
	}
	img.encode(all.Bytes())
	return img, nil
}

// encode stores the bytes of the image in base64.
func (i *Image) encode(data []byte) {
	var b strings.Builder
	b.Grow(len(i.head()) + base64.StdEncoding.EncodedLen(len(data)))
	b.WriteString(i.head())
	w := base64.NewEncoder(base64.StdEncoding, &b)
	w.Write(data) // neither fails on a strings.Builder
	w.Close()
	i.Bytes, i.url = len(data), b.String()
	i.Data = i.url[len(i.head()):]
}

// Probe reads only the start of an image, up to its dimensions. Bytes is the declared length, 0 if there is none.
func (f *Fetcher) Probe(ctx context.Context, u *url.URL) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	body, length, err := f.requestImage(ctx, u)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	img, err := inspectImage(body)
	if err != nil {
		return nil, hideFetchError(err)
	}
	img.Bytes = max(0, int(length))
	return img, nil
}

// requestImage requests an image. It returns the body, which fails with errSize after MaxBytes, and the declared
// length, -1 if there is none.
func (f *Fetcher) requestImage(ctx context.Context, u *url.URL) (io.ReadCloser, int64, error) {
	r := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{
		"User-Agent":      {"Purser"},
		"Accept":          {"image/png, image/jpeg, image/webp, image/gif"},
		"Accept-Encoding": {"identity"},
	}}).WithContext(ctx)
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, 0, hideFetchError(err)
	}
	if err := checkAnswer(answer); err != nil {
		answer.Body.Close()
		return nil, 0, err
	}
	return &limitedBody{answer.Body, MaxBytes}, answer.ContentLength, nil
}

func checkAnswer(a *http.Response) error {
	switch encoding := a.Header.Get("Content-Encoding"); {
	case a.StatusCode != http.StatusOK:
		return hideFetchError(fmt.Errorf("status %d", a.StatusCode))
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		return hideFetchError(errors.New("the body is encoded")) // never decompress: 5 MB may become 5 GB
	case a.ContentLength > MaxBytes:
		return errSize
	}
	return nil
}

// limitedBody reads at most left bytes and fails with errSize after them.
type limitedBody struct {
	io.ReadCloser
	left int
}

func (l *limitedBody) Read(p []byte) (int, error) {
	if len(p) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if n > l.left {
		return 0, errSize
	}
	l.left -= n
	return n, err
}

// A reservingReader reserves the bytes that it reads.
type reservingReader struct {
	from    io.Reader
	reserve func(bytes int) error
}

func (r *reservingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.reserve != nil {
		if refusal := r.reserve(n); refusal != nil {
			return 0, &reserveError{refusal}
		}
	}
	return n, err
}

// A reserveError says that there is no room for the bytes of an image.
type reserveError struct{ cause error }

func (e *reserveError) Error() string { return e.cause.Error() }

// hideFetchError hides why a URL could not be fetched; only the log gets the cause. Errors about the bytes of an image
// are not hidden.
func hideFetchError(err error) error {
	if refusal, ok := errors.AsType[*reserveError](err); ok {
		return refusal
	}
	for _, known := range []error{errSize, errKind, errBroken, errLarge} {
		if errors.Is(err, known) {
			return known
		}
	}
	return &fetchError{err}
}

type fetchError struct{ cause error }

func (e *fetchError) Error() string        { return errFetch.Error() }
func (e *fetchError) Unwrap() error        { return e.cause }
func (e *fetchError) Is(target error) bool { return target == errFetch }
