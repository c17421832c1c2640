package nodes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// startPair starts two nodes on one fresh PostgreSQL.
func startPair(t *testing.T, flags ...string) (a, b *servertest.Process) {
	t.Helper()
	url := servertest.URL(t, db.Postgres)
	return servertest.Start(t, url, flags...), servertest.Start(t, url, flags...)
}

// shortLease is for tests in which a lease ends. A node that could not renew its lease for half of it refuses calls,
// and a starved machine may need a second or two for that.
const shortLease = "--lease=4s"

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

// errorCode is the error code of a reply, "" if it is none.
func (r reply) errorCode() string {
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal([]byte(r.body), &e) // an answer has none
	return e.Error.Code
}

// ask makes a call on a node and reads the whole answer.
func ask(p *nodetest.Node, c *booked) reply { return <-beginCall(p, c).answer }

// asking is ask in the background.
func asking(p *nodetest.Node, c *booked) <-chan reply { return beginCall(p, c).answer }

// asked is a call on its way.
type asked struct {
	answer chan reply
	begun  chan struct{} // closed when the answer begins, or there will be none
	leave  func()        // does not wait for it any longer
}

func beginCall(p *nodetest.Node, c *booked) asked {
	a := asked{answer: make(chan reply, 1), begun: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	a.leave = cancel
	go func() {
		defer cancel()
		a.answer <- exchange(ctx, p, c, a.begun)
	}()
	return a
}

func exchange(ctx context.Context, p *nodetest.Node, c *booked, begun chan<- struct{}) reply {
	begins := sync.OnceFunc(func() { close(begun) })
	defer begins()
	req, err := request(ctx, p, c)
	if err != nil {
		return reply{err: err}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer resp.Body.Close()
	begins()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), err}
}

