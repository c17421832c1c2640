package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// cutter is a proxy before a PostgreSQL. Armed, it cuts all connections after so
// many more bytes to or from the server, and with them an answer or a request.
type cutter struct {
	listener net.Listener
	socket   string

	mu       sync.Mutex
	up, down int // bytes that have passed since it was armed
	cutUp    int // cut after so many, 0 = never
	cutDown  int
	conns    []net.Conn
}

func newCutter(t *testing.T, database string) (c *cutter, through string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	c = &cutter{}
	if host := query.Get("host"); strings.HasPrefix(host, "/") {
		c.socket = host + "/.s.PGSQL.5432"
	} else {
		c.socket = u.Host
	}
	if c.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.listener.Close()
		c.cutConnections() // pgx may still ask to cancel a statement
	})
	go c.acceptConnections()
	query.Del("host")
	u.Host, u.RawQuery = c.listener.Addr().String(), query.Encode()
	return c, u.String()
}

func (c *cutter) acceptConnections() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		network := "tcp"
		if strings.HasPrefix(c.socket, "/") {
			network = "unix"
		}
		server, err := net.Dial(network, c.socket)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, client, server)
		c.mu.Unlock()
		go c.copyUntilCut(server, client, &c.up, &c.cutUp)
		go c.copyUntilCut(client, server, &c.down, &c.cutDown)
	}
}

// copyUntilCut copies until the end, or until the cut.
func (c *cutter) copyUntilCut(to, from net.Conn, passed, cut *int) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		c.mu.Lock()
		enough := *cut > 0 && *passed+n >= *cut
		if enough {
			n = *cut - *passed
		}
		*passed += n
		c.mu.Unlock()
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = werr
			}
		}
		if enough {
			c.cutConnections()
		}
		if enough || err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// cutConnections ends every connection, and lets new ones live.
func (c *cutter) cutConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns, c.cutUp, c.cutDown = nil, 0, 0
}

// cutAfter cuts after so many bytes; 0 is never. It returns what passed since the last time.
func (c *cutter) cutAfter(up, down int) (wasUp, wasDown int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wasUp, wasDown = c.up, c.down
	c.up, c.down, c.cutUp, c.cutDown = 0, 0, up, down
	return wasUp, wasDown
}

// cuts is at how many places of a command's bytes, in each direction, its
// connection is cut.
const cuts = 60

