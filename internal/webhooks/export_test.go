package webhooks

import "context"

// Work does everything that is due now and waits for it.
func (d *Dispatcher) Work(ctx context.Context) error {
	for {
		if err := d.round(ctx, ctx); err != nil {
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
