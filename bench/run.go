package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// A target is one gateway under measurement.
type target struct {
	*child
	tokens   []string
	billed   bool
	database *database // nil unless it is Purser
	profile  string    // address of its profiles, if wanted
}

// bench is a run with its processes and its report.
type bench struct {
	options
	report  report
	closers []func() error
	floor   *target
	targets []*target
	purser  string               // the built binary
	bounds  callBounds           // of the gateways that are started
	stores  map[string]*database // by title
	cluster *dbtest.Cluster      // nil without PostgreSQL
}

func runBench(ctx context.Context, o options) (err error) {
	b := &bench{options: o, stores: map[string]*database{}}
	defer func() { err = errors.Join(err, b.closeFrom(0)) }()
	if err := b.prepare(); err != nil {
		return err
	}
	if b.report.Run, err = describeRun(o, b.dir); err != nil {
		return err
	}
	fmt.Println(b.report.Run)
	for _, p := range parts {
		if !slices.Contains(o.parts, p.name) {
			continue
		}
		if err := p.measure(b, ctx); err != nil {
			return err
		}
	}
	if o.pgo != "" {
		if err := b.writeMergedProfile(ctx); err != nil {
			return err
		}
	}
	if o.jsonFile != "" {
		if err := b.report.writeJSON(o.jsonFile); err != nil {
			return err
		}
	}
	return b.report.checkValid()
}

// prepare creates the folder of the run, and starts PostgreSQL if it is measured.
func (b *bench) prepare() (err error) {
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "purser-bench-"); err != nil {
			return err
		}
		b.closers = append(b.closers, func() error { return os.RemoveAll(b.dir) })
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if b.pgo != "" && b.profiles == "" {
		b.profiles = filepath.Join(b.dir, "profiles")
	}
	if slices.Contains(b.engines, "postgres") {
		if b.cluster, err = dbtest.Start(true); err != nil {
			return err
		}
		b.closers = append(b.closers, b.cluster.Stop)
	}
	return nil
}

// closeFrom closes the closers from index n on, the last first.
func (b *bench) closeFrom(n int) error {
	var errs []error
	for _, f := range slices.Backward(b.closers[n:]) {
		errs = append(errs, f())
	}
	b.closers = b.closers[:n]
	return errors.Join(errs...)
}

// sizes are the ledgers that each engine is measured with, in million rows.
func (b *bench) sizes() []float64 {
	if b.rows > 0 {
		return []float64{0, b.rows}
	}
	return []float64{0}
}

// measureGateways measures the gateways: in each round of each cell every gateway right
// after the floor, so that a slow moment of the machine hits both.
func (b *bench) measureGateways(ctx context.Context) (err error) {
	n := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(n)) }() // the ledger alone needs their databases
	if err := b.startGateways(ctx); err != nil {
		return err
	}
	for _, cell := range b.cells {
		for _, clients := range b.clients {
			for round := range b.rounds {
				for _, t := range b.targets {
					base, err := b.measureSample(ctx, b.floor, nil, cell, clients, round)
					if err != nil {
						return err
					}
					if _, err := b.measureSample(ctx, t, base, cell, clients, round); err != nil {
						return err
					}
				}
			}
			b.report.printCell(os.Stdout, cell, clients)
		}
	}
	for _, t := range b.targets {
		if t.database != nil {
			b.report.Audits = append(b.report.Audits,
				t.database.checkLedger(ctx, t.name, b.report.countAnswered(t.name)))
		}
	}
	b.report.printAudits(os.Stdout)
	b.report.printBefore(os.Stdout)
	return nil
}

// startGateways starts the upstream, the floor and every gateway.
func (b *bench) startGateways(ctx context.Context) error {
	up, err := b.startBenchRole("upstream")
	if err != nil {
		return err
	}
	if b.floor, err = b.startFloor("floor", up.url); err != nil {
		return err
	}
	for _, e := range b.engines {
		for _, rows := range b.sizes() {
			t, err := b.startTarget(ctx, e, engineTitle(e, rows), rows, up.url)
			if err != nil {
				return err
			}
			b.targets = append(b.targets, t)
		}
		if b.before != "" && e != "floor" {
			t, err := b.startBefore(ctx, e, up.url)
			if err != nil {
				return err
			}
			b.targets = append(b.targets, t)
		}
	}
	return nil
}

