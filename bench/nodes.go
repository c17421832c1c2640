package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// nodesSample is one measurement of several nodes on one PostgreSQL, each with its share of the clients. Every limit is
// checked at each call, so that the calls of an app change its counters.
type nodesSample struct {
	Nodes    int    `json:"nodes"`
	Apps     string `json:"apps"` // a key of placements
	Round    int    `json:"round"`
	Calls    int64  `json:"calls"`
	Answered int64  `json:"answered"`
	Faults   int64  `json:"faults"`
	Fault    string `json:"first_fault,omitempty"`

	PerSecond float64 `json:"calls_per_s"`
	P99US     int64   `json:"p99_us"` // the largest of the nodes
	NodeUS    float64 `json:"node_cpu_us_per_call"`
	ServerUS  float64 `json:"server_cpu_us_per_call"`

	// Sessions of the server that wait, on average over the samples: for each other's rows, for its own structures in
	// memory, for the disk.
	Locks   float64 `json:"waiting_for_locks"`
	LWLocks float64 `json:"waiting_for_lwlocks"`
	Disk    float64 `json:"waiting_for_disk"`
}

// placements say how many connections share an app.
var placements = map[string]int{"spread": 1, "one app": 1 << 30}

// measureNodes measures 1, 2 and 4 nodes on one PostgreSQL: with an app for each connection, and with one app for all
// of them, whose counters all calls share.
func (b *bench) measureNodes(ctx context.Context) (err error) {
	if b.cluster == nil {
		return errors.New("--parts nodes needs the engine postgres")
	}
	limits := b.limits
	b.limits = true
	defer func() { b.limits = limits }()
	n := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(n)) }()
	up, err := b.startBenchRole("upstream")
	if err != nil {
		return err
	}
	databases := map[string]*database{}
	for _, apps := range slices.Sorted(maps.Keys(placements)) {
		url, err := b.createDatabase(ctx, "postgres")
		if err != nil {
			return err
		}
		d := &database{url: url}
		if d.grants, err = seedDatabase(ctx, url, b.connections, placements[apps], true); err != nil {
			return fmt.Errorf("set up %s: %w", apps, err)
		}
		b.stores["nodes, "+apps], databases[apps] = d, d
	}
	for round := range b.rounds {
		for _, nodes := range []int{1, 2, 4} {
			for apps, d := range databases {
				s, err := b.measureNodesOnce(ctx, d, nodes, apps, up.url)
				if err != nil {
					return fmt.Errorf("%d nodes, %s: %w", nodes, apps, err)
				}
				s.Round = round + 1
				b.report.Nodes = append(b.report.Nodes, s)
			}
		}
	}
	var audits report
	for apps, d := range databases {
		var answered int64
		for _, s := range b.report.Nodes {
			if s.Apps == apps {
				answered += s.Answered
			}
		}
		audits.Audits = append(audits.Audits, d.checkLedger(ctx, "nodes, "+apps, answered))
	}
	b.report.Audits = append(b.report.Audits, audits.Audits...)
	b.report.printNodes(os.Stdout)
	audits.printAudits(os.Stdout)
	return nil
}

// measureNodesOnce starts new nodes, gives each its share of the clients, and stops them.
func (b *bench) measureNodesOnce(ctx context.Context, d *database, nodes int, apps, upstream string) (
	s nodesSample, err error) {
	n := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(n)) }()
	s = nodesSample{Nodes: nodes, Apps: apps}
	var targets []*target
	for i := range nodes {
		if err := b.buildPurser(ctx); err != nil {
			return s, err
		}
		t, err := b.startGateway(ctx, b.purser, fmt.Sprintf("node %d of %d", i+1, nodes), d, upstream)
		if err != nil {
			return s, err
		}
		targets = append(targets, t)
	}
	server, err := b.findServer(ctx)
	if err != nil {
		return s, err
	}
	var nodesCPU time.Duration
	for _, t := range targets {
		nodesCPU -= t.cpuTime()
	}
	serverCPU := -server.cpuTime()
	sampling, stop := context.WithCancel(ctx)
	defer stop()
	waits := b.sampleWaits(sampling)
	var group sync.WaitGroup
	results, faults := make([]loadResult, nodes), make([]error, nodes)
	clients := b.clients[len(b.clients)-1]
	for i, t := range targets {
		group.Go(func() {
			results[i], faults[i] = measureLoad(ctx, loadSpec{
				URL:      t.url,
				Tokens:   t.tokens,
				Clients:  max(1, clients/nodes),
				Cell:     "plain",
				Billed:   true,
				Warmup:   b.warmup,
				Duration: b.duration,
			})
		})
	}
	group.Wait()
	stop()
	if err := errors.Join(faults...); err != nil {
		return s, err
	}
	if s.Locks, s.LWLocks, s.Disk, err = waits(); err != nil {
		return s, err
	}
	for _, t := range targets {
		nodesCPU += t.cpuTime()
	}
	serverCPU += server.cpuTime()
	for _, r := range results {
		s.Calls += r.Calls
		s.Answered += r.Answered
		s.Faults += r.faults()
		s.PerSecond += r.PerSecond
		s.P99US = max(s.P99US, r.P99US)
		if s.Fault == "" {
			s.Fault = r.FirstFault
		}
	}
	s.NodeUS = float64(nodesCPU.Microseconds()) / float64(max(s.Answered, 1))
	s.ServerUS = float64(serverCPU.Microseconds()) / float64(max(s.Answered, 1))
	return s, nil
}

