package operatorpages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
)

const (
	// timelineDays are the days on one page of a timeline.
	timelineDays = 30
	// maxMoves is the number of events of one kind that a page reads.
	maxMoves = 500
)

// A move is a ledger row that is no call, or the refund of one.
type move struct {
	id, kind, status, appID, reason string
	availableMC, reservedMC         money.MC // how it changes the balance
	allocationMC                    money.MC // how it changes the spend cap
	createdUS                       int64
}

// A decision is an entry of the audit log.
type decision struct {
	id, actor, action, subject, reason string
	createdUS                          int64
}

// A moment is an event of a timeline before names are known.
type moment struct {
	createdUS int64
	day       string
	isFold    bool     // it stands for a whole day
	ids       []string // that it names
	event     func(who names) ui.TimelineEvent
}

// showTimeline is GET /operator/accounts/{id}/timeline: what happened to an account, newest first:
// top-ups, calls folded by day and app, refunds, spend caps, pauses, disputes, and what operators
// did. A page has whole days, those before the day in the query.
func (h *Handler) showTimeline(r *http.Request, s staff) (ui.Report, error) {
	ctx := r.Context()
	a, err := h.Accounts.Get(ctx, r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "account")
	}
	c := s.newReport("/operator/accounts", "Timeline of "+a.Email, "Calls are folded by day and app. Days are UTC.")
	path := "/operator/accounts/" + url.PathEscape(a.ID)
	c.Back = &ui.Link{Href: path, Text: "Account"}
	to := h.Service.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
	if text := r.URL.Query().Get("before"); text != "" {
		if to, err = time.Parse(time.DateOnly, text); err != nil {
			return c, apierr.InvalidRequest.Errorf("before: must be a day such as 2026-11-21")
		}
	}
	list, from, err := h.loadMoments(ctx, a.ID, to.AddDate(0, 0, -timelineDays), to)
	if err != nil {
		return c, fmt.Errorf("operatorpages: timeline: %w", err)
	}
	ids := []string{}
	for _, m := range list {
		ids = append(ids, m.ids...)
	}
	who, err := loadNames(ctx, h.DB, ids...)
	if err != nil {
		return c, err
	}
	t := &ui.Timeline{
		Label: "Timeline",
		Empty: "Nothing happened from " + formatDate(formatDay(from)) + " to " +
			formatDate(formatDay(to.AddDate(0, 0, -1))) + ".",
		First: firstPage(r, "before"),
	}
	last := ""
	for _, m := range list {
		if m.day != last {
			t.Days, last = append(t.Days, ui.TimelineDay{Day: formatDate(m.day)}), m.day
		}
		day := &t.Days[len(t.Days)-1]
		day.Events = append(day.Events, m.event(who))
	}
	if time.UnixMicro(a.CreatedUS).Before(from) {
		t.Next = nextPage(r, true, "before", formatDay(from))
	}
	c.Blocks = []ui.Block{{Timeline: t}}
	return c, nil
}

// loadMoments reads the events of the days from ≤ day < to, newest first. If there are too many it reads fewer days,
// at least one; start is the first day that was read.
func (h *Handler) loadMoments(ctx context.Context, accountID string,
	from, to time.Time) (list []moment, start time.Time,
	err error) {
	moves, err := listMoves(ctx, h.DB, accountID, from.UnixMicro(), to.UnixMicro(), maxMoves+1)
	if err != nil {
		return nil, from, err
	}
	if len(moves) > maxMoves {
		cut := time.UnixMicro(moves[maxMoves].createdUS).UTC().Truncate(24 * time.Hour)
		if from = cut.AddDate(0, 0, 1); !from.Before(to) {
			from = cut
		}
	}
	fromUS, toUS := from.UnixMicro(), to.UnixMicro()
	for i := range moves {
		if moves[i].createdUS >= fromUS {
			list = append(list, moveMoment(&moves[i]))
		}
	}
	days, err := listCallDays(ctx, h.DB, accountID, formatDay(from), formatDay(to))
	if err != nil {
		return nil, from, err
	}
	for _, d := range days {
		list = append(list, callsMoment(d))
	}
	pauses, err := listPauses(ctx, h.DB, accountID, fromUS, toUS, maxMoves)
	if err != nil {
		return nil, from, err
	}
	for _, e := range pauses {
		list = append(list, pauseMoment(e))
	}
	acts, err := listDecisions(ctx, h.DB, accountID, fromUS, toUS, maxMoves)
	if err != nil {
		return nil, from, err
	}
	for _, d := range acts {
		list = append(list, decisionMoment(d))
	}
	disputes, err := listAccountDisputes(ctx, h.DB, accountID, fromUS, toUS, maxMoves)
	if err != nil {
		return nil, from, err
	}
	for _, w := range disputes {
		list = append(list, disputeMoment(w))
	}
	slices.SortStableFunc(list, compareMoments)
	return list, from, nil
}

