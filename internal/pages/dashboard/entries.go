package dashboard

import (
	"cmp"
	"context"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// entryNames are the names of the types of ledger rows on pages.
var entryNames = map[rules.EntryType]string{
	rules.EntrySpend:   "Call",
	rules.EntryTopUp:   "Top-up",
	rules.EntryConnect: "Connected",
	rules.EntryCap:     "Cap changed",
	rules.EntryRevoke:  "Connection ended",
	rules.EntryRelease: "Unspent money returned",
}

// withdrawnName is the name of a ledger row that takes back a goodwill credit.
const withdrawnName = "Goodwill credit withdrawn"

// entryName returns the name of a ledger row that is no reversed top-up; for any row there is appNames.entryName.
func entryName(e *rules.Entry) string {
	if e.Status == "reversed" && e.Type == rules.EntrySpend {
		return "Refund"
	}
	switch {
	case isDebit(e):
		return debitName
	case isGoodwill(e):
		return "Goodwill credit"
	}
	return cmp.Or(entryNames[e.Type], string(e.Type))
}

// debitName is the name of a ledger row by which a developer pays for the refund of a call.
const debitName = "Refund to a user of your app"

// isGoodwill reports whether a ledger row is a goodwill credit of the operator: a top-up with a reason.
func isGoodwill(e *rules.Entry) bool {
	return e.Type == rules.EntryTopUp && e.Status == "settled" && e.Reason != "" && e.AmountMC > 0
}

// isDebit reports whether a ledger row takes what the refund of a call costs its developer: a negative top-up.
func isDebit(e *rules.Entry) bool {
	return e.Type == rules.EntryTopUp && e.Status == "settled" && e.AmountMC < 0
}

// formatEntries returns ledger rows for a list.
func formatEntries(ctx context.Context, n appNames, rows []rules.Entry) ([]ui.Row, error) {
	out := make([]ui.Row, 0, len(rows))
	for i := range rows {
		e := &rows[i]
		app, err := n.nameOf(ctx, e.AppID)
		if err != nil {
			return nil, err
		}
		what, err := n.entryName(ctx, e)
		if err != nil {
			return nil, err
		}
		change := e.AvailableDeltaMC + e.ReservedDeltaMC
		row := ui.Row{
			ID:      e.ID,
			Href:    "/activity/" + e.ID,
			When:    timestamp.Format(e.CreatedUS),
			Shown:   time.UnixMicro(e.CreatedUS).UTC().Format("2 Jan 2006, 15:04:05"),
			What:    what,
			App:     app,
			Model:   e.Model,
			Feature: e.Feature,
			Change:  ui.Signed(ui.TotalMoney(change), change),
		}
		if e.Type == rules.EntrySpend {
			row.Change = ui.Signed(ui.PriceMoney(change), change)
		}
		if work, ok := policy.ParseWork(e.Terms); ok {
			row.Model = work.Description
		}
		switch {
		case e.PaidBy == rules.PaidByFreeCredit:
			row.Note = "paid by free credit: " + ui.Price(e.UserChargeMC)
		case e.ReversedBy != "":
			row.Note = "refunded"
		case e.Settlement == rules.Estimated:
			row.Note = "estimated"
		case change == 0 && e.Type != rules.EntrySpend:
			row.Moved, row.Note = true, describeMove(e)
		}
		out = append(out, row)
	}
	return out, nil
}

// describeMove describes money that a row moved between available and reserved.
func describeMove(e *rules.Entry) string {
	switch {
	case e.ReservedDeltaMC > 0:
		return ui.Total(e.ReservedDeltaMC) + " reserved"
	case e.ReservedDeltaMC < 0:
		return ui.Total(-e.ReservedDeltaMC) + " returned"
	}
	return "–"
}

// foldEntries folds rows, newest first, by day: the calls and refunds of an app on a day are one group, every other row
// is one by itself. more says that older rows follow on another page. The amounts of a day's groups add up to its sums.
func foldEntries(ctx context.Context, n appNames, rows []rules.Entry, more bool) ([]ui.ActivityDay, error) {
	shown, err := formatEntries(ctx, n, rows)
	if err != nil {
		return nil, err
	}
	var days []ui.ActivityDay
	for first := 0; first < len(rows); {
		day, end := dayOf(&rows[first]), first
		for end < len(rows) && dayOf(&rows[end]) == day {
			end++
		}
		d, err := foldDay(ctx, n, rows[first:end], shown[first:end])
		if err != nil {
			return nil, err
		}
		d.Continues = more && end == len(rows)
		days = append(days, d)
		first = end
	}
	return days, nil
}

func dayOf(e *rules.Entry) string { return time.UnixMicro(e.CreatedUS).UTC().Format(time.DateOnly) }

// foldDay folds the rows of one day.
func foldDay(ctx context.Context, n appNames, rows []rules.Entry, shown []ui.Row) (ui.ActivityDay, error) {
	day := ui.ActivityDay{
		Day:   dayOf(&rows[0]),
		Shown: time.UnixMicro(rows[0].CreatedUS).UTC().Format("Monday, 2 January 2006"),
	}
	type group struct {
		ui.ActivityGroup
		spend          bool
		change         money.MC
		calls, refunds int64
	}
	var groups []*group
	byApp := map[string]*group{}
	for i := range rows {
		e := &rows[i]
		g := byApp[e.AppID]
		if e.Type != rules.EntrySpend || g == nil {
			app, err := n.get(ctx, e.AppID)
			if err != nil {
				return ui.ActivityDay{}, err
			}
			g = &group{ActivityGroup: ui.ActivityGroup{
				What:  shown[i].What,
				App:   app.Name,
				AppID: e.AppID,
				Logo:  app.LogoPath(),
			}}
			groups = append(groups, g)
		}
		if e.Type == rules.EntrySpend {
			g.spend, byApp[e.AppID] = true, g
			if e.Status == "reversed" {
				g.refunds++
			} else {
				g.calls++
			}
		}
		g.change += e.AvailableDeltaMC + e.ReservedDeltaMC
		g.Rows = append(g.Rows, shown[i])
	}
	var spent, added []money.MC
	for _, g := range groups {
		if g.spend {
			spent, g.What = append(spent, g.change), countCalls(g.calls, g.refunds)
		} else {
			added = append(added, g.change)
		}
	}
	var spentTexts, addedTexts []ui.Amount
	if len(spent) > 0 {
		spentTexts, day.Spent = ui.SplitSpend(spent...)
	}
	if len(added) > 0 {
		addedTexts = ui.SplitTotal(added...)
		var sum money.MC
		for _, mc := range added {
			sum += mc
		}
		if sum != 0 {
			day.Added = ui.Signed(ui.TotalMoney(sum), sum)
		}
	}
	for _, g := range groups {
		if g.spend {
			g.Change, spentTexts = ui.Signed(spentTexts[0], g.change), spentTexts[1:]
		} else {
			g.Change, addedTexts = ui.Signed(addedTexts[0], g.change), addedTexts[1:]
		}
		day.Groups = append(day.Groups, g.ActivityGroup)
	}
	return day, nil
}

// countCalls writes a number of calls and of refunds.
func countCalls(calls, refunds int64) string {
	text := ""
	if calls > 0 {
		text = ui.Count(calls) + " call"
		if calls > 1 {
			text += "s"
		}
	}
	if refunds > 0 {
		if text != "" {
			text += ", "
		}
		text += ui.Count(refunds) + " refund"
		if refunds > 1 {
			text += "s"
		}
	}
	return text
}
