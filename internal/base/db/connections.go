package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// connectionLife is how long a connection to PostgreSQL is used, so that connections move to the new primary after a
// failover.
const connectionLife = 30 * time.Minute

// openingMost is how many connections a pool opens at a time. A server that starts a process for each opens few in the
// time that it opens one. An attempt that takes longer than slowAttempt does not count: it may wait for a network that
// has been away, and is no reason to wait for a server that is there again. openingEver is how many there are at most
// with those.
const (
	openingMost = 4
	openingEver = 12
	slowAttempt = 2 * time.Second
)

// A connector opens the connections of one pool to PostgreSQL. Nobody's leaving ends an attempt: the connection waits
// for who asks next. Otherwise a server that takes longer to open one than callers wait would open them for nobody,
// over and over, and stay slow by it.
//
// The successor of an old connection is open before the old one ends: a server without room for more would give its
// place to somebody else.
type connector struct {
	driver.Connector
	life time.Duration

	mu       sync.Mutex
	waiting  []chan<- opened // who asked first is first; each takes one without a wait
	opening  int             // attempts that have not ended, but for those that are slow
	slow     int             // attempts that are slow
	ready    []driver.Conn   // open, and nobody has them yet
	promised int             // old connections that have ended for one that is ready
	full     error           // the server's last word that it has no room
	fullTo   time.Time       // until then it is not asked again
	closed   bool
}

// An opened is how an attempt to open a connection ended.
type opened struct {
	conn driver.Conn
	err  error
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

// Connect returns a connection that is ready and still answers, and otherwise the first that opens.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	for ready := c.takeReady(); ready != nil; ready = c.takeReady() {
		if answers(ctx, ready) {
			return ready, nil
		}
		_ = ready.Close()
	}
	mine := make(chan opened, 1)
	c.mu.Lock()
	if time.Now().Before(c.fullTo) {
		defer c.mu.Unlock()
		return nil, c.full
	}
	c.waiting = append(c.waiting, mine)
	c.open()
	c.mu.Unlock()
	select {
	case o := <-mine:
		return o.conn, o.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w chan<- opened) bool { return w == mine })
	select {
	case o := <-mine: // in the moment of leaving
		return o.conn, o.err
	default:
		return nil, fmt.Errorf("no connection has opened: %w", ctx.Err())
	}
}

// takeReady returns nil if no connection is ready.
func (c *connector) takeReady() driver.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ready) == 0 {
		return nil
	}
	conn := c.ready[0]
	c.ready, c.promised = c.ready[1:], max(c.promised-1, 0)
	return conn
}

func answers(ctx context.Context, conn driver.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	p, ok := conn.(driver.Pinger)
	return ok && p.Ping(ctx) == nil
}

// open begins as many attempts as somebody waits for. The caller has locked c.
func (c *connector) open() {
	for c.opening < min(len(c.waiting), openingMost) && c.opening+c.slow < openingEver {
		c.opening++
		go c.attempt()
	}
}

// attempt opens a connection within the time limit of the configuration. A failure is that of the attempt's share of
// those who wait, so that all of them learn in one time limit that the server is away.
func (c *connector) attempt() {
	becomesSlow := time.AfterFunc(slowAttempt, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.opening--
		c.slow++
		c.open()
	})
	conn, err := c.Connector.Connect(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	served := min(len(c.waiting), 1)
	if attempts := c.opening + c.slow; sqlState(err) == tooManyConnections {
		served, c.full, c.fullTo = len(c.waiting), err, time.Now().Add(fullAnswer)
	} else if err != nil {
		served = (len(c.waiting) + attempts - 1) / attempts
	}
	for _, w := range c.waiting[:served] {
		w <- opened{conn, err}
	}
	c.waiting = c.waiting[served:]
	if becomesSlow.Stop() {
		c.opening--
	} else {
		c.slow--
	}
	switch {
	case err != nil || served > 0:
	case c.closed || len(c.ready) == openingMost:
		_ = conn.Close()
	default:
		c.ready = append(c.ready, conn)
	}
	if err == nil {
		c.open()
	}
}

// promise reports whether an old connection may end now, because one is ready for it. Otherwise it begins to open one.
// If that fails, the next use of an old connection tries again.
func (c *connector) promise() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.ready) > c.promised:
		c.promised++
		return true
	case len(c.ready) == 0 && c.opening+c.slow == 0 && !c.closed:
		c.opening++
		go c.attempt()
	}
	return false
}

// Close is called by the pool when it closes.
func (c *connector) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, conn := range c.ready {
		errs = append(errs, conn.Close())
	}
	c.ready = nil
	return errors.Join(errs...)
}

// tooManyConnections is the SQLSTATE of a server, database or role that has no connection left.
const tooManyConnections = "53300"

// fullPause is how long a pool opens no connection after the server had no room for one.
const fullPause = 5 * time.Second

// fullAnswer is how long a pool takes the server's word that it has no room for that of the next moment, too.
const fullAnswer = 200 * time.Millisecond

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

// NoteError discards the idle connections to a server that is away: after one has failed, the others may lead to a
// network that takes packets and brings no answers, and a new connection shows soon whether the server is there. Where
// nothing but time ran out, one of them is asked first: a server that is slow would be slower by as many new ones. An
// error that the server has sent shows that it is there, unless it says that it ends.
func (d *DB) NoteError(err error) {
	if d.Engine != Postgres || err == nil || !IsAway(err) {
		return
	}
	switch state := sqlState(err); {
	case state == "" && errors.Is(err, context.DeadlineExceeded):
		d.discardIf(d.idleAreDead)
	case state == "" || strings.HasPrefix(state, "57P"):
		d.discardIdle()
	}
}

// idleAreDead reports whether a connection that is idle does not answer in time.
func (d *DB) idleAreDead() bool {
	for _, pool := range []*sql.DB{d.read, d.write} {
		if pool != nil && pool.Stats().Idle > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), d.Limit(pingTimeout))
			defer cancel()
			return pool.PingContext(ctx) != nil
		}
	}
	return false
}

// discardIdle closes the idle connections to PostgreSQL. It does nothing on SQLite.
func (d *DB) discardIdle() { d.discardIf(func() bool { return true }) }

// discardIf does it where is tells so, unless that is under way.
func (d *DB) discardIf(is func() bool) {
	if d.Engine != Postgres || !d.discarding.CompareAndSwap(false, true) {
		return
	}
	go func() { // closing a connection may take seconds
		defer d.discarding.Store(false)
		if !is() {
			return
		}
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
		d.discardIdle()
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