// TestCommitAnswerLost cuts the connection to PostgreSQL everywhere in a hold, a
// settlement and a release, so that COMMIT is lost, or only its answer (F-02,
// F-07). Whoever repeats the command finds it done exactly once.
func TestCommitAnswerLost(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"hold", "settle", "release"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			database := dbtest.URL(t, db.Postgres)
			proxy, through := newCutter(t, database)
			d, err := db.Open(t.Context(), through)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			w := writers(t, d, 1)[0]
			ctx := t.Context()
			must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
			must(t)(w.Do(ctx, rules.Connect{
				Sandbox:      true,
				ConnectionID: "C",
				AppID:        "p",
				AccountID:    "A",
				RequestedMC:  1_000_000,
			}))
			n := 0
			hold := func() rules.Hold { // of a key like any other, so that all take the same bytes
				n++
				return rules.Hold{
					Call:   callOf("C", "A", "p", fmt.Sprintf("key%06d", n), 10),
					NodeID: "n",
					Claim:  fmt.Sprintf("claim%06d", n),
				}
			}
			settle := func(h rules.Hold) rules.Settle {
				return rules.Settle{
					Call:       h.Call,
					Attempt:    1,
					Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
					Settlement: rules.Settled,
					Usage:      rules.Usage{JSON: "{}"},
					Response:   &rules.StoredResponse{Encoding: "raw", Body: []byte("{}")},
				}
			}
			command := func(h rules.Hold) rules.Command {
				switch kind {
				case "hold":
					return h
				case "settle":
					must(t)(w.Do(ctx, h))
					return settle(h)
				}
				must(t)(w.Do(ctx, h))
				return rules.Release{Call: h.Call, Attempt: 1}
			}
			warm := func() { // the connection is up, and has its statements
				h := hold()
				must(t)(w.Do(ctx, h))
				must(t)(w.Do(ctx, rules.Release{Call: h.Call, Attempt: 1}))
				h = hold()
				must(t)(w.Do(ctx, h))
				must(t)(w.Do(ctx, settle(h)))
			}
			warm()
			c := command(hold())
			proxy.cutAfter(0, 0)
			must(t)(w.Do(ctx, c))
			up, down := proxy.cutAfter(0, 0)
			lost, carriedOut, broken := 0, 0, 0
			for i := range 2 * cuts {
				warm()
				h := hold()
				c := command(h)
				if place := i/2 + 1; i%2 == 0 {
					proxy.cutAfter(max(place*up/cuts, 1), 0)
				} else {
					proxy.cutAfter(0, max(place*down/cuts, 1))
				}
				r, err := w.Do(ctx, c)
				if err != nil {
					if broken++; !db.IsUnavailable(err) {
						t.Errorf("cut %d: %v does not say that the database is away", i, err)
					}
					before := state(t, d, h)
					if before == checkDone(kind) {
						carriedOut++
					} else {
						lost++
					}
					for try := 0; err != nil && try < 5; try++ {
						r, err = w.Do(ctx, c)
					}
				}
				proxy.cutAfter(0, 0)
				if err != nil || state(t, d, h) != checkDone(kind) {
					t.Fatalf("cut %d: %+v, %v; state %q, want %q", i, r, err, state(t, d, h), checkDone(kind))
				}
				if kind == "hold" && (r.Outcome != rules.Applied || r.Attempt != 1) {
					t.Errorf("cut %d: a repeated hold answered %+v", i, r)
				}
				if kind == "settle" && (r.Outcome != rules.Applied && r.Outcome != rules.Done || r.Entry.ID == "") {
					t.Errorf("cut %d: a repeated settlement answered %+v", i, r)
				}
			}
			t.Logf("%d bytes up, %d down; %d of %d cuts broke the command: %d before it was carried out, %d after", up,
				down, broken, 2*cuts, lost, carriedOut)
			if lost < 10 || carriedOut == 0 {
				t.Error("vacuous")
			}
			balanced(t, d)
		})
	}
}

// checkDone is the state of a key that a command of this kind was carried out on once.
func checkDone(kind string) string {
	return map[string]string{
		"hold":    "1 open, 0 failed, 0 billed",
		"settle":  "0 open, 0 failed, 1 billed",
		"release": "0 open, 1 failed, 0 billed",
	}[kind]
}

// state says what is there of a key.
func state(t *testing.T, d *db.DB, h rules.Hold) (text string) {
	t.Helper()
	for range 50 { // the pool has to find out which of its connections are dead
		var open, failed, billed int
		err := d.QueryRowContext(context.Background(),
			`SELECT (SELECT COUNT(*) FROM holds WHERE key = $1 AND state = 'open'), (SELECT COUNT(*) FROM holds WHERE key = $1 AND state = 'failed'),
			(SELECT COUNT(*) FROM ledger WHERE key = $1)`, h.Key).Scan(&open, &failed, &billed)
		if err == nil {
			return fmt.Sprintf("%d open, %d failed, %d billed", open, failed, billed)
		} else if !db.IsUnavailable(err) {
			t.Fatal(err)
		}
	}
	t.Fatal("the database does not come back")
	return ""
}

// balanced checks that the connection's money is the sum of its rows and holds.
func balanced(t *testing.T, d *db.DB) {
	t.Helper()
	var consumed, held, available, reserved, allocation money.MC
	var spent, holds, chain, rows int64
	err := d.QueryRowContext(context.Background(),
		`SELECT c.consumed_mc, c.held_mc, b.available_mc, b.reserved_mc, c.allocation_mc, b.seq,
		(SELECT COALESCE(SUM(user_charge_mc), 0) FROM ledger WHERE type = 'spend'), (SELECT COALESCE(SUM(amount_mc), 0) FROM holds WHERE state = 'open'), (SELECT COUNT(*) FROM ledger)
		FROM connections c JOIN balances b ON b.account_id = c.account_id`).Scan(&consumed, &held, &available,
		&reserved, &allocation, &chain, &spent, &holds, &rows)
	if err != nil {
		t.Fatal(err)
	}
	if int64(consumed) != spent || int64(held) != holds || reserved != allocation-consumed ||
		available+reserved+consumed != 1_000_000 || chain != rows {
		t.Errorf("consumed %d of %d spent, held %d of %d, available %d, reserved %d, allocation %d, %d rows in a "+
			"chain of %d", consumed, spent, held, holds, available, reserved, allocation, rows, chain)
	}
}

