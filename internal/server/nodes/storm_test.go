package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/faulttest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// stormDuration is how long TestFaultStorm causes faults on each engine. Zero is one fault of each
// kind.
func stormDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PURSER_TEST_STORM")
	if text == "" && testkit.IsLong() {
		return 10 * time.Minute
	} else if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		t.Fatalf("PURSER_TEST_STORM: %q is not a duration", text)
	}
	return d
}

// stormLease is the lease of a storm's nodes. A node that sleeps does so for longer.
const stormLease = 2 * time.Second

// A storm is nodes, clients that keep books, and what breaks them.
type storm struct {
	t        *testing.T
	books    *callBooks
	database string // where the test reaches it
	nodes    []*stormNode
	faults   []stormFault

	cluster *dbtest.Cluster // PostgreSQL
	disk    *faulttest.Disk // SQLite
	times   map[string]*faultTimes
}

// A stormNode is a node that is started again and again.
type stormNode struct {
	url, data string
	proxy     *faulttest.Proxy                   // PostgreSQL
	process   atomic.Pointer[servertest.Process] // nil while it is dead
	asleep    atomic.Bool
}

// A stormFault is one kind of fault. cause causes it and returns how to end it.
type stormFault struct {
	name  string
	cause func() (end func())
}

// faultTimes are what was measured of one kind.
type faultTimes struct {
	count                      int
	answer, ready, recovery    []time.Duration
	noticed                    int // how often /readyz said so
	mu                         sync.Mutex
	answered, refused, dropped int
}

// TestFaultStorm breaks nodes, their database and their connections under load, one fault after
// the other, and compares what clients received with the ledger: answers, charges and replays are
// equal byte for byte, no key has two charges, nothing stays held, and each node recovers by
// itself. PURSER_TEST_STORM sets how long, such as 10m.
func TestFaultStorm(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, e)
			if s == nil {
				return
			}
			s.run()
		})
	}
}

func newStorm(t *testing.T, e db.Engine) *storm {
	// A key whose owner died may be answered that nothing was billed.
	s := &storm{t: t, times: map[string]*faultTimes{}, books: newBooks(t, func(status int, code string) bool {
		return isUnavailable(status, code) || status == 502 && code == "provider_error"
	})}
	s.books.rest = 500 * time.Millisecond
	s.books.ownersSleep = true
	if e == db.SQLite {
		size := 48 + int(stormDuration(t)/time.Second) // the calls of a second take 100 kB
		if s.disk = faulttest.NewDisk(t, size); s.disk == nil {
			return nil
		}
		s.database = "sqlite:" + s.disk.Dir + "/purser.db"
		s.nodes = []*stormNode{{url: s.database, data: s.disk.Dir}}
		s.faults = []stormFault{{"full disk", s.fill}, {"SIGSTOP beyond the lease", s.sleep}, {"kill -9", s.kill}}
	} else {
		s.cluster = dbtest.StartCluster(t, true) // a commit survives a kill of the postmaster
		s.database = s.cluster.NewURL(t)
		data := t.TempDir()
		for range 2 {
			proxy := faulttest.NewProxy(t, s.database)
			s.nodes = append(s.nodes, &stormNode{url: proxy.URL, data: data, proxy: proxy})
		}
		s.faults = []stormFault{
			{"PostgreSQL frozen", s.freeze}, {"backends terminated", s.terminate},
			{"connections black-holed", s.blackHole}, {"connections cut", s.cut},
			{"postmaster killed", s.killPostmaster}, {"SIGSTOP beyond the lease", s.sleep}, {"kill -9", s.kill},
		}
	}
	return s
}

// start starts the process of a node.
func (s *storm) start(n *stormNode) {
	s.t.Helper()
	p := servertest.Start(s.t, n.url, "--data="+n.data, "--lease="+stormLease.String())
	p.DB = s.database
	n.process.Store(p)
}

