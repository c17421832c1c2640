package console

import (
	"net/http"
	"slices"
	"time"

	"purser/internal/ui"
)

// ranges are the times that analytics look back on.
var ranges = []struct {
	name, text string
	days       int
}{{"7", "7 days", 7}, {"30", "30 days", 30}, {"90", "90 days", 90}}

// analytics is GET /developer/apps/{id}/analytics.
func (h *Handler) analytics(w http.ResponseWriter, r *http.Request, v visit) error {
	page := ui.Analytics{Console: v.page(r, "Analytics", "/analytics")}
	days, asked := 30, r.URL.Query().Get("days")
	for _, x := range ranges {
		if x.name == asked {
			days = x.days
		}
	}
	for _, x := range ranges {
		page.Ranges = append(page.Ranges, ui.Tab{Href: v.path("/analytics?days=" + x.name), Text: x.text, Current: x.days == days})
	}
	since := h.Now().Add(-time.Duration(days) * 24 * time.Hour)
	for _, t := range []struct{ column, caption, of string }{
		{"day", "By day, newest first", "Day"}, {"feature", "By feature", "Feature"}, {"model", "By model", "Model"},
	} {
		list, err := by(r.Context(), h.DB, v.app, t.column, since)
		if err != nil {
			return err
		}
		if t.column == "day" {
			page.Total = total(list).shown()
			slices.Reverse(list)
		} else {
			slices.SortStableFunc(list, func(a, b sum) int { return int(min(1, max(-1, b.Revenue-a.Revenue))) })
		}
		if len(list) > 0 {
			page.Tables = append(page.Tables, named(shownSums(t.caption, t.of, list), t.column))
		}
	}
	counts, err := refusedBy(r.Context(), h.DB, v.app.ID, since)
	if err != nil {
		return err
	}
	for _, c := range counts {
		page.Refusals = append(page.Refusals, ui.RefusalSum{Code: c.code, Count: count(c.n), Last: short(c.lastUS), Means: meanings[c.code]})
	}
	return ui.Render(w, http.StatusOK, page)
}

// named says what the two names mean that no feature has (spec §2, Feature).
func named(t ui.Sums, column string) ui.Sums {
	if column != "feature" {
		return t
	}
	for i := range t.List {
		switch t.List[i].Name {
		case "":
			t.List[i].Name, t.List[i].Detail = "none", "calls that named no feature"
		case "other":
			t.List[i].Detail = "calls that named features which are not registered"
		}
	}
	return t
}

// meanings say in words what the codes of refusals mean (spec §7).
var meanings = map[string]string{
	"invalid_request": "The request was not one that could be made.", "feature_model_not_configured": "The call named no model, and its feature has no default.",
	"unauthorized": "The token was not good.", "allocation_exhausted": "The rest of the cap did not cover what the call could cost.",
	"feature_cost_exceeded": "The call could cost more than its feature allows.", "connection_revoked": "The user had ended the connection.",
	"connection_frozen": "The connection was paused; its user can resume it.", "app_suspended": "The app was off.",
	"model_not_allowed": "The model is not one that the app may call.", "idempotency_key_reused": "A key was used again for another request.",
	"rate_limited": "Too many calls in a minute.", "risk_throttled": "The connection spent much faster than usual.",
	"daily_limit_reached": "The user’s own daily limit was reached.", "app_spend_limited": "The app’s limit of spend a day was reached.",
	"sandbox_live_cost_limited": "The sandbox’s daily allowance of live calls was used up.", "provider_error": "The provider failed; nothing was billed.",
}
