package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/operator"
)

// showReviews is GET /operator/reviews: pending go-live requests, oldest first.
func (h *Handler) showReviews(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport("/operator/reviews", "Go-live reviews",
		"Developers who ask for their app’s next tier, oldest first.")
	list, err := h.Service.GoLive.ListPending(r.Context(), r.URL.Query().Get("after"), maxListed+1)
	if err != nil {
		return c, err
	}
	more := len(list) > maxListed
	list = list[:min(len(list), maxListed)]
	t := &ui.Table{
		Label: "Requests",
		Heads: []ui.Head{{Name: "App"}, {Name: "From"}, {Name: "To"}, {Name: "Requested"}},
		First: firstPage(r, "after"),
		Empty: "No pending requests.",
	}
	for _, req := range list {
		app, err := h.Service.Apps.Get(r.Context(), req.AppID)
		if err != nil {
			return c, err
		}
		name := ui.Cell{
			Text:     app.Name,
			Href:     "/operator/reviews/" + url.PathEscape(req.ID),
			Sub:      req.ID,
			Monogram: app.ID,
		}
		t.Rows = append(t.Rows, []ui.Cell{name, {Text: req.From}, {Text: req.To}, timeCell(req.CreatedUS)})
	}
	if more {
		t.Next = nextPage(r, true, "after", list[len(list)-1].ID)
	}
	c.Blocks = []ui.Block{{Table: t}}
	return c, nil
}

// showReview is GET /operator/reviews/{id}: the request, the app's checklist and the buttons to decide.
func (h *Handler) showReview(r *http.Request, s staff) (ui.Report, error) {
	req, err := h.Service.GoLive.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "request")
	}
	app, err := h.Service.Apps.Get(r.Context(), req.AppID)
	if err != nil {
		return ui.Report{}, err
	}
	status, err := h.Service.GoLive.GetStatus(r.Context(), app)
	if err != nil {
		return ui.Report{}, err
	}
	c := s.newReport("/operator/reviews", app.Name, fmt.Sprintf("Requests to move from %s to %s.", req.From, req.To))
	c.Back, c.Badge = &ui.Link{Href: "/operator/reviews", Text: "Reviews"}, reviewBadge(req)
	owner, err := h.ownerCell(r, app)
	if err != nil {
		return c, err
	}
	facts := []ui.Detail{
		{Name: "Request", Cell: ui.Cell{Text: req.ID, Code: true}},
		{Name: "Requested", Cell: timeCell(req.CreatedUS)},
		{Name: "App", Cell: names{app.ID: app.Name}.cell(app.ID)},
		{Name: "Developer", Cell: owner},
	}
	if req.DecidedUS != 0 {
		facts = append(facts, ui.Detail{Name: "Decided", Cell: timeCell(req.DecidedUS)})
	}
	if req.Reason != "" {
		facts = append(facts, ui.Detail{Name: "Rejection reason", Cell: ui.Cell{Text: req.Reason}})
	}
	c.Blocks = []ui.Block{{Heading: "Request", Facts: facts}, checklistBlock(status.Checklist), appBlock(app)}
	if s.canAct() && req.Status == golive.Pending {
		at := "/operator/reviews/" + url.PathEscape(req.ID)
		c.Blocks = append(c.Blocks,
			ui.Block{
				Heading: "Approve",
				Text: "The app moves to " + req.To +
					" and calls real providers immediately. Connections of its test accounts are revoked.",
				Form: &ui.Ask{Action: at, Decision: "approve", Button: "Approve"},
			},
			ui.Block{
				Heading: "Reject",
				Text:    "The app stays in its tier. The developer sees the reason and may request again.",
				Form: &ui.Ask{
					Action:   at,
					Decision: "refuse",
					Fields:   reasonField("Shown to the developer as written."),
					Button:   "Reject",
					Danger:   true,
				},
			})
	}
	return c, nil
}

func reviewBadge(req golive.Request) *ui.Badge {
	switch req.Status {
	case golive.Approved:
		return &ui.Badge{Text: "Approved", Tone: "good"}
	case golive.Refused:
		return &ui.Badge{Text: "Rejected", Tone: "bad"}
	}
	return &ui.Badge{Text: "To review", Tone: "warn"}
}

// checklistBlock shows the go-live checklist of the app as of now.
func checklistBlock(items []golive.Item) ui.Block {
	t := &ui.Table{Label: "Checklist", Heads: []ui.Head{{Name: "Item"}, {Name: "Required"}, {Name: "Met"}}}
	for _, i := range items {
		met, required := ui.Cell{Text: "Missing", Tone: "bad"}, "Yes"
		if !i.Required {
			met, required = ui.Cell{Text: "No", Tone: "plain"}, "No"
		}
		if i.Met {
			met = ui.Cell{Text: "Met", Tone: "good"}
		}
		t.Rows = append(t.Rows, []ui.Cell{{Text: i.Text, Sub: i.Name}, {Text: required}, met})
	}
	return ui.Block{Heading: "Checklist", Table: t}
}

// decideReview is POST /operator/reviews/{id}.
func (h *Handler) decideReview(r *http.Request, s staff, form url.Values) (string, error) {
	requestID, decision := r.PathValue("id"), form.Get("decision")
	at := "/operator/reviews/" + url.PathEscape(requestID) + "?done=" + decision
	switch decision {
	case "approve":
		_, _, err := h.Service.Approve(r.Context(), s.ID, requestID)
		return at, err
	case "refuse":
		reason, err := operator.CheckReason(form.Get("reason"))
		if err == nil {
			_, err = h.Service.Refuse(r.Context(), s.ID, requestID, reason)
		}
		return at, err
	}
	return "", apierr.InvalidRequest.Errorf("decision: must be approve or refuse")
}