// TestNodesLastMicroCent races 64 callers on two processes for an allocation
// that covers exactly one of them, and then for one that lacks a micro-cent (F-49).
func TestNodesLastMicroCent(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	nodes := []*servertest.Process{a, b}
	books := newBooks(t, nil)
	probe := books.addCall(false, "!mock delay=4s words=5")
	if r := ask(a.Node, probe); r.status != 200 {
		t.Fatal(r)
	}
	hold := money.MC(calltest.Spend(t, a.DB, probe.key).HoldMC)

	d := dbtest.OpenURL(t, a.DB)
	for _, race := range []struct {
		spare money.MC
		won   int
	}{{hold, 1}, {hold - 1, 0}} {
		conn, err := store.GetConnection(t.Context(), d, a.Connection.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.NewWriter(d, d.Now).Do(t.Context(),
			rules.ChangeCap{ConnectionID: conn.ID, TargetMC: conn.ConsumedMC + race.spare}); err != nil {
			t.Fatal(err)
		}
		won, refused := 0, 0
		var replies []<-chan reply
		for i := range 64 {
			c := books.addCall(false, "")
			c.body = probe.body // the same text costs the same
			replies = append(replies, asking(nodes[i%2].Node, c))
		}
		for _, ch := range replies {
			switch r := <-ch; {
			case r.status == 200:
				won++
			case r.status == 402 && r.errorCode() == "allocation_exhausted":
				refused++
			default:
				t.Errorf("%+v", r)
			}
		}
		if won != race.won || refused != 64-race.won {
			t.Errorf("with %d mc for calls of %d: %d won, %d refused", race.spare, hold, won, refused)
		}
	}
	a.Verify()
}

// TestNodesJoin sends one key to both nodes at once, many times over: one call,
// one row, the same bytes for all (F-36, F-37).
func TestNodesJoin(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	books := newBooks(t, nil)
	for _, c := range []*booked{
		books.addCall(false, "!mock delay=1500ms words=20"), books.addCall(true, "!mock pace=100ms words=60 chunks=30"),
		books.addCall(true, "!mock delay=700ms words=20 chunks=4"),
		books.addCall(false, "!mock words=20"), books.addCall(true, "!mock words=20 chunks=5"),
	} {
		var copies []<-chan reply
		for range 6 {
			copies = append(copies, asking(a.Node, c), asking(b.Node, c))
		}
		first, marked := reply{}, 0
		for _, ch := range copies {
			r := <-ch
			if first.body == "" {
				first = r
			}
			if r.status != 200 || r.body != first.body || r.err != nil {
				t.Errorf("stream %t: status %d, %v:\n%s\nand another copy got\n%s", c.stream, r.status, r.err, r.body,
					first.body)
			}
			if r.header.Get("Idempotent-Replayed") == "true" {
				marked++
			}
		}
		if c.answer = []byte(first.body); marked != len(copies)-1 {
			t.Errorf("stream %t: %d of %d copies are marked as replayed", c.stream, marked, len(copies))
		}
		row := calltest.Spend(t, a.DB, c.key)
		if want, err := calltest.ReadBill(c.answer); err != nil || row != want {
			t.Errorf("answered %+v, %v; the row says %+v", want, err, row)
		}
	}
	a.Verify()
}

// TestNodesJoinerOutlivesLeader lets the first copy on the other node, whom the
// next ones have joined, go away: they still get the whole answer.
func TestNodesJoinerOutlivesLeader(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	c := newBooks(t, nil).addCall(true, "!mock pace=100ms words=60 chunks=30")
	owner := asking(a.Node, c)
	calltest.AwaitHold(t, a.Node, c.key, "open")
	first := beginCall(b.Node, c)
	<-first.begun
	second := beginCall(b.Node, c)
	<-second.begun
	first.leave()
	if r := <-first.answer; r.err == nil {
		t.Error("the first copy was answered before it could leave")
	}
	if want, r := <-owner, <-second.answer; r.status != 200 || r.err != nil || r.body != want.body {
		t.Errorf("the second copy got %+v\nthe owner's client got %+v", r, want)
	}
	a.Verify()
}

// TestNodesOwnerDies kills the owner of a call while a copy waits on the other
// node: after the lease the hold ends, and the copy runs the call itself; a retry replays
// it. A follower of its stream gets the part that is billed, and is told that it was
// interrupted (F-03, F-06, F-37).
func TestNodesOwnerDies(t *testing.T) {
	t.Parallel()
	a, b := startPair(t, shortLease)
	books := newBooks(t, nil)
	whole, stream := books.addCall(false, "!mock delay=6s words=9"),
		books.addCall(true, "!mock pace=100ms words=200 chunks=200")
	owners := []<-chan reply{asking(a.Node, whole), asking(a.Node, stream)}
	calltest.AwaitHold(t, a.Node, whole.key, "open")
	calltest.AwaitHold(t, a.Node, stream.key, "open")
	joined, following := asking(b.Node, whole), asking(b.Node, stream)
	calltest.AwaitWords(t, a.Node, stream.key)
	a.Kill()
	for _, ch := range owners {
		if r := <-ch; r.err == nil {
			t.Errorf("answered by the dead: %+v", r)
		}
	}
	ran := <-joined
	if whole.answer = []byte(ran.body); ran.status != 200 || ran.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("a joiner of a dead call got %+v", ran)
	}
	r := <-following
	if stream.answer = []byte(r.body); r.status != 200 || !strings.Contains(r.body, `"settlement":"estimated"`) ||
		!strings.Contains(r.body, "the service was interrupted") {
		t.Errorf("a follower of a dead stream got %+v", r)
	}
	row := calltest.Spend(t, b.DB, stream.key)
	if want, err := calltest.ReadBill(stream.answer); err != nil || row != want || row.ChargeMC == 0 {
		t.Errorf("followed %+v, %v; the row says %+v", want, err, row)
	}
	if again := ask(b.Node, stream); again.body != r.body {
		t.Errorf("replayed\n%s\nfollowed\n%s", again.body, r.body)
	}
	if r := ask(b.Node, whole); r.status != 200 || r.body != ran.body || r.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a retry got %+v", r)
	}
	calltest.Spend(t, b.DB, whole.key)
	b.Verify()
}

