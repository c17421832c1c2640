package voice

import (
	"context"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

const (
	maxBatch     = 64              // statements in one transaction
	writeTimeout = 5 * time.Second // of a batch
)

// groupCommitter commits what the sessions of this node write in batches: what has queued while one
// transaction commits shares the next one. Only one such transaction is open at a time, so that two can never wait for
// each other.
type groupCommitter struct {
	mu      sync.Mutex
	queue   []*queuedWrite
	running bool // a goroutine commits the queue
}

// statements runs the statements of a write: in a transaction, or, in a batch of one, directly in the
// database, which spares BEGIN and COMMIT.
type statements interface {
	db.Queryer
	db.Execer
}

// queuedWrite is one write: one statement that changes something, and perhaps one that reads it.
type queuedWrite struct {
	run  func(ctx context.Context, tx statements) error
	err  error
	done chan struct{}
}

// commitInGroup runs f in a transaction that other writes may share, and returns when it is committed. f may
// run more than once: it must have no effects but those on tx and results that it sets.
func (g *groupCommitter) commitInGroup(d *db.DB, f func(ctx context.Context, tx statements) error) error {
	w := &queuedWrite{run: f, done: make(chan struct{})}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	idle := !g.running
	g.running = true
	g.mu.Unlock()
	if idle {
		go g.commitQueue(d) // ends when the queue is empty
	}
	<-w.done
	return w.err
}

func (g *groupCommitter) commitQueue(d *db.DB) {
	for {
		g.mu.Lock()
		batch := g.queue[:min(len(g.queue), maxBatch)]
		if g.queue = g.queue[len(batch):]; len(batch) == 0 {
			g.running, g.queue = false, nil
		}
		g.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		g.commitOrSplit(d, batch)
	}
}

// commitOrSplit commits a batch. If it fails, each write is committed alone, so that a bad one hits
// only one session; unless the database is unavailable, which hits them all.
func (g *groupCommitter) commitOrSplit(d *db.DB, batch []*queuedWrite) {
	err := commitBatch(d, batch)
	for i, w := range batch {
		if w.err = err; err != nil && len(batch) > 1 && !db.IsUnavailable(err) {
			w.err = commitBatch(d, batch[i:i+1])
		}
		close(w.done)
	}
}

func commitBatch(d *db.DB, batch []*queuedWrite) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if len(batch) == 1 {
		return batch[0].run(ctx, d)
	}
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, w := range batch {
			if err := w.run(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}
