package nodes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/emulator"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// Every wait for the database that a caller stands behind is bounded by 5 s, and /readyz answers
// within 2 s (decision 050). A loaded machine gets twice and more of that, and what works again has as
// long as it needs: the storm prints how long.
const (
	maxAnswerTime = 12 * time.Second
	maxReadyTime  = 5 * time.Second
	maxRecovery   = testkit.Patience
)

// isUnavailable accepts the refusal of a node that cannot hold or settle now.
func isUnavailable(status int, code string) bool { return status == 503 && code == "unavailable" }

// readiness asks a node whether it is ready. The status is 0 if it does not answer in time.
func readiness(p *servertest.Process) int {
	ctx, cancel := context.WithTimeout(context.Background(), maxReadyTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", p.BaseURL+"/readyz", nil)
	if err != nil {
		return 0
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close() // it is not read
	return resp.StatusCode
}

// awaitReadiness waits until a node answers /readyz with a status. Every answer must be in time.
func awaitReadiness(t *testing.T, p *servertest.Process, want int) {
	t.Helper()
	testkit.Eventually(t, maxRecovery, fmt.Sprintf("/readyz is %d", want), func() bool {
		t.Helper()
		status := readiness(p)
		if status == 0 {
			t.Errorf("/readyz did not answer within %s", maxReadyTime)
		}
		return status == want
	})
}

// sendInTime sends calls at once. Each must be answered in time.
func (b *callBooks) sendInTime(p *servertest.Process, calls ...*booked) {
	b.t.Helper()
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() {
			begun := time.Now()
			answered := b.sendCall(b.t.Context(), p, c)
			if took := time.Since(begun); !answered || took > maxAnswerTime {
				b.t.Errorf("key %s: answered %t, after %s", c.key, answered, took)
			}
		})
	}
	wg.Wait()
}

// addCalls books n calls, every other one a stream.
func (b *callBooks) addCalls(n int, script string) (calls []*booked) {
	for i := range n {
		calls = append(calls, b.addCall(i%2 == 1, script))
	}
	return calls
}

// settleAll asks once more for every call that was not answered, which must work now, and proves
// the books: one row for each key, equal replays, no hold, and a ledger without a finding. database
// is where the test reaches the database.
func (b *callBooks) settleAll(p *servertest.Process, database string) (estimated int) {
	b.t.Helper()
	b.calm.Store(true)
	for open, progress := b.unanswered(), time.Now(); len(open) > 0; {
		var asked errgroup.Group
		asked.SetLimit(32) // a storm of ten minutes leaves thousands
		for _, c := range open {
			asked.Go(func() error { b.sendCall(b.t.Context(), p, c); return nil })
		}
		_ = asked.Wait()
		left := b.unanswered()
		if len(left) < len(open) {
			progress = time.Now()
		} else if time.Since(progress) > maxRecovery {
			b.t.Fatalf("%d keys have no answer, and none got one in %s", len(left), maxRecovery)
		}
		open = left
	}
	testkit.Eventually(b.t, maxRecovery, "end of the last holds", func() bool {
		return dbtest.Number(b.t, database, openHolds) == 0
	})
	b.replayAll(p)
	b.checkOthers()
	estimated = b.compareLedger(database)
	servertest.Verify(b.t, database)
	return estimated
}

// unanswered lists the calls without an answer.
func (b *callBooks) unanswered() []*booked {
	return slices.DeleteFunc(b.snapshot(), func(c *booked) bool { return c.state() == "answered" })
}

// dispatches is a provider that counts how often each key was given to it.
type dispatches struct {
	url string

	mu    sync.Mutex
	count map[string]int
}

