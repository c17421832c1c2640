package inference

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// checkpointInterval is how much of a stream a crash may lose (F-06).
const checkpointInterval = time.Second

// Checkpoint saves, until ctx ends, what the streams of this node have delivered, so
// that other nodes can follow them and a crash can bill them.
func (h *Handler) Checkpoint(ctx context.Context) error {
	tick := time.NewTicker(checkpointInterval)
	defer tick.Stop()
	var unsaved []store.Checkpoint // kept after a failure, because a stream must have no gaps
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for _, c := range h.calls.listCalls() {
			if p, ok := c.checkpoint(); ok {
				unsaved = append(unsaved, p)
			}
		}
		if len(unsaved) == 0 {
			continue
		}
		if err := h.Node.SaveCheckpoints(ctx, unsaved); err != nil {
			h.Log.ErrorContext(ctx, "checkpoints not saved", "checkpoints", len(unsaved), "error", err)
			continue
		}
		unsaved = nil
	}
}

// maxSweptHolds bounds the holds of dead nodes that one sweep ends, and maxListedHolds
// those of this node that it looks at.
const (
	maxSweptHolds  = 500
	maxListedHolds = 5000
)

// EndLostHolds ends the open holds of dead nodes, and those of this node that no call runs for
// any more. A stream that has delivered something is charged as an estimate of that, or
// left pending where the provider keeps a record; every other hold is released and its
// key may be tried again (F-03 to F-06). It returns how many holds it ended.
//
// A hold that cannot be ended raises an alarm and does not keep the others from being ended,
// unless the database is away. The error is of all such holds.
func (h *Handler) EndLostHolds(ctx context.Context) (ended int, err error) {
	rows, err := h.listLostHolds(ctx)
	if err != nil {
		return 0, err
	}
	if h.Node.CanJudge() {
		dead, err := store.HoldsOfDeadNodes(ctx, h.DB, h.Node.ID, h.Now().UnixMicro(), maxSweptHolds)
		if err != nil {
			return 0, err
		}
		rows = append(rows, dead...)
	}
	var errs []error
	for _, row := range rows {
		err := h.endHold(ctx, row)
		switch {
		case err == nil:
			ended++
		case db.IsUnavailable(err) || ctx.Err() != nil:
			return ended, errors.Join(append(errs, err)...)
		default:
			h.Metrics.RaiseAlarm("a hold cannot be ended", row.Model)
			errs = append(errs, fmt.Errorf("end the hold of %s: %w", row.RequestID, err))
		}
	}
	return ended, errors.Join(errs...)
}

// listLostHolds returns the open holds of this node that none of its calls leads. They
// remain when the database was unavailable for longer than a call could wait.
func (h *Handler) listLostHolds(ctx context.Context) (lost []rules.HoldRow, err error) {
	open, err := store.ListOpenHolds(ctx, h.DB, h.Node.ID, maxListedHolds)
	if err != nil {
		return nil, err
	}
	for _, c := range open {
		if h.calls.isRunning(c.Key, c.Claim) {
			continue
		}
		row, err := store.GetHold(ctx, h.DB, c.Key)
		switch {
		case errors.Is(err, sql.ErrNoRows): // ended in the meantime
		case err != nil:
			return nil, err
		case row.State == rules.Open && row.Claim == c.Claim:
			lost = append(lost, row)
		}
	}
	return lost, nil
}

// endHold settles, defers or releases a hold by what its attempt has delivered.
func (h *Handler) endHold(ctx context.Context, row rules.HoldRow) error {
	frames, _, err := store.GetCheckpoints(ctx, h.DB, row.RequestID, row.Attempt, 0)
	if err != nil {
		return err
	}
	tooLong, err := store.GetDeliveredTokens(ctx, h.DB, row.RequestID, row.Attempt)
	if err != nil {
		return err
	}
	var count tokens.Counter
	count.Add(provider.GeneratedText(frames))
	output := max(count.Count(), tooLong)
	if output == 0 {
		_, err := h.Ledger.Do(ctx, rules.Release{Call: row.Call, Attempt: row.Attempt})
		if err == nil {
			h.Log.WarnContext(ctx, "hold released by sweep", "request_id", row.RequestID, "node_id", row.NodeID)
		}
		return err
	}
	name, recordID, err := h.recordOf(ctx, &row, frames)
	if err != nil {
		return err
	}
	// A replay says that the stream was cut, as its client saw (F-06).
	body := append(frames, interruptedFrame(row.ConnectionID, chargeOfPart(name != ""), h.Links)...)
	if tooLong > 0 {
		body = nil // the client has more than is stored
	}
	if name != "" {
		_, err := h.Ledger.Do(ctx, rules.Defer{
			Call:     row.Call,
			Attempt:  row.Attempt,
			Provider: name,
			RecordID: recordID,
			Response: packResponse(body),

			DeliveredTokens: output,
		})
		if err == nil {
			h.Log.WarnContext(ctx, "stream left pending by sweep", "request_id", row.RequestID, "node_id", row.NodeID)
		}
		return err
	}
	c, err := settlementOf(&row, nil, output)
	if err != nil {
		return err
	}
	c.Response = packResponse(body)
	if app, err := h.Apps.Get(ctx, row.AppID); err == nil {
		c.Risk = h.Policies.At(h.Now()).RiskOf(&app)
	}
	if _, err = h.Ledger.Do(ctx, c); err != nil {
		return err
	}
	h.Log.WarnContext(ctx, "stream billed by sweep", "request_id", row.RequestID, "node_id", row.NodeID,
		"user_charge_mc", c.Charge.UserChargeMC)
	return nil
}
