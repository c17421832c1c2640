package notices

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
)

// When summaries are queued: from Monday morning on, in UTC. A service that was down then catches
// up for two days. Later the news is old.
const (
	digestHour   = 6
	digestWindow = 48 * time.Hour
)

// Bounds of a summary, and of a transaction.
const (
	maxDigestApps = 10
	digestBatch   = 50
)

// digestWeek returns the Monday that begins the week to sum up at now; false = it is not the time.
func digestWeek(now time.Time) (monday time.Time, due bool) {
	now = now.UTC()
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, time.UTC)
	this := day.AddDate(0, 0, -(int(day.Weekday())+6)%7)
	from := this.Add(digestHour * time.Hour)
	return this.AddDate(0, 0, -7), !now.Before(from) && now.Before(from.Add(digestWindow))
}

// QueueDigests queues the summary of last week for each account whose apps made calls in it. Nodes share the work: the
// one that moves the position of the week queues what lies between, in one transaction. So each account gets one
// summary.
func (s *Store) QueueDigests(ctx context.Context) error {
	week, due := digestWeek(s.Mails.Now())
	if !due {
		return nil
	}
	name := week.Format(time.DateOnly)
	if err := insertDigestRun(ctx, s.DB, name); err != nil {
		return fmt.Errorf("notices: digest run: %w", err)
	}
	for {
		after, done, err := getDigestRun(ctx, s.DB, name)
		if err != nil {
			return fmt.Errorf("notices: digest run: %w", err)
		} else if done {
			return nil
		}
		if err := s.queueDigestBatch(ctx, week, after); err != nil {
			return fmt.Errorf("notices: digests: %w", err)
		}
	}
}

