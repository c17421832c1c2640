package inference

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"purser/internal/catalog"
	"purser/internal/ledger"
	"purser/internal/money"
	"purser/internal/pricing"
	"purser/internal/provider"
	"purser/internal/tokens"
)

// checkpointEvery is how much of a stream a crash may forget (F-06).
const checkpointEvery = time.Second

// Checkpoint saves, until ctx ends, what the streams of this node have
// delivered, so that another node can follow them and a crash can bill them.
func (h *Handler) Checkpoint(ctx context.Context) error {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	var list []ledger.Checkpoint // what failed stays for the next time: a stream has no gaps
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
		if err := h.Node.Save(ctx, list); err != nil {
			h.Log.ErrorContext(ctx, "checkpoints were not saved", "pieces", len(list), "error", err)
			continue
		}
		list = nil
	}
}

// Sweep ends the holds of dead nodes, and those of this node that no call runs
// for any longer: a stream that delivered something is billed as an estimate of
// it, everything else is released and may be tried again (F-03…F-06). It returns
// how many holds it ended.
func (h *Handler) Sweep(ctx context.Context) (int, error) {
	rows, err := ledger.Orphans(ctx, h.DB, h.Now().UnixMicro(), 500)
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
func (h *Handler) abandoned(ctx context.Context) (list []ledger.HoldRow, err error) {
	rows, err := h.DB.QueryContext(ctx, `SELECT connection_id, key, claim FROM holds WHERE state = 'open' AND node_id = $1 LIMIT 5000`, h.Node.ID)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k ledger.Key
		var claim string
		if err := rows.Scan(&k.ConnectionID, &k.Key, &claim); err != nil {
			return nil, err
		}
		if h.calls.runs(k, claim) {
			continue
		}
		row, err := ledger.GetHold(ctx, h.DB, k)
		switch {
		case errors.Is(err, sql.ErrNoRows): // it has ended meanwhile
		case err != nil:
			return nil, err
		case row.State == ledger.Open && row.Claim == claim:
			list = append(list, row)
		}
	}
	return list, rows.Err()
}

func (h *Handler) end(ctx context.Context, row ledger.HoldRow) error {
	frames, _, err := ledger.Chunks(ctx, h.DB, row.RequestID, row.Attempt, 0)
	if err != nil {
		return err
	}
	text := provider.Text(frames)
	if text == "" {
		_, err := h.Ledger.Do(ctx, ledger.Release{Call: row.Call, Attempt: row.Attempt})
		h.Log.WarnContext(ctx, "released a dead node's hold", "request_id", row.RequestID, "node_id", row.NodeID)
		return err
	}
	var t struct {
		Rates       json.RawMessage `json:"rates"`
		MarginPPM   money.PPM       `json:"margin_ppm"`
		FeePPM      money.PPM       `json:"fee_ppm"`
		InputTokens int64           `json:"input_tokens"`
		MaxTokens   int64           `json:"max_tokens"`
		Counted     *int64          `json:"counted_tokens"` // where it is less than InputTokens
	}
	if err := json.Unmarshal([]byte(row.Terms), &t); err != nil {
		return err
	}
	rates, err := catalog.ParseSnapshot(string(t.Rates))
	if err != nil {
		return err
	}
	if t.Counted != nil {
		t.InputTokens = min(t.InputTokens, *t.Counted)
	}
	u := provider.Usage{Input: t.InputTokens, Output: min(int64(tokens.Count(text)), t.MaxTokens)}
	amounts, err := pricing.Estimated(rates, u.Input, u.Output, t.MarginPPM, t.FeePPM, row.HoldMC)
	if err != nil {
		return err
	}
	_, err = h.Ledger.Do(ctx, ledger.Settle{
		Call: row.Call, Attempt: row.Attempt, Charge: ledger.Amounts(amounts), Settlement: ledger.Estimated,
		Usage: ledger.Usage{JSON: usageJSON(u), InputTokens: u.Input, OutputTokens: u.Output}, Answer: keep(frames),
	})
	h.Log.WarnContext(ctx, "billed what a dead node's stream delivered", "request_id", row.RequestID, "node_id", row.NodeID, "user_charge_mc", amounts.UserChargeMC)
	return err
}