// TestNodesPausedOwner stops an owner beyond its lease (SIGSTOP) and lets it go
// on: its late settlement is charged once, or fenced (F-09).
func TestNodesPausedOwner(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]struct {
		script string
		copies string // what a retry on the other node does before the owner wakes
	}{
		"nobody asked again":      {"!mock delay=4s words=9", "none"},
		"a retry was answered":    {"!mock delay=4s words=9", "done"},
		"a retry is under way":    {"!mock delay=5s words=9", "running"},
		"its stream was replaced": {"!mock delay=4s words=40 chunks=8", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := startPair(t, shortLease)
			c := newBooks(t, nil).addCall(strings.Contains(meanwhile.script, "chunks"), meanwhile.script)
			owner := asking(a.Node, c)
			calltest.AwaitHold(t, a.Node, c.key, "open")
			a.Signal(syscall.SIGSTOP)
			calltest.AwaitHold(t, b.Node, c.key, "failed")
			var retry <-chan reply
			var other reply
			if meanwhile.copies != "none" {
				retry = asking(b.Node, c)
				calltest.AwaitHold(t, b.Node, c.key, "open")
			}
			if meanwhile.copies == "done" {
				other = <-retry
			}
			a.Signal(syscall.SIGCONT)
			late := <-owner
			if late.status == http.StatusServiceUnavailable && meanwhile.copies != "running" {
				late = ask(a.Node, c) // it was stopped before it knew of its hold, and its client asks again
			}
			if meanwhile.copies == "running" {
				other = <-retry
				if late.status != 502 || late.errorCode() != "provider_error" {
					t.Errorf("the fenced owner answered %+v", late)
				}
				late = other
			}
			if meanwhile.copies == "none" {
				other = ask(b.Node, c)
			}
			if c.answer = []byte(other.body); other.status != 200 || late.status != 200 {
				t.Fatalf("late %+v, other %+v", late, other)
			}
			row := calltest.Spend(t, b.DB, c.key)
			if want, err := calltest.ReadBill(c.answer); err != nil || row != want {
				t.Errorf("answered %+v, %v; the row says %+v", want, err, row)
			}
			if late.body != other.body && !c.stream { // of a stream, its own text had gone out
				t.Errorf("the owner answered\n%s\nand the other node\n%s", late.body, other.body)
			}
			if again := ask(a.Node, c); again.body != other.body {
				t.Errorf("replayed\n%s\nwant\n%s", again.body, other.body)
			}
			a.Verify()
		})
	}
}

// TestNodesRevoke revokes a connection on one node: the other refuses its very
// next call. A revoked token, which nodes remember, is refused within three seconds.
func TestNodesRevoke(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	books := newBooks(t, nil)
	if r := ask(b.Node, books.addCall(false, "!mock words=5")); r.status != 200 { // b knows the connection now
		t.Fatal(r)
	}
	running := asking(b.Node, books.addCall(false, "!mock delay=6s words=5")) // seen on a busy machine, too
	calltest.AwaitHold(t, b.Node, books.calls[1].key, "open")
	basic := base64.StdEncoding.EncodeToString([]byte(a.App.ClientID + ":" + a.App.ClientSecret))
	form := "Content-Type: application/x-www-form-urlencoded"
	readBody(t, a.Call("POST", "/oauth/revoke", "token="+a.Connection.AccessToken, "Authorization: Basic "+basic, form))
	testkit.Eventually(t, testkit.Patience, "a token that was revoked on the other node is refused", func() bool {
		return ask(b.Node, &booked{
			key:  servertest.UUID(),
			body: books.calls[0].body,
			as:   a.Connection.AccessToken,
		}).status == 401
	})
	readBody(t, a.Call("POST", "/v1/connections/"+a.Connection.ID+"/revoke", "{}", "Authorization: Basic "+basic))
	for range 3 {
		if r := ask(b.Node, books.addCall(false, "!mock words=5")); r.status != 403 ||
			r.errorCode() != "connection_revoked" {
			t.Errorf("after the revoke, the other node answered %+v", r)
		}
	}
	if shown := readBody(t, b.Call("GET", "/v1/connection", "")); !strings.Contains(shown, `"status":"revoked"`) {
		t.Errorf("the other node shows %s", shown)
	}
	if r := <-running; r.status != 200 { // it was held before
		t.Errorf("the call in flight at the revoke got %+v", r)
	}
	b.Verify()
}