// sentKey finds the key in a call's text.
var sentKey = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func newDispatches(t *testing.T) *dispatches {
	t.Helper()
	d, emulated := &dispatches{count: map[string]int{}}, emulator.New(emulator.Options{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		d.mu.Lock()
		d.count[string(sentKey.Find(body))]++
		d.mu.Unlock()
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		emulated.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func (d *dispatches) of(c *booked) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[c.key]
}

// args let a node call the provider.
func (d *dispatches) args() []string {
	return []string{
		"--providers=live",
		"PURSER_PROVIDERS_OPENAI_BASE_URL=" + d.url + "/v1",
		"PURSER_PROVIDERS_OPENAI_KEY=sk-emulated",
	}
}

// TestFullDisk fills the disk of a SQLite file under calls: new ones are refused within seconds,
// /readyz says so, and when there is space again the node recovers by itself (F-52, F-54).
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := faulttest.NewDisk(t, 48)
	if disk == nil {
		return
	}
	p := servertest.Start(t, "sqlite:"+disk.Dir+"/purser.db")
	b := newBooks(t, isUnavailable)
	b.sendInTime(p, b.addCalls(4, "!mock words=9")...)
	whole, stream := b.addCall(false, "!mock delay=2s words=9"), b.addCall(true, "!mock pace=100ms words=40 chunks=20")
	var running sync.WaitGroup
	for _, c := range []*booked{whole, stream} {
		running.Go(func() { b.sendInTime(p, c) })
	}
	testkit.Eventually(t, maxRecovery, "two calls in flight", func() bool { return b.inFlight.Load() == 2 })
	disk.Fill(t)
	// The log has some room left, and the first calls meet the disk only when they settle.
	testkit.Eventually(t, maxRecovery, "/readyz is 503", func() bool {
		b.sendInTime(p, b.addCalls(4, "!mock words=9")...)
		return readiness(p) == 503
	})
	refused := b.other.Load()
	b.sendInTime(p, b.addCalls(8, "!mock words=9")...)
	if n := b.other.Load() - refused; n < 8 {
		t.Errorf("%d of 8 calls were refused on a full disk", n)
	}
	running.Wait()
	disk.Free(t)
	awaitReadiness(t, p, 200)
	b.settleAll(p, p.DB)
}

// TestFrozenPostgres stops every process of PostgreSQL, so that connections stay open and nothing
// is answered: each caller is answered, /readyz too, and afterwards each call has reached the
// provider once and has one charge (F-52, F-53).
func TestFrozenPostgres(t *testing.T) {
	t.Parallel()
	cluster, provider := dbtest.StartCluster(t, false), newDispatches(t)
	url := cluster.NewURL(t)
	p := servertest.Start(t, url, provider.args()...)
	b := newBooks(t, isUnavailable)
	b.sendInTime(p, b.addCalls(8, "!emu words=9")...)
	running := b.addCalls(4, "!emu pace=100ms words=30")
	var wait sync.WaitGroup
	wait.Go(func() { b.sendInTime(p, running...) })
	testkit.Eventually(t, maxRecovery, "running calls at the provider", func() bool {
		for _, c := range running {
			if provider.of(c) == 0 {
				return false
			}
		}
		return true
	})
	thaw := cluster.Freeze(t)
	asked := b.addCalls(24, "!emu words=9")
	wait.Go(func() { b.sendInTime(p, asked...) })
	awaitReadiness(t, p, 503)
	p.Once = true
	begun := time.Now()
	if r := apitest.Read(t, p.Call("GET", "/v1/connection", "")); r.Status != 503 || time.Since(begun) > maxAnswerTime {
		t.Errorf("a read: %d after %s", r.Status, time.Since(begun))
	}
	wait.Wait()
	thaw()
	awaitReadiness(t, p, 200)
	b.settleAll(p, url)
	for _, c := range b.snapshot() {
		if n := provider.of(c); n != 1 {
			t.Errorf("key %s reached the provider %d times", c.key, n)
		}
	}
}

// TestStopWhilePostgresIsFrozen stops a node whose database does not answer: it ends.
func TestStopWhilePostgresIsFrozen(t *testing.T) {
	t.Parallel()
	cluster := dbtest.StartCluster(t, false)
	url := cluster.NewURL(t)
	p := servertest.Start(t, url)
	b := newBooks(t, isUnavailable)
	b.sendInTime(p, b.addCalls(8, "!mock words=9")...)
	thaw := cluster.Freeze(t)
	p.Signal(syscall.SIGTERM)
	if _, ended := p.AwaitExit(maxRecovery); !ended {
		t.Errorf("it has not ended %s after SIGTERM", maxRecovery)
	}
	thaw()
	again := servertest.Start(t, url)
	b.settleAll(again, url)
}

// TestBlackHoledConnections lets the connections of a node to PostgreSQL stay open and carry nothing
// any more: its callers are answered, and soon it works again on other connections, with its lease.
func TestBlackHoledConnections(t *testing.T) {
	t.Parallel()
	url := servertest.URL(t, db.Postgres)
	proxy := faulttest.NewProxy(t, url)
	a, other := servertest.Start(t, proxy.URL, shortLease), servertest.Start(t, url, shortLease)
	// A hold may have been committed whose answer was lost. A caller who repeats the call at the other node learns that
	// it failed and was not billed.
	b := newBooks(t, func(status int, code string) bool {
		return isUnavailable(status, code) || status == 502 && code == "provider_error"
	})
	b.sendInTime(a, b.addCalls(32, "!mock words=9")...) // they fill the pools
	running := b.addCall(true, "!mock pace=100ms words=60 chunks=30")
	var wait sync.WaitGroup
	wait.Go(func() { b.sendInTime(a, running) })
	testkit.Eventually(t, maxRecovery, "a stream in flight", func() bool { return b.inFlight.Load() == 1 })
	if n := proxy.BlackHole(); n < 4 {
		t.Fatalf("only %d connections were open", n)
	}
	wait.Go(func() { b.sendInTime(a, b.addCalls(16, "!mock words=9")...) })
	b.sendInTime(other, b.addCalls(4, "!mock words=9")...)
	wait.Wait()
	testkit.Eventually(t, maxRecovery, "the node works again", func() bool {
		c := b.addCall(false, "!mock words=9")
		return readiness(a) == 200 && b.sendCall(t.Context(), a, c) && c.state() == "answered"
	})
	if n := dbtest.Number(t, url, `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`, time.Now().UnixMicro()); n != 2 {
		t.Errorf("%d of 2 nodes have a lease", n)
	}
	b.settleAll(other, url)
	a.Signal(syscall.SIGTERM)
	if _, ended := a.AwaitExit(maxRecovery); !ended {
		t.Errorf("it has not ended %s after SIGTERM", maxRecovery)
	}
}

// TestNoConnectionsLeft takes a node's connections to PostgreSQL away, all or all but two.
func TestNoConnectionsLeft(t *testing.T) {
	t.Parallel()
	url, limit := dbtest.LimitedURL(t)
	p := servertest.Start(t, url)
	b := newBooks(t, isUnavailable)
	for _, connections := range []int{2, 0} {
		b.sendInTime(p, b.addCalls(8, "!mock words=9")...)
		limit(connections)
		b.sendInTime(p, b.addCalls(32, "!mock words=9")...)
		if connections == 0 {
			awaitReadiness(t, p, 503)
		}
		limit(-1) // as many as there are
		awaitReadiness(t, p, 200)
	}
	b.settleAll(p, url)
}

// TestNodeWithoutLease keeps a node from renewing its lease: it admits no call any more and says
// that it is not ready, and the other node serves. It recovers by itself (decision 028).
func TestNodeWithoutLease(t *testing.T) {
	t.Parallel()
	a, other := startPair(t, shortLease)
	b := newBooks(t, isUnavailable)
	b.sendInTime(a, b.addCalls(4, "!mock words=9")...)
	d := dbtest.OpenURL(t, a.DB)
	var first string
	err := d.QueryRowContext(t.Context(), `SELECT id FROM nodes ORDER BY started_us DESC LIMIT 1 OFFSET 1`).Scan(&first)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused''; END'`,
		`CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON nodes FOR EACH ROW WHEN (NEW.id = '` + first +
			`') EXECUTE FUNCTION refuse()`,
	} {
		if _, err := d.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	awaitReadiness(t, a, 503)
	testkit.Eventually(t, maxRecovery, "half of the lease is over", func() bool {
		c := b.addCall(false, "!mock words=9")
		return b.sendCall(t.Context(), a, c) && c.state() == "unanswered"
	})
	refused := b.other.Load()
	b.sendInTime(a, b.addCalls(8, "!mock words=9")...)
	if n := b.other.Load() - refused; n != 8 {
		t.Errorf("%d of 8 calls were refused by a node without its lease", n)
	}
	b.sendInTime(other, b.addCalls(4, "!mock words=9")...)
	if status := readiness(other); status != 200 {
		t.Errorf("the other node: /readyz is %d", status)
	}
	if _, err := d.ExecContext(t.Context(), `DROP TRIGGER refuse ON nodes`); err != nil {
		t.Fatal(err)
	}
	awaitReadiness(t, a, 200)
	b.settleAll(a, a.DB)
}

// TestNodeRowIsGone deletes a node's row, as the purge does when its machine slept for a day: the
// node joins again.
func TestNodeRowIsGone(t *testing.T) {
	t.Parallel()
	a, other := startPair(t)
	d := dbtest.OpenURL(t, a.DB)
	if _, err := d.ExecContext(t.Context(), `DELETE FROM nodes`); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, maxRecovery, "both nodes have a lease", func() bool {
		return dbtest.Number(t, a.DB, `SELECT COUNT(*) FROM nodes WHERE lease_us > $1`, time.Now().UnixMicro()) == 2
	})
	b := newBooks(t, isUnavailable)
	b.sendInTime(a, b.addCalls(4, "!mock words=9")...)
	b.settleAll(other, a.DB)
}

