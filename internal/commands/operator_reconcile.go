package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"
)

type reconcileCmd struct {
	Since        string `placeholder:"DATE" help:"List what Stripe has had since this date, such as 2026-11-01."`
	AfterRestore bool   `help:"The database went back in time: no money leaves before the end."`
	NewAccount   bool   `help:"stripe.key is, or will be, of another account or mode of Stripe, on purpose."`
}

// reconcilePause is how long to wait before the node is asked again how far it is.
const reconcilePause = time.Second

// Help is shown by purser operator reconcile --help.
func (reconcileCmd) Help() string {
	return "A node does this once a day. It asks Stripe about payments whose refunds or disputes have not ended, " +
		"lists charges, refunds, disputes and transfers since three days before the last time, and books what " +
		"the books do not have. The command shows how far it is; the node goes on if you end the command. " +
		"--after-restore is for databases that were not restored by purser restore: then automatic top-ups " +
		"are turned off, too. --new-account is for a move to another account or mode of Stripe: from then " +
		"on the customers, cards and payees of the old one count as gone, and balances stay. Run it before the " +
		"nodes get a key of the other mode.\n\n" +
		"Exits with 0 if the books have all that Stripe has, 1 if something could not be booked.\n\n" +
		exampleHelp("reconcile --since 2026-11-01")
}

// A reconciliation is what the command reads of the node's answers.
type reconciliation struct {
	ID, Status, Stage, Error   string
	Compared, Booked, Unbooked int64
}

// Run begins the comparison and waits for its end.
func (a *reconcileCmd) Run(p *program, c *cli) error {
	body := map[string]any{}
	if a.Since != "" {
		since, err := parseDate(a.Since)
		if err != nil {
			return exitError{err, exitUsage}
		}
		body["since"] = since.UTC().Format(time.RFC3339)
	}
	if a.AfterRestore {
		body["after_restore"] = true
	}
	if a.NewAccount {
		body["new_account"] = true
	}
	ctx, stop := interruptContext()
	defer stop()
	text, _, err := c.Operator.send(ctx, p, "POST", "reconciliations", body)
	var r reconciliation
	for last := ""; err == nil; {
		if err = json.Unmarshal(text, &r); err != nil || r.Status == "ended" {
			break
		}
		line := fmt.Sprintf("%s: %d compared, %d booked, %d not booked", r.Stage, r.Compared, r.Booked, r.Unbooked)
		if r.Error != "" {
			line += "; waits: " + r.Error
		}
		if line != last {
			if _, err = fmt.Fprintln(p.err, line); err != nil {
				return err
			}
		}
		last = line
		select {
		case <-time.After(reconcilePause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		text, _, err = c.Operator.send(ctx, p, "GET", "reconciliations/"+url.PathEscape(r.ID), nil)
	}
	if err != nil {
		return err
	}
	if err := printJSON(p, text); err != nil {
		return err
	}
	if r.Unbooked > 0 {
		return fmt.Errorf("%d objects of Stripe could not be booked; the node's log names them", r.Unbooked)
	}
	return nil
}

// parseDate parses a date, or a time.
func parseDate(text string) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errors.New("--since: must be a date such as 2026-11-01")
	}
	return t, nil
}
