package operatorpages

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/pages/status"
	"github.com/purserhq/purser/internal/people/stripeapi"
	"github.com/purserhq/purser/internal/people/topups"
)

const (
	// maxItems is the number of decisions that the overview links to, of each kind.
	maxItems = 5
	// disputedFor is how long a disputed payment is shown.
	disputedFor = 30 * 24 * time.Hour
)

// queueBlock lists what needs a decision, with links to the first of each kind.
func (h *Handler) queueBlock(ctx context.Context, now time.Time, last verification) (*ui.Queue, error) {
	b, err := countBacklog(ctx, h.DB)
	if err != nil {
		return nil, err
	}
	q := &ui.Queue{}
	for _, add := range []func(context.Context, *ui.Queue, backlog, time.Time) error{
		h.addReviews, h.addPaused, h.addSuspended, h.addDisputes, h.addOwed,
		h.addMoneyWaits, h.addOverdue,
	} {
		if err := add(ctx, q, b, now); err != nil {
			return nil, err
		}
	}
	if last.state == stateFindings || last.state == stateFailed {
		q.Tasks = append(q.Tasks, ui.QueueTask{
			Count: ui.Count(max(last.findings, 1)),
			Title: "Audit findings",
			Href:  "/operator/verify",
			Tone:  "bad",
		})
	}
	if b.failedMails > 0 {
		q.Tasks = append(q.Tasks, ui.QueueTask{
			Count: countText(b.failedMails),
			Title: "Emails that could not be sent",
			Tone:  "warn",
		})
	}
	if wait := now.Sub(time.UnixMicro(b.oldestMailUS)); b.mails > 0 && wait > time.Minute {
		q.Tasks = append(q.Tasks, ui.QueueTask{
			Count: countText(b.mails),
			Title: "Emails waiting, oldest for " + ui.Duration(wait),
			Tone:  "warn",
		})
	}
	return q, h.addAlarms(q)
}

