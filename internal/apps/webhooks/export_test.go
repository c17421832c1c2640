package webhooks

import (
	"context"
	"slices"
)

// Work does everything that is due now and waits for it.
func (d *Dispatcher) Work(ctx context.Context) error {
	for {
		if err := d.runRound(ctx, ctx); err != nil {
			return err
		}
		d.tasks.Wait()
		select {
		case <-d.wake: // there were attempts; there may be more
		default:
			return nil
		}
	}
}

// Step is one round in which the endpoints of hang never answer and all others do
// before the next round. It returns how many attempts each endpoint got.
func (d *Dispatcher) Step(ctx context.Context, hang ...string) (claims map[string]int, err error) {
	if err := d.queueEvents(ctx); err != nil {
		return nil, err
	}
	list, err := d.claimDue(ctx)
	claims = map[string]int{}
	for _, v := range list {
		claims[v.EndpointID]++
		if !slices.Contains(hang, v.EndpointID) {
			d.runAttempt(ctx, v)
		}
	}
	return claims, err
}

// QueueEvents queues one batch of new events.
func (d *Dispatcher) QueueEvents(ctx context.Context) error { return d.queueEvents(ctx) }

// FailBatch queues a batch in a transaction that fails.
func (d *Dispatcher) FailBatch(ended context.Context) error { return d.queueBatch(ended) }

// MaxAttempts is the bound of concurrent attempts of a node.
const MaxAttempts = maxAttempts

// RunningOf returns how many attempts of a developer count as running.
func (d *Dispatcher) RunningOf(ownerID string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loads {
		if l.ownerID == ownerID {
			n += l.running
		}
	}
	return n
}

// Running returns how many attempts count against the bound of the node.
func (d *Dispatcher) Running() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int(d.running.All())
}
