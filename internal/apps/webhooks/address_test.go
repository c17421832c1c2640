package webhooks_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestRebinding gives an endpoint a public name that now means a private address,
// in every spelling of addresses: each attempt looks at what it would dial (F-79).
func TestRebinding(t *testing.T) {
	t.Parallel()
	here := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the inside was reached")
	}))
	defer here.Close()
	_, port, err := net.SplitHostPort(here.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := newBundle(t, dbtest.Open(t, db.SQLite), webhooks.Addresses{})
	e := b.create(t, `{"url":"https://app.example.com:`+port+`/"}`)
	b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/test", `{"type":"connection.created"}`)
	addresses := []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1", "::1"}
	for n, address := range addresses {
		d := webhooks.NewDispatcher(b.store, quiet, webhooks.Options{Resolver: resolver(netip.MustParseAddr(address))})
		if err := d.Work(t.Context()); err != nil {
			t.Fatal(err)
		}
		v := b.deliveries(t, e.ID)[0]
		if v.Attempts != n+1 || v.ResponseStatus != nil || v.LastError == nil ||
			!strings.Contains(*v.LastError, "no public address") {
			t.Errorf("%s: %+v, %s", address, v, *v.LastError)
		}
		b.clock.move(16 * time.Hour)
	}
}

// TestOwnListener gives an endpoint a name of somebody else's that means this very
// service: it does not call itself (F-78).
func TestOwnListener(t *testing.T) {
	t.Parallel()
	here := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the service called itself")
	}))
	defer here.Close()
	_, port, err := net.SplitHostPort(here.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	rules := loopback
	rules.Own = []string{"http://127.0.0.1:" + port}
	b := newBundle(t, dbtest.Open(t, db.SQLite), rules)
	want(t, b.mine.Do(t, "POST", b.collection(), `{"url":"http://localhost:`+port+`/"}`), 400, "invalid_request")
	e := b.create(t, `{"url":"https://app.example.com:`+port+`/"}`)
	b.mine.Do(t, "POST", b.collection()+"/"+e.ID+"/test", `{"type":"connection.created"}`)
	d := webhooks.NewDispatcher(b.store, quiet, webhooks.Options{Resolver: resolver(netip.MustParseAddr("127.0.0.1"))})
	if err := d.Work(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := b.deliveries(t, e.ID)[0]; v.Attempts != 1 || v.LastError == nil ||
		*v.LastError != "its host is this service itself" {
		t.Errorf("%+v", v)
	}
}

// An operator may open a network, for https only.
func TestAllowedNetwork(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Open(t, db.SQLite),
		webhooks.Addresses{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})
	b.create(t, `{"url":"https://10.1.2.3/"}`)
	want(t, b.mine.Do(t, "POST", b.collection(), `{"url":"http://10.1.2.3/"}`), 400, "invalid_request")
	want(t, b.mine.Do(t, "POST", b.collection(), `{"url":"https://10.2.2.3/"}`), 400, "invalid_request")
}

// resolver answers every name with one address, and asks the network nothing.
func resolver(a netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return &asked{address: a}, nil
	}}
}

// asked is a connection to a name server: what is written is answered at once. As
// it is no net.PacketConn, each message has its length before it.
type asked struct {
	net.Conn
	address netip.Addr
	answers bytes.Buffer
}

func (a *asked) Write(b []byte) (int, error) { a.answers.Write(a.reply(b[2:])); return len(b), nil }
func (a *asked) Read(b []byte) (int, error)  { return a.answers.Read(b) }
func (a *asked) SetDeadline(time.Time) error { return nil }
func (a *asked) Close() error                { return nil }

// reply answers a query of one question for A or AAAA.
func (a *asked) reply(query []byte) []byte {
	at := 12
	for query[at] != 0 {
		at += 1 + int(query[at])
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	b := append([]byte{0, 0}, query[:2]...)
	b = append(b, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
	b = append(b, query[12:at+5]...)
	if a.address.Is4() == (kind == 1) {
		b = append(b, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(a.address.BitLen()/8))
		b = append(b, a.address.AsSlice()...)
		b[9] = 1
	}
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	return b
}
