package inference

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
)

// checkpointEvery is how much of a stream a crash may forget (F-06).
const checkpointEvery = time.Second

// Checkpoint saves, until ctx ends, what the streams of this node have
// delivered, so that another node can follow them and a crash can bill them.
func (h *Handler) Checkpoint(ctx context.Context) error {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	var list []store.Checkpoint // what failed stays for the next time: a stream has no gaps
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for _, c := range h.calls.streams() {
			if p, ok := c.checkpoint(); ok {
				list = append(list, p)
			}
		}
		if len(list) == 0 {
			continue
		}
		if err := h.Node.SaveCheckpoints(ctx, list); err != nil {
			h.Log.ErrorContext(ctx, "checkpoints were not saved", "pieces", len(list), "error", err)
			continue
		}
		list = nil
	}
}

// Sweep ends the holds of dead nodes, and those of this node that no call runs
// for any longer: a stream that delivered something is billed as an estimate of
// it, or left pending where the provider keeps a record; everything else is released and may be tried again (F-03…F-06). It returns
// how many holds it ended.
func (h *Handler) Sweep(ctx context.Context) (int, error) {
	rows, err := store.HoldsOfDeadNodes(ctx, h.DB, h.Now().UnixMicro(), 500)
	if err != nil {
		return 0, err
	}
	lost, err := h.abandoned(ctx)
	if err != nil {
		return 0, err
	}
	rows = append(rows, lost...)
	for _, row := range rows {
		if err := h.end(ctx, row); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

// abandoned returns the open holds of this node that none of its calls leads:
// what is left when the database went away for longer than a call could wait.
func (h *Handler) abandoned(ctx context.Context) (list []rules.HoldRow, err error) {
	type claimed struct {
		rules.Key
		claim string
	}
	mine, err := db.QueryAll(ctx, h.DB, db.ScanFields(func(c *claimed) []any {
		return []any{&c.ConnectionID, &c.Key.Key, &c.claim}
	}), `SELECT connection_id, key, claim FROM holds WHERE state = 'open' AND node_id = $1 AND key NOT LIKE 'rts%' LIMIT 5000`, h.Node.ID)
	if err != nil {
		return nil, err
	}
	for _, c := range mine {
		if h.calls.runs(c.Key, c.claim) {
			continue
		}
		row, err := store.GetHold(ctx, h.DB, c.Key)
		switch {
		case errors.Is(err, sql.ErrNoRows): // it has ended meanwhile
		case err != nil:
			return nil, err
		case row.State == rules.Open && row.Claim == c.claim:
			list = append(list, row)
		}
	}
	return list, nil
}

func (h *Handler) end(ctx context.Context, row rules.HoldRow) error {
	frames, _, err := store.GetCheckpoints(ctx, h.DB, row.RequestID, row.Attempt, 0)
	if err != nil {
		return err
	}
	text := provider.GeneratedText(frames)
	if text == "" {
		_, err := h.Ledger.Do(ctx, rules.Release{Call: row.Call, Attempt: row.Attempt})
		h.Log.WarnContext(ctx, "released a dead node's hold", "request_id", row.RequestID, "node_id", row.NodeID)
		return err
	}
	name, record, err := h.recordOf(ctx, &row, frames)
	if err != nil {
		return err
	}
	if name != "" {
		_, err := h.Ledger.Do(ctx, rules.Defer{Call: row.Call, Attempt: row.Attempt, Provider: name, RecordID: record, Response: keep(frames)})
		h.Log.WarnContext(ctx, "left a dead node's stream pending", "request_id", row.RequestID, "node_id", row.NodeID)
		return err
	}
	c, err := bill(&row, nil, text)
	if err != nil {
		return err
	}
	c.Response = keep(frames)
	if app, err := h.Apps.Get(ctx, row.AppID); err == nil {
		c.Risk = h.pace(&app)
	}
	_, err = h.Ledger.Do(ctx, c)
	h.Log.WarnContext(ctx, "billed what a dead node's stream delivered", "request_id", row.RequestID, "node_id", row.NodeID, "user_charge_mc", c.Charge.UserChargeMC)
	return err
}
