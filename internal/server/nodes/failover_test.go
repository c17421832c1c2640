package nodes

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// maxFailover is within which two nodes answer calls again after a standby was promoted.
const maxFailover = 15 * time.Second

// TestFailover loses the primary of a synchronous standby under load, and promotes the standby. The nodes follow by
// their URL: every call that was answered is in the ledger once, and calls are answered again soon.
func TestFailover(t *testing.T) {
	testkit.Long(t, "loses a primary under load twice; package db proves that connections move")
	t.Run("killed", func(t *testing.T) {
		testFailover(t, func(primary *dbtest.Cluster) { primary.KillPostmaster(t) })
	})
	t.Run("frozen", func(t *testing.T) {
		testFailover(t, func(primary *dbtest.Cluster) {
			primary.Freeze(t)
			pause(t.Context(), 8*time.Second) // longer than any caller waits for the database
			primary.Fence(t)
		})
	})
}

// failoverGuide returns what operators read, whose commands set up the standbys of tests.
func failoverGuide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/operate/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func testFailover(t *testing.T, lose func(primary *dbtest.Cluster)) {
	primary := dbtest.StartCluster(t, true)
	first := primary.NewURL(t)
	standby := primary.StartStandby(t, failoverGuide(t), true)
	url := dbtest.JoinURLs(t, first, primary, standby)
	nodes := []*servertest.Process{servertest.Start(t, url, "--lease=2s"), servertest.Start(t, url, "--lease=2s")}
	b := newBooks(t, func(status int, code string) bool {
		return isUnavailable(status, code) || status == 502 && code == "provider_error"
	})
	var turn atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 8, func() *servertest.Process { return nodes[turn.Add(1)%2] })
	defer func() { stop(); wait() }()
	testkit.Eventually(t, testkit.Patience, "50 answered calls", func() bool { return b.answered.Load() >= 50 })
	before := b.answered.Load()
	lost := time.Now()
	lose(primary)
	standby.Promote(t)
	promoted := time.Now()
	for _, p := range nodes {
		testkit.Eventually(t, maxFailover, "calls after the failover", func() bool {
			c := b.addCall(false, "!mock words=5")
			return b.sendCall(ctx, p, c) && c.state() == "answered"
		})
	}
	again := time.Now()
	pause(ctx, 2*time.Second)
	stop()
	wait()
	estimated := b.settleAll(nodes[1], url)
	t.Logf("PostgreSQL %s: %d calls answered before, %d in all, %d estimated; both nodes answer %s after "+
		"the promotion, %s after the loss", standby.Version(t), before, b.answered.Load(), estimated,
		again.Sub(promoted).Round(time.Millisecond), again.Sub(lost).Round(time.Millisecond))
}
