package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/bills"
	"github.com/purserhq/purser/internal/models/catalog"
)

type pricesCmd struct {
	Check checkPricesCmd `cmd:"" help:"Check a file of prices, and compare it with those in force."`

	Bill billCmd `cmd:"" help:"Compare a month's costs in the ledger with a provider's bill."`
}

type billCmd struct {
	databaseFlags
	File         string `arg:"" help:"The bill as CSV with a head: days, models and costs in dollars."`
	Month        string `required:"" placeholder:"YYYY-MM" help:"The month to compare, in UTC."`
	Provider     string `placeholder:"NAME" help:"Only the models of this provider, such as openai."`
	Tolerance    string `default:"0.005" help:"The share by which a model may differ, such as 0.005."`
	DayColumn    string `placeholder:"NAME" help:"The column of days, if its name is not a usual one."`
	ModelColumn  string `placeholder:"NAME" help:"The column of models."`
	AmountColumn string `placeholder:"NAME" help:"The column of costs in dollars."`
}

// Help is shown by purser prices bill --help.
func (billCmd) Help() string {
	return "Sums what live calls have cost by the price list, and what the provider charged, by model and by day. A " +
		"line of the bill counts for the model whose name it begins with. It changes nothing, and works while the " +
		"server runs.\n\nExits with 0 if all models agree, 1 if one differs by more than the tolerance and a cent, 2 " +
		"when it could not run.\n\nExample:\n" +
		"  purser prices bill --config purser.yaml --provider openai --month 2026-10 costs.csv"
}

// Run compares. The exit code says whether a model differs.
func (c *billCmd) Run(p *program) error {
	from, err := time.Parse("2006-01", c.Month)
	if err != nil {
		return exitError{fmt.Errorf("--month: %q is not a month such as 2026-10", c.Month), exitUsage}
	}
	tolerance, err := money.ParseRate(c.Tolerance)
	if err != nil {
		return exitError{fmt.Errorf("--tolerance: %w", err), exitUsage}
	}
	settings, err := c.settings(p)
	if err != nil {
		return err
	}
	bill, err := c.readBill(from)
	if err != nil {
		return exitError{err, exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	ledger, err := readCosts(ctx, settings.Database, from)
	if err != nil {
		return exitError{err, exitUsage}
	}
	if c.Provider != "" {
		if ledger, err = ofProvider(ledger, c.Provider, settings.PricesFile); err != nil {
			return exitError{err, exitUsage}
		}
	}
	models, days := bills.Compare(ledger, bill, tolerance)
	if err := printBill(p.out, models, days); err != nil {
		return err
	}
	for _, m := range models {
		if m.Exceeds {
			return exitError{nil, exitFailed}
		}
	}
	return nil
}

// readBill reads the lines of the month.
func (c *billCmd) readBill(month time.Time) ([]bills.Cost, error) {
	f, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := bills.Read(f, bills.Columns{Day: c.DayColumn, Model: c.ModelColumn, Amount: c.AmountColumn})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	var list []bills.Cost
	for _, line := range all {
		if line.Day[:len("2026-10")] == month.Format("2006-01") {
			list = append(list, line)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no line is of %s", c.File, month.Format("2006-01"))
	}
	return list, nil
}

func readCosts(ctx context.Context, url string, month time.Time) (list []bills.Cost, err error) {
	d, err := db.OpenReadOnly(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return bills.ReadLedger(ctx, d, month, month.AddDate(0, 1, 0))
}

// ofProvider returns the costs of a provider's models, by the price list and the operator's own
// file; "" = none. A model that is in neither any more counts for each provider.
func ofProvider(costs []bills.Cost, provider, pricesFile string) (list []bills.Cost, err error) {
	source, err := catalog.Open(pricesFile, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	providers := map[string]string{}
	for _, m := range source.Current().All() {
		providers[m.Model.ID] = m.Model.Provider
	}
	for _, c := range costs {
		if of := providers[c.Model]; of == "" || of == provider {
			list = append(list, c)
		}
	}
	return list, nil
}

func printBill(w io.Writer, models, days []bills.Difference) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "model\tledger\tbill\tdifference\t\t\n")
	for _, d := range models {
		printDifference(table, d.Model, d)
	}
	if len(days) > 0 {
		fmt.Fprint(table, "\t\t\t\t\t\n")
	}
	for _, d := range days {
		printDifference(table, d.Day+" "+d.Model, d)
	}
	return table.Flush()
}

func printDifference(w io.Writer, name string, d bills.Difference) {
	mark := ""
	if d.Exceeds {
		mark = "differs"
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", name, d.LedgerMC.Display(), d.BillMC.Display(), d.MC().Display(), mark)
}
