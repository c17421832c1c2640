package db

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

// stmtCache keeps frequent reads of a SQLite database prepared: to parse a query costs more than to run it, if it
// finds its rows by key. Rare queries are not prepared, because each prepared one takes memory on every connection,
// and a page with filters makes queries without end. (On PostgreSQL, pgx does this.)
type stmtCache struct {
	pool     *sql.DB
	mu       sync.RWMutex
	stmts    map[string]*cachedStmt // by their query
	prepared int                    // how many are prepared
}

type cachedStmt struct {
	hits atomic.Int32
	stmt atomic.Pointer[sql.Stmt] // nil until it is prepared
}

const (
	maxCounted   = 2000 // queries whose hits are counted
	maxPrepared  = 100
	prepareAfter = 20 // hits
)

func newStmtCache(pool *sql.DB) *stmtCache {
	return &stmtCache{pool: pool, stmts: map[string]*cachedStmt{}}
}

// lookup counts a hit, and returns the prepared statement of the query. It returns nil if the query is to be run
// unprepared, and if l is nil. The pool closes the statement.
func (l *stmtCache) lookup(ctx context.Context, query string) *sql.Stmt {
	if l == nil {
		return nil
	}
	l.mu.RLock()
	c := l.stmts[query]
	l.mu.RUnlock()
	if c == nil {
		l.mu.Lock()
		if len(l.stmts) < maxCounted && l.stmts[query] == nil {
			l.stmts[query] = &cachedStmt{}
		}
		l.mu.Unlock()
		return nil
	}
	if s := c.stmt.Load(); s != nil {
		return s
	}
	if c.hits.Add(1) == prepareAfter {
		l.prepare(ctx, query, c)
	}
	return nil
}

// prepare prepares a query for the next hit. A wrong query stays unprepared, and fails when it is run.
func (l *stmtCache) prepare(ctx context.Context, query string, c *cachedStmt) {
	l.mu.Lock()
	hasRoom := l.prepared < maxPrepared
	if hasRoom {
		l.prepared++
	}
	l.mu.Unlock()
	if !hasRoom {
		return
	}
	if s, err := l.pool.PrepareContext(ctx, query); err == nil {
		c.stmt.Store(s)
	}
}
