package dashboard

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// showEntry is GET /activity/{id}: the receipt of a ledger row. With part=drawer it is the part beside the list.
func (h *Handler) showEntry(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx := r.Context()
	e, owner, err := h.loadEntry(ctx, a, r.PathValue("id"))
	if err != nil {
		return err
	}
	page := ui.Receipt{Shell: a.Shell(ui.Activities), Path: "/activity/" + e.ID, For: owner}
	if e.Type == rules.EntrySpend && e.Status != "reversed" {
		return h.renderCall(w, r, page, e.RequestID())
	}
	n := h.newAppNames()
	if page.App, err = n.nameOf(ctx, e.AppID); err != nil {
		return err
	}
	if page.Heading, err = n.entryName(ctx, &e); err != nil {
		return err
	}
	page.ID, page.When, page.Connection, page.Model, page.Feature = e.ID, ui.Date(e.CreatedUS), e.ConnectionID, e.Model,
		e.Feature
	explainEntry(&page, &e)
	for _, f := range []struct {
		term   string
		change money.MC
	}{{"Change in available balance", e.AvailableDeltaMC}, {"Change in reserved balance", e.ReservedDeltaMC}} {
		if f.change != 0 {
			amount := ui.Signed(ui.ExactMoney(f.change), f.change)
			page.Facts = append(page.Facts, ui.Fact{Name: f.term, Value: amount.Text + " (" + amount.Exact + ")"})
		}
	}
	page.Links = append(page.Links, linkProof(e.ID))
	return renderReceipt(w, r, page)
}

// renderReceipt writes the page, or with part=drawer the part beside a list.
func renderReceipt(w http.ResponseWriter, r *http.Request, page ui.Receipt) error {
	if r.URL.Query().Get("part") == "drawer" {
		return ui.RenderPart(w, page, "drawer")
	}
	return ui.Render(w, http.StatusOK, page)
}

// loadEntry loads a ledger row, which is 404 unless it belongs to a or a test account of a, whose email address it
// returns.
func (h *Handler) loadEntry(ctx context.Context, a accounts.Account, entryID string) (e rules.Entry, owner string,
	err error) {
	e, err = store.GetEntry(ctx, h.DB, entryID)
	if errors.Is(err, sql.ErrNoRows) {
		return e, "", ui.NotFound()
	} else if err != nil {
		return e, "", fmt.Errorf("dashboard: ledger row: %w", err)
	}
	owner, err = h.checkOwner(ctx, a, e.AccountID)
	return e, owner, err
}

// explainEntry explains a ledger row that is not a call. The heading of the page is its name.
func explainEntry(page *ui.Receipt, e *rules.Entry) {
	say := func(format string, args ...any) {
		page.Explanation = append(page.Explanation, fmt.Sprintf(format, args...))
	}
	page.Status, page.Badge = "Done", "good"
	switch {
	case e.Type == rules.EntrySpend:
		page.Status = "Refunded"
		say("%s of an earlier call was refunded to you. The original charge stays in your ledger.",
			ui.Exact(e.UserChargeMC))
		if e.AvailableDeltaMC > 0 {
			say("The connection is revoked, so the money is back in your balance.")
		} else {
			say("The money is reserved for the app again, within its spend cap.")
		}
		page.Facts = append(page.Facts, ui.Fact{Name: "Reason", Value: cmp.Or(e.Reason, "None given")})
		page.Links = append(page.Links, ui.Link{Href: "/activity/" + e.ReversalOf, Text: "View refunded call"})
	case page.Heading == withdrawnName:
		say("We took back %s of a goodwill credit. Money that apps had spent of it is not taken back.",
			ui.Exact(-e.AvailableDeltaMC))
		page.Facts = append(page.Facts, ui.Fact{Name: "Reason", Value: e.Reason})
		page.Links = append(page.Links, ui.Link{Href: "/activity/" + e.ReversalOf, Text: "View goodwill credit"})
	case isDebit(e):
		say("You refunded a call to a user of your app. %s of it was paid from your balance.",
			ui.Exact(-e.AvailableDeltaMC))
		page.Facts = append(page.Facts, ui.Fact{Name: "Reason", Value: e.Reason})
	case isGoodwill(e):
		say("We credited %s to your balance. You decide which apps can use it.", ui.Exact(e.AvailableDeltaMC))
		page.Facts = append(page.Facts, ui.Fact{Name: "Reason", Value: e.Reason})
	case e.Type == rules.EntryTopUp && e.AvailableDeltaMC > 0:
		say("You added %s to your balance. You decide which apps can use it.", ui.Exact(e.AvailableDeltaMC))
	case e.Type == rules.EntryConnect:
		say("You connected %s and reserved %s of your balance for it: its spend cap. It stays your money until a call is billed.", page.App, ui.Exact(e.ReservedDeltaMC))
	case e.Type == rules.EntryCap && e.ReservedDeltaMC < 0:
		say("You lowered the spend cap of %s. %s is available again.", page.App, ui.Exact(-e.ReservedDeltaMC))
	case e.Type == rules.EntryCap:
		say("You raised the spend cap of %s. %s more of your balance is reserved for it.", page.App,
			ui.Exact(e.ReservedDeltaMC))
	case e.Type == rules.EntryRevoke:
		say("You revoked the connection to %s. %s that it had not spent is available again.", page.App,
			ui.Exact(-e.ReservedDeltaMC))
	case e.Type == rules.EntryRelease:
		say("A call that was in progress when you revoked the connection to %s has ended. %s that it did not use is available again.", page.App, ui.Exact(-e.ReservedDeltaMC))
	default:
		say("This entry changed your available balance by %s and your reserved balance by %s.",
			formatChange(e.AvailableDeltaMC), formatChange(e.ReservedDeltaMC))
	}
}