// startFloor starts a floor under a name.
func (b *bench) startFloor(name, upstream string) (*target, error) {
	c, err := b.startBenchRole("floor", upstream)
	if err != nil {
		return nil, err
	}
	c.name = name
	return &target{child: c, tokens: []string{"none"}}, nil
}

// startTarget starts Purser on an engine with a ledger of so many million rows, or the floor a second time.
func (b *bench) startTarget(ctx context.Context, engine, title string, rows float64, upstream string) (*target, error) {
	if engine == "floor" {
		return b.startFloor("floor again", upstream)
	}
	d, err := b.prepareDatabase(ctx, engine, rows, b.connections)
	if err != nil {
		return nil, err
	}
	d.spends += d.checkLedger(ctx, "", 0).SpendRows // what an earlier part has left
	return b.startPurser(ctx, title, d, upstream)
}

func (b *bench) startBenchRole(role string, args ...string) (*child, error) {
	c, err := startRole(b.dir, role, args...)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, c.closeProcess)
	return c, nil
}

// measureSample measures t once, and compares it with what the floor just did.
func (b *bench) measureSample(ctx context.Context, t *target, floor *sample, cell string,
	clients, round int) (*sample, error) {
	t.resetPeak()
	before := t.cpuTime()
	wait := t.recordProfile(ctx, b.profiles,
		fmt.Sprintf("%s-%s-%d.pprof", strings.ReplaceAll(t.name, " ", "-"), cell, clients), b.warmup, b.duration)
	r, err := measureLoad(ctx, loadSpec{
		URL:      t.url,
		Tokens:   t.tokens,
		Clients:  clients,
		Cell:     cell,
		Billed:   t.billed,
		Warmup:   b.warmup,
		Duration: b.duration,
	})
	if err := errors.Join(err, wait()); err != nil {
		return nil, fmt.Errorf("%s, %s, %d clients: %w", t.name, cell, clients, err)
	}
	s := sample{Gateway: t.name, Cell: cell, Clients: clients, Round: round + 1, loadResult: r}
	if r.Answered > 0 {
		s.CPUUS = float64((t.cpuTime() - before).Microseconds()) / float64(r.Answered)
	}
	s.RSSKiB, s.PeakKiB = t.memory()
	if floor != nil && floor.Calls > 0 {
		s.OfFloor = r.PerSecond / floor.PerSecond
		s.P99OfFloor = float64(r.P99US) / float64(floor.P99US)
		s.AddedP50US = r.P50US - floor.P50US
	}
	b.report.Samples = append(b.report.Samples, s)
	return &s, nil
}

// runInfo is the environment that a run's figures depend on.
type runInfo struct {
	Started     time.Time `json:"started"`
	CPUs        int       `json:"cpus"`
	Go          string    `json:"go"`
	System      string    `json:"system"`
	FsyncPerS   float64   `json:"fsync_per_s"`
	Duration    string    `json:"duration"`
	Rounds      int       `json:"rounds"`
	Connections int       `json:"connections"`
	Rows        float64   `json:"million_rows"`
}

func (a runInfo) String() string {
	return fmt.Sprintf("%d CPUs, %s, %s; disk %.0f durable 4 KiB appends/s; %d × %s a cell, %d connections",
		a.CPUs, a.System, a.Go, a.FsyncPerS, a.Rounds, a.Duration, a.Connections)
}

func describeRun(o options, dir string) (runInfo, error) {
	fsync, err := fsyncRate(dir)
	return runInfo{
		Started:     time.Now().UTC().Truncate(time.Second),
		CPUs:        runtime.GOMAXPROCS(0),
		Go:          runtime.Version(),
		System:      runtime.GOOS + "/" + runtime.GOARCH,
		FsyncPerS:   fsync,
		Duration:    o.duration.String(),
		Rounds:      o.rounds,
		Connections: o.connections,
		Rows:        o.rows,
	}, err
}

// fsyncRate returns how many appends of 4 KiB per second the disk makes durable. It is the
// scale for commits, and reveals a disk in memory.
func fsyncRate(dir string) (float64, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const n = 300
	page, start := make([]byte, 4096), time.Now()
	for range n {
		if _, err := f.Write(page); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
	}
	return n / time.Since(start).Seconds(), nil
}

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
