package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// fieldCauses names the causes of a pause that the page of the form showed: only these end.
const fieldCauses = "causes"

// maxCalls is the number of calls on a review page.
const maxCalls = 20

func reviewPath(connectionID string) string { return "/connections/" + connectionID + "/review" }

// showReview is GET /connections/{id}/review.
func (h *Handler) showReview(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), reviewPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	page, err := h.reviewPage(r.Context(), v)
	if err != nil {
		return err
	}
	if r.URL.Query().Get("done") == "resume" && v.conn.Status == rules.Active {
		page.Done = "resume"
	}
	return ui.Render(w, http.StatusOK, page)
}

// decideReview is POST /connections/{id}/review: the user resumes or revokes the
// connection.
func (h *Handler) decideReview(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), reviewPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	var c rules.Command
	decision := form.Get("decision")
	switch decision {
	case "resume":
		speed, err := readSpeed(form.Get("speed"))
		if err != nil {
			return err
		}
		if speed > 0 && !v.offersSpeeds() {
			return h.explainRefusal(w, r, a, "You can change how fast the app may spend only after we paused it for "+
				"spending too fast.")
		}
		resume := rules.Resume{ConnectionID: v.conn.ID, FasterSpend: speed}
		if form.Has(fieldCauses) {
			resume.Shown = rules.SplitKeys(form.Get(fieldCauses))
		}
		c = resume
	case "revoke":
		c = rules.Revoke{ConnectionID: v.conn.ID, StopCalls: true}
	default:
		return apierr.InvalidRequest.Errorf("decision: must be resume or revoke")
	}
	_, err = h.Ledger.Do(r.Context(), c)
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.InvalidRequest {
		return h.explainRefusal(w, r, a, e.Message)
	}
	if refusalText(err) == "" && err != nil {
		return err // show a connection that was revoked meanwhile as it is
	}
	return web.SeeOther(w, reviewPath(v.conn.ID)+"?done="+decision)
}

// explainRefusal shows the page with the reason why a decision was refused.
func (h *Handler) explainRefusal(w http.ResponseWriter, r *http.Request, a accounts.Account, reason string) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), reviewPath(r.PathValue("id"))) // it may have changed
	if err != nil {
		return err
	}
	page, err := h.reviewPage(r.Context(), v)
	if err != nil {
		return err
	}
	page.Errors = []ui.Problem{{Field: "resume", Text: reason}}
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// speedChoices are the choices of faster spend: multiples of the usual risk thresholds (contract §3, §8).
func speedChoices(now int64) []ui.Choice {
	list := []ui.Choice{
		{
			ID:     "1",
			Name:   "Usual speed",
			Detail: "If it spends too fast again, its calls are slowed down, and we may pause it.",
		},
		{ID: "2", Name: "Up to 2× faster", Detail: "If you expect to use it more than before."},
		{ID: "3", Name: "Up to 3× faster", Detail: "The most we allow. The spend cap and the daily limit still apply."},
	}
	list[min(max(now, 1), 3)-1].Chosen = true
	return list
}

// offersSpeeds reports whether the user may change how fast the app spends: its speed is what stopped it.
func (v visit) offersSpeeds() bool {
	return v.conn.FrozenBy == rules.FrozenByRisk || v.conn.FrozenBy == ""
}

// readSpeed reads the choice. 0 = no choice, which changes nothing.
func readSpeed(text string) (int64, error) {
	switch text {
	case "":
		return 0, nil
	case "1", "2", "3":
		return int64(text[0] - '0'), nil
	}
	return 0, apierr.InvalidRequest.Errorf("speed: must be 1, 2 or 3")
}

// reviewPage builds the page with the latest calls.
func (h *Handler) reviewPage(ctx context.Context, v visit) (ui.Review, error) {
	rows, err := store.RecentEntries(ctx, h.DB, v.conn.AccountID, v.conn.ID, maxCalls)
	if err != nil {
		return ui.Review{}, fmt.Errorf("dashboard: recent calls: %w", err)
	}
	p := ui.Review{
		Person:       v.Person,
		Funds:        v.funds(),
		ConnectionID: v.conn.ID,
		Today:        ui.Total(money.MC(v.conn.Spent.Sum(h.DB.Now(), tiers.DailyWindow))),
	}
	p.Resumable, p.Causes = v.freeze.resumable, v.freeze.causes
	if v.offersSpeeds() {
		p.Speeds = speedChoices(v.conn.FasterSpend)
	}
	if v.conn.Status == rules.Frozen && v.balance.AvailableMC < 0 {
		p.BelowZero = ui.Dollars(-v.balance.AvailableMC)
	}
	for _, e := range rows {
		p.Calls = append(p.Calls, ui.Spent{
			When:    timestamp.Format(e.CreatedUS),
			Shown:   time.UnixMicro(e.CreatedUS).UTC().Format("2 Jan, 15:04:05"),
			Model:   e.Model,
			Feature: e.Feature,
			Charge:  ui.Price(e.UserChargeMC),
			Back:    e.ReversalOf != "",
			Free:    e.PaidBy == rules.PaidByFreeCredit,
		})
	}
	return p, nil
}