// compareMoments sorts the newest day first, and within a day its folded calls before the newest event.
func compareMoments(a, b moment) int {
	switch {
	case a.day != b.day:
		return strings.Compare(b.day, a.day)
	case a.isFold != b.isFold:
		if a.isFold {
			return -1
		}
		return 1
	}
	return int(min(max(b.createdUS-a.createdUS, -1), 1))
}

// newMoment returns a moment with the time of its event.
func newMoment(us int64, e ui.TimelineEvent, ids ...string) moment {
	e.Time, e.Shown = timestamp.Format(us), time.UnixMicro(us).UTC().Format("15:04:05 UTC")
	return moment{
		createdUS: us,
		day:       formatDay(time.UnixMicro(us)),
		ids:       ids,
		event: func(who names) ui.TimelineEvent {
			for _, subject := range ids {
				e.Of = append(e.Of, who.cell(subject))
			}
			return e
		},
	}
}

func moveMoment(m *move) moment {
	e := ui.TimelineEvent{Dot: "plain", What: entryCell(m.id, m.kind, m.status), Detail: m.reason}
	amountMC := m.availableMC + m.reservedMC
	switch {
	case m.kind == string(rules.EntryTopUp) && m.availableMC < 0 && m.status == "settled":
		e.What.Text = "Paid for a refund"
	case m.kind == string(rules.EntryTopUp) && m.status == "settled":
		e.Dot = "good"
	case m.kind == string(rules.EntryTopUp) && m.status == "reversed" && m.availableMC > 0:
		e.What.Text = "Refund came back"
	case m.kind == string(rules.EntryTopUp) && m.status == "reversed":
		e.Dot = "bad"
	case m.status == "reversed":
		// The sum of the day's calls has it already.
		e.Dot, e.What.Text = "warn", "Call refunded"
		e.Detail, amountMC = ui.Total(amountMC)+" returned: "+e.Detail, 0
	case m.allocationMC != 0:
		amountMC = m.allocationMC
		e.Detail = strings.TrimPrefix(e.Detail+", spend cap", ", ")
	}
	if amountMC != 0 {
		e.Amount = ui.Signed(ui.TotalMoney(amountMC), amountMC)
	}
	if m.appID == "" {
		return newMoment(m.createdUS, e)
	}
	return newMoment(m.createdUS, e, m.appID)
}

func callsMoment(s callSum) moment {
	return moment{
		day:    s.day,
		isFold: true,
		ids:    []string{s.appID},
		event: func(who names) ui.TimelineEvent {
			return ui.TimelineEvent{
				What:   ui.Cell{Text: "Calls: " + ui.Count(s.calls)},
				Of:     []ui.Cell{who.cell(s.appID)},
				Detail: "Charges less refunds",
				Dot:    "plain",
				Amount: ui.TotalMoney(-s.chargeMC),
			}
		},
	}
}

func pauseMoment(p rules.Event) moment {
	e := ui.TimelineEvent{What: ui.Cell{Text: "Connection paused"}, Dot: "bad"}
	if p.Type == "connection.resumed" {
		e = ui.TimelineEvent{What: ui.Cell{Text: "Connection resumed"}, Dot: "good"}
	}
	return newMoment(p.CreatedUS, e, p.ConnectionID)
}

func decisionMoment(d decision) moment {
	m := newMoment(d.createdUS, ui.TimelineEvent{
		What:   ui.Cell{Text: "Operator: " + d.action, Href: "/operator/log/" + url.PathEscape(d.id)},
		Detail: d.reason,
		Dot:    "warn",
	}, d.subject)
	named := m.event
	m.ids = append(m.ids, d.actor)
	m.event = func(who names) ui.TimelineEvent {
		e := named(who)
		e.Of = append(e.Of, actorCell(d.actor, who))
		return e
	}
	return m
}

func disputeMoment(w waiting) moment {
	return newMoment(w.createdUS, ui.TimelineEvent{
		What:   ui.Cell{Text: "Payment disputed", Exact: w.id},
		Dot:    "bad",
		Amount: ui.TotalMoney(w.amountMC),
	})
}
