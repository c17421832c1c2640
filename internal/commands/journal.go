package commands

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/journal"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

type journalCmd struct {
	databaseFlags
	Month   string `placeholder:"YYYY-MM" help:"The month, in UTC; default: the last one that is over."`
	Rounded bool   `help:"One entry in whole cents for the month, with a posting for the rounding."`
}

// Help is shown by purser ledger journal --help.
func (journalCmd) Help() string {
	return "Prints the ledger as accountants keep books, as CSV: each row as postings whose debits and credits are " +
		"equal, to the micro-cent, or with --rounded the month as one entry in whole cents. Test accounts are left " +
		"out. It changes nothing, and works while the server runs.\n\nExample:\n  purser ledger journal --config " +
		"purser.yaml --month 2026-11 >journal-2026-11.csv"
}

// Run prints the journal of a month.
func (c *journalCmd) Run(p *program) error {
	from, err := c.readMonth(time.Now())
	if err != nil {
		return exitError{err, exitUsage}
	}
	database, err := c.find(p)
	if err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	d, err := db.OpenReadOnly(ctx, database)
	if err != nil {
		return err
	}
	out := csv.NewWriter(p.out)
	write := printJournal
	if c.Rounded {
		write = printRoundedJournal
	}
	err = d.InSnapshot(ctx, func(ctx context.Context, tx *db.Tx) error { return write(ctx, tx, from, out) })
	out.Flush()
	return errors.Join(err, out.Error(), d.Close())
}

// readMonth returns the first moment of the month.
func (c *journalCmd) readMonth(now time.Time) (time.Time, error) {
	if c.Month == "" {
		now = now.UTC()
		return time.Date(now.Year(), now.Month()-1, 1, 0, 0, 0, 0, time.UTC), nil
	}
	from, err := time.Parse("2006-01", c.Month)
	if err != nil {
		return from, errors.New("--month: must be a month such as 2026-11")
	}
	return from, nil
}

// printJournal prints a line for each posting of each row.
func printJournal(ctx context.Context, tx *db.Tx, from time.Time, out *csv.Writer) error {
	head := []string{"time", "entry", "account", "debit_mc", "credit_mc", "user", "app", "text"}
	if err := out.Write(head); err != nil {
		return err
	}
	write := func(list []journal.Posting, us int64, entry, user, app, text string) error {
		at := time.UnixMicro(us).UTC().Format(time.RFC3339)
		for _, posting := range list {
			debit, credit := splitPosting(posting, func(mc money.MC) string { return strconv.FormatInt(int64(mc), 10) })
			err := out.Write([]string{at, entry, string(posting.Account), debit, credit, user, app, text})
			if err != nil {
				return err
			}
		}
		return nil
	}
	to := from.AddDate(0, 1, 0)
	err := store.EachRealEntry(ctx, tx, from, to, func(e *store.JournalRow) error {
		list, err := journal.Post(&e.Entry, causeOf(e))
		if err != nil {
			return err
		}
		return write(list, e.CreatedUS, e.ID, e.AccountID, e.AppID, journal.Describe(&e.Entry, causeOf(e)))
	})
	if err != nil {
		return err
	}
	return store.EachMarginRecord(ctx, tx, from, to, func(r *rules.MarginRecord) error {
		text := journal.DescribeMargin(r)
		return write(journal.PostMargin(r), r.CreatedUS, r.Subject, r.DeveloperID, r.AppID, text)
	})
}

// printRoundedJournal prints the month as one entry in dollars and cents, with the exact sums of each account.
func printRoundedJournal(ctx context.Context, tx *db.Tx, from time.Time, out *csv.Writer) error {
	totals := journal.Totals{}
	err := store.EachRealEntry(ctx, tx, from, from.AddDate(0, 1, 0), func(e *store.JournalRow) error {
		list, err := journal.Post(&e.Entry, causeOf(e))
		totals.Add(list)
		return err
	})
	if err == nil {
		err = store.EachMarginRecord(ctx, tx, from, from.AddDate(0, 1, 0), func(r *rules.MarginRecord) error {
			totals.Add(journal.PostMargin(r))
			return nil
		})
	}
	if err != nil {
		return err
	}
	if err := out.Write([]string{"date", "account", "debit_usd", "credit_usd", "debit_mc", "credit_mc"}); err != nil {
		return err
	}
	day := from.AddDate(0, 1, -1).Format(time.DateOnly)
	for _, line := range totals.Lines() {
		debit, credit := splitPosting(journal.Posting{Account: line.Account, AmountMC: line.RoundedMC}, formatCents)
		if err := out.Write([]string{day, string(line.Account), debit, credit,
			strconv.FormatInt(int64(line.DebitMC), 10), strconv.FormatInt(int64(line.CreditMC), 10)}); err != nil {
			return err
		}
	}
	return nil
}

func causeOf(r *store.JournalRow) journal.Cause {
	return journal.Cause{Goodwill: r.Goodwill, MarginMC: r.MarginMC}
}

// splitPosting writes an amount as a debit or as a credit.
func splitPosting(p journal.Posting, format func(money.MC) string) (debit, credit string) {
	switch {
	case p.AmountMC > 0:
		return format(p.AmountMC), ""
	case p.AmountMC < 0:
		return "", format(-p.AmountMC)
	}
	return "", ""
}

func formatCents(mc money.MC) string {
	return fmt.Sprintf("%d.%02d", mc/money.Dollar, mc%money.Dollar/money.Cent)
}
