package receipts

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/summary"
	"github.com/purserhq/purser/internal/models/catalog"
)

// maxCauses is how many causes the API returns. The smallest are summed in the last one.
const maxCauses = 20

// LoadSummary compares the spend of an account in this month with that of the same days of the month before, on all
// connections or on the named one. prices say how the tokens of a model are weighed.
func LoadSummary(ctx context.Context, d *db.DB, prices *catalog.Catalog,
	accountID, connectionID string) (summary.Summary, summary.Period, error) {
	at := d.Now()
	p := summary.MonthTo(at)
	var totals, refunds []store.DailyTotal
	err := d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) (err error) { // a refund is in both, or in none
		if totals, err = store.ListDailyTotals(ctx, tx, accountID, connectionID, p.Before.From); err != nil {
			return fmt.Errorf("totals: %w", err)
		}
		if refunds, err = store.ListDailyRefunds(ctx, tx, accountID, connectionID, p.Start()); err != nil {
			return fmt.Errorf("refunds: %w", err)
		}
		return nil
	})
	if err != nil {
		return summary.Summary{}, p, fmt.Errorf("summary: %w", err)
	}
	var now, before []summary.Row
	add := func(t *store.DailyTotal, charge, refunded money.MC) {
		row := summary.Row{
			App:        t.AppID,
			Feature:    t.Feature,
			Model:      t.Model,
			Calls:      t.Calls,
			Input:      t.InputTokens,
			Output:     t.OutputTokens,
			ChargeMC:   charge,
			RefundedMC: refunded,
		}
		if p.Now.Has(t.Day) {
			now = append(now, row)
		} else if p.Before.Has(t.Day) {
			before = append(before, row)
		}
	}
	for i := range totals {
		add(&totals[i], totals[i].UserChargeMC, 0)
	}
	for i := range refunds { // the totals are less the refunds: the charge before them is their sum
		add(&refunds[i], refunds[i].UserChargeMC, refunds[i].UserChargeMC)
	}
	return summary.Compare(now, before, func(model string) summary.Weights { return weigh(prices, model, at) }), p, nil
}

// weigh returns the prices of a model's tokens as weights. Those of a model that is not offered any more are equal.
func weigh(prices *catalog.Catalog, model string, at time.Time) summary.Weights {
	_, rates, ok := prices.Find(model, at)
	if !ok {
		return summary.Weights{Input: 1, Output: 1}
	}
	in, out := rates.At(0).Input, rates.At(0).Output
	if rates.Voice != nil {
		in, out = rates.Voice.AudioInput, rates.Voice.AudioOutput
	}
	// $0.0001 per million tokens is precise enough, and keeps the products small.
	return summary.Weights{Input: int64(in / (money.Cent / 100)), Output: int64(out / (money.Cent / 100))}
}

// summaryResource is a summary as the API shows it.
type summaryResource struct {
	Object              string   `json:"object"`
	ConnectionID        string   `json:"connection_id"`
	Month               string   `json:"month"`
	From                string   `json:"from"`
	To                  string   `json:"to"`
	BeforeFrom          string   `json:"before_from"`
	BeforeTo            string   `json:"before_to"`
	Calls               int64    `json:"calls"`
	CallsBefore         int64    `json:"calls_before"`
	ChargeMC            money.MC `json:"charge_mc"`
	ChargeDisplay       string   `json:"charge_display"`
	ChargeBeforeMC      money.MC `json:"charge_before_mc"`
	ChargeBeforeDisplay string   `json:"charge_before_display"`
	ChangeMC            money.MC `json:"change_mc"`
	ChangeDisplay       string   `json:"change_display"`
	Causes              []cause  `json:"causes"`
	Text                string   `json:"text"`
}

// cause is a part of the change. Members that a kind does not have are null.
type cause struct {
	Kind             summary.Kind `json:"kind"`
	AmountMC         money.MC     `json:"amount_mc"`
	AmountDisplay    string       `json:"amount_display"`
	Feature          *string      `json:"feature"`
	Model            *string      `json:"model"`
	Calls            *int64       `json:"calls"`
	CallsBefore      *int64       `json:"calls_before"`
	TokensPerCall    *int64       `json:"tokens_per_call"`
	TokensBefore     *int64       `json:"tokens_per_call_before"`
	RefundedMC       *money.MC    `json:"refunded_mc"`
	RefundedBeforeMC *money.MC    `json:"refunded_before_mc"`
}

func newCause(c *summary.Cause) cause {
	out := cause{
		Kind:          c.Kind,
		AmountMC:      c.AmountMC,
		AmountDisplay: c.AmountMC.Display(),
		Feature:       rules.TextOrNull(c.Feature),
		Model:         rules.TextOrNull(c.Model),
	}
	switch c.Kind {
	case summary.Refunds:
		out.RefundedMC, out.RefundedBeforeMC = &c.RefundedMC, &c.RefundedBeforeMC
	case summary.Others:
	case summary.Length:
		out.TokensPerCall, out.TokensBefore = &c.Tokens, &c.TokensBefore
		fallthrough
	default:
		out.Calls, out.CallsBefore = &c.Calls, &c.CallsBefore
	}
	return out
}

// getSummary answers GET /v1/connection/summary: what the caller's own connection spent this month, and why that
// differs from the month before (decision 104).
func (h *Handler) getSummary(w http.ResponseWriter, r *http.Request) error {
	who, err := h.Callers.Resolve(r)
	if err != nil {
		return err
	}
	who.Log(r.Context())
	s, p, err := LoadSummary(r.Context(), h.DB, h.Catalog.Current(), who.AccountID, who.ConnectionID)
	if err != nil {
		return err
	}
	out := summaryResource{
		Object:              "summary",
		ConnectionID:        who.ConnectionID,
		Month:               p.Month(),
		From:                p.Now.From,
		To:                  p.Now.To,
		BeforeFrom:          p.Before.From,
		BeforeTo:            p.Before.To,
		Calls:               s.Now.Calls,
		CallsBefore:         s.Before.Calls,
		ChargeMC:            s.Now.ChargeMC,
		ChargeDisplay:       s.Now.ChargeMC.Display(),
		ChargeBeforeMC:      s.Before.ChargeMC,
		ChargeBeforeDisplay: s.Before.ChargeMC.Display(),
		ChangeMC:            s.ChangeMC(),
		ChangeDisplay:       s.ChangeMC().Display(),
		Causes:              []cause{},
		Text:                summary.Text(s.Sentences(p, func(string) string { return who.App.Name })),
	}
	list := s.Limit(maxCauses)
	for i := range list {
		out.Causes = append(out.Causes, newCause(&list[i]))
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
