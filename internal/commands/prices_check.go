package commands

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/catalog"
)

type checkPricesCmd struct {
	File      string `arg:"" optional:"" help:"The file of prices to check."`
	Before    string `placeholder:"FILE" help:"The file of prices in force; otherwise the built-in prices."`
	List      string `placeholder:"FILE" help:"A provider's price list to compare with: CSV or JSON."`
	Tolerance string `default:"0.005" help:"The share by which a price may differ from the list's (default: 0.005)."`
}

// Help is shown by purser prices check --help.
func (checkPricesCmd) Help() string {
	return "Reads a file of prices as a node would, and names each fault with its line. A right one is compared with " +
		"the prices in force: models that come and go, and each price that changes, today or on a later " +
		"day, in dollars per million tokens.\n\nWith --list, the prices of today are compared with a list that you " +
		"bring: CSV with the columns model, input, cached, cache_write and output in dollars per million tokens, " +
		"or a JSON object of models with input_cost_per_token and the like, as LiteLLM publishes one.\n\nExits " +
		"with 0 if the file is right and no price differs from the list, 1 if not, 2 if a file cannot be " +
		"read.\n\nExamples:\n" +
		"  purser prices check new.yaml --before /etc/purser/prices.yaml\n" +
		"  purser prices check --list openai.csv"
}

// Run checks and compares.
func (c *checkPricesCmd) Run(p *program) error {
	before, err := catalog.Open(c.Before, slog.New(slog.DiscardHandler))
	if err != nil {
		return exitError{err, exitUsage}
	}
	if c.File == "" && c.List == "" {
		return exitError{errors.New("name a file of prices, or --list"), exitUsage}
	}
	prices := before.Current()
	if c.File != "" {
		text, err := os.ReadFile(c.File)
		if err != nil {
			return exitError{err, exitUsage}
		}
		if err = catalog.CheckEnd(text); err == nil {
			prices, err = before.Builtin().With(text)
		}
		if err != nil {
			return exitError{fmt.Errorf("%s: %w", c.File, err), exitFailed}
		}
		if _, err := fmt.Fprintf(p.out, "%s is right: %s\n", c.File, prices.Version()); err != nil {
			return err
		}
		if err := printPriceChanges(p.out, before.Current(), prices, time.Now()); err != nil {
			return err
		}
	}
	if c.List == "" {
		return nil
	}
	tolerance, err := money.ParseRate(c.Tolerance)
	if err != nil {
		return exitError{fmt.Errorf("--tolerance: %w", err), exitUsage}
	}
	text, err := os.ReadFile(c.List)
	if err != nil {
		return exitError{err, exitUsage}
	}
	list, err := readPriceList(text)
	if err != nil {
		return exitError{fmt.Errorf("%s: %w", c.List, err), exitUsage}
	}
	return compareWithList(p.out, prices, list, tolerance, time.Now())
}

// printPriceChanges prints what differs between two price lists from a time on: today, and on each later day on which
// a price of either begins or ends, or a model retires.
func printPriceChanges(out io.Writer, before, after *catalog.Catalog, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	models := modelIDs(before, after)
	said := map[string][]string{} // by model, as of the day before
	changes := 0
	for i, day := range priceDays(now, before, after) {
		from := ""
		if i > 0 {
			from = "\tfrom " + day.UTC().Format(time.DateOnly)
		}
		for _, id := range models {
			lines := compareModel(id, before, after, day)
			if slices.Equal(lines, said[id]) {
				continue
			}
			said[id] = lines
			if len(lines) == 0 {
				lines = []string{"as before\t\t"}
			}
			for _, line := range lines {
				changes++
				_, _ = fmt.Fprintf(table, "%s\t%s%s\n", id, line, from) // Flush tells
			}
		}
	}
	if changes == 0 {
		_, _ = fmt.Fprintln(table, "No price changes.") // Flush tells
	}
	return table.Flush()
}