// TestStatementFails makes each statement that a command sends fail: nothing of
// it is done, and the same command succeeds when the fault is gone.
func TestStatementFails(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := writers(t, d, 1)[0]
		ctx := t.Context()
		must(t)(w.Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
		must(t)(w.Do(ctx, rules.Connect{
			Sandbox:      true,
			ConnectionID: "C",
			AppID:        "p",
			AccountID:    "A",
			RequestedMC:  100_000,
		}))
		for i, f := range []struct{ command, event, table string }{
			{"hold", "INSERT", "holds"}, {"hold", "UPDATE", "connections"},
			{"settle", "DELETE", "holds"}, {"settle", "INSERT", "ledger"}, {"settle", "INSERT", "stored_responses"},
			{"settle", "INSERT", "daily_totals"},
			{"settle", "UPDATE", "balances"}, {"settle", "UPDATE", "connections"},
			{"release", "UPDATE", "holds"}, {"release", "UPDATE", "connections"},
		} {
			hold := rules.Hold{
				Call:   callOf("C", "A", "p", fmt.Sprintf("k%d", i), 10),
				NodeID: "n",
				Claim:  fmt.Sprint("claim", i),
			}
			hold.FeatureLabel = fmt.Sprint("bucket", i) // its totals are new rows
			commands := map[string]rules.Command{
				"hold": hold, "release": rules.Release{Call: hold.Call, Attempt: 1},
				"settle": rules.Settle{
					Call:       hold.Call,
					Attempt:    1,
					Charge:     rules.Amounts{ProviderCostMC: 7, UserChargeMC: 7},
					Settlement: rules.Settled,
					Usage:      rules.Usage{JSON: "{}"},
					Response:   &rules.StoredResponse{Encoding: "raw", Body: []byte("{}")},
				},
			}
			if f.command != "hold" {
				must(t)(w.Do(ctx, hold))
			}
			young := d.Engine == db.SQLite && f.command == "hold" // which writes nothing yet
			if d.Engine == db.SQLite && !young {
				onDisk(t, d, hold.Key)
			}
			undo := sabotage(t, d, f.event, f.table)
			_, err := w.Do(ctx, commands[f.command])
			undo()
			if err == nil && !young {
				t.Errorf("%s, with every %s of %s failing: no error", f.command, f.event, f.table)
			}
			if r, again := w.Do(ctx, commands[f.command]); again != nil || r.Outcome == rules.Fenced && err != nil {
				t.Errorf("%s, after every %s of %s failed: %+v, %v", f.command, f.event, f.table, r, again)
			}
			if f.command == "hold" {
				must(t)(w.Do(ctx, rules.Release{Call: hold.Call, Attempt: 1}))
			}
		}
		balanced(t, d)
		if c, err := GetConnection(ctx, d, "C"); err != nil || c.HeldMC != 0 || c.ConsumedMC != 6*7 {
			t.Errorf("%+v, %v", c, err)
		}
	})
}

// faults lets one statement fail.
type faults struct {
	mu   sync.Mutex
	left int    // statements until it; 0 = none fails
	text string // the statement that has failed; "" = none
}

var errFault = errors.New("fault")

func (f *faults) fails(query string, _ []any) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.left == 0 || query == "ROLLBACK":
		return false
	case query == "SELECT connection_id, key FROM holds" || strings.HasPrefix(query, "SELECT key_hash FROM ledger"):
		return false // the filter of keys is filled in the background
	}
	if f.left--; f.left == 0 {
		f.text = query
	}
	return f.left == 0
}

// failNext lets the n-th statement from now on fail.
func (f *faults) failNext(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.text = n, ""
}

