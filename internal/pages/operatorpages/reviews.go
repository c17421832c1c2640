package operatorpages

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/operator"
)

const reviewsPath = "/operator/reviews"

// showReviews is GET /operator/reviews: pending go-live requests, oldest first; or the decided ones, newest first.
func (h *Handler) showReviews(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(reviewsPath, "Go-live reviews",
		"Apps that ask for their next tier, or for a change of what users see of them.")
	q := r.URL.Query()
	t := ui.NewList(reviewsPath, q, "state")
	t.Label, t.Empty, t.Queue = "Requests", "No pending requests", q.Get("state") != "decided"
	t.AddFilter("state", "State", []ui.Option{{Text: "To review"}, {ID: "decided", Text: "Decided"}})
	t.Finish(q.Get("after") == "", "")
	t.Head = []ui.ListColumn{
		{Text: "App", Class: "first"}, {Text: "State", Class: "first end"}, {Text: "From", Class: "second"},
		{Text: "To", Class: "second"}, {Text: "Requested", Class: "second end"}, {Text: "Decided"}, {Text: "Request"},
	}
	find := h.Service.GoLive.ListPending
	if !t.Queue {
		t.Empty, find = "No decided requests", h.Service.GoLive.ListDecided
	}
	size := ui.ListPageSize(t.Query)
	list, err := find(r.Context(), q.Get("after"), size+1)
	if err != nil {
		return c, err
	}
	if len(list) > size {
		list = list[:size]
		t.Older = t.Link("after", list[size-1].ID)
	}
	ids := []string{}
	for _, req := range list {
		ids = append(ids, req.AppID)
	}
	who, err := loadNames(r.Context(), h.DB, ids...)
	if err != nil {
		return c, err
	}
	for _, req := range list {
		badge := reviewBadge(req)
		t.Rows = append(t.Rows, ui.ListRow{
			ID:   req.ID,
			Href: reviewsPath + "/" + url.PathEscape(req.ID),
			Cells: []ui.ListCell{
				{Text: who[req.AppID], Monogram: req.AppID},
				{Text: badge.Text, Dot: badge.Tone, Sub: req.Reason},
				{Text: req.From},
				{Text: reviewTarget(req)},
				listCell(timeCell(req.CreatedUS)),
				listCell(timeCell(req.DecidedUS)),
				{Text: req.ID, Code: true},
			},
		})
	}
	c.Blocks = []ui.Block{{List: &t}}
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
	lead := fmt.Sprintf("Requests to move from %s to %s.", req.From, req.To)
	if req.IsChange() {
		lead = "Requests to change what users see. Until you approve, they see what it was."
	}
	c := s.newReport("/operator/reviews", app.Name, lead)
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
	c.Blocks = []ui.Block{{Heading: "Request", Facts: facts}, shownBlock(app)}
	if req.IsChange() && req.Status == golive.Pending {
		c.Blocks = append(c.Blocks, proposedBlock(app))
	}
	c.Blocks = append(c.Blocks, checklistBlock(status.Checklist), appBlock(app))
	if s.canAct() && req.Status == golive.Pending {
		at := "/operator/reviews/" + url.PathEscape(req.ID)
		c.Blocks = append(c.Blocks,
			ui.Block{
				Heading: "Approve",
				Text:    approvalText(req),
				Form:    &ui.Ask{Action: at, Decision: "approve", Button: "Approve"},
			},
			ui.Block{
				Heading: "Reject",
				Text:    "The app stays as it is. The developer sees the reason and may request again.",
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

// reviewTarget says what a request asks for.
func reviewTarget(req golive.Request) string {
	if req.IsChange() {
		return "Change"
	}
	return req.To
}

// approvalText says what an approval does.
func approvalText(req golive.Request) string {
	if req.IsChange() {
		return "Users see the change immediately. It is approved as shown here: a later change asks again."
	}
	return "The app moves to " + req.To + " and calls real providers immediately. Connections of its test accounts " +
		"are revoked. It is approved as shown here: a later change asks again."
}

// shownBlock has what users see of an app.
func shownBlock(a apps.App) ui.Block {
	p := a.Profile
	domain := p.Domain
	if domain != "" && p.VerifiedDomain() == "" {
		domain += " (not verified)"
	}
	block := ui.Block{Heading: "Users see"}
	for _, d := range []ui.Detail{
		{Name: "Name", Cell: ui.Cell{Text: a.Name}},
		{Name: "Developer", Cell: ui.Cell{Text: p.DeveloperName}},
		{Name: "Domain", Cell: ui.Cell{Text: domain}},
		{Name: "Logo", Cell: logoCell(a)},
		{Name: "Website", Cell: ui.Cell{Text: p.WebsiteURL}},
		{Name: "Privacy policy", Cell: ui.Cell{Text: p.PrivacyPolicyURL}},
		{Name: "Support", Cell: ui.Cell{Text: p.Support}},
	} {
		if d.Cell.Text != "" {
			block.Facts = append(block.Facts, d)
		}
	}
	return block
}

// proposedBlock has what the developer of a live app has changed.
func proposedBlock(a apps.App) ui.Block {
	p, to := a.Proposed, a.AsProposed()
	block := ui.Block{Heading: "Proposed"}
	add := func(waits bool, name string, cell ui.Cell) {
		if waits {
			block.Facts = append(block.Facts, ui.Detail{Name: name, Cell: cell})
		}
	}
	add(p.Name != nil, "Name", ui.Cell{Text: to.Name})
	add(p.DeveloperName != nil, "Developer", ui.Cell{Text: to.Profile.DeveloperName})
	add(p.Domain != nil, "Domain", ui.Cell{Text: to.Profile.Domain})
	add(p.LogoHash != nil, "Logo", logoCell(to))
	add(p.RedirectURIs != nil, "Redirect URLs", ui.Cell{Text: strings.Join(to.RedirectURIs, ", ")})
	return block
}

// logoCell links to an app's logo.
func logoCell(a apps.App) ui.Cell {
	if a.LogoPath() == "" {
		return ui.Cell{}
	}
	return ui.Cell{Text: "Show", Href: a.LogoPath()}
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