// TestDeadOwnerIsNoticed kills the owner of a call with the lease of production: the other node
// notices it within seconds and runs the call for who waits (decision 028).
func TestDeadOwnerIsNoticed(t *testing.T) {
	t.Parallel()
	url := servertest.URL(t, db.Postgres)
	a, other := servertest.Start(t, url), servertest.Start(t, url)
	b := newBooks(t, isUnavailable)
	c := b.addCall(false, "!mock delay=1s words=9")
	owner := asking(a.Node, c)
	calltest.AwaitHold(t, a.Node, c.key, "open")
	a.Kill()
	<-owner
	begun := time.Now()
	if r := ask(other.Node, c); r.status != 200 {
		t.Errorf("who waited for a dead node got %+v", r)
	}
	if took := time.Since(begun); took > 25*time.Second { // 15 s are promised
		t.Errorf("answered %s after the owner's death", took)
	}
	b.settleAll(other, url)
}

// TestLostLogEndsTheProcess deletes the write-ahead log under a node: it does not go on without,
// and says why.
func TestLostLogEndsTheProcess(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newBooks(t, func(status int, code string) bool { return true })
	b.sendInTime(p, b.addCalls(4, "!mock words=9")...)
	if err := os.Remove(strings.TrimPrefix(p.DB, "sqlite:") + "-wal"); err != nil {
		t.Fatal(err)
	}
	go b.sendCall(t.Context(), p, b.addCall(false, "!mock words=9")) // its answer does not matter
	if code, ended := p.AwaitExit(maxRecovery); !ended || code <= 0 {
		t.Errorf("ended %t with %d: %s", ended, code, p.Log())
	}
}
