package operatorpages

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
)

// A line is what a list shows of a ledger row.
type line struct {
	id, kind, status, model     string
	seq, createdUS              int64
	charge, available, reserved money.MC
}

// entriesBefore walks an account's chain backwards.
func entriesBefore(ctx context.Context, q db.Queryer, accountID string, before int64, limit int) ([]line, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(l *line) []any {
		return []any{&l.id, &l.kind, &l.status, &l.model, &l.seq, &l.createdUS, &l.charge, &l.available, &l.reserved}
	}), `SELECT id, type, status, COALESCE(model, ''), seq, created_us, COALESCE(user_charge_mc, 0), available_delta_mc, reserved_delta_mc
		FROM ledger WHERE account_id = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3`, accountID, before, limit)
}

// reversalOf returns the id of the row that took an entry back; "" = none did.
func reversalOf(ctx context.Context, q db.Queryer, entryID string) (reversalID string, err error) {
	err = q.QueryRowContext(ctx, `SELECT id FROM ledger WHERE reversal_of = $1 LIMIT 1`, entryID).Scan(&reversalID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return reversalID, err
}

// entry is GET /operator/ledger/{id}: the receipt of a row.
func (h *Handler) entry(r *http.Request, s staff) (ui.Report, error) {
	c, e, reversalID, err := h.receipt(r, s)
	if err != nil {
		return c, err
	}
	if s.acts() && reversible(e, reversalID) {
		c.Blocks[0].More = &ui.Link{
			Href: "/operator/ledger/" + url.PathEscape(e.ID) + "/reverse",
			Text: "Refund this charge",
		}
	}
	return c, nil
}

func reversible(e rules.Entry, reversalID string) bool {
	return e.Type == rules.EntrySpend && e.Status == "settled" && reversalID == ""
}

// receipt gathers everything that is known of a row.
func (h *Handler) receipt(r *http.Request, s staff) (c ui.Report, e rules.Entry, reversalID string, err error) {
	ctx := r.Context()
	if e, err = store.GetEntry(ctx, h.DB, r.PathValue("id")); err != nil {
		return c, e, "", missing(err, "ledger row")
	}
	if reversalID, err = reversalOf(ctx, h.DB, e.ID); err != nil {
		return c, e, "", fmt.Errorf("admin: reversal: %w", err)
	}
	c = s.console("/operator/accounts", movement(string(e.Type), e.Status), e.ID)
	c.Back = &ui.Link{Href: "/operator/accounts/" + url.PathEscape(e.AccountID), Text: "Account"}
	if reversalID != "" {
		c.Badge = &ui.Badge{Text: "Refunded", Tone: "warn"}
	}
	c.Blocks = []ui.Block{{Heading: "Entry", Facts: entryFacts(e, reversalID)}}
	if e.Type == rules.EntrySpend {
		c.Tiles = []ui.Tile{
			{Label: "Charge", Value: e.UserChargeMC.Display()},
			{Label: "Provider cost", Value: e.ProviderCostMC.Display()},
			{Label: "Service fee", Value: e.SvcFeeMC.Display()},
			{Label: "Developer margin", Value: e.DevMarginMC.Display()},
		}
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "Price terms",
			Text:    "Prices in micro-cents, as of the hold.",
			Source:  indented(e.Terms),
		}, ui.Block{Heading: "Usage", Source: indented(e.Usage)})
	}
	return c, e, reversalID, nil
}

func entryFacts(e rules.Entry, reversalID string) []ui.Detail {
	facts := []ui.Detail{
		{Name: "When", Cell: when(e.CreatedUS)},
		{Name: "Account", Cell: link("/operator/accounts/", e.AccountID)},
	}
	add := func(name string, c ui.Cell) {
		if c.Text != "" {
			facts = append(facts, ui.Detail{Name: name, Cell: c})
		}
	}
	add("Connection", link("/operator/connections/", e.ConnectionID))
	add("App", link("/operator/apps/", e.AppID))
	add("Request", ui.Cell{Text: e.RequestID(), Code: true})
	add("Model", ui.Cell{Text: e.Model, Code: true})
	add("Feature", ui.Cell{Text: e.Feature})
	add("Paid by", ui.Cell{
		Text: map[string]string{rules.PaidByWallet: "User’s balance", rules.PaidByFreeCredit: "Free credit"}[e.PaidBy],
	})
	add("Settlement",
		ui.Cell{
			Text: map[rules.Settlement]string{
				rules.Settled:   "Settled, from the provider’s usage",
				rules.Estimated: "Estimated, from our own count",
			}[e.Settlement],
		})
	if e.HoldMC != 0 {
		add("Held", ui.Cell{Text: e.HoldMC.Display()})
	}
	add("Change in available", ui.Cell{Text: e.AvailableDeltaMC.Display()})
	add("Change in reserved", ui.Cell{Text: e.ReservedDeltaMC.Display()})
	add("Refund of", link("/operator/ledger/", e.ReversalOf))
	add("Refunded by", link("/operator/ledger/", reversalID))
	add("Reason", ui.Cell{Text: e.Reason})
	add("Hash", ui.Cell{Text: e.Hash, Code: true})
	return facts
}

// confirm is GET /operator/ledger/{id}/reverse: what a refund will do, and why.
func (h *Handler) confirm(r *http.Request, s staff) (ui.Report, error) {
	c, e, reversalID, err := h.receipt(r, s)
	if err != nil {
		return c, err
	}
	c.Back, c.Tiles = &ui.Link{Href: "/operator/ledger/" + url.PathEscape(e.ID), Text: "Entry"}, nil
	c.Heading, c.Lead = "Refund this charge?", ""
	if !reversible(e, reversalID) {
		c.Heading, c.Lead = "This entry can’t be refunded", "Only a charge that was not refunded yet can be refunded."
		return c, nil
	}
	x, err := store.GetConnection(r.Context(), h.DB, e.ConnectionID)
	if err != nil {
		return c, fmt.Errorf("admin: connection: %w", err)
	}
	to := "the connection, where the app may spend it again"
	if x.Status == rules.Revoked {
		to = "the user’s available balance, because the connection is revoked"
	}
	c.Lead = fmt.Sprintf(
		"%s returns to %s. The developer loses the margin of %s, and we lose the fee and the provider cost. This can’t be undone.", e.UserChargeMC.Display(), to, e.DevMarginMC.Display())
	if e.PaidBy == rules.PaidByFreeCredit {
		c.Lead = "This call was paid by free credit, so the user gets no money back. This can’t be undone."
	}
	c.Blocks = c.Blocks[:1]
	if s.acts() {
		c.Blocks = append(c.Blocks,
			ui.Block{Heading: "Refund", Form: &ui.Ask{
				Action:   "/operator/ledger/" + url.PathEscape(e.ID) + "/reverse",
				Decision: "reverse",
				Fields:   reason("Shown in the user’s ledger as written."),
				Button:   "Refund " + e.UserChargeMC.Display(),
				Danger:   true,
			}})
	}
	return c, nil
}

// reverse is POST /operator/ledger/{id}/reverse.
func (h *Handler) reverse(r *http.Request, s staff, form url.Values) (string, error) {
	if form.Get("decision") != "reverse" {
		return "", apierr.InvalidRequest.Errorf("decision: must be reverse")
	}
	why, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	reversal, err := h.Service.Reverse(r.Context(), s.ID, r.PathValue("id"), why)
	return "/operator/ledger/" + url.PathEscape(reversal.ID) + "?done=reverse", err
}

// indented writes JSON for people; what is none is shown as it is.
func indented(text string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		return text
	}
	return b.String()
}
