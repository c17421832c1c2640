package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// connectionLife is how long a connection to PostgreSQL is used, so that connections move to the new primary after a
// failover.
const connectionLife = 30 * time.Minute

// A connector opens the connections of one pool to PostgreSQL. The successor of an old connection is open before the
// old one ends: a server without room for more would give its place to somebody else.
type connector struct {
	driver.Connector
	life time.Duration

	mu        sync.Mutex
	successor driver.Conn // nil: none is ready
	promised  bool        // an old connection has ended for it
	opening   bool
	closed    bool
}

// openedKey is where a connection has the time at which it was opened.
const openedKey = "purser.opened"

func newConnector(config *pgx.ConnConfig, shouldPing func(context.Context, stdlib.ShouldPingParams) bool,
	check func(context.Context, *pgx.Conn) error) *connector {
	c := &connector{life: connectionLife}
	c.Connector = stdlib.GetConnector(*config, stdlib.OptionShouldPing(shouldPing),
		stdlib.OptionAfterConnect(func(_ context.Context, p *pgx.Conn) error {
			p.PgConn().CustomData()[openedKey] = time.Now()
			return nil
		}),
		stdlib.OptionResetSession(func(ctx context.Context, p *pgx.Conn) error {
			if err := check(ctx, p); err != nil {
				return err
			}
			opened, ok := p.PgConn().CustomData()[openedKey].(time.Time)
			if ok && time.Since(opened) > c.life && c.promise() {
				return driver.ErrBadConn
			}
			return nil
		}))
	return c
}

// Connect returns the successor if one is ready and still answers, and otherwise a new connection.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	c.mu.Lock()
	ready := c.successor
	c.successor, c.promised = nil, false
	c.mu.Unlock()
	if ready != nil {
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		if p, ok := ready.(driver.Pinger); ok && p.Ping(ping) == nil {
			return ready, nil
		}
		_ = ready.Close()
	}
	return c.Connector.Connect(ctx)
}

// promise reports whether an old connection may end now, because its successor is ready. Otherwise it begins to open
// one.
func (c *connector) promise() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.successor != nil && !c.promised:
		c.promised = true
		return true
	case c.successor == nil && !c.opening && !c.closed:
		c.opening = true
		go c.openSuccessor()
	}
	return false
}

// openSuccessor opens a connection within the time limit of the configuration. If it fails, the next use of an old
// connection tries again.
func (c *connector) openSuccessor() {
	conn, err := c.Connector.Connect(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opening = false
	switch {
	case err != nil:
	case c.closed:
		_ = conn.Close()
	default:
		c.successor = conn
	}
}

// Close is called by the pool when it closes.
func (c *connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.successor == nil {
		return nil
	}
	conn := c.successor
	c.successor = nil
	return conn.Close()
}

// tooManyConnections is the SQLSTATE of a server, database or role that has no connection left.
const tooManyConnections = "53300"

// fullPause is how long a pool opens no connection after the server had no room for one.
const fullPause = 5 * time.Second

// fullRest is how long who found the server full waits before it asks again.
const fullRest = 20 * time.Millisecond

// isFull reports whether err says that the server has no room for a new connection while the pool has others, so that
// the caller is to ask again: then it waits for one of them.
func (d *DB) isFull(ctx context.Context, pool *sql.DB, err error) bool {
	if err == nil || d.Engine != Postgres || sqlState(err) != tooManyConnections || ctx.Err() != nil {
		return false
	}
	open := pool.Stats().OpenConnections // with those that are about to learn it
	if open == 0 {
		return false
	}
	select { // those that only try count as open, too: let them learn it before this one asks again
	case <-time.After(fullRest):
	case <-ctx.Done():
		return false
	}
	d.fullMu.Lock()
	defer d.fullMu.Unlock()
	pool.SetMaxOpenConns(open)
	if d.full == nil {
		d.full = time.AfterFunc(fullPause, func() {
			d.fullMu.Lock()
			defer d.fullMu.Unlock()
			d.full = nil
			limitPool(d.read, d.poolSize)
			limitPool(d.write, d.poolSize)
		})
	}
	return true
}

// noteError discards the idle connections to a server that does not answer.
func (d *DB) noteError(err error) {
	if err != nil && IsAway(err) && sqlState(err) != tooManyConnections {
		d.DiscardIdle()
	}
}

// DiscardIdle closes the idle connections to PostgreSQL. After one has failed, the others may lead to a network that
// takes packets and brings no answers: a new connection shows soon whether the server is there. It does nothing on
// SQLite.
func (d *DB) DiscardIdle() {
	if d.Engine != Postgres || !d.discarding.CompareAndSwap(false, true) {
		return
	}
	go func() { // closing a connection may take seconds
		defer d.discarding.Store(false)
		for _, pool := range []*sql.DB{d.read, d.write} {
			if pool != nil {
				pool.SetMaxIdleConns(0)
				pool.SetMaxIdleConns(d.poolSize)
			}
		}
	}()
}

// pingTimeout is how long an idle connection may take to answer a ping. Two of them are within CallerTimeout.
const pingTimeout = 2 * time.Second

// pingIdle pings a connection that was idle, before it is used again, and closes it if it does not answer. The other
// idle connections may lead to the same dead network: they go too. It returns false, because the driver's own ping
// would wait as long as the caller does.
func (d *DB) pingIdle(ctx context.Context, p stdlib.ShouldPingParams) bool {
	if p.IdleDuration <= time.Second {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if p.Conn.PgConn().Ping(ctx) != nil { // the connection is closed now
		d.DiscardIdle()
	}
	return false
}

// rejectClosed drops a connection that pingIdle has closed.
func rejectClosed(_ context.Context, c *pgx.Conn) error {
	if c.IsClosed() {
		return driver.ErrBadConn
	}
	return nil
}

// rejectStandby drops a connection that is closed or whose server has become a standby.
func rejectStandby(ctx context.Context, c *pgx.Conn) error {
	if err := rejectClosed(ctx, c); err != nil {
		return err
	}
	if c.PgConn().ParameterStatus("in_hot_standby") == "on" {
		return driver.ErrBadConn
	}
	return nil
}