// queueDigestBatch queues the summaries of the accounts after one. It does nothing if another node has.
func (s *Store) queueDigestBatch(ctx context.Context, week time.Time, after string) error {
	ids, err := accounts.ListDigestIDs(ctx, s.DB, after, digestBatch)
	if err != nil {
		return err
	}
	last, done := after, len(ids) < digestBatch
	if len(ids) > 0 {
		last = ids[len(ids)-1]
	}
	digests := make([]digest, 0, len(ids))
	for _, accountID := range ids { // outside of the transaction: these are many rows
		d, err := s.sumWeek(ctx, accountID, week)
		if err != nil {
			return err
		}
		if d.calls > 0 {
			digests = append(digests, d)
		}
	}
	return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		moved, err := moveDigestRun(ctx, tx, week.Format(time.DateOnly), after, last, done)
		if err != nil || !moved {
			return err
		}
		for _, d := range digests {
			if err := s.queueDigest(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

// A digest is the spend of an account in a week.
type digest struct {
	accountID string
	week      time.Time // its Monday
	apps      []appWeek // largest first
	spent     money.MC
	before    money.MC // spent in the week before
	calls     int64
}

// An appWeek is the spend on one app in a week.
type appWeek struct {
	appID string
	spent money.MC
	calls int64
}

// sumWeek sums up the week of an account, from the daily totals.
func (s *Store) sumWeek(ctx context.Context, accountID string, week time.Time) (digest, error) {
	d := digest{accountID: accountID, week: week}
	totals, err := store.ListDailyTotals(ctx, s.DB, accountID, "", week.AddDate(0, 0, -7).Format(time.DateOnly))
	if err != nil {
		return digest{}, err
	}
	first, next := week.Format(time.DateOnly), week.AddDate(0, 0, 7).Format(time.DateOnly)
	byApp := map[string]*appWeek{}
	for _, t := range totals {
		switch {
		case t.Day >= next:
		case t.Day < first:
			d.before += t.UserChargeMC
		default:
			if byApp[t.AppID] == nil {
				byApp[t.AppID] = &appWeek{appID: t.AppID}
			}
			byApp[t.AppID].spent += t.UserChargeMC
			byApp[t.AppID].calls += t.Calls
			d.spent += t.UserChargeMC
			d.calls += t.Calls
		}
	}
	for _, a := range byApp {
		d.apps = append(d.apps, *a)
	}
	slices.SortFunc(d.apps, func(a, b appWeek) int {
		return cmp.Or(cmp.Compare(b.spent, a.spent), cmp.Compare(a.appID, b.appID))
	})
	return d, nil
}

// queueDigest queues a summary. It logs and skips one that cannot be sent, so that the others are.
func (s *Store) queueDigest(ctx context.Context, tx *db.Tx, d digest) error {
	a, err := accounts.GetAccount(ctx, tx, d.accountID)
	if err != nil || a.Sandbox || !a.Digest {
		return err
	}
	e, err := s.digestEmail(ctx, d)
	if err != nil {
		return err
	}
	m := mail.Message{AccountID: a.ID, To: a.Email, Subject: e.Subject}
	m.Unsubscribe = s.Links.Dashboard + stopPath + s.Stops.SignDigest(a.ID)
	e.Footer = []ui.Link{
		{Href: s.Links.Dashboard + settingsPath, Text: "Email settings"},
		{Href: m.Unsubscribe, Text: "Unsubscribe"},
	}
	if m.Text, m.HTML, err = e.Render(s.Mails.Site); err != nil {
		return err
	}
	err = s.Mails.QueueMessage(ctx, tx, m)
	if errors.Is(err, mail.ErrInvalidMessage) {
		s.Log.Error("digest not queued", "account_id", a.ID, "error", err)
		return nil
	}
	return err
}

// digestEmail writes a summary. Its lines add up to its total.
func (s *Store) digestEmail(ctx context.Context, d digest) (ui.Email, error) {
	until := d.week.AddDate(0, 0, 6)
	days := url.Values{"from": {d.week.Format(time.DateOnly)}, "to": {until.Format(time.DateOnly)}}
	activity := func(appID string) string {
		if appID == "" {
			return s.Links.Dashboard + "/activity?" + days.Encode()
		}
		return s.Links.Dashboard + "/activity?app=" + url.QueryEscape(appID) + "&" + days.Encode()
	}
	parts := make([]money.MC, len(d.apps))
	for i, a := range d.apps {
		parts[i] = a.spent
	}
	texts, total := ui.SplitSpend(parts...)
	compared := ui.CompareSpend(d.spent, d.before)
	count := countText(int64(len(d.apps)), "app")
	e := ui.Email{
		Subject: "Your week: " + count + ", " + total.Text,
		Paragraphs: []string{fmt.Sprintf("From %s to %s, %s made %s for %s.", d.week.Format("2 January"),
			until.Format("2 January"), count, countText(d.calls, "call"), total.Text)},
		Action: &ui.Link{Href: activity(""), Text: "View activity"},
		Why:    ui.AboutApps,
	}
	switch compared {
	case "":
	case ui.SameSpend:
		e.Paragraphs[0] += " That is about as much as the week before."
	default:
		e.Subject += ", " + compared
		e.Paragraphs[0] += " That is " + compared + " than the week before."
	}
	shown := len(d.apps)
	if shown > maxDigestApps {
		shown = maxDigestApps - 1
	}
	for i, a := range d.apps[:shown] {
		app, err := s.Apps.Get(ctx, a.appID)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return ui.Email{}, err
		}
		e.Amounts = append(e.Amounts, ui.EmailAmount{
			Name:   cmp.Or(app.Name, a.appID),
			Detail: countText(a.calls, "call"),
			Amount: texts[i].Text,
			Href:   activity(a.appID),
		})
	}
	if rest := d.apps[shown:]; len(rest) > 0 {
		sums := []money.MC{0, 0} // the shown apps, and the rest
		var calls int64
		for i, a := range d.apps {
			if i < shown {
				sums[0] += a.spent
			} else {
				sums[1] += a.spent
				calls += a.calls
			}
		}
		two, _ := ui.SplitSpend(sums...)
		e.Amounts = append(e.Amounts, ui.EmailAmount{
			Name:   fmt.Sprintf("%d others", len(rest)),
			Detail: countText(calls, "call"),
			Amount: two[1].Text,
		})
	}
	e.Amounts = append(e.Amounts, ui.EmailAmount{Name: "Total", Amount: total.Text, Total: true})
	return e, nil
}

func countText(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return ui.Count(n) + " " + what + "s"
}