// allow raises the cap of the connection, so that no call of a long storm is refused for it.
func (s *storm) allow() {
	s.t.Helper()
	p := servertest.Start(s.t, s.nodes[0].url, "--data="+s.nodes[0].data)
	if code := p.Stop(); code != 0 {
		s.t.Fatal(p.Log())
	}
	d := dbtest.OpenURL(s.t, s.database)
	_, err := store.NewWriter(d, d.Now).Do(s.t.Context(), rules.ChangeCap{
		ConnectionID: p.Connection.ID,
		TargetMC:     900 * money.Dollar,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) run() {
	t, b := s.t, s.books
	t.Helper()
	s.allow()
	for _, n := range s.nodes {
		s.start(n)
	}
	ctx, stop := context.WithCancel(t.Context())
	wait := b.runClients(ctx, 32, func() *servertest.Process {
		return s.nodes[rand.IntN(len(s.nodes))].process.Load()
	})
	defer func() { stop(); wait() }()
	begun, rounds := time.Now(), 0
	for limit := stormDuration(t); rounds == 0 || time.Since(begun) < limit; rounds++ {
		order := rand.Perm(len(s.faults))
		if rounds == 0 { // a kill comes last, so that there is something to replay
			slices.Sort(order)
		}
		for _, i := range order {
			if s.breakOnce(s.faults[i]); t.Failed() {
				return
			}
		}
	}
	stop()
	wait()
	p := s.nodes[0].process.Load()
	estimated := b.settleAll(p, s.database)
	t.Logf("%d rounds; %d calls, %d answered (%d streams), %d replayed by another process, %d retried after a broken "+
		"stream, %d broke, %d refused; %d billed as estimates\n%s", rounds, len(b.snapshot()), b.answered.Load(),
		b.streamed.Load(), b.replayed.Load(), b.retried.Load(), b.broke.Load(), b.other.Load(), estimated, s.table())
	if b.answered.Load() < 30 || b.replayed.Load() == 0 {
		t.Error("vacuous")
	}
}

// breakOnce causes one fault, and measures how callers are answered meanwhile and how long the
// nodes take afterwards.
func (s *storm) breakOnce(f stormFault) {
	s.t.Helper()
	times := s.times[f.name]
	if times == nil {
		times = &faultTimes{}
		s.times[f.name] = times
	}
	times.count++
	end := f.cause()
	during, stop := context.WithCancel(s.t.Context())
	var probes sync.WaitGroup
	for _, n := range s.nodes {
		probes.Go(func() { s.probe(during, n, times) })
	}
	<-time.After(stormLease + time.Second) // as long as the fault lasts
	stop()
	ended := time.Now()
	end() // with the start of what was killed
	probes.Wait()
	s.await("readiness after "+f.name, func(p *servertest.Process) bool { return readiness(p) == 200 })
	times.ready = append(times.ready, time.Since(ended))
	s.await("a good call after "+f.name, func(p *servertest.Process) bool {
		c := s.books.addCall(false, "!mock words=5")
		return s.books.sendCall(s.t.Context(), p, c) && c.state() == "answered"
	})
	times.recovery = append(times.recovery, time.Since(ended))
	s.t.Logf("%s: recovered after %s", f.name, time.Since(ended).Round(time.Millisecond))
}

// probe makes short calls at a node, one each tenth of a second, until ctx ends, and returns when
// each has been answered. What a dead or sleeping node does is not measured.
func (s *storm) probe(ctx context.Context, n *stormNode, times *faultTimes) {
	var calls sync.WaitGroup
	defer calls.Wait()
	noticed := false
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		p := n.process.Load()
		if p == nil || n.asleep.Load() {
			continue
		}
		calls.Go(func() {
			c, begun := s.books.addCall(false, "!mock words=5"), time.Now()
			whole := s.books.sendCall(context.WithoutCancel(ctx), p, c)
			took := time.Since(begun)
			times.mu.Lock()
			defer times.mu.Unlock()
			switch {
			case c.state() == "answered":
				times.answered++
			case whole:
				times.refused++
			default:
				times.dropped++
			}
			if times.answer = append(times.answer, took); took > maxAnswerTime {
				s.t.Errorf("key %s: a call that began within a fault took %s", c.key, took)
			}
		})
		if !noticed && readiness(p) == 503 {
			noticed = true
			times.mu.Lock()
			times.noticed++
			times.mu.Unlock()
		}
	}
}

// await waits until ok of every node.
func (s *storm) await(what string, ok func(*servertest.Process) bool) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() && s.cluster != nil {
			s.t.Logf("sessions of the server:\n%s", s.cluster.Sessions(s.t))
		}
	}()
	for _, n := range s.nodes {
		testkit.Eventually(s.t, maxRecovery, what, func() bool { return ok(n.process.Load()) })
	}
}

// table shows what was measured, as Markdown.
func (s *storm) table() string {
	var out strings.Builder
	out.WriteString("| fault | times | calls within it: answered, refused, cut | longest answer, median and max | " +
		"/readyz said so | ready again, median and max | good call, median and max |\n|---|---|---|---|---|---|---|\n")
	for _, f := range s.faults {
		v := s.times[f.name]
		fmt.Fprintf(&out, "| %s | %d | %d, %d, %d | %s | %d | %s | %s |\n", f.name, v.count, v.answered, v.refused,
			v.dropped, medianAndMax(v.answer), v.noticed, medianAndMax(v.ready), medianAndMax(v.recovery))
	}
	return out.String()
}

func medianAndMax(list []time.Duration) string {
	if len(list) == 0 {
		return "–"
	}
	slices.Sort(list)
	return fmt.Sprintf("%.2f s, %.2f s", list[len(list)/2].Seconds(), list[len(list)-1].Seconds())
}

// anyNode chooses a node.
func (s *storm) anyNode() *stormNode { return s.nodes[rand.IntN(len(s.nodes))] }

func (s *storm) kill() (end func()) {
	n := s.anyNode()
	n.process.Swap(nil).Kill()
	return func() { s.start(n) }
}

func (s *storm) sleep() (end func()) {
	n := s.anyNode()
	n.asleep.Store(true)
	n.process.Load().Signal(syscall.SIGSTOP)
	return func() {
		n.process.Load().Signal(syscall.SIGCONT)
		n.asleep.Store(false)
	}
}

func (s *storm) fill() (end func()) {
	s.disk.Fill(s.t)
	return func() { s.disk.Free(s.t) }
}

func (s *storm) freeze() (end func()) { return s.cluster.Freeze(s.t) }

func (s *storm) killPostmaster() (end func()) {
	s.cluster.KillPostmaster(s.t)
	return func() { s.cluster.Restart(s.t) }
}

func (s *storm) terminate() (end func()) {
	s.cluster.TerminateBackends(s.t, 0.4)
	return func() { s.cluster.TerminateBackends(s.t, 0.4) }
}

func (s *storm) blackHole() (end func()) {
	s.anyNode().proxy.BlackHole()
	return func() {}
}

func (s *storm) cut() (end func()) {
	s.anyNode().proxy.Cut()
	return func() {}
}
