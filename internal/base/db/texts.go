package db

import (
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

// texts keeps the reads of a SQLite store prepared: parsing a text anew costs more
// than running it, if it finds its rows by key. Only those that come often are kept, because each takes
// memory on every connection, and texts that are made for a filter may be endless.
// (pgx keeps PostgreSQL's by itself.)
type texts struct {
	pool *sql.DB
	mu   sync.RWMutex
	list map[string]*text
	kept int
}

type text struct {
	asked    atomic.Int32
	prepared atomic.Pointer[sql.Stmt]
}

const (
	maxTexts    = 2000 // that are counted
	maxPrepared = 100
	often       = 20
)

func newTexts(pool *sql.DB) *texts { return &texts{pool: pool, list: map[string]*text{}} }

// find returns the prepared statement of a text, or nil: then it is to be run as
// it is. It belongs to the pool, which closes it.
func (l *texts) find(ctx context.Context, query string) *sql.Stmt {
	if l == nil {
		return nil
	}
	l.mu.RLock()
	t := l.list[query]
	l.mu.RUnlock()
	if t == nil {
		l.mu.Lock()
		if len(l.list) < maxTexts && l.list[query] == nil {
			l.list[query] = &text{}
		}
		l.mu.Unlock()
		return nil
	}
	if s := t.prepared.Load(); s != nil {
		return s
	}
	if t.asked.Add(1) == often {
		l.prepare(ctx, query, t)
	}
	return nil
}

// prepare keeps a text for the next time. One that cannot be prepared fails by itself.
func (l *texts) prepare(ctx context.Context, query string, t *text) {
	l.mu.Lock()
	room := l.kept < maxPrepared
	if room {
		l.kept++
	}
	l.mu.Unlock()
	if !room {
		return
	}
	if s, err := l.pool.PrepareContext(ctx, query); err == nil {
		t.prepared.Store(s)
	}
}