func (h *Handler) addReviews(ctx context.Context, q *ui.Queue, b backlog, _ time.Time) error {
	if b.reviews == 0 {
		return nil
	}
	t := ui.QueueTask{Count: countText(b.reviews), Title: "Go-live requests", Href: "/operator/reviews", Tone: "warn"}
	list, err := h.Service.GoLive.ListPending(ctx, "", maxItems)
	if err != nil {
		return err
	}
	for _, req := range list {
		app, err := h.Service.Apps.Get(ctx, req.AppID)
		if err != nil {
			return err
		}
		t.Items = append(t.Items, ui.QueueItem{
			Text: app.Name,
			Href: "/operator/reviews/" + url.PathEscape(req.ID),
			Sub:  "to " + strings.ToLower(reviewTarget(req)) + ", " + formatMinute(req.CreatedUS),
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

// pauseCauses are the causes of pauses in words.
var pauseCauses = map[string]string{
	"":         "Paused",
	"risk":     "Paused by risk rules: spent much faster than usual",
	"payment":  "Paused because of a payment",
	"operator": "Paused by an operator",
}

func (h *Handler) addPaused(ctx context.Context, q *ui.Queue, b backlog, _ time.Time) error {
	if b.frozen == 0 {
		return nil
	}
	t := ui.QueueTask{Count: countText(b.frozen), Title: "Paused connections", Href: "/operator/risk", Tone: "bad"}
	list, err := listPaused(ctx, h.DB, maxItems)
	if err != nil {
		return fmt.Errorf("operatorpages: paused connections: %w", err)
	}
	for _, w := range list {
		t.Items = append(t.Items, ui.QueueItem{
			Text: w.appName + " · " + w.email,
			Href: "/operator/connections/" + url.PathEscape(w.id),
			Sub:  pauseCauses[w.cause],
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

func (h *Handler) addSuspended(ctx context.Context, q *ui.Queue, b backlog, _ time.Time) error {
	if b.suspended == 0 {
		return nil
	}
	t := ui.QueueTask{
		Count: countText(b.suspended),
		Title: "Suspended apps",
		Href:  "/operator/apps?state=suspended",
		Tone:  "warn",
	}
	list, err := h.Service.Apps.ListSuspended(ctx, "", maxItems)
	if err != nil {
		return err
	}
	for _, a := range list {
		by := "by an operator"
		if a.Suspension != nil && a.Suspension.By == apps.ByRisk {
			by = "by risk rules: " + a.Suspension.Reason
		}
		t.Items = append(t.Items, ui.QueueItem{Text: a.Name, Href: "/operator/apps/" + url.PathEscape(a.ID), Sub: by})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

func (h *Handler) addDisputes(ctx context.Context, q *ui.Queue, _ backlog, now time.Time) error {
	list, err := listDisputes(ctx, h.DB, now.Add(-disputedFor).UnixMicro(), maxListed)
	if err != nil {
		return fmt.Errorf("operatorpages: disputes: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	t := ui.QueueTask{Count: ui.Count(int64(len(list))), Title: "Disputed payments, 30 days", Tone: "bad"}
	if len(list) == maxListed {
		t.Count += "+"
	}
	for _, w := range list[:min(len(list), maxItems)] {
		t.Items = append(t.Items, ui.QueueItem{
			Text: ui.Dollars(w.amountMC) + " of " + w.email,
			Href: "/operator/accounts/" + url.PathEscape(w.accountID),
			Sub:  formatMinute(w.createdUS),
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

// addOwed lists closed accounts that are owed money: a refund failed late, or a payment came late. Their pages have the
// actions.
func (h *Handler) addOwed(ctx context.Context, q *ui.Queue, _ backlog, _ time.Time) error {
	list, err := listOwed(ctx, h.DB, maxListed)
	if err != nil {
		return fmt.Errorf("operatorpages: closed accounts with money: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	t := ui.QueueTask{Count: ui.Count(int64(len(list))), Title: "Closed accounts that are owed money", Tone: "bad"}
	if len(list) == maxListed {
		t.Count += "+"
	}
	for _, w := range list[:min(len(list), maxItems)] {
		t.Items = append(t.Items, ui.QueueItem{
			Text: ui.Dollars(w.amountMC),
			Href: accountsPath + "/" + url.PathEscape(w.accountID),
			Sub:  w.accountID,
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

// addMoneyWaits says that no money leaves until the books are compared with Stripe, why, and what to do.
func (h *Handler) addMoneyWaits(ctx context.Context, q *ui.Queue, _ backlog, _ time.Time) error {
	r, waits, err := topups.LoadWaiting(ctx, h.DB)
	if err != nil || !waits {
		return err
	}
	why := "The database went back in time."
	if r.FoundUnknown() {
		why = "Stripe had something of ours that the books did not have, so the database may have gone back in time."
	}
	t := ui.QueueTask{Count: "1", Title: "Money waits for a comparison with Stripe", Tone: "bad"}
	t.Items = append(t.Items, ui.QueueItem{
		Text: "No refund, payout or automatic top-up is made until it has ended. Refund nothing by hand.",
		Sub:  why,
	})
	switch {
	case r.ID == "":
		t.Items = append(t.Items, ui.QueueItem{Text: "It has not begun yet. A node with stripe.key begins it."})
	case r.Error != "":
		t.Items = append(t.Items, ui.QueueItem{
			Text: "It goes on by itself when Stripe answers. Check stripe.key.",
			Sub:  r.Error,
		})
	default:
		t.Items = append(t.Items, ui.QueueItem{
			Text: fmt.Sprintf("Comparing %s: %d compared, %d booked, %d not booked", r.Stage, r.Compared, r.Booked,
				r.Unbooked),
			Sub: "since " + formatMinute(r.CreatedUS),
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

// addOverdue lists what was asked of Stripe an hour ago or more and has not ended, with Stripe's words.
func (h *Handler) addOverdue(ctx context.Context, q *ui.Queue, _ backlog, now time.Time) error {
	others, err := topups.ListWaits(ctx, h.DB)
	if err != nil {
		return err
	}
	list, err := stripeapi.ListOverdue(ctx, h.DB, now, maxListed, others...)
	if err != nil || len(list) == 0 {
		return err
	}
	t := ui.QueueTask{
		Count: ui.Count(int64(len(list))),
		Title: "Refunds, charges and payouts that wait for Stripe",
		Tone:  "bad",
	}
	if len(list) >= maxListed {
		t.Count += "+"
	}
	for _, w := range list[:min(len(list), maxItems)] {
		do := "Stripe refuses our key, account or balance. Mend it; it is tried again by itself."
		if w.Outcome == stripeapi.Unknown {
			do = "Stripe does not say whether it was done. It is asked again by itself."
		}
		t.Items = append(t.Items, ui.QueueItem{
			Text: string(w.Kind) + " " + w.ID + ": " + do,
			Sub:  "since " + formatMinute(w.SinceUS) + ": " + w.Text,
		})
	}
	q.Tasks = append(q.Tasks, t)
	return nil
}

// addAlarms adds the alarms that this node raised since its start.
func (h *Handler) addAlarms(q *ui.Queue) error {
	list, err := h.Metrics.Alarms()
	if err != nil {
		return err
	}
	t := ui.QueueTask{Title: "Alarms of this node since its start", Href: "/operator#alarms", Tone: "bad"}
	var n int64
	for _, a := range list {
		if a.N > 0 {
			n += a.N
			t.Items = append(t.Items, ui.QueueItem{Text: a.Labels[0], Sub: a.Labels[1]})
		}
	}
	if h.Catalog.Broken() {
		n++
		t.Items = append(t.Items, ui.QueueItem{Text: brokenPrices, Href: "/operator/prices"})
	}
	if n > 0 {
		t.Count = ui.Count(n)
		t.Items = t.Items[:min(len(t.Items), maxItems)]
		q.Tasks = append(q.Tasks, t)
	}
	return nil
}

// strip shows the state of each service, and the nodes.
func (h *Handler) strip(ctx context.Context, now time.Time) (list []ui.StripItem, err error) {
	for _, s := range h.Status.Load(ctx).Services {
		item := ui.StripItem{Title: s.Title, State: s.State, Href: "/operator/providers"}
		if s.Kind == "service" {
			item.Href = "/status"
		}
		if s.Known {
			item.Detail = status.FormatShare(s.UptimePPM) + " in 24 hours"
		}
		list = append(list, item)
	}
	nodes, err := listNodes(ctx, h.DB, 100)
	if err != nil {
		return nil, fmt.Errorf("operatorpages: nodes: %w", err)
	}
	item := ui.StripItem{Title: "Nodes", State: status.Operational}
	alive := 0
	for _, n := range nodes {
		if n.leaseUS >= now.UnixMicro() {
			alive++
			item.Detail = "newest since " + formatMinute(n.startedUS)
		}
	}
	if alive == 0 {
		item.State = status.Down
	}
	item.Title = fmt.Sprintf("Nodes: %d", alive)
	return append(list, item), nil
}
