package voice

import (
	"context"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
)

// writes gathers what this node's sessions write of themselves: what has queued while
// the last transaction was on its way shares the next one. Only one transaction at a
// time changes rows of several sessions, so that no two wait for each other.
type writes struct {
	mu    sync.Mutex
	queue []*write
	busy  bool // somebody is writing the queue

	rows sync.Mutex
}

// statements are of a transaction, or, when nobody shares it, of the database itself,
// which spares BEGIN and COMMIT.
type statements interface {
	db.Queryer
	db.Execer
}

// write is one of them: one statement that changes something, and what reads it then.
type write struct {
	do   func(ctx context.Context, tx statements) error
	err  error
	done chan struct{}
}

const (
	shared  = 64               // so many at most share a transaction
	writeIn = 20 * time.Second // how long one may take
)

// write runs f in a transaction that others may share, and returns when it is committed.
// f may run more than once: it must have no effects but on tx, and results that it sets.
func (h *Handler) write(f func(ctx context.Context, tx statements) error) error {
	w := &write{do: f, done: make(chan struct{})}
	q := &h.writes
	q.mu.Lock()
	q.queue = append(q.queue, w)
	idle := !q.busy
	q.busy = true
	q.mu.Unlock()
	if idle {
		go h.writeQueue() // ends when there is nothing left
	}
	<-w.done
	return w.err
}

func (h *Handler) writeQueue() {
	q := &h.writes
	for {
		q.mu.Lock()
		batch := q.queue[:min(len(q.queue), shared)]
		if q.queue = q.queue[len(batch):]; len(batch) == 0 {
			q.busy, q.queue = false, nil
		}
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		h.writeBatch(batch)
	}
}

// writeBatch commits a batch. One that fails as a whole is run one by one, so that a
// bad one hits one session; unless the database is away, which hits them all.
func (h *Handler) writeBatch(batch []*write) {
	h.writes.rows.Lock()
	defer h.writes.rows.Unlock()
	err := h.together(batch)
	for i, w := range batch {
		if w.err = err; err != nil && len(batch) > 1 && !db.IsUnavailable(err) {
			w.err = h.together(batch[i : i+1])
		}
		close(w.done)
	}
}

func (h *Handler) together(batch []*write) error {
	if len(batch) == 1 {
		ctx, cancel := context.WithTimeout(context.Background(), writeIn)
		defer cancel()
		return batch[0].do(ctx, h.DB)
	}
	return h.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for _, w := range batch {
			if err := w.do(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}