// A postmaster is the process id of PostgreSQL's first process, whose children serve the sessions.
type postmaster int

// findServer returns the postmaster of the run's server.
func (b *bench) findServer(ctx context.Context) (postmaster, error) {
	d, err := sql.Open("pgx", b.cluster.URL)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	var session int
	if err := d.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&session); err != nil {
		return 0, err
	}
	fields := readStat(session)
	if len(fields) < 2 {
		return 0, fmt.Errorf("no /proc/%d/stat", session)
	}
	parent, err := strconv.Atoi(fields[1])
	return postmaster(parent), err
}

// readStat returns the fields of a process's /proc/PID/stat from its state, the third one, on; none if it has ended.
func readStat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return strings.Fields(rest)
}

// cpuTime returns the processor time of the server: of all its processes, and of those that have ended.
func (p postmaster) cpuTime() (sum time.Duration) {
	const user, children, end = 11, 13, 15 // fields: user and system time of the process, then of its ended children
	add := func(fields []string, to int) {
		for i := user; i < to && i < len(fields); i++ {
			ticks, _ := strconv.ParseInt(fields[i], 10, 64)
			sum += time.Duration(ticks) * (time.Second / 100) // USER_HZ is 100 on Linux
		}
	}
	add(readStat(int(p)), end)
	processes, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, path := range processes {
		pid, _ := strconv.Atoi(filepath.Base(path))
		if fields := readStat(pid); len(fields) > 1 && fields[1] == strconv.Itoa(int(p)) {
			add(fields, children)
		}
	}
	return sum
}

// sampleWaits looks ten times a second what the server's sessions wait for, until the context ends. The returned
// function returns the averages.
func (b *bench) sampleWaits(ctx context.Context) func() (locks, lwlocks, disk float64, err error) {
	var sums [3]float64
	var samples float64
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err := sql.Open("pgx", b.cluster.URL)
		if err != nil {
			failed = err
			return
		}
		defer d.Close()
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			var now [3]float64
			err := d.QueryRow(`SELECT COUNT(*) FILTER (WHERE wait_event_type = 'Lock'),
				COUNT(*) FILTER (WHERE wait_event_type = 'LWLock'), COUNT(*) FILTER (WHERE wait_event_type = 'IO')
				FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()`).
				Scan(&now[0], &now[1], &now[2])
			if err != nil {
				failed = err
				return
			}
			samples++
			for i := range sums {
				sums[i] += now[i]
			}
		}
	}()
	return func() (float64, float64, float64, error) {
		<-done
		n := max(samples, 1)
		return sums[0] / n, sums[1] / n, sums[2] / n, failed
	}
}

// printNodes prints the medians as a table in Markdown.
func (r *report) printNodes(w io.Writer) {
	fmt.Fprintln(w, "\nnodes on one PostgreSQL, whole answers, every limit checked")
	fmt.Fprintln(w, "\n| apps | nodes | calls/s | × one node | p99 ms | node cpu µs | calls/s a core | "+
		"server cpu µs | calls/s a core | waiting: locks | memory | disk |")
	fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	of := map[string]map[int][]nodesSample{}
	for _, s := range r.Nodes {
		if of[s.Apps] == nil {
			of[s.Apps] = map[int][]nodesSample{}
		}
		of[s.Apps][s.Nodes] = append(of[s.Apps][s.Nodes], s)
	}
	perSecond := func(s nodesSample) float64 { return s.PerSecond }
	for _, apps := range slices.Backward(slices.Sorted(maps.Keys(of))) {
		for _, n := range slices.Sorted(maps.Keys(of[apps])) {
			list := of[apps][n]
			pick := func(f func(s nodesSample) float64) float64 { return median(list, f) }
			node := pick(func(s nodesSample) float64 { return s.NodeUS })
			server := pick(func(s nodesSample) float64 { return s.ServerUS })
			fmt.Fprintf(w, "| %s | %d | %.0f | %.2f | %.1f | %.0f | %.0f | %.0f | %.0f | %.1f | %.1f | %.1f |\n",
				apps, n, pick(perSecond), pick(perSecond)/max(median(of[apps][1], perSecond), 1),
				pick(func(s nodesSample) float64 { return float64(s.P99US) / 1000 }),
				node, 1e6/max(node, 1), server, 1e6/max(server, 1),
				pick(func(s nodesSample) float64 { return s.Locks }),
				pick(func(s nodesSample) float64 { return s.LWLocks }),
				pick(func(s nodesSample) float64 { return s.Disk }))
		}
	}
	for _, s := range r.Nodes {
		if s.Faults > 0 {
			fmt.Fprintf(w, "\nINVALID: %d nodes, %s: %d faults: %s\n", s.Nodes, s.Apps, s.Faults, s.Fault)
		}
	}
}