// showCallReceipt is GET /requests/{id}: the receipt of a call, billed or not.
func (h *Handler) showCallReceipt(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	requestID := r.PathValue("id")
	owner, err := h.findCallOwner(r.Context(), a, requestID)
	if err != nil {
		return err
	}
	page := ui.Receipt{Shell: a.Shell(ui.Activities), Path: "/requests/" + requestID, For: owner}
	return h.renderCall(w, r, page, requestID)
}

// findCallOwner is 404 unless a call belongs to a or a test account of a, whose email address it returns.
func (h *Handler) findCallOwner(ctx context.Context, a accounts.Account, requestID string) (string, error) {
	if !strings.HasPrefix(requestID, id.Request) {
		return "", ui.NotFound()
	}
	found, _, err := receipts.Find(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ui.NotFound()
	} else if err != nil {
		return "", fmt.Errorf("dashboard: receipt: %w", err)
	}
	c, err := store.GetConnection(ctx, h.DB, found.ConnectionID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", ui.NotFound()
	} else if err != nil {
		return "", fmt.Errorf("dashboard: connection: %w", err)
	}
	return h.checkOwner(ctx, a, c.AccountID)
}

// checkOwner is 404 unless accountID is a or a test account of a, whose email address it returns.
func (h *Handler) checkOwner(ctx context.Context, a accounts.Account, accountID string) (string, error) {
	if accountID == a.ID {
		return "", nil
	}
	owner, err := h.Accounts.Get(ctx, accountID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && owner.OwnerID != a.ID {
		return "", ui.NotFound()
	} else if err != nil {
		return "", fmt.Errorf("dashboard: account: %w", err)
	}
	return owner.Email, nil
}

// callStatuses are the badge, its text and the heading of a receipt, by the status of the call.
var callStatuses = map[string][3]string{
	"settled":   {"good", "Settled", "Call"},
	"estimated": {"warn", "Estimated", "Call"},
	"pending":   {"warn", "Pending", "Call, not charged yet"},
	"refused":   {"", "Refused, nothing charged", "Refused call"},
	"in_flight": {"warn", "In progress", "Call in progress"},
	"failed":    {"", "Failed, nothing charged", "Failed call"},
}

// renderCall shows the receipt of a call. The caller has checked whose it is.
func (h *Handler) renderCall(w http.ResponseWriter, r *http.Request, page ui.Receipt, requestID string) error {
	found, appID, err := receipts.Find(r.Context(), h.DB, requestID)
	if err != nil {
		return fmt.Errorf("dashboard: receipt of %s: %w", requestID, err)
	}
	if page.App, err = h.newAppNames().nameOf(r.Context(), appID); err != nil {
		return err
	}
	shown := callStatuses[found.Status]
	page.Badge, page.Status, page.Heading = shown[0], shown[1], shown[2]
	page.ID, page.When, page.Connection = found.ID, found.CreatedAt, found.ConnectionID
	if at, err := time.Parse(time.RFC3339, found.CreatedAt); err == nil {
		page.When = ui.Date(at.UnixMicro())
	}
	if found.Model != nil {
		page.Model = *found.Model
	}
	if found.Feature != nil {
		page.Feature = *found.Feature
	}
	if found.ReversedBy != nil {
		page.Badge, page.Status = "good", "Refunded"
		page.Links = append(page.Links, ui.Link{Href: "/activity/" + *found.ReversedBy, Text: "View refund"})
	}
	switch {
	case found.Charge != nil:
		explainCharge(&page, found)
		page.Links = append(page.Links, linkProof(id.Ledger+strings.TrimPrefix(found.ID, id.Request)))
	case found.Error != nil:
		page.Explanation = []string{"The app’s call was refused. Nothing was charged.",
			"The app received: “" + strings.TrimSuffix(found.Error.Message, ".") + ".”"}
		page.Facts = append(page.Facts,
			ui.Fact{Name: "Error code", Value: fmt.Sprintf("%d %s", found.Error.Status, found.Error.Code)})
	default:
		page.Explanation = []string{found.Explanation}
	}
	return renderReceipt(w, r, page)
}

// explainCharge adds the explanation and the sums of a billed call.
func explainCharge(page *ui.Receipt, found *receipts.Receipt) {
	c := found.Charge
	paidBy := "It was paid from the spend cap of the app."
	if c.PaidBy == rules.PaidByFreeCredit {
		paidBy = "It was paid by free credit. Your balance wasn’t charged."
	}
	page.Heading = "Call for " + ui.Exact(c.UserChargeMC)
	page.Explanation = []string{
		fmt.Sprintf("%s made a call to %s that cost %s. %s", page.App, page.Model, c.UserChargeMC.Display(), paidBy),
	}
	cost := "Sum of the lines above, in micro-cents (µ¢, a hundred-millionth of a dollar), rounded once"
	if found.OwnWork != nil {
		page.Heading, cost = "Work for "+ui.Exact(c.UserChargeMC), "No provider was paid"
		page.Explanation = []string{
			fmt.Sprintf("%s charged %s for its own work: “%s”. %s", page.App, c.UserChargeMC.Display(), *found.OwnWork,
				paidBy),
			"Settled: the app says what its work costs, at most the amount that was held.",
		}
	} else if found.Status == "estimated" {
		page.Explanation = append(page.Explanation,
			"Estimated: the provider did not report the usage, so we counted it. Estimates are rounded down and "+
				"never exceed the amount held.")
	} else {
		page.Explanation = append(page.Explanation,
			"Settled: based on the usage reported by the provider, at the prices in effect when the call started.")
	}
	if found.ReversedBy != nil {
		page.Explanation = append(page.Explanation,
			fmt.Sprintf("%s of it was refunded later.", found.RefundedMC.Display()))
	}
	if text := describeCache(c); text != "" {
		page.Explanation = append(page.Explanation, text)
	}
	for _, l := range found.Lines {
		page.Lines = append(page.Lines, ui.TokenLine(l.Class, l.Tokens, l.UnitPriceUSDPer1M, l.CostMC))
	}
	page.Sum = []ui.Step{
		{Name: "Provider cost", Why: cost, Amount: ui.ExactMoney(c.ProviderCostMC)},
		{Name: "The app’s margin", Why: "Set by the app’s developer", Amount: ui.ExactMoney(c.DevMarginMC)},
		{Name: "Service fee", Why: "Purser’s fee", Amount: ui.ExactMoney(c.SvcFeeMC)},
		{Name: "Charged", Amount: ui.ExactMoney(c.UserChargeMC), Total: true},
	}
	page.Facts = append(page.Facts,
		ui.Fact{
			Name:  "Authorized",
			Value: fmt.Sprintf("%s, the most the call could cost. The unused part was released.", c.HoldAmountDisplay),
		},
		ui.Fact{Name: "Remaining spend cap", Value: c.RemainingDisplay})
	if found.PriceVersion != nil {
		page.Facts = append(page.Facts, ui.Fact{Name: "Prices", Value: *found.PriceVersion})
	}
}

// describeCache says what the provider's cache saved, "" if the call did not use it.
func describeCache(c *receipts.Charge) string {
	switch {
	case c.CacheSavedMC == nil:
		return ""
	case *c.CacheSavedMC < 0:
		return fmt.Sprintf("Writing to the provider’s cache cost %s more. Calls that read it cost less.",
			(-*c.CacheSavedMC).Display())
	}
	return fmt.Sprintf("You saved %s by the provider’s cache.", c.CacheSavedMC.Display())
}

// formatChange writes a change in full precision, with its sign.
func formatChange(mc money.MC) string { return ui.Signed(ui.ExactMoney(mc), mc).Text }
