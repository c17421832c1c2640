package voice

import (
	"context"
	"sync"

	"purser/internal/db"
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

// write is one of them.
type write struct {
	do   func(ctx context.Context, tx *db.Tx) error
	err  error
	done chan struct{}
}

// shared is how many at most share a transaction.
const shared = 64

// write runs f in a transaction that others share, and returns when it is committed.
// f may run more than once: it must have no effects but on tx, and results that it sets.
func (h *Handler) write(f func(ctx context.Context, tx *db.Tx) error) error {
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
	return h.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		for _, w := range batch {
			if err := w.do(ctx, tx); err != nil {
				return err
			}
		}
		return nil
	})
}
