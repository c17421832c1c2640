package server_test

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
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// kills is how often TestCrash kills each engine's node; PURSER_TEST_KILLS says
// otherwise for long runs.
const kills = 50

func killsWanted(t *testing.T) int {
	text := os.Getenv("PURSER_TEST_KILLS")
	if text == "" {
		return kills
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
			crash(t, dbtest.URL(t, e))
		})
	}
}

func crash(t *testing.T, url string) {
	// A key whose owner died is held until its lease has ended; who asks then is
	// told that nothing was billed.
	b := newBooks(t, func(status int, code string) bool { return status == 502 && code == "provider_error" })
	var node atomic.Pointer[servertest.Process]
	ctx, stop := context.WithCancel(t.Context())
	wait := b.load(ctx, 16, node.Load)
	defer func() { stop(); wait() }()

	start := func() *servertest.Process {
		p := servertest.Start(t, url, "--lease=2s")
		node.Store(p)
		return p
	}
	n, inFlight, released := killsWanted(t), int64(0), 0
	p := start()
	for range n {
		until := time.After(time.Duration(200+rand.IntN(1400)) * time.Millisecond)
		eventually(t, 30*time.Second, "sweep of a dead node's holds", func() bool {
			return number(t, p.DB, orphans, time.Now().UnixMicro()) == 0
		})
		servertest.Verify(t, p.DB)
		b.check(p.DB)
		<-until
		inFlight += b.inFlight.Load()
		node.Store(nil)
		p.Kill()
		released += strings.Count(p.Log(), "released a dead node's hold")
		if p = start(); t.Failed() {
			return
		}
	}
	stop()
	wait()
	eventually(t, 30*time.Second, "sweep of the last holds", func() bool { return number(t, p.DB, openHolds) == 0 })
	b.replayAll(p)
	estimated := b.check(p.DB)
	p.Verify()
	released += strings.Count(p.Log(), "released a dead node's hold")
	t.Logf("%d kills, %d calls in flight at them; %d calls, %d answered (%d streams), %d replayed by a later process, %d retried after a broken stream, %d broke, %d refused; %d billed as estimates, %d holds released",
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
	} {
		if count == 0 {
			t.Errorf("vacuous: no %s", what)
		}
	}
}
