package nodes

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A freezer is a proxy before a PostgreSQL. Frozen, it takes connections and bytes and passes
// nothing on, as a network does that drops packets.
type freezer struct {
	listener net.Listener
	network  string
	address  string

	mu     sync.Mutex
	thawed chan struct{} // closed while bytes pass
}

// newFreezer starts a freezer, and returns the URL of the database through it.
func newFreezer(t *testing.T, database string) (f *freezer, through string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	f = &freezer{network: "tcp", address: u.Host, thawed: make(chan struct{})}
	close(f.thawed)
	if host := query.Get("host"); strings.HasPrefix(host, "/") {
		f.network, f.address = "unix", host+"/.s.PGSQL.5432"
	}
	if f.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = f.listener.Close()
		f.thaw()
	})
	go f.serve()
	query.Del("host")
	query.Del("connect_timeout") // of Purser, not of tests
	u.Host, u.RawQuery = f.listener.Addr().String(), query.Encode()
	return f, u.String()
}

func (f *freezer) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(f.network, f.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		go f.pass(server, client)
		go f.pass(client, server)
	}
}

func (f *freezer) pass(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		f.mu.Lock()
		thawed := f.thawed
		f.mu.Unlock()
		<-thawed
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.thawed = make(chan struct{})
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.thawed:
	default:
		close(f.thawed)
	}
}

// probeReady asks GET /readyz.
func probeReady(t *testing.T, p *nodetest.Node) (status int, body string, took time.Duration) {
	t.Helper()
	began := time.Now()
	resp, err := http.Get(p.BaseURL + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), time.Since(began)
}

// awaitReady waits until a node is ready: a busy machine takes longer to open a connection than GET /readyz waits.
func awaitReady(t *testing.T, p *nodetest.Node) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, "a node that is ready", func() bool {
		status, _, _ := probeReady(t, p)
		return status == 200
	})
}

// slack is what a loaded machine may add to a time limit.
const slack = 8 * time.Second

// TestDatabaseHangs freezes PostgreSQL: it answers nothing and refuses nothing. New calls are
// 503 within seconds, the node is not ready, a call whose response is ready is told so and
// billed later, and everything works again after the thaw (F-53).
func TestDatabaseHangs(t *testing.T) {
	t.Parallel()
	database := servertest.URL(t, db.Postgres)
	f, through := newFreezer(t, database)
	p := servertest.Start(t, through)
	b := newBooks(t, nil)
	if r := ask(p.Node, b.addCall(false, "!mock words=5")); r.status != 200 {
		t.Fatalf("before: %+v", r)
	}
	awaitReady(t, p.Node)
	running := b.addCall(false, "!mock words=5 delay=4s")
	stream := b.addCall(true, "!mock words=5 delay=4s")
	whole, streamed := asking(p.Node, running), asking(p.Node, stream)
	testkit.Eventually(t, testkit.Patience, "two holds", func() bool {
		return dbtest.Number(t, database, openHolds) == 2
	})
	// The database has the holds; what it answered passes the freezer before this does.
	awaitReady(t, p.Node)
	f.freeze()
	if status, body, took := probeReady(t, p.Node); status != 503 || took > 2*time.Second+slack {
		t.Errorf("frozen: /readyz is %d after %v: %s", status, took, body)
	}
	var asked []<-chan reply
	began := time.Now()
	for range 40 {
		asked = append(asked, asking(p.Node, b.addCall(false, "!mock words=5")))
	}
	for _, ch := range asked {
		if r := <-ch; r.status != 503 || r.header.Get("Retry-After") == "" {
			t.Errorf("frozen: a new call got %+v", r)
		}
	}
	if took := time.Since(began); took > 5*time.Second+slack {
		t.Errorf("the last of the new calls was answered after %v", took)
	}
	if r := <-whole; r.status != 503 || r.errorCode() != "unavailable" {
		t.Errorf("a call whose response is ready got %+v", r)
	}
	if r := <-streamed; !strings.Contains(r.body, `"code":"unavailable"`) ||
		!strings.HasSuffix(r.body, "data: [DONE]\n\n") {
		t.Errorf("a stream whose response is ready got %+v", r)
	}
	f.thaw()
	awaitReady(t, p.Node)
	for _, c := range []*booked{running, stream} {
		testkit.Eventually(t, testkit.Patience, "the late settlement", func() bool {
			return ask(p.Node, c).status == 200
		})
		calltest.Spend(t, p.DB, c.key)
	}
	testkit.Eventually(t, testkit.Patience, "end of the holds", func() bool {
		return dbtest.Number(t, database, openHolds) == 0
	})
	servertest.Verify(t, database)
}

// TestStopWhileTheDatabaseHangs ends a node whose database answers nothing.
func TestStopWhileTheDatabaseHangs(t *testing.T) {
	t.Parallel()
	f, through := newFreezer(t, servertest.URL(t, db.Postgres))
	p := servertest.Start(t, through)
	c := newBooks(t, nil).addCall(false, "!mock words=5")
	if r := ask(p.Node, c); r.status != 200 {
		t.Fatalf("before: %+v", r)
	}
	f.freeze()
	waiting := asking(p.Node, newBooks(t, nil).addCall(false, "!mock words=5"))
	began := time.Now()
	p.Stop()
	if took := time.Since(began); took > 10*time.Second+slack {
		t.Errorf("the node ended after %v", took)
	}
	<-waiting
}