// TestNodesSeedOnce starts two nodes at once on an empty database.
func TestNodesSeedOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.Postgres)
	d := dbtest.OpenURL(t, url)
	for _, text := range []string{`DROP SCHEMA public CASCADE`, `CREATE SCHEMA public`} {
		if _, err := d.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	servertest.Binary(t)
	var nodes [3]*servertest.Process
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			var err error
			if nodes[i], err = servertest.TryStart(t, url); err != nil {
				t.Error(err)
			}
		})
	}
	if wg.Wait(); t.Failed() {
		return
	}
	for _, p := range nodes[1:] {
		if p.Connection.ID != nodes[0].Connection.ID || p.App.ClientID != nodes[0].App.ClientID ||
			p.PublicApp != nodes[0].PublicApp ||
			p.Operator != nodes[0].Operator {
			t.Errorf("seeded %+v and %+v", p.Data, nodes[0].Data)
		}
	}
	for query, want := range map[string]int64{
		`SELECT COUNT(*) FROM accounts`:                    3,
		`SELECT COUNT(*) FROM apps`:                        2, // one on a server, one on devices
		`SELECT COUNT(*) FROM connections`:                 1,
		`SELECT COUNT(*) FROM features`:                    2,
		`SELECT COUNT(*) FROM ledger WHERE type = 'topup'`: 1,
	} {
		if n := dbtest.Number(t, url, query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
	nodes[0].Verify()
}

// TestOneProcessPerFile refuses a second process on a SQLite file, and says so.
func TestOneProcessPerFile(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	_, err := servertest.TryStart(t, p.DB)
	if err == nil || !strings.Contains(err.Error(), filepath.Base(p.DB)+" is in use by another purser") {
		t.Errorf("a second process: %v", err)
	}
	p.Verify()
}

// TestStopUnderLoad stops nodes with SIGTERM under load: what was begun is
// finished and answered, nothing stays held, and the process exits with 0 (F-93).
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			p := servertest.Start(t, servertest.URL(t, e))
			b := newBooks(t, nil)
			ctx, stop := context.WithCancel(t.Context())
			wait := b.runClients(ctx, 12, func() *servertest.Process { return p })
			defer func() { stop(); wait() }()
			// One client leaves in the middle of its call: that is finished too.
			gone := newBooks(t, nil).addCall(true, "!mock pace=100ms words=60 chunks=30") // nobody asks for it again
			leaver := beginCall(p.Node, gone)
			<-leaver.begun // its hold alone could mean that the provider is not asked yet
			leaver.leave()
			testkit.Eventually(t, testkit.Patience, "streams and calls in flight", func() bool {
				return b.streamed.Load() > 5 && b.inFlight.Load() > 8
			})
			inFlight := b.inFlight.Load()
			if code := p.Stop(); code != 0 {
				t.Errorf("stopped with %d: %s", code, p.Log())
			}
			stop()
			wait()
			b.compareLedger(p.DB)
			rows := calltest.Spends(t, p.DB)
			for _, c := range b.snapshot() {
				if c != gone && c.state() != "answered" && len(rows[c.key]) > 0 {
					t.Errorf("key %s was billed, and not answered", c.key)
				}
				if c.state() == "broken" {
					t.Errorf("key %s: a stream was cut by the stop", c.key)
				}
			}
			if len(rows[gone.key]) != 1 || inFlight == 0 {
				t.Errorf("%d rows of the client that left, %d calls in flight", len(rows[gone.key]), inFlight)
			}
			if n := dbtest.Number(t, p.DB, openHolds); n != 0 {
				t.Errorf("%d holds are open after a clean stop", n)
			}
			p.Verify()
		})
	}
}