// modelIDs returns the models of the price lists, each once, in their order.
func modelIDs(lists ...*catalog.Catalog) (ids []string) {
	for _, list := range lists {
		for _, m := range list.All() {
			if !slices.Contains(ids, m.Model.ID) {
				ids = append(ids, m.Model.ID)
			}
		}
	}
	return ids
}

// priceDays returns now and the later times at which the price lists change, in order.
func priceDays(now time.Time, lists ...*catalog.Catalog) []time.Time {
	days := []time.Time{now}
	add := func(t time.Time) {
		if t.After(now) {
			days = append(days, t)
		}
	}
	for _, list := range lists {
		for _, m := range list.All() {
			if m.Model.RetiresAt != nil {
				add(*m.Model.RetiresAt)
			}
			for _, p := range m.Periods {
				add(p.From)
				add(p.To)
			}
		}
	}
	slices.SortFunc(days, time.Time.Compare)
	return slices.CompactFunc(days, time.Time.Equal)
}

// compareModel returns a line of three cells for each price of a model that differs at a time.
func compareModel(id string, before, after *catalog.Catalog, at time.Time) []string {
	_, was, had := before.Find(id, at)
	_, is, has := after.Find(id, at)
	switch {
	case had && has:
		return compareRates(was, is)
	case had:
		return []string{"goes\t\t"}
	case has:
		first := is.Steps[0]
		return []string{fmt.Sprintf("comes\tinput %s, output %s\t", first.Input.Display(), first.Output.Display())}
	}
	return nil
}

// compareRates returns a line for each price that differs.
func compareRates(was, is catalog.Rates) (lines []string) {
	sameStep := func(a, b catalog.Step) bool { return a.AboveInput == b.AboveInput }
	if !slices.EqualFunc(was.Steps, is.Steps, sameStep) || (was.Voice == nil) != (is.Voice == nil) {
		return []string{fmt.Sprintf("prices\t%s -> %s\t", describeSteps(was), describeSteps(is))}
	}
	for i := range is.Steps {
		a, b := was.Steps[i], is.Steps[i]
		above := ""
		if a.AboveInput > 0 {
			above = fmt.Sprintf(" above %d", a.AboveInput)
		}
		lines = appendChange(lines, "input"+above, a.Input, b.Input)
		lines = appendChange(lines, "cached"+above, a.Cached, b.Cached)
		lines = appendChange(lines, "cache_write"+above, a.CacheWrite, b.CacheWrite)
		lines = appendChange(lines, "output"+above, a.Output, b.Output)
	}
	if a, b := was.Voice, is.Voice; a != nil {
		lines = appendChange(lines, "audio_input", a.AudioInput, b.AudioInput)
		lines = appendChange(lines, "audio_cached", a.AudioCached, b.AudioCached)
		lines = appendChange(lines, "audio_output", a.AudioOutput, b.AudioOutput)
		lines = appendChange(lines, "image_input", a.ImageInput, b.ImageInput)
		lines = appendChange(lines, "image_cached", a.ImageCached, b.ImageCached)
	}
	return lines
}

// describeSteps returns input and output of each step, for price lists whose steps are not the same.
func describeSteps(r catalog.Rates) string {
	var steps []string
	for _, s := range r.Steps {
		text := s.Input.Display() + "/" + s.Output.Display()
		if s.AboveInput > 0 {
			text += fmt.Sprintf(" above %d", s.AboveInput)
		}
		steps = append(steps, text)
	}
	if r.Voice != nil {
		steps = append(steps, "with audio")
	}
	return strings.Join(steps, ", ")
}

// appendChange appends the line of a price, if it differs.
func appendChange(lines []string, name string, was, is money.MC) []string {
	if was == is {
		return lines
	}
	share := ""
	if was > 0 {
		share = fmt.Sprintf("%+.1f %%", 100*float64(is-was)/float64(was)) // for people
	}
	return append(lines, fmt.Sprintf("%s\t%s -> %s\t%s", name, was.Display(), is.Display(), share))
}
