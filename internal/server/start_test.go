package server

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// startingPostgres is a proxy before a PostgreSQL that answers its first connections as a
// server does that is starting.
func startingPostgres(t *testing.T, database string, refusals int64) (through string, refused *atomic.Int64) {
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
	refused = &atomic.Int64{}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if refused.Load() < refusals {
				refused.Add(1)
				refuseStart(client)
				continue
			}
			server, err := net.Dial(network, address)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() { _, _ = io.Copy(server, client) }()
			go func() { _, _ = io.Copy(client, server) }()
		}
	}()
	query.Del("host")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = l.Addr().String(), query.Encode()
	return u.String(), refused
}

// refuseStart reads a startup message and answers 57P03.
func refuseStart(client net.Conn) {
	defer client.Close()
	var size [4]byte
	if _, err := io.ReadFull(client, size[:]); err != nil {
		return
	}
	if _, err := io.CopyN(io.Discard, client, int64(binary.BigEndian.Uint32(size[:]))-4); err != nil {
		return
	}
	answer, err := (&pgproto3.ErrorResponse{
		Severity: "FATAL",
		Code:     "57P03",
		Message:  "the database system is starting up",
	}).Encode(nil)
	if err == nil {
		_, _ = client.Write(answer)
	}
}

// TestWaitsForAStartingDatabase opens a PostgreSQL that does not accept connections yet.
func TestWaitsForAStartingDatabase(t *testing.T) {
	t.Parallel()
	through, refused := startingPostgres(t, dbtest.URL(t, db.Postgres), 3)
	d, err := openDatabase(t.Context(), through, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if n := refused.Load(); n != 3 {
		t.Errorf("refused %d times", n)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	through, _ = startingPostgres(t, dbtest.URL(t, db.Postgres), 1<<40)
	if _, err := openDatabase(stopped, through, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("opened a database that never starts")
	}
}

// TestJobsHaveDeadlines runs a job that waits for something which never comes: its context
// ends, the failure is counted, and the next run comes.
func TestJobsHaveDeadlines(t *testing.T) {
	t.Parallel()
	s := &Server{log: slog.New(slog.DiscardHandler)}
	runs := 0
	wait := func(ctx context.Context) error {
		runs++
		<-ctx.Done()
		return ctx.Err()
	}
	for range 2 {
		s.runJob(t.Context(), time.Millisecond, "wait", wait)
	}
	if runs != 2 {
		t.Errorf("%d runs", runs)
	}
	for _, interval := range []time.Duration{time.Second, 5 * time.Second, time.Hour} {
		if limit := jobTimeout(interval); limit <= 0 || limit > 30*time.Minute {
			t.Errorf("a job of each %v has %v", interval, limit)
		}
	}
}