// failed returns the statement that has failed since failNext.
func (f *faults) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	return f.text
}

// each runs run with the first statement failing, then the second, until none is left to fail. Each of them must be an
// error.
func (f *faults) each(t *testing.T, what any, run func() error) {
	t.Helper()
	for n := 1; ; n++ {
		f.failNext(n)
		err := run()
		text := f.failed()
		switch {
		case text == "":
			return
		case errors.Is(err, errPrepared):
			n-- // the same again, with statements that count
		case !errors.Is(err, errFault) && !errors.Is(err, context.Canceled):
			t.Errorf("%+v: %v although this fails: %s", what, err, text)
			return
		}
	}
}

// errPrepared says that statements were prepared that did not count yet.
var errPrepared = errors.New("statements were prepared")

// A faultyStmt is a statement of the SQLite writer's, which speaks to the driver itself.
type faultyStmt struct {
	driver.Stmt
	text   string
	faults *faults
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.faults.fails(s.text, nil) {
		return nil, errFault
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.faults.fails(s.text, nil) {
		return nil, errFault
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// wrap lets the prepared statements count. It reports whether any did not.
func (f *faults) wrap(q *sqlite) (prepared bool) {
	for text, s := range q.stmts {
		if _, ok := s.(faultyStmt); !ok {
			q.stmts[text], prepared = faultyStmt{s, text, f}, true
		}
	}
	return prepared
}

// TestNoErrorIsDropped runs the scripts. Each statement of each command fails once, and so does each of the save of
// young holds: that is an error and does nothing, so that the command succeeds afterwards as the script says. Then each
// statement of the reads of money fails.
func TestNoErrorIsDropped(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	d, f, n := dbtest.Open(t, db.SQLite), &faults{}, 0
	d.Fail(f.fails)
	for _, file := range files {
		runScript(t, file, func(t *testing.T) *bench {
			n++
			return faultyBench(t, d, f, fmt.Sprint(n, "-"))
		})
	}
	b := faultyBench(t, d, f, "pending-")
	for _, line := range []string{"topup A 1000", "connect C1 app A 500", "hold C1 k f 60", "defer C1 k 1"} {
		runLine(t, b, strings.Fields(line))
	}
	ctx, later := t.Context(), epoch.Add(100*24*time.Hour)
	node := &Node{db: d, now: func() time.Time { return later }}
	for name, read := range map[string]func(appID string) error{
		"matured margin": func(appID string) error { _, err := ReadMaturedMargin(ctx, d, appID, later); return err },
		"margin":         func(appID string) error { _, err := ViewAppMargin(ctx, d, appID, later, later); return err },
		"pending calls": func(string) error {
			_, err := node.ClaimPendingCalls(ctx, time.Minute, 100)
			return err
		},
		"payments":       func(string) error { _, err := PaymentsOfAccount(ctx, d, "A", 100); return err },
		"open payouts":   func(string) error { _, err := OpenPayouts(ctx, d, 100); return err },
		"paid payouts":   func(string) error { _, err := PaidPayouts(ctx, d, 0); return err },
		"current losses": func(string) error { _, err := ListCurrentLosses(ctx, d); return err },
	} {
		apps, err := db.QueryAll(ctx, d, db.ScanColumn[string], `SELECT DISTINCT app_id FROM margin_records`)
		if err != nil || len(apps) == 0 {
			t.Fatal(apps, err)
		}
		f.each(t, name, func() error { return read(apps[0]) })
	}
	wrong, err := db.QueryAll(ctx, d, db.ScanColumn[string], `SELECT id FROM connections c WHERE held_mc <>
		(SELECT COALESCE(SUM(amount_mc), 0) FROM holds h WHERE h.connection_id = c.id
			AND state IN ('open', 'pending') AND paid_by = 'wallet')`)
	if err != nil || len(wrong) > 0 {
		t.Errorf("connections %q hold in the file what no hold does, %v", wrong, err)
	}
}

// faultyBench is databaseBench whose commands run again and again, each time with another statement failing.
func faultyBench(t *testing.T, d *db.DB, f *faults, prefix string) *bench {
	t.Helper()
	b, ctx, commands := newBench(t, d, prefix), context.Background(), 0
	w := NewWriter(d, b.clock)
	q := w.backend.(*sqlite)
	saveYoung := func() error {
		conn, err := d.Conn(ctx)
		if err != nil {
			return err
		}
		return errors.Join(conn.Raw(func(dc any) error {
			if err := q.bind(ctx, dc); err != nil {
				return err
			}
			_, _, err := q.flushDelayed(ctx, b.now.Add(time.Second))
			return err
		}), conn.Close())
	}
	b.do = func(c rules.Command) (r rules.Result, err error) {
		again := func(run func() error) func() error {
			return func() error {
				if err = run(); f.wrap(q) && err != nil {
					return errPrepared
				}
				return err
			}
		}
		if !isHotPath(c) {
			f.each(t, c, again(func() error {
				return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
					r, err = w.DoTx(ctx, tx, c)
					return err
				})
			}))
			return r, err
		}
		f.each(t, c, again(func() error {
			j := &job{cmd: c, done: make(chan struct{}, 1)}
			_ = w.commitOrSplit([]*job{j}) // the job has the error
			if r = j.res; j.err == nil && r.Refused != nil {
				return r.Refused
			}
			return j.err
		}))
		refused := err
		if commands++; commands%3 == 0 {
			f.each(t, "save young holds", again(saveYoung))
		}
		return r, refused
	}
	return b.prefixed(prefix)
}

// onDisk waits until a hold is in the file.
func onDisk(t *testing.T, d *db.DB, key string) {
	t.Helper()
	late := time.After(10 * time.Second)
	for {
		if _, err := GetHold(context.Background(), d, rules.Key{ConnectionID: "C", Key: key}); err == nil {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-late:
			t.Fatal("a hold was not saved")
		}
	}
}

// sabotage makes every such statement on a table fail, until undo.
func sabotage(t *testing.T, d *db.DB, event, table string) (undo func()) {
	t.Helper()
	run := func(texts ...string) {
		for _, text := range texts {
			if _, err := d.ExecContext(context.Background(), text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.Engine == db.SQLite {
		run(fmt.Sprintf(`CREATE TRIGGER sabotage BEFORE %s ON %s BEGIN SELECT RAISE(ABORT, 'sabotage'); END`, event,
			table))
		return func() { run(`DROP TRIGGER sabotage`) }
	}
	run(`CREATE OR REPLACE FUNCTION sabotage() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION `+
		`''sabotage''; END'`,
		fmt.Sprintf(`CREATE TRIGGER sabotage BEFORE %s ON %s FOR EACH ROW EXECUTE FUNCTION sabotage()`, event, table))
	return func() { run(`DROP TRIGGER sabotage ON ` + table) }
}

// TestWritersMeet lets four nodes, all of them warm, race again and again for an
// allocation that covers one hold: one wins, whatever the others read meanwhile
// (F-49). It fails if a row that is read is not locked.
func TestWritersMeet(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	w := writers(t, d, 4)
	ctx := t.Context()
	must(t)(w[0].Do(ctx, rules.TopUp{AccountID: "A", Sandbox: true, AmountMC: 1_000_000}))
	must(t)(w[0].Do(ctx, rules.Connect{Sandbox: true, ConnectionID: "C", AppID: "p", AccountID: "A", RequestedMC: 19}))
	for round := range 50 {
		var mu sync.Mutex
		var won []rules.Hold
		var wg sync.WaitGroup
		for i := range 8 {
			h := rules.Hold{
				Call:   callOf("C", "A", "p", fmt.Sprintf("r%d/%d", round, i), 10),
				NodeID: "n",
				Claim:  fmt.Sprint(round, i),
			}
			wg.Go(func() {
				if r, err := w[i%4].Do(ctx, h); err == nil && r.Outcome == rules.Applied {
					mu.Lock()
					won = append(won, h)
					mu.Unlock()
				}
			})
		}
		if wg.Wait(); len(won) != 1 {
			t.Fatalf("round %d: %d won", round, len(won))
		}
		must(t)(w[round%4].Do(ctx, rules.Release{Call: won[0].Call, Attempt: 1}))
	}
	balanced(t, d)
}
