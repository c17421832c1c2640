package webhooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/members"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/mail"
)

// A Reporter emails the owners of an app about endpoints that only fail.
type Reporter struct {
	Store   *Store
	Apps    *apps.Store
	Notices *notices.Store
	Log     *slog.Logger
}

// QueueReports queues one email for each active endpoint to which every attempt of yesterday (UTC) failed, and one at
// the first delivery of a day that has failed for good. It claims the day in the transaction that queues the email, so
// that several nodes send one. An endpoint has one email a day at most.
func (r *Reporter) QueueReports(ctx context.Context) error {
	for _, claim := range []func(ctx context.Context, tx *db.Tx) ([]report, bool, error){r.claimFailed, r.claimLost} {
		for done := false; !done; {
			err := r.Store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				list, last, err := claim(ctx, tx)
				if err != nil {
					return err
				}
				for _, v := range list {
					if err := r.queueReport(ctx, tx, v); err != nil {
						return err
					}
				}
				done = last
				return nil
			})
			if err != nil {
				return fmt.Errorf("webhooks: reports: %w", err)
			}
		}
	}
	return nil
}

// A report is what an email says of an endpoint.
type report struct {
	endpoint Endpoint
	email    func(app apps.App, dashboard string) ui.Email
}

func (r *Reporter) claimFailed(ctx context.Context, tx *db.Tx) (list []report, done bool, err error) {
	days, done, err := r.Store.ClaimFailedDays(ctx, tx)
	for _, d := range days {
		list = append(list, report{d.Endpoint, d.email})
	}
	return list, done, err
}

func (r *Reporter) claimLost(ctx context.Context, tx *db.Tx) (list []report, done bool, err error) {
	days, done, err := r.Store.ClaimLostDays(ctx, tx)
	for _, d := range days {
		list = append(list, report{d.Endpoint, d.email})
	}
	return list, done, err
}

// queueReport queues the email of one endpoint for each owner of its app. It logs and skips one that cannot be sent, so
// that the others are.
func (r *Reporter) queueReport(ctx context.Context, tx *db.Tx, v report) error {
	app, err := r.Apps.Get(ctx, v.endpoint.AppID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	owners, err := members.ListOwners(ctx, tx, app)
	if err != nil {
		return err
	}
	e := v.email(app, r.Notices.Links.Dashboard)
	for _, a := range owners {
		err := r.Notices.QueueOptional(ctx, tx, a, e)
		if errors.Is(err, mail.ErrInvalidMessage) {
			r.Log.Error("webhook report not queued", "account_id", a.ID, "endpoint_id", v.endpoint.ID, "error", err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// email writes the report of a failed day.
func (d FailedDay) email(app apps.App, dashboard string) ui.Email {
	count := "the only attempt"
	if d.Failed > 1 {
		count = "all " + ui.Count(d.Failed) + " attempts"
	}
	return ui.Email{
		Subject: "Webhooks of “" + app.Name + "” failed for a day",
		Paragraphs: []string{
			fmt.Sprintf("On %s (UTC), %s to deliver events of “%s” to %s failed.", d.Day.Format("2 January 2006"),
				count, app.Name, withoutQuery(d.Endpoint.URL)),
			"We send each event up to seven times in about a day. The page of the endpoint shows each attempt with " +
				"its response. When your server works again, Recover on that page sends the failed events again.",
			onceADay,
		},
		Action: linkFailed(app, d.Endpoint, dashboard),
		Why:    ui.AboutWebhooks,
	}
}

const onceADay = "We email you at most once a day about an endpoint. To end this, repair or disable the endpoint."

// linkFailed leads to the failed deliveries of an endpoint.
func linkFailed(app apps.App, e Endpoint, dashboard string) *ui.Link {
	return &ui.Link{
		Href: dashboard + "/developer/apps/" + app.ID + "/webhooks/" + e.ID + "?status=" + Failed,
		Text: "View failed deliveries",
	}
}

// email writes the report of deliveries that have failed for good.
func (d LostDay) email(app apps.App, dashboard string) ui.Email {
	what := "an event (" + d.EventType + ")"
	if d.Lost > 1 {
		what = ui.Count(d.Lost) + " events, the last of them " + d.EventType + ","
	}
	return ui.Email{
		Subject: "Webhooks of “" + app.Name + "” were not delivered",
		Paragraphs: []string{
			fmt.Sprintf("We have stopped trying to deliver %s of “%s” to %s. We send each event up to seven times in "+
				"about a day.", what, app.Name, withoutQuery(d.Endpoint.URL)),
			"The page of the endpoint shows each attempt with its response. When your server works again, Recover on " +
				"that page sends the failed events again. So does the API.",
			onceADay,
		},
		Action: linkFailed(app, d.Endpoint, dashboard),
		Why:    ui.AboutWebhooks,
	}
}

// withoutQuery returns a URL without what may be secret in it: credentials and the query.
func withoutQuery(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "the endpoint"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return shown.String()
}
