package nodes

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// killsWanted is how often TestCrash kills each engine's node, if PURSER_TEST_KILLS
// does not say otherwise.
func killsWanted(t *testing.T) int {
	text := os.Getenv("PURSER_TEST_KILLS")
	if text == "" && testkit.IsLong() {
		return 200
	} else if text == "" {
		return 10
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("PURSER_TEST_KILLS: %q is no number of kills", text)
	}
	return n
}

// TestCrash kills the node with kill -9 under the load of clients that keep
// books, and after each restart compares books, ledger and audit (F-01…F-08): an
// answered call has one row with the answered numbers and replays byte for byte,
// no key has two rows, and nothing stays held.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			crash(t, servertest.URL(t, e))
		})
	}
}

func crash(t *testing.T, url string) {
	// A key whose owner died is held until its lease has ended; who asks then is
	// told that nothing was billed. A node that cannot renew its short lease, because the machine is busy, refuses.
	b := newBooks(t, func(status int, code string) bool {
		return status == 502 && code == "provider_error" || isUnavailable(status, code)
	})
	var node atomic.Pointer[servertest.Process]
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 16, node.Load)
	defer func() { stop(); wait() }()

	start := func() *servertest.Process {
		p := servertest.Start(t, url, "--lease=2s")
		node.Store(p)
		return p
	}
	n, inFlight, released := killsWanted(t), int64(0), 0
	var interrupted []*booked
	p := start()
	child := b.addChildren(p)
	for i := range n {
		if i == 0 {
			interrupted = b.beginInterrupted(p)
		} else {
			b.checkLater(p, time.Duration(200+rand.IntN(1400))*time.Millisecond)
		}
		inFlight += b.inFlight.Load()
		node.Store(nil)
		p.Kill()
		released += strings.Count(p.Log(), "hold released by sweep")
		if p = start(); t.Failed() {
			return
		}
	}
	stop()
	wait()
	testkit.Eventually(t, testkit.Patience, "sweep of the last holds", func() bool {
		return dbtest.Number(t, p.DB, openHolds) == 0
	})
	for _, c := range interrupted { // the load may have asked again
		if c.state() != "answered" && (!b.sendCall(t.Context(), p, c) || c.state() != "answered") {
			t.Errorf("key %s is not answered after the crashes", c.key)
		}
	}
	b.replayAll(p)
	estimated := b.compareLedger(p.DB)
	p.Verify()
	end := p.Call("POST", child+"/end", "", "Authorization: Bearer "+p.Connection.AccessToken)
	if a := apitest.Read(t, end); a.Status != 200 {
		t.Errorf("the end of the child: %+v", a)
	}
	p.Verify()
	released += strings.Count(p.Log(), "hold released by sweep")
	t.Logf("%d kills, %d calls in flight at them; %d calls, %d answered (%d streams), %d replayed by a later "+
		"process, %d retried after a broken stream, %d broke, %d refused; %d billed as estimates, %d holds released",
		n, inFlight, len(b.snapshot()), b.answered.Load(), b.streamed.Load(), b.replayed.Load(), b.retried.Load(),
		b.broke.Load(), b.other.Load(), estimated, released)
	for what, count := range map[string]int64{
		"calls in flight at kills":  inFlight,
		"broken calls":              b.broke.Load(),
		"estimated recoveries":      int64(estimated),
		"released holds":            int64(released),
		"replays after a crash":     b.replayed.Load(),
		"retries of broken streams": b.retried.Load(),
		"streams":                   b.streamed.Load(),
		"calls of children":         dbtest.Number(t, p.DB, `SELECT COUNT(*) FROM ledger WHERE key LIKE 'chd%'`),
		"returned by the child":     dbtest.Number(t, p.DB, `SELECT MAX(returned_mc) FROM children`),
	} {
		if count == 0 {
			t.Errorf("vacuous: no %s", what)
		}
	}
}

// checkLater checks the books of a node that was started after a crash, and returns
// when the delay has passed, too.
func (b *callBooks) checkLater(p *servertest.Process, delay time.Duration) {
	b.t.Helper()
	until := time.After(delay)
	testkit.Eventually(b.t, testkit.Patience, "sweep of a dead node's holds", func() bool {
		return dbtest.Number(b.t, p.DB, orphans, time.Now().UnixMicro()) == 0
	})
	servertest.Verify(b.t, p.DB)
	b.compareLedger(p.DB)
	<-until
}

// beginInterrupted begins a stream and a whole call, and returns when a kill finds
// both on the disk: a checkpoint of the stream, which is then billed as an
// estimate, and the hold of the whole call, which is then released. So each kind of
// recovery happens, however few the kills are.
func (b *callBooks) beginInterrupted(p *servertest.Process) []*booked {
	b.t.Helper()
	begin := func(stream bool, script string) *booked {
		c := b.addCall(stream, script)
		go b.sendCall(b.t.Context(), p, c)
		return c
	}
	stream := begin(true, "!mock pace=200ms words=100 chunks=100")
	calltest.AwaitWords(b.t, p.Node, stream.key)
	whole := begin(false, "!mock delay=8s words=9")
	calltest.AwaitHold(b.t, p.Node, whole.key, "open")
	return []*booked{stream, whole}
}
