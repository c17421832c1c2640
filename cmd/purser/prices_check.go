package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

type checkPricesCmd struct {
	File   string `arg:"" help:"The file of prices to check."`
	Before string `placeholder:"FILE" help:"The file of prices in force; otherwise the built-in prices."`
}

// Help is shown by purser prices check --help.
func (checkPricesCmd) Help() string {
	return "Reads a file of prices as a node would, and names each fault with its line. A right one is compared with " +
		"the prices in force: models that come and go, and each price that changes today, in dollars per million " +
		"tokens.\n\nExits with 0 if the file is right, 1 if not, 2 if a file cannot be read.\n\nExample:\n" +
		"  purser prices check new.yaml --before /etc/purser/prices.yaml"
}

// Run checks and compares.
func (c *checkPricesCmd) Run(p *program) error {
	before, err := catalog.Open(c.Before, slog.New(slog.DiscardHandler))
	if err != nil {
		return exitError{err, exitUsage}
	}
	text, err := os.ReadFile(c.File)
	if err != nil {
		return exitError{err, exitUsage}
	}
	after, err := before.Builtin().With(text)
	if err != nil {
		return exitError{fmt.Errorf("%s: %w", c.File, err), exitFailed}
	}
	if _, err := fmt.Fprintf(p.out, "%s is right: %s\n", c.File, after.Version()); err != nil {
		return err
	}
	return printPriceChanges(p.out, before.Current(), after, time.Now())
}

// printPriceChanges prints what differs between two price lists at a time.
func printPriceChanges(out io.Writer, before, after *catalog.Catalog, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	changes := 0
	add := func(format string, args ...any) {
		changes++
		_, _ = fmt.Fprintf(table, format+"\n", args...) // Flush tells
	}
	for _, m := range before.All() {
		if _, _, ok := after.Find(m.Model.ID, now); !ok {
			if _, _, had := before.Find(m.Model.ID, now); had {
				add("%s\tgoes", m.Model.ID)
			}
		}
	}
	for _, m := range after.All() {
		_, is, ok := after.Find(m.Model.ID, now)
		_, was, had := before.Find(m.Model.ID, now)
		switch {
		case ok && !had:
			first := is.Steps[0]
			add("%s\tcomes\t\tinput %s, output %s", m.Model.ID, first.Input.Display(), first.Output.Display())
		case ok && had:
			compareSteps(m.Model.ID, was.Steps, is.Steps, add)
		}
	}
	if changes == 0 {
		add("No price changes today.")
	}
	return table.Flush()
}

// compareSteps adds each price that differs.
func compareSteps(model string, was, is []catalog.Step, add func(string, ...any)) {
	if len(was) != len(is) {
		add("%s\thas %d steps of prices, and had %d", model, len(is), len(was))
		return
	}
	for i := range is {
		for _, price := range []struct {
			name       string
			before, to money.MC
		}{
			{"input", was[i].Input, is[i].Input}, {"cached", was[i].Cached, is[i].Cached},
			{"cache_write", was[i].CacheWrite, is[i].CacheWrite}, {"output", was[i].Output, is[i].Output},
		} {
			if price.before == price.to {
				continue
			}
			share := ""
			if price.before > 0 {
				share = fmt.Sprintf("%+.1f %%", 100*float64(price.to-price.before)/float64(price.before)) // for people
			}
			add("%s\t%s\t%s -> %s\t%s", model, price.name, price.before.Display(), price.to.Display(), share)
		}
	}
}
