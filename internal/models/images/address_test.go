package images

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// nameServer makes a resolver that asks answer, and the network nothing.
func nameServer(t *testing.T, answer func(name string) []netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &asked{reply: func(query []byte) []byte { return reply(t, query, answer) }}, nil
	}}
}

// asked is a connection to a name server: what is written is answered at once.
// As it is no net.PacketConn, each message has its length before it.
type asked struct {
	net.Conn
	reply   func(query []byte) []byte
	answers bytes.Buffer
}

func (a *asked) Write(b []byte) (int, error) { a.answers.Write(a.reply(b[2:])); return len(b), nil }
func (a *asked) Read(b []byte) (int, error)  { return a.answers.Read(b) }
func (a *asked) SetDeadline(time.Time) error { return nil }
func (a *asked) Close() error                { return nil }

// reply answers a query of one question for A or AAAA.
func reply(t *testing.T, query []byte, answer func(string) []netip.Addr) []byte {
	var labels []string
	at := 12
	for query[at] != 0 {
		n := int(query[at])
		labels = append(labels, string(query[at+1:at+1+n]))
		at += 1 + n
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	end := at + 5
	b := append([]byte{0, 0}, query[:2]...)
	b = append(b, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, query[12:end]...)
	count := 0
	for _, a := range answer(strings.ToLower(strings.Join(labels, "."))) {
		if a.Is4() != (kind == 1) || kind != 1 && kind != 28 {
			continue
		}
		b = append(b, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(a.BitLen()/8))
		b = append(b, a.AsSlice()...)
		count++
	}
	binary.BigEndian.PutUint16(b[8:], uint16(count))
	if len(b) > 1000 {
		t.Errorf("too long an answer: %d bytes", len(b))
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}

var errReached = errors.New("would connect")

// A border stands where packets would leave: it notes every address that the
// fetcher would connect to, and leads to a server here instead, if there is one.
type border struct {
	mu      sync.Mutex
	reached []netip.Addr
	refused atomic.Int64
}

func (b *border) guard(f *Fetcher, backend func(port string) string) {
	check := f.dialer.Control
	f.dialer.Control = func(network, address string, c syscall.RawConn) error {
		if err := check(network, address, c); err != nil {
			b.refused.Add(1)
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reached = append(b.reached, netip.MustParseAddrPort(address).Addr())
		return errReached
	}
	transport := f.client.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		before := len(b.reached) // whoever has a backend fetches one at a time
		conn, err := dial(ctx, network, address)
		if _, port, _ := net.SplitHostPort(address); backend != nil && len(b.reached) > before {
			return (&net.Dialer{}).DialContext(ctx, "tcp", backend(port))
		}
		return conn, err
	}
}

func addrs(list ...string) (all []netip.Addr) {
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// The names that lead somewhere special. Every other one, the numbers among
// them, leads to loopback, as it would with the kindest reader of addresses.
var names = map[string][]string{
	"metadata.google.internal":             {"169.254.169.254"},
	"metadata":                             {"169.254.169.254"},
	"instance-data":                        {"169.254.169.254"},
	"metadata6.example.com":                {"fd00:ec2::254"},
	"wire.example.com":                     {"168.63.129.16"},
	"10.0.0.1.nip.example":                 {"10.0.0.1"},
	"app-192-168-1-250.sslip.example":      {"192.168.1.250"},
	"a9fea9fe.nip.example":                 {"169.254.169.254"},
	"mapped.example.com":                   {"::ffff:10.0.0.1"},
	"unique-local.example.com":             {"fc00::1"},
	"several.example.com":                  {"10.0.0.1", "172.16.0.1", "::1", "fe80::1"},
	"nat64.example.com":                    {"64:ff9b::a00:1"},
	"6to4.example.com":                     {"2002:a00:1::1"},
	"kubernetes.default.svc.cluster.local": {"10.96.0.1"},
}

var blocked = []string{
	// loopback in every spelling
	"http://127.0.0.1/", "http://127.0.0.1:80/", "http://127.0.0.1:443/a.png", "https://127.0.0.1/",
	"http://127.0.0.1./", "http://127.255.255.254/",
	"http://2130706433/", "http://017700000001/", "http://0x7f000001/", "http://0x7F.0.0.1/", "http://0177.0.0.1/",
	"http://0x7f.0x0.0x0.0x1/", "http://127.1/", "http://127.0.1/",
	"http://127.000.000.001/", "http://0127.0.0.1/", "http://00000000177.0.0.1/", "http://4294967297/",
	"http://127.0.0.1%2f.example.com/", "http://%31%32%37.0.0.1/", "http://127%2e0%2e0%2e1/",
	"http://１２７.０.０.１/", "http://127。0。0。1/", "http://127．0．0．1/", "http://①②⑦.⓪.⓪.①/", "http://ｌocalhost/",
	"http://loc\u00adalhost/",
	"http://localhost/", "http://LOCALHOST/", "http://localhost./", "http://localhost.localdomain/",
	"http://a.localhost/", "http://ip6-localhost/", "http://127.0.0.1.nip.example/",
	"http://[::1]/", "http://[::1]:443/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]/", "http://[::]/",
	"http://[::1%25lo]/", "http://[::1%25]/",
	"http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:7f00:0001]/",
	"http://[::127.0.0.1]/", "http://[64:ff9b::127.0.0.1]/", "http://[64:ff9b:1::7f00:1]/", "http://[2002:7f00:1::]/",
	// this network, private, shared, link-local and reserved
	"http://0/", "http://0.0.0.0/", "http://0.1.2.3/", "http://10.0.0.1/", "http://10.255.255.255/",
	"http://172.16.0.1/", "http://172.31.255.255/", "http://192.168.0.1/", "http://100.64.0.1/",
	"http://100.127.255.254/",
	"http://169.254.169.254/latest/meta-data/", "http://169.254.0.1/", "http://[::ffff:169.254.169.254]/",
	"http://[::ffff:a9fe:a9fe]/", "http://2852039166/", "http://100.100.100.200/", "http://192.0.0.192/",
	"http://168.63.129.16/",
	"http://192.0.2.1/", "http://198.18.0.1/", "http://198.19.255.255/", "http://198.51.100.1/", "http://203.0.113.1/",
	"http://192.88.99.1/", "http://224.0.0.1/", "http://239.255.255.250/", "http://240.0.0.1/",
	"http://255.255.255.255/",
	"http://[fe80::1]/", "http://[fe80::1%25eth0]/", "http://[fec0::1]/", "http://[fc00::1]/",
	"http://[fd00:ec2::254]/", "http://[ff02::1]/", "http://[2001::1]/", "http://[2001:db8::1]/", "http://[3fff::1]/",
	"http://[100::1]/",
	"http://[2606:4700:4700::1111%25eth0]/", "http://[5f00::1]/", "http://[::ffff:0:127.0.0.1]/",
	// names
	"http://metadata.google.internal/", "http://metadata/", "http://instance-data/latest/",
	"http://metadata6.example.com/", "http://wire.example.com/", "http://10.0.0.1.nip.example/",
	"http://app-192-168-1-250.sslip.example/",
	"http://a9fea9fe.nip.example/", "http://mapped.example.com/", "http://unique-local.example.com/",
	"http://several.example.com/", "http://nat64.example.com/", "http://6to4.example.com/",
	"http://kubernetes.default.svc.cluster.local/",
	// tricks with the user, the slash and the port
	"http://93.184.215.14@127.0.0.1/", "http://user:pw@93.184.215.14/", "http://@93.184.215.14/",
	"http://93.184.215.14:80@127.0.0.1:80/", `http://93.184.215.14\@127.0.0.1/`, `http:\\127.0.0.1\`, "http:127.0.0.1",
	"http:///127.0.0.1/", "//93.184.215.14/",
	"http://127.0.0.1#@93.184.215.14/", "http://127.0.0.1?@93.184.215.14/", "http://127.0.0.1;.example.com/",
	"http://127.0.0.1\t/", "http://127.0.0.1\r\nHost: x/", " http://127.0.0.1/", "http://127.0.0.1 /",
	"http://93.184.215.14:22/", "http://93.184.215.14:8080/", "http://93.184.215.14:0/", "http://93.184.215.14:65616/",
	"http://93.184.215.14:-80/", "https://93.184.215.14:6379/", "http://[2606:4700:4700::1111]:25/",
	"http://93.184.215.14:80:22/",
	// other schemes
	"ftp://93.184.215.14/a.png", "file:///etc/passwd", "gopher://93.184.215.14:80/", "unix:///run/x.sock",
	"jar:http://93.184.215.14/!/", "javascript:alert(1)", "blob:http://93.184.215.14/", "", "a.png", "http://",
	"http://:80/",
}

func TestBlockedSpellings(t *testing.T) {
	t.Parallel()
	if len(blocked) < 80 {
		t.Fatalf("only %d spellings", len(blocked))
	}
	f := New(Config{Resolver: nameServer(t, func(name string) []netip.Addr {
		if list, ok := names[name]; ok {
			return addrs(list...)
		}
		return addrs("127.0.0.1", "::1")
	})})
	var b border
	b.guard(f, nil)
	for _, raw := range blocked {
		u, err := parseURL(raw)
		if err == nil {
			_, err = f.Fetch(t.Context(), u, nil)
		}
		if err == nil || err.Error() != errForm.Error() && err.Error() != errFetch.Error() {
			t.Errorf("%q: error %v", raw, err)
		}
		if len(b.reached) > 0 {
			t.Errorf("%q would connect to %v (%v)", raw, b.reached, err)
			b.reached = nil
		}
	}
	if b.refused.Load() < 60 {
		t.Errorf("only %d connections were refused: the resolver does not work", b.refused.Load())
	}
}

func TestPublicAddressesAreFetched(t *testing.T) {
	t.Parallel()
	f := New(Config{Resolver: nameServer(t, func(name string) []netip.Addr {
		return map[string][]netip.Addr{
			"example.com":           addrs("93.184.215.14"),
			"images.example.com":    addrs("2606:4700:4700::1111"),
			"both.example.com":      addrs("10.0.0.1", "1.1.1.1"), // the private one is passed over
			"xn--bcher-kva.example": addrs("8.8.4.4"),
			"www.example.com":       addrs("192.0.1.1"), // beside a special range
		}[name]
	})})
	serve := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(pngOf(3, 5)) })
	plain, secure := httptest.NewServer(serve), httptest.NewTLSServer(serve)
	defer plain.Close()
	defer secure.Close()
	f.client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	var b border
	b.guard(f, func(port string) string {
		if port == "443" {
			return secure.Listener.Addr().String()
		}
		return plain.Listener.Addr().String()
	})
	for raw, want := range map[string]string{
		"http://93.184.215.14/a.png":     "93.184.215.14",
		"http://1.1.1.1:80/":             "1.1.1.1",
		"http://[2606:4700:4700::1111]/": "2606:4700:4700::1111",
		"HTTP://8.8.8.8/":                "8.8.8.8",
		"http://172.32.0.1/":             "172.32.0.1",
		"http://100.128.0.1/":            "100.128.0.1",
		"http://example.com/a.png?b=c#d": "93.184.215.14",
		"https://example.com/":           "93.184.215.14",
		"https://example.com:443/":       "93.184.215.14",
		"http://images.example.com/":     "2606:4700:4700::1111",
		"http://both.example.com/":       "1.1.1.1",
		"http://bücher.example/":         "8.8.4.4",
		"http://www.example.com./":       "192.0.1.1",
	} {
		u, err := parseURL(raw)
		if err != nil {
			t.Errorf("%q: %v", raw, err)
			continue
		}
		b.reached = nil
		img, err := f.Fetch(t.Context(), u, nil)
		if err != nil || img.Width != 3 || !slices.Contains(b.reached, netip.MustParseAddr(want)) ||
			len(b.reached) != 1 {
			t.Errorf("%q: %+v, error %v %v, reached %v, want %s", raw, img, err, errors.Unwrap(err), b.reached, want)
		}
	}
}

// A resolver that says another address each time never gets a private one
// through, whichever of its answers the check saw.
func TestRebinding(t *testing.T) {
	t.Parallel()
	const tries = 10_000
	var asked atomic.Int64
	public := netip.MustParseAddr("93.184.215.14")
	f := New(Config{Resolver: nameServer(t, func(string) []netip.Addr {
		private := addrs("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1")
		switch n := asked.Add(1); n % 3 {
		case 0:
			return []netip.Addr{public}
		case 1:
			return private[n%5 : n%5+1]
		}
		return append(private, public)
	})})
	var b border
	b.guard(f, nil)
	dial := f.client.Transport.(*http.Transport).DialContext
	for range tries {
		if conn, err := dial(t.Context(), "tcp", "rebind.example.com:80"); err == nil {
			conn.Close()
			t.Fatalf("connected to %s", conn.RemoteAddr())
		}
	}
	private := 0
	for _, a := range b.reached {
		if a != public {
			private++
		}
	}
	if private > 0 || len(b.reached) < tries/4 || b.refused.Load() < tries/4 {
		t.Errorf("%d of %d connections went to private addresses, %d were refused", private, len(b.reached),
			b.refused.Load())
	}
	t.Logf("%d tries: %d connections to private addresses, %d to the public one, %d refused", tries, private,
		len(b.reached), b.refused.Load())
}

// The fetcher as it is, without any hand in it, reaches no server here.
func TestNothingHereIsReached(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		w.Write(pngOf(3, 5))
	}))
	defer server.Close()
	u, err := parseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{}).Fetch(t.Context(), u, nil); !errors.Is(err, errFetch) || hits.Load() != 0 {
		t.Errorf("error %v, %d hits", err, hits.Load())
	}
	if _, err := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}}).Fetch(t.Context(),
		u, nil); !errors.Is(err, errFetch) || hits.Load() != 0 {
		t.Errorf("with another address allowed: error %v, %d hits", err, hits.Load())
	}
	if _, err := New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}).Fetch(t.Context(),
		u, nil); err != nil || hits.Load() != 1 {
		t.Errorf("allowed: error %v, %d hits", err, hits.Load())
	}
	transport := New(Config{}).client.Transport.(*http.Transport)
	if transport.Proxy != nil || transport.TLSClientConfig != (*tls.Config)(nil) {
		t.Error("a proxy, or another trust than the system's")
	}
}
