package world

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/bank"
	"github.com/purserhq/purser/internal/testkit/faulttest"
)

// This file is what a box has on PostgreSQL: two processes of the product, of which each step asks one, real sockets,
// and the clock of the machine. Time passes in leaps: the clock that everybody reads is set ahead, what is due then
// runs, and all wait until nothing is said for a while. So nothing tells exactly when a job has ended, and judges that
// find something ask again.
//
// The clock of PostgreSQL itself goes on as it is: by it processes hold their leases, and a leap ends none.

// processes is how many run at a time, and leases are how long each is taken for alive.
var (
	processes = map[db.Engine]int{db.SQLite: 1, db.Postgres: 2}
	leases    = map[db.Engine]time.Duration{
		db.SQLite:   day, // a job that waits for long must not lose it
		db.Postgres: 5 * time.Second,
	}
)

// standBetween lets n reach the database by a way of its own, and returns its URL.
func (b *Box) standBetween(n *node) string {
	b.T.Helper()
	n.file = &file{die: func() { b.lead(n); b.die(n) }, stop: func() { b.lead(n); go b.goOn(n) }}
	return faulttest.NewProxy(b.T, b.config.Database, n.before("")).URL
}

// toOutside is whom a process says something to, but to its database and to who asks it.
const toOutside = "outside"

// before is asked before the process says something to somebody; nil = it is not.
func (n *node) before(to string) func() error {
	if n.box.engine == db.SQLite {
		return nil // its driver is asked
	}
	return func() error {
		n.box.said.Add(1)
		return n.file.pass(context.Background(), 0, to)
	}
}

// lead lets another process than n answer from now on, as a load balancer does that n does not answer.
func (b *Box) lead(n *node) {
	for _, other := range b.running() {
		if other != n {
			b.Network.lead(other.number)
		}
	}
}

// spread lets all processes answer in turn.
func (b *Box) spread() {
	var all []int
	for _, n := range b.running() {
		all = append(all, n.number)
	}
	b.Network.lead(all...)
}

// asleep is for how long a process is stopped by the clock that everybody reads: longer than a claim on a request to
// Stripe is held, and less than Stripe knows what it was asked.
const asleep = 3 * time.Hour

// goOn lets a process that is stopped go on, after its lease has ended, and the other one has had the time to judge it.
//
// It stands from when it says something: a SIGSTOP would stop it at any instruction. Its timers and what waits for them
// go on: what it was about to do under a limit that ends meanwhile it does not do any more.
func (b *Box) goOn(n *node) {
	time.Sleep(leases[b.engine] * 3 / 2)
	b.shift(asleep)
	n.file.goOn()
}

// goOn lets a process go on.
func (f *file) goOn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.stands)
	f.stands = nil
}

// awaken waits until the process is not stopped, or done is closed.
func (f *file) awaken(done <-chan struct{}) {
	f.mu.Lock()
	stands := f.stands
	f.mu.Unlock()
	if stands != nil {
		select {
		case <-stands:
		case <-done:
		}
	}
}

// longestLeap is how far the clock is set ahead at a time.
const longestLeap = 12 * time.Hour

// shift lets time pass: mostly at once, and what is due by what was due in several leaps.
func (b *Box) shift(d time.Duration) {
	for d > 0 {
		leap := d
		if d > time.Minute {
			leap = min(d*7/8, longestLeap)
		}
		d -= leap
		b.mu.Lock()
		b.clock.passed.Add(int64(leap))
		b.wake()
		nodes := slices.Clone(b.nodes)
		b.mu.Unlock()
		for _, n := range nodes {
			b.clock.set(n.server.DB, 0)
		}
		b.awaitSilence()
	}
}

// Silence is when no process has said anything for a while. One that waits for an answer does not end it for long.
const (
	silence     = 30 * time.Millisecond
	longestTalk = 3 * time.Second
)

func (b *Box) awaitSilence() {
	began := time.Now()
	for last, said := began, int64(-1); time.Since(last) < silence && time.Since(began) < longestTalk; {
		time.Sleep(silence / 6)
		if now := b.said.Load(); now != said {
			last, said = time.Now(), now
		}
	}
}

// lingers lets somebody outside wait while others wait for him. On sockets it is a fiftieth of that, and a lease at
// most: enough for a process to look whether another one lives.
func (b *Box) lingers(ctx context.Context, d time.Duration) {
	if b.engine == db.Postgres {
		d = min(d/50, leases[b.engine])
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// bound bounds how long somebody reads the stream of a connection. In a bubble it is until the token ends.
func (b *Box) bound(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	if b.engine == db.SQLite || !strings.HasPrefix(path, "/v1/connection/events") {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Second)
}

// turn draws who is asked in the next step: a process, or all in turn.
func (w *world) turn(s bank.Step) error {
	nodes := w.running()
	w.turnTo(nodes[(s.A+s.B+s.C)%len(nodes)])
	if s.A%3 == 0 {
		w.spread()
	}
	w.money.Book.DB = w.Server.DB
	return w.awaitLeases()
}

// awaitLeases waits until each process has its lease. A leap lets the rows of all seem old, and jobs remove them.
func (w *world) awaitLeases() error {
	if w.engine == db.SQLite {
		return nil
	}
	for late := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var n int
		err := w.Server.DB.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM nodes
			WHERE lease_us > EXTRACT(EPOCH FROM clock_timestamp()) * 1000000`).Scan(&n)
		if err != nil || n >= processes[w.engine] {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("of %d processes %d have a lease", processes[w.engine], n)
		}
	}
}

// holds asks a judge. On sockets a job may be at work meanwhile: what does not hold is asked again.
func (b *Box) holds(judge func() error) error {
	err := judge()
	for n := 0; err != nil && b.engine == db.Postgres && n < 3; n++ {
		b.shift(10 * time.Second)
		err = judge()
	}
	return err
}

// tables returns the tables of the database, without the parts of those that have some.
func (w *world) tables() ([]string, error) {
	if w.engine == db.Postgres {
		return w.texts(`SELECT relname` + wholeTables)
	}
	return w.texts(`SELECT name FROM sqlite_master WHERE type = 'table'`)
}

// wholeTables selects them on PostgreSQL.
const wholeTables = ` FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition
	AND relnamespace = current_schema()::regnamespace`

// columns returns the columns of these tables, as table.column.
func (w *world) columns() ([]string, error) {
	if w.engine == db.Postgres {
		return w.texts(`SELECT table_name || '.' || column_name FROM information_schema.columns
			WHERE table_schema = current_schema() AND table_name IN (SELECT relname` + wholeTables + `)`)
	}
	return w.texts(`SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c
		WHERE m.type = 'table'`)
}
