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
	"github.com/purserhq/purser/internal/models/tokens"
)

// CheckpointInterval is how much of a stream a crash may lose (F-06).
const CheckpointInterval = time.Second

// Bounds of the checkpoints that are saved at a time. Each slice is a transaction of one
// statement, so that what there is to save never takes longer than one may take: after an
// outage the slices that fit are saved, and the next ones a moment later.
const (
	checkpointRows   = 500
	checkpointBytes  = 4 << 20
	checkpointProbes = 3 // of a slice that failed
)

// SaveCheckpoints saves the next checkpoint of each stream of this node, so that other nodes can follow it and a crash
// can bill it. A stream has one checkpoint at a time, and the next one when that is saved: so a stream has no gaps, an
// outage leaves no more rows to save than there are streams, and nothing is saved of those that have ended. It saves in
// slices. After an error for which the database is unavailable the rest is left to the next run.
func (h *Handler) SaveCheckpoints(ctx context.Context) error {
	var slice checkpointSlice
	var errs []error
	save := func() error {
		err := slice.save(ctx, h.Node)
		slice = checkpointSlice{}
		if db.IsUnavailable(err) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, err)
		return nil
	}
	for _, c := range h.calls.listCalls() { // in random order, so that none is always the last
		p, ok := c.checkpoint()
		if !ok {
			continue
		}
		if slice.add(c, p); len(slice.calls) < checkpointRows && slice.bytes < checkpointBytes {
			continue
		}
		if err := save(); err != nil {
			return err
		}
	}
	if len(slice.calls) > 0 {
		if err := save(); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

// A checkpointSlice is checkpoints that are saved together, each with its call.
type checkpointSlice struct {
	calls       []*runningCall
	checkpoints []store.Checkpoint
	bytes       int
}

func (s *checkpointSlice) add(c *runningCall, p store.Checkpoint) {
	s.calls, s.checkpoints, s.bytes = append(s.calls, c), append(s.checkpoints, p), s.bytes+len(p.Body)
}

// save saves a slice, and notes that in its calls. If the slice fails though the database is
// there, each checkpoint is saved alone, so that a bad one keeps no other stream's away. If
// even the first ones fail, the fault is not theirs.
func (s *checkpointSlice) save(ctx context.Context, n *store.Node) error {
	err := n.SaveCheckpoints(ctx, s.checkpoints)
	if err == nil {
		for _, c := range s.calls {
			c.noteSaved()
		}
	}
	if err == nil || len(s.calls) == 1 || db.IsUnavailable(err) || ctx.Err() != nil {
		return err
	}
	var errs []error
	for i, c := range s.calls {
		one := checkpointSlice{calls: []*runningCall{c}, checkpoints: s.checkpoints[i : i+1]}
		if err := one.save(ctx, n); db.IsUnavailable(err) {
			return err
		} else if err != nil {
			errs = append(errs, fmt.Errorf("checkpoint of %s: %w", s.checkpoints[i].RequestID, err))
		}
		if i+1 == checkpointProbes && len(errs) == checkpointProbes {
			break
		}
	}
	return errors.Join(errs...)
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
		dead, err := store.HoldsOfDeadNodes(ctx, h.DB, h.Node.ID, h.DB.Moment(), maxSweptHolds)
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
	format := formatOf(frames)
	count.Add(generatedText(format, frames))
	output := max(count.Count(), tooLong)
	if output == 0 {
		release := rules.Release{Call: row.Call, Attempt: row.Attempt, Unbilled: h.unbilledOf(ctx, &row)}
		r, err := h.Ledger.Do(ctx, release)
		if err != nil {
			return err
		}
		if release.Unbilled != nil && r.Outcome == rules.Applied {
			h.Metrics.CountUnbilled(row.Model, int64(release.Unbilled.CostMC))
			h.countUnbilled(&row.Call, release.Unbilled.CostMC)
		}
		h.Log.WarnContext(ctx, "hold released by sweep", "request_id", row.RequestID, "node_id", row.NodeID)
		return nil
	}
	name, recordID, err := h.recordOf(ctx, &row, frames)
	if err != nil {
		return err
	}
	// A replay says that the stream was cut, as its client saw (F-06).
	cut := interrupted(row.ConnectionID, chargeOfPart(name != ""))
	body := append(frames, failFrames(format, frames, cut, h.Links)...)
	if tooLong > 0 {
		body = nil // the client has more than is stored
	}
	if name != "" {
		_, err := h.Ledger.Do(ctx, rules.Defer{
			Call:     row.Call,
			Attempt:  row.Attempt,
			Provider: name,
			RecordID: recordID,
			Response: h.storeLostResponse(ctx, &row, body),

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
	c.Response = h.storeLostResponse(ctx, &row, body)
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

// storeLostResponse is storeResponse of a call that has no leader any more. If its app is not known, it is stored.
func (h *Handler) storeLostResponse(ctx context.Context, row *rules.HoldRow, body []byte) *rules.StoredResponse {
	app, err := h.Apps.Get(ctx, row.AppID)
	if err != nil {
		return packResponse(body)
	}
	return h.storeResponse(ctx, &app, row.AccountID, body)
}
