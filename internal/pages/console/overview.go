package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/voice"
)

// maxTop is the number of connections and of errors that the overview lists.
const maxTop = 5

// showApp is GET /developer/apps/{id}.
func (h appPages) showApp(w http.ResponseWriter, r *http.Request, v visit) error {
	list, err := h.Features.ListAll(r.Context(), v.app.ID)
	if err != nil {
		return err
	}
	page := h.newOverview(r, v, list)
	for _, fill := range []func(context.Context, *ui.AppOverview, visit) error{
		h.fillFigures, h.fillFailures, h.fillSteps,
	} {
		if err := fill(r.Context(), &page, v); err != nil {
			return err
		}
	}
	if page.Now, err = h.loadLive(r.Context(), v.app); err != nil {
		return err
	}
	if page.Sessions, err = h.Voice.ListForPage(r.Context(), voice.Filter{AppID: v.app.ID}); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// newOverview returns the overview with the facts and examples of an app.
func (h appPages) newOverview(r *http.Request, v visit, list []features.Feature) ui.AppOverview {
	feature := ""
	if len(list) > 0 {
		feature = list[0].Slug
	}
	page := ui.AppOverview{
		Console:  v.newPage(r, "Overview", ""),
		Connect:  v.authorizeURL(h.AuthURL),
		Exchange: []ui.Code{{Language: "curl", Text: v.exchangeCommand(h.BaseURL)}},
		Call: exampleCode(exampleCall{
			BaseURL:   h.BaseURL,
			Feature:   feature,
			Model:     h.firstModel(v.app),
			Prompt:    "Hello",
			MaxTokens: 100,
		}),
		Facts: []ui.Fact{
			{Name: "Client id", Value: v.app.ClientID}, {Name: "Client type", Value: v.app.ClientType},
			{Name: "Tier", Value: v.app.Tier},
			{Name: "Mode", Value: describeMode(v.app)},
			{Name: "Your margin", Value: formatPercent(v.app.DevMargin) + "% of provider cost"},
			{Name: "Models", Value: describeModels(v.app)},
		},
	}
	for i := range page.Call {
		page.Call[i].Language = "3 · Call, with " + page.Call[i].Language
	}
	return page
}

// fillFigures adds the key figures of 30 days with their change from the 30 days before, the chart and the connections
// that spent most.
func (h appPages) fillFigures(ctx context.Context, page *ui.AppOverview, v visit) error {
	first := firstDay(h.Now(), overviewDays)
	rows, err := usage.List(ctx, h.DB, usage.Query{
		AppID:    v.app.ID,
		Sandbox:  v.app.Tier == apps.Sandbox,
		From:     first.AddDate(0, 0, -overviewDays),
		To:       h.Now(),
		Interval: usage.Day,
		GroupBy:  usage.ByNone,
	})
	if err != nil {
		return err
	}
	start := slices.IndexFunc(rows, func(r usage.Row) bool { return r.Bucket >= formatDay(first) })
	if start < 0 {
		start = len(rows)
	}
	total, past := usage.Total(rows[start:]), usage.Total(rows[:start])
	active, err := countActive(ctx, h.DB, v.app, first)
	if err != nil {
		return err
	}
	began, _, err := countConnections(ctx, h.DB, v.app.ID, first)
	if err != nil {
		return err
	}
	top, count, err := listTopConnections(ctx, h.DB, v.app, first)
	if err != nil {
		return err
	}
	page.ByDay = dailySpend(h.Now(), sumsByDay(rows[start:]), overviewDays)
	page.Tiles = overviewTiles(total, past)
	addTrends(page.Tiles, rows[start:], first)
	before, err := countActiveBetween(ctx, h.DB, v.app, first.AddDate(0, 0, -overviewDays), first)
	if err != nil {
		return err
	}
	connections := newFigure("Active connections", ui.Count(count), count, before, true)
	var added int64
	for i := range overviewDays {
		day := formatDay(first.AddDate(0, 0, i))
		added += began[day]
		connections.Trend = append(connections.Trend, active[day])
	}
	connections.Note = ui.Count(added) + " new"
	page.Tiles = append(page.Tiles, connections)
	page.Top = topConnections(top, count, total, v)
	return nil
}

// overviewTiles returns the key figures of money first.
func overviewTiles(total, past usage.Sum) []ui.Figure {
	list := sumTiles(total, past)
	return append([]ui.Figure{list[1], list[2], list[0]}, list[3:]...)
}

// addTrends adds the values of each day to the figures of overviewTiles.
func addTrends(tiles []ui.Figure, rows []usage.Row, first time.Time) {
	days := map[string]usage.Sum{}
	for _, row := range rows {
		days[row.Bucket] = row.Sum
	}
	for i, value := range []func(usage.Sum) int64{
		func(s usage.Sum) int64 { return int64(s.ChargeMC) },
		func(s usage.Sum) int64 { return int64(s.MarginMC) },
		func(s usage.Sum) int64 { return s.Calls },
		func(s usage.Sum) int64 { return ratio(s.Refused, s.Calls+s.Refused) },
	} {
		for day := range overviewDays {
			tiles[i].Trend = append(tiles[i].Trend, value(days[formatDay(first.AddDate(0, 0, day))]))
		}
	}
}

// sumsByDay returns the days with calls as sums.
func sumsByDay(rows []usage.Row) (list []callSum) {
	for _, row := range rows {
		if row.Calls == 0 && row.ChargeMC == 0 {
			continue // refusals alone
		}
		list = append(list, callSum{
			Name:    row.Bucket,
			Calls:   row.Calls,
			Input:   row.Input,
			Output:  row.Output,
			Revenue: row.ChargeMC,
			Cost:    row.CostMC,
			Margin:  row.MarginMC,
			Cached:  row.Cached,
			Saved:   row.SavedMC,
		})
	}
	return list
}

// topConnections returns the lines of the connections that spent most, and one of all others. The lines add up to the
// total.
func topConnections(top []callSum, count int64, total usage.Sum, v visit) (list []ui.TopConnection) {
	restCalls, rest := total.Calls, total.ChargeMC
	var spent []money.MC
	for _, c := range top {
		list = append(list, ui.TopConnection{
			ID:    c.Name,
			Href:  v.path("/requests?connection=" + c.Name),
			Calls: ui.Count(c.Calls),
		})
		spent = append(spent, c.Revenue)
		restCalls, rest = restCalls-c.Calls, rest-c.Revenue
	}
	if others := count - int64(len(top)); others > 0 {
		list = append(list, ui.TopConnection{Others: ui.Count(others), Calls: ui.Count(restCalls)})
		spent = append(spent, rest)
	}
	for i, amount := range ui.SplitTotal(spent...) {
		list[i].Spent = amount
	}
	return list
}

// fillFailures adds the newest refused and failed calls of 30 days.
func (h appPages) fillFailures(ctx context.Context, page *ui.AppOverview, v visit) error {
	log, err := receipts.ListLog(ctx, h.DB, v.app.ID, &receipts.LogFilter{
		Status: receipts.StatusRefused,
		Since:  firstDay(h.Now(), overviewDays),
	}, web.Page{Limit: maxTop})
	if err != nil {
		return err
	}
	for i := range log.Rows {
		l := &log.Rows[i]
		similar, createdUS := url.Values{"status": {"refused"}}, id.Time(l.ID).UnixMicro()
		if *l.HTTPStatus >= 500 {
			similar.Set("status", "failed")
		}
		if l.Model != nil && *l.Model != "" {
			similar.Set("model", *l.Model)
		}
		if l.Feature != nil && *l.Feature != "" {
			similar.Set("feature", *l.Feature)
		}
		page.Failures = append(page.Failures, ui.FailedCall{
			Code:    textOf(l.Code),
			Status:  strconv.Itoa(*l.HTTPStatus),
			Failed:  *l.HTTPStatus >= 500,
			Model:   textOf(l.Model),
			When:    timestamp.Format(createdUS),
			Shown:   formatTime(createdUS),
			Href:    v.path("/requests/" + l.ID),
			Similar: v.path("/requests?" + similar.Encode()),
		})
	}
	return nil
}

// fillSteps adds the steps from a new app to a live one. When all but the optional ones are done, it adds none.
func (h appPages) fillSteps(ctx context.Context, page *ui.AppOverview, v visit) error {
	status, err := h.GoLive.GetStatus(ctx, v.app)
	if err != nil {
		return err
	}
	connected, called, err := findFirsts(ctx, h.DB, v.app.ID)
	if err != nil {
		return err
	}
	page.Called = called
	endpoints, _, err := h.Webhooks.List(ctx, v.app.ID, web.Page{Limit: 1})
	if err != nil {
		return err
	}
	goLive := "Request a review when the app is ready."
	for _, request := range status.Requests {
		if request.Status == golive.Pending {
			goLive = "Your request is waiting for review."
		}
	}
	steps := []struct {
		task       ui.Task
		action     apps.Action // that the link needs
		rest, text string      // of the link, below the app
		optional   bool
	}{
		{ui.Task{
			Text: "Register a feature",
			Hint: "Users see on the consent screen what your app uses AI for.",
			Done: slices.ContainsFunc(status.Checklist, func(i golive.Item) bool {
				return i.Name == "feature" && i.Met
			}),
		}, apps.Configure, "/features", "Register one", false},
		{ui.Task{
			Text: "Connect a user",
			Hint: "The playground connects a test account; the code below connects your users.",
			Done: connected,
		}, apps.RunCalls, "/playground", "Open playground", false},
		{ui.Task{
			Text: "Make a metered call",
			Hint: "Its cost appears here within seconds.",
			Done: called,
		}, apps.RunCalls, "/playground", "Try it", false},
		{ui.Task{
			Text: "Listen to events (optional)",
			Hint: "A webhook tells your server about connections, spend caps and calls.",
			Done: len(endpoints) > 0,
		}, apps.Configure, "/webhooks", "Add endpoint", true},
		{ui.Task{
			Text: "Go live",
			Hint: goLive,
			Done: v.app.Tier != apps.Sandbox,
		}, apps.View, "/go-live", "See checklist", false},
	}
	open := 0
	for _, s := range steps {
		if v.can(s.action) {
			s.task.Link = &ui.Link{Href: v.path(s.rest), Text: s.text}
		}
		if !s.task.Done && !s.optional {
			open++
		}
		if s.task.Done {
			page.StepsDone++
		}
		page.Steps = append(page.Steps, s.task)
	}
	if open == 0 {
		page.Steps = nil
	}
	return nil
}

// loadLive returns what an app's users spend today, and what is held for their calls now.
func (h appPages) loadLive(ctx context.Context, app apps.App) (n ui.Now, err error) {
	connections, held, err := sumHeld(ctx, h.DB, app.ID)
	if err != nil {
		return ui.Now{}, err
	}
	today, err := sumBy(ctx, h.DB, app, "day", firstDay(h.Now(), 1))
	if err != nil {
		return ui.Now{}, err
	}
	t := sumAll(today)
	return ui.Now{
		Held:        ui.Money(held),
		Connections: connections,
		Today:       ui.TotalMoney(t.Revenue),
		Calls:       ui.Count(t.Calls),
	}, nil
}

// showLive is GET /developer/apps/{id}/live: the live part of the overview.
func (h appPages) showLive(w http.ResponseWriter, r *http.Request, v visit) error {
	now, err := h.loadLive(r.Context(), v.app)
	if err != nil {
		return err
	}
	return ui.RenderPart(w, ui.AppOverview{Console: ui.Console{App: appHeader(v.app)}, Now: now}, "live")
}
