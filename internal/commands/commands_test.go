package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/filelock"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// writeNote stores a value that a test finds again.
func writeNote(t *testing.T, d *db.DB, value string) {
	t.Helper()
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := settings.Lock(ctx, tx, "note"); err != nil {
			return err
		}
		return settings.Set(ctx, tx, "note", value)
	}); err != nil {
		t.Fatal(err)
	}
}

// readNote opens a database as a start does, and returns the value.
func readNote(t *testing.T, url string) (string, error) {
	t.Helper()
	d, err := db.Open(t.Context(), url)
	if err != nil {
		return "", err
	}
	value, err := settings.Get(t.Context(), d, "note")
	return value, errors.Join(err, d.Close())
}

// parts are the files of a place in these tests: what a killed node leaves, and the draft of a restore.
var parts = []string{"", "-wal", ".lock", ".restoring"}

// A place is a SQLite file of which only some parts are there.
type place struct {
	file string
	has  map[string]bool
}

// newPlace copies the parts of a subset from the files of a node.
func newPlace(t *testing.T, from string, subset int) place {
	t.Helper()
	p := place{filepath.Join(t.TempDir(), "purser.db"), map[string]bool{}}
	for i, part := range parts {
		if subset&(1<<i) == 0 {
			continue
		}
		p.has[part] = true
		text := []byte("half of a draft")
		if part != ".restoring" {
			var err error
			if text, err = os.ReadFile(from + part); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(p.file+part, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// hold locks the place as a node or another command does, and returns what ends that.
func (p place) hold(t *testing.T) func() {
	t.Helper()
	f, err := os.OpenFile(p.file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if locked, err := filelock.TryLock(f); err != nil || !locked {
		t.Fatal("not locked", err)
	}
	return func() {
		if err := errors.Join(filelock.Unlock(f), f.Close()); err != nil {
			t.Error(err)
		}
	}
}

// TestCommands runs each command that writes a database at a place where each subset of {file, log, lock, draft} is,
// alone or beside a process that uses the place. Afterwards there is one whole truth: what was there, with all that was
// acknowledged, or what the command says that it has written; or the next start is refused.
func TestCommands(t *testing.T) {
	t.Parallel()
	node := filepath.Join(t.TempDir(), "purser.db")
	d, err := db.Open(t.Context(), "sqlite:"+node)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	writeNote(t, d, "acknowledged") // is in the log alone
	for _, c := range append(newFillers(t), filler{"accept", []string{"db", "accept-loss", "--database"}}) {
		fills := c.name != "accept"
		for subset := range 1 << len(parts) {
			for _, used := range []bool{false, true} {
				p := newPlace(t, node, subset)
				release := func() {}
				if used {
					release = p.hold(t)
				}
				code, out, text := command(nil, append(c.args, "sqlite:"+p.file)...)
				release()
				what := fmt.Sprintf("%s at %v, used %t: exit %d %s%s", c.name, p.has, used, code, out, text)
				want := !used && !p.has[""] && !p.has["-wal"]
				if !fills {
					want = !used && p.has[""]
				}
				if (code == exitOK) != want {
					t.Errorf("%s; want success %t", what, want)
				}
				p.check(t, what, fills && code == exitOK, !fills && code == exitOK)
			}
		}
	}
}

// check starts a node at the place. Filled and accepted say what a command says that it has done.
func (p place) check(t *testing.T, what string, filled, accepted bool) {
	t.Helper()
	note, err := readNote(t, "sqlite:"+p.file)
	switch {
	case filled:
		if err != nil || note != "of the backup" {
			t.Errorf("%s: a start finds %q, %v", what, note, err)
		}
	case p.has[""] && p.has["-wal"]:
		if err != nil || note != "acknowledged" {
			t.Errorf("%s: a start finds %q, %v", what, note, err)
		}
	case p.has[""]:
		if accepted && err != nil || !accepted && !errors.Is(err, db.ErrLostLog) {
			t.Errorf("%s: a start without the log: %v", what, err)
		}
	case p.has["-wal"] || p.has[".lock"]:
		if err == nil {
			t.Errorf("%s: a start takes the place for new", what)
		}
	}
}

// A filler is a command that fills a database, without its last argument, which is the URL of that.
type filler struct {
	name string
	args []string
}

// newFillers returns the commands that fill a database with the note "of the backup".
func newFillers(t *testing.T) []filler {
	t.Helper()
	source := dbtest.URL(t, db.SQLite)
	s, err := db.Open(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	writeNote(t, s, "of the backup")
	if _, err := s.ExecContext(t.Context(), `INSERT INTO accounts (id, email, password_hash, created_us)
		VALUES ('wac_1', 'a@example.com', '', 1)`); err != nil { // without one it is as good as empty
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(t.TempDir(), "a.backup")
	if code, _, err := command(nil, "backup", backup, "--database", source); code != exitOK {
		t.Fatal(err)
	}
	return []filler{
		{"restore", []string{"restore", backup, "--database"}},
		{"copy", []string{"db", "copy", "--from", source, "--to"}},
	}
}

// run runs the command.
func (c filler) run(url string) (code int, said string) {
	code, out, text := command(nil, append(slices.Clone(c.args), url)...)
	return code, out + text
}

// checkWhole checks that a killed command has left nothing, so that it can be run again, or the whole database.
func (c filler) checkWhole(t *testing.T, what, url string) {
	t.Helper()
	code, said := c.run(url)
	if note, err := readNote(t, url); err != nil || note != "of the backup" {
		t.Errorf("%s: run again it exits with %d; a start finds %q, %v; %s", what, code, note, err, said)
	}
}

// TestKilledCommands kills each command that fills a SQLite file as soon as a part of the place is there, or at any
// moment.
func TestKilledCommands(t *testing.T) {
	t.Parallel()
	for _, c := range newFillers(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, part := range []string{".lock", ".restoring", ".restoring-wal", ""} {
				c.kill(t, "with purser.db"+part, func(file string) {
					for late := time.Now().Add(time.Minute); time.Now().Before(late); time.Sleep(time.Millisecond) {
						if _, err := os.Stat(file + part); err == nil {
							return
						}
					}
				})
			}
			if !testkit.IsLong() {
				return
			}
			for i := range 40 {
				after := time.Duration(i) * 20 * time.Millisecond
				c.kill(t, "after "+after.String(), func(string) { time.Sleep(after) })
			}
		})
	}
}

// kill starts a command, kills it after a time or an event, and checks what it has left.
func (c filler) kill(t *testing.T, when string, await func(file string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "purser.db")
	run := exec.CommandContext(t.Context(), servertest.Binary(t), append(slices.Clone(c.args), "sqlite:"+file)...)
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	await(file)
	_ = run.Process.Kill()
	_ = run.Wait() // killed, or done before
	c.checkWhole(t, "killed "+when, "sqlite:"+file)
}

// TestKilledOnPostgres lets each command that fills a PostgreSQL lose its connections after some of its messages, as a
// killed one does. Of two that run at once, one fills it.
func TestKilledOnPostgres(t *testing.T) {
	t.Parallel()
	for _, c := range newFillers(t) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			all := newCutter(t, dbtest.EmptyURL(t), math.MaxInt64)
			if code, said := c.run(all.url); code != exitOK {
				t.Fatal(said)
			}
			total := all.sent.Load()
			cuts := []int64{total / 4, total - 60, total - 3} // in the schema, in the rows, and behind them
			if testkit.IsLong() {
				cuts = cuts[:0]
				for n := range int64(40) {
					cuts = append(cuts, total*n/40, total-n)
				}
			}
			for _, n := range cuts {
				url := dbtest.EmptyURL(t)
				code, said := c.run(newCutter(t, url, n).url)
				if code == exitOK && total-n > 10 { // the last messages end connections
					t.Errorf("cut off after %d of %d messages it exits with 0: %s", n, total, said)
				}
				c.checkWhole(t, fmt.Sprintf("cut off after %d of %d messages", n, total), url)
			}
			url := dbtest.EmptyURL(t)
			var codes [2]int
			var running sync.WaitGroup
			for i := range codes {
				running.Go(func() { codes[i], _ = c.run(url) })
			}
			running.Wait()
			if codes[0]+codes[1] != exitFailed {
				t.Errorf("two at once exit with %v", codes)
			}
			c.checkWhole(t, "two at once", url)
		})
	}
}

// A cutter is a proxy before a PostgreSQL that breaks all connections after some messages of its clients.
type cutter struct {
	url  string
	sent atomic.Int64
}

func newCutter(t *testing.T, database string, most int64) *cutter {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	network, address := "tcp", u.Host
	if host := query.Get("host"); strings.HasPrefix(host, "/") {
		network, address = "unix", host+"/.s.PGSQL.5432"
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	query.Del("host")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = l.Addr().String(), query.Encode()
	c := &cutter{url: u.String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go c.serve(client, network, address, most)
		}
	}()
	return c
}

// serve passes on what one client sends, and ends the connection with the message after the most.
func (c *cutter) serve(client net.Conn, network, address string, most int64) {
	defer client.Close()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	}()
	message := make([]byte, 1<<16)
	for {
		n, err := client.Read(message)
		if err != nil || c.sent.Add(1) > most {
			return
		}
		if _, err := server.Write(message[:n]); err != nil {
			return
		}
	}
}

// TestAcceptLossIsOneStep lets accept-loss fail between its two changes: the file is refused as before.
func TestAcceptLossIsOneStep(t *testing.T) {
	t.Parallel()
	node := filepath.Join(t.TempDir(), "purser.db")
	d, err := db.Open(t.Context(), "sqlite:"+node)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON settings
		WHEN NEW.name = 'restored' BEGIN SELECT RAISE(ABORT, 'refused'); END`); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil { // copies the log into the file
		t.Fatal(err)
	}
	if d, err = db.Open(t.Context(), "sqlite:"+node); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p := newPlace(t, node, 1) // the file alone
	if code, _, text := command(nil, "db", "accept-loss", "--database", "sqlite:"+p.file); code == exitOK {
		t.Errorf("accepted: %s", text)
	}
	if _, err := readNote(t, "sqlite:"+p.file); !errors.Is(err, db.ErrLostLog) {
		t.Errorf("a start after half of it: %v", err)
	}
}
