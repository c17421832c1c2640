package db_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestConnectionsOfANode asks more of a node at once than its URL allows connections: the server never sees more.
func TestConnectionsOfANode(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.Postgres)
	with := func(text string) string {
		if strings.Contains(url, "?") {
			return url + "&pool_max_conns=" + text
		}
		return url + "?pool_max_conns=" + text
	}
	for _, text := range []string{"0", "7", "1001", "many", ""} {
		if d, err := db.Open(t.Context(), with(text)); err == nil || !strings.Contains(err.Error(), "from 8 to 1000") {
			t.Errorf("pool_max_conns=%s: %v, %v", text, d, err)
		}
	}
	for target, want := range map[string]int{url: 24, with("10"): 10} {
		s, err := db.Inspect(t.Context(), target)
		if err != nil || s.NodeConnections != want || s.ServerConnections < 50 {
			t.Errorf("%+v, %v; want %d connections", s, err, want)
		}
	}
	d, err := db.Open(t.Context(), with("10"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	d.RelaxLimits(24) // only the machine decides how long 60 of them take
	var mu sync.Mutex
	var wg sync.WaitGroup
	most := 0
	for range 60 {
		wg.Go(func() {
			var n int
			err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity
				WHERE datname = current_database() AND application_name = 'purser'`).Scan(&n)
			mu.Lock()
			defer mu.Unlock()
			if most = max(most, n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most < 2 || most > 10 {
		t.Errorf("the server saw %d connections", most)
	}
}

// TestServerWithoutRoom: while others have all connections that a server allows, a node does its reads and writes with
// those that it has, and keeps them.
func TestServerWithoutRoom(t *testing.T) {
	t.Parallel()
	url, limit := dbtest.LimitedURL(t)
	limit(14)
	d, err := db.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.Close() }()
	d.RelaxLimits(24) // only the machine decides how long 60 of them take
	// Both pools have a connection.
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		var one int
		err := tx.QueryRowContext(ctx, `SELECT 1`).Scan(&one)
		return errors.Join(err, d.QueryRowContext(ctx, `SELECT 1`).Scan(&one))
	}); err != nil {
		t.Fatal(err)
	}
	others, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = others.Close() }()
	for { // until there is no room
		if _, err := others.Conn(t.Context()); err != nil {
			break
		}
	}
	const mine = `SELECT COUNT(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'purser'`
	count := func() (n int) {
		if err := d.QueryRowContext(t.Context(), mine).Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	before := count()
	for range 3 {
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				var n int
				err := d.QueryRowContext(t.Context(), `SELECT 1 FROM pg_sleep(0.01)`).Scan(&n)
				if i%2 == 0 {
					err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
						return tx.QueryRowContext(ctx, `SELECT 1 FROM pg_sleep(0.01)`).Scan(&n)
					})
				}
				if err != nil {
					t.Errorf("while the server has no room: %v", err)
				}
			})
		}
		wg.Wait()
	}
	if after := count(); before < 2 || after < before {
		t.Errorf("the node had %d connections, and has %d", before, after)
	}
}

// TestSlowServerKeepsItsConnections: a statement that takes too long costs its own connection, and no other one: a
// server that is slow has no time to open them anew.
func TestSlowServerKeepsItsConnections(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.Postgres)
	var open sync.WaitGroup
	for range 8 {
		open.Go(func() {
			if _, err := db.QueryAll(t.Context(), d, func(db.Row) (int, error) { return 0, nil },
				`SELECT 1 FROM pg_sleep(0.1)`); err != nil {
				t.Error(err)
			}
		})
	}
	open.Wait()
	list := func() []int {
		pids, err := db.QueryAll(t.Context(), d, func(r db.Row) (pid int, err error) { return pid, r.Scan(&pid) },
			`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'purser'`)
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	before := list()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err := db.QueryAll(ctx, d, func(db.Row) (int, error) { return 0, nil }, `SELECT 1 FROM pg_sleep(60)`)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a slow statement ends with %v", err)
		}
	}
	d.AwaitIdleCheck()
	kept := 0
	for _, pid := range list() {
		if slices.Contains(before, pid) {
			kept++
		}
	}
	if kept < len(before)-3 || len(before) < 6 {
		t.Errorf("of %d connections %d are kept", len(before), kept)
	}
}
