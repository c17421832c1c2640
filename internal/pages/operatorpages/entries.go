package operatorpages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/operator"
)

// showEntry is GET /operator/ledger/{id}: the receipt of a ledger row.
func (h *Handler) showEntry(r *http.Request, s staff) (ui.Report, error) {
	c, e, reversalID, err := h.entryReport(r, s)
	if err != nil {
		return c, err
	}
	if s.canAct() && isReversible(e, reversalID) {
		c.Blocks[0].More = &ui.Link{
			Href: "/operator/ledger/" + url.PathEscape(e.ID) + "/reverse",
			Text: "Refund this charge",
		}
	}
	return c, nil
}

func isReversible(e rules.Entry, reversalID string) bool {
	return e.Type == rules.EntrySpend && e.Status == "settled" && reversalID == ""
}

// entryReport returns the report of a ledger row, the row, and the id of its reversal ("" = none).
func (h *Handler) entryReport(r *http.Request, s staff) (c ui.Report, e rules.Entry, reversalID string, err error) {
	ctx := r.Context()
	if e, err = store.GetEntry(ctx, h.DB, r.PathValue("id")); err != nil {
		return c, e, "", notFound(err, "ledger row")
	}
	if reversalID, err = findReversal(ctx, h.DB, e.ID); err != nil {
		return c, e, "", fmt.Errorf("operatorpages: reversal: %w", err)
	}
	c = s.newReport("/operator/accounts", describeEntry(string(e.Type), e.Status), e.ID)
	c.Back = &ui.Link{Href: "/operator/accounts/" + url.PathEscape(e.AccountID), Text: "Account"}
	if reversalID != "" {
		c.Badge = &ui.Badge{Text: "Refunded", Tone: "warn"}
	}
	who, err := loadNames(ctx, h.DB, e.AccountID, e.ConnectionID, e.AppID)
	if err != nil {
		return c, e, "", err
	}
	c.Blocks = []ui.Block{{Heading: "Entry", Facts: entryFacts(e, reversalID, who)}}
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
			Source:  indentJSON(e.Terms),
		}, ui.Block{Heading: "Usage", Source: indentJSON(e.Usage)})
	}
	return c, e, reversalID, nil
}

func entryFacts(e rules.Entry, reversalID string, who names) []ui.Detail {
	facts := []ui.Detail{
		{Name: "When", Cell: timeCell(e.CreatedUS)},
		{Name: "Account", Cell: who.cell(e.AccountID)},
	}
	add := func(name string, c ui.Cell) {
		if c.Text != "" {
			facts = append(facts, ui.Detail{Name: name, Cell: c})
		}
	}
	add("Connection", who.cell(e.ConnectionID))
	add("App", who.cell(e.AppID))
	add("Request", ui.Cell{Text: e.RequestID(), Code: true})
	add("Model", ui.Cell{Text: e.Model, Code: true})
	add("Feature", ui.Cell{Text: e.Feature})
	add("Paid by", ui.Cell{
		Text: map[string]string{rules.PaidByWallet: "User’s balance", rules.PaidByFreeCredit: "Free credit"}[e.PaidBy],
	})
	add("Settlement", ui.Cell{Text: map[rules.Settlement]string{
		rules.Settled:   "Settled, from the provider’s usage",
		rules.Estimated: "Estimated, from our own count",
	}[e.Settlement]})
	if e.HoldMC != 0 {
		add("Held", ui.Cell{Text: e.HoldMC.Display()})
	}
	add("Change in available", ui.Cell{Text: e.AvailableDeltaMC.Display()})
	add("Change in reserved", ui.Cell{Text: e.ReservedDeltaMC.Display()})
	add("Refund of", linkCell("/operator/ledger/", e.ReversalOf))
	add("Refunded by", linkCell("/operator/ledger/", reversalID))
	add("Reason", ui.Cell{Text: e.Reason})
	add("Hash", ui.Cell{Text: e.Hash, Code: true})
	return facts
}

// showRefund is GET /operator/ledger/{id}/reverse: what a refund will do, and the form for its reason.
func (h *Handler) showRefund(r *http.Request, s staff) (ui.Report, error) {
	c, e, reversalID, err := h.entryReport(r, s)
	if err != nil {
		return c, err
	}
	c.Back, c.Tiles = &ui.Link{Href: "/operator/ledger/" + url.PathEscape(e.ID), Text: "Entry"}, nil
	c.Heading, c.Lead = "Refund this charge?", ""
	if !isReversible(e, reversalID) {
		c.Heading, c.Lead = "This entry can’t be refunded", "Only a charge that was not refunded yet can be refunded."
		return c, nil
	}
	x, err := store.GetConnection(r.Context(), h.DB, e.ConnectionID)
	if err != nil {
		return c, fmt.Errorf("operatorpages: connection: %w", err)
	}
	to := "the connection, where the app may spend it again"
	if x.Status == rules.Revoked {
		to = "the user’s available balance, because the connection is revoked"
	}
	c.Lead = fmt.Sprintf("%s returns to %s. The developer loses the margin of %s, and we lose the fee and the provider "+
		"cost. This can’t be undone.", e.UserChargeMC.Display(), to, e.DevMarginMC.Display())
	if e.PaidBy == rules.PaidByFreeCredit {
		c.Lead = "This call was paid by free credit, so the user gets no money back. This can’t be undone."
	}
	c.Blocks = c.Blocks[:1]
	if s.canAct() {
		c.Blocks = append(c.Blocks,
			ui.Block{Heading: "Refund", Form: &ui.Ask{
				Action:   "/operator/ledger/" + url.PathEscape(e.ID) + "/reverse",
				Decision: "reverse",
				Fields:   reasonField("The user and the app read it as written."),
				Button:   "Refund " + e.UserChargeMC.Display(),
				Danger:   true,
			}})
	}
	return c, nil
}

// reverseCharge is POST /operator/ledger/{id}/reverse.
func (h *Handler) reverseCharge(r *http.Request, s staff, form url.Values) (string, error) {
	if form.Get("decision") != "reverse" {
		return "", apierr.InvalidRequest.Errorf("decision: must be reverse")
	}
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	reversal, err := h.Service.Reverse(r.Context(), s.ID, r.PathValue("id"), reason)
	return "/operator/ledger/" + url.PathEscape(reversal.ID) + "?done=reverse", err
}

// indentJSON indents a JSON text. It returns any other text as it is.
func indentJSON(text string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, []byte(text), "", "  "); err != nil {
		return text
	}
	return b.String()
}
