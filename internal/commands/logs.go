package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

type logsCmd struct {
	appFlags
	Follow     bool          `short:"f" help:"Go on with new requests until you stop it."`
	Lines      int           `short:"n" default:"50" placeholder:"N" help:"How many to show first (default: 50)."`
	Status     string        `placeholder:"STATUS" help:"An HTTP status, such as 402, or a class, such as 4xx."`
	Model      string        `placeholder:"MODEL" help:"Only calls of a model."`
	Feature    string        `placeholder:"SLUG" help:"Only calls of a feature."`
	Connection string        `placeholder:"ID" help:"Only calls of a connection."`
	Since      time.Duration `placeholder:"TIME" help:"Nothing older, such as 1h or 15m."`
	JSON       bool          `name:"json" help:"Print a line of JSON for each request, as the API has it."`
	Every      time.Duration `default:"1s" hidden:""`
}

// Help is shown by purser logs --help.
func (logsCmd) Help() string {
	return `Shows the calls of an app, billed and refused, and refunds, the newest last. A call is shown once it
is settled or refused.

` + appHelp + `

Example:
  purser logs --follow --status 4xx --since 1h`
}

// loggedRequest is a row of an app's request log.
type loggedRequest struct {
	ID                string   `json:"id"`
	Status            string   `json:"status"`
	HTTPStatus        *int     `json:"http_status"`
	Code              string   `json:"code"`
	ConnectionID      string   `json:"connection_id"`
	CreatedAt         string   `json:"created_at"`
	Model             string   `json:"model"`
	Feature           string   `json:"feature"`
	UserChargeMC      money.MC `json:"user_charge_mc"`
	UserChargeDisplay string   `json:"user_charge_display"`
	DevMarginMC       money.MC `json:"dev_margin_mc"`
}

// maxLogPages bounds how many pages are read for what is shown first. With filters a page may be empty.
const maxLogPages = 20

// lookBack is how far a follower looks back: a call is listed where it began, once it is settled.
const lookBack = 10 * time.Minute

// Run prints the requests.
func (c *logsCmd) Run(p *program) error {
	if c.Lines < 0 || c.Since < 0 {
		return exitError{errors.New("--lines and --since must not be negative"), exitUsage}
	}
	client, err := c.newClient(p)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	return c.tail(ctx, p, client)
}

// tail prints the newest requests, and then the new ones if it follows.
func (c *logsCmd) tail(ctx context.Context, p *program, client *appClient) error {
	started := time.Now()
	rows, err := c.newest(ctx, client)
	if err != nil {
		return wrapUsage(err)
	}
	seen := map[string]bool{}
	for _, raw := range rows {
		seen[idOf(raw)] = true
	}
	if err := c.print(p, rows[:min(c.Lines, len(rows))]); err != nil || !c.Follow {
		return err
	}
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for round := 1; ; round++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		since := time.Now().Add(-lookBack)
		if since.Before(started) {
			since = started.Add(-lookBack)
		}
		fresh, err := c.unseen(ctx, client, since, seen, round%10 == 0)
		if refusal, ok := errors.AsType[apiError](err); ok && refusal.isPermanent() {
			return err
		} else if err != nil && ctx.Err() == nil {
			fmt.Fprintln(p.err, "purser:", err)
		}
		if err := c.print(p, fresh); err != nil {
			return err
		}
	}
}

// wrapUsage makes a filter that the service does not accept a wrong usage.
func wrapUsage(err error) error {
	if refusal, ok := errors.AsType[apiError](err); ok && refusal.status == 400 {
		return exitError{errors.New("--" + refusal.message), exitUsage}
	}
	return err
}

// newest returns the newest requests, newest first: enough for the lines to show.
func (c *logsCmd) newest(ctx context.Context, client *appClient) (rows []json.RawMessage, err error) {
	var since time.Time
	if c.Since > 0 {
		since = time.Now().Add(-c.Since)
	}
	next := c.firstPage(client, since)
	for page := 0; next != "" && len(rows) < max(c.Lines, 1) && page < maxLogPages; page++ {
		var list []json.RawMessage
		if next, err = client.list(ctx, next, "list of requests", &list); err != nil {
			return nil, err
		}
		rows = append(rows, list...)
	}
	return rows, nil
}

// unseen returns the requests since a time that are not in seen, newest first, and adds them to it. It stops at a
// page that has none, unless it reads all.
func (c *logsCmd) unseen(ctx context.Context, client *appClient, since time.Time, seen map[string]bool,
	all bool) (fresh []json.RawMessage, err error) {
	next := c.firstPage(client, since)
	for next != "" {
		var list []json.RawMessage
		if next, err = client.list(ctx, next, "list of requests", &list); err != nil {
			return fresh, err
		}
		found := len(fresh)
		for _, raw := range list {
			if id := idOf(raw); !seen[id] {
				seen[id] = true
				fresh = append(fresh, raw)
			}
		}
		if len(fresh) == found && !all {
			break
		}
	}
	return fresh, nil
}

// firstPage returns the path of the first page of the requests that the flags choose.
func (c *logsCmd) firstPage(client *appClient, since time.Time) string {
	q := url.Values{"limit": {"100"}}
	for name, value := range map[string]string{
		"status":     c.Status,
		"model":      c.Model,
		"feature":    c.Feature,
		"connection": c.Connection,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if !since.IsZero() {
		q.Set("since", since.UTC().Format(time.RFC3339))
	}
	return client.appPath + "/requests?" + q.Encode()
}

func idOf(raw json.RawMessage) string {
	var row struct{ ID string }
	_ = json.Unmarshal(raw, &row) // it was decoded before
	return row.ID
}

// print prints requests, the last of the list first.
func (c *logsCmd) print(p *program, newestFirst []json.RawMessage) error {
	for _, raw := range slices.Backward(newestFirst) {
		if c.JSON {
			if _, err := fmt.Fprintln(p.out, string(raw)); err != nil {
				return err
			}
			continue
		}
		var row loggedRequest
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("a request that is none: %w", err)
		}
		if _, err := fmt.Fprintln(p.out, row.line()); err != nil {
			return err
		}
	}
	return nil
}

// line is what a person reads of a request.
func (r loggedRequest) line() string {
	at := r.CreatedAt
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		at = t.Local().Format(time.DateTime)
	}
	status, what := "-", r.Status
	if r.HTTPStatus != nil {
		status = strconv.Itoa(*r.HTTPStatus)
	}
	if r.Code != "" {
		what = r.Code
	}
	charge := r.UserChargeDisplay
	if r.Status == "refused" {
		charge = "-"
	}
	return strings.TrimRight(fmt.Sprintf("%s  %-3s %-24s %-20s %-14s %12s  %s  %s", at, status, what,
		cmp.Or(r.Model, "-"), cmp.Or(r.Feature, "-"), charge, r.ConnectionID, r.ID), " ")
}
