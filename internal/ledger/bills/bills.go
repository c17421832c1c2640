// Package bills compares the provider costs of the ledger with the bill of a provider, by model and by day. It changes
// nothing: where they differ, the price list or the provider is wrong, and people decide which.
package bills

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// A Cost is what a model has cost on a day (UTC).
type Cost struct {
	Day      string // 2026-11-23
	Model    string
	AmountMC money.MC
}

// Columns are the names of a bill's columns; "" = found by the usual names.
type Columns struct {
	Day, Model, Amount string
}

// The usual names of columns, in lower case.
var (
	dayNames = []string{"date", "day", "usage_date", "usage_date_utc", "start_time_iso", "start_time",
		"usage_start_time"}
	modelNames  = []string{"model", "model_id", "line_item", "sku", "sku.description", "description"}
	amountNames = []string{"cost", "amount", "cost_usd", "amount_usd", "amount_value", "cost (usd)", "total_cost"}
)

// maxLines bounds a bill.
const maxLines = 1_000_000

// Read reads a bill as CSV with a head. An amount is in dollars, with any number of decimals, and is rounded to a
// micro-cent; it may be negative, as credits are. Errors name the line.
func Read(r io.Reader, named Columns) ([]Cost, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = -1
	lines.TrimLeadingSpace = true
	head, err := lines.Read()
	if err != nil {
		return nil, fmt.Errorf("read the head of the bill: %w", err)
	}
	day, err := findColumn(head, "day", named.Day, dayNames)
	if err != nil {
		return nil, err
	}
	model, err := findColumn(head, "model", named.Model, modelNames)
	if err != nil {
		return nil, err
	}
	amount, err := findColumn(head, "amount", named.Amount, amountNames)
	if err != nil {
		return nil, err
	}
	var list []Cost
	for {
		fields, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the bill: %w", err)
		}
		if len(list) == maxLines {
			return nil, fmt.Errorf("the bill has more than %d lines", maxLines)
		}
		line, _ := lines.FieldPos(0)
		if len(fields) <= max(day, model, amount) {
			return nil, fmt.Errorf("line %d: %d columns are too few", line, len(fields))
		}
		c := Cost{Model: strings.ToLower(strings.TrimSpace(fields[model]))}
		if c.Day, err = parseDay(fields[day]); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if c.AmountMC, err = parseAmount(fields[amount]); err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		list = append(list, c)
	}
}

// findColumn returns the index of a column.
func findColumn(head []string, what, named string, usual []string) (int, error) {
	at := slices.IndexFunc(head, func(name string) bool {
		name = strings.ToLower(strings.Trim(name, "\ufeff \t"))
		if named != "" {
			return name == strings.ToLower(named)
		}
		return slices.Contains(usual, name)
	})
	if at < 0 {
		return 0, fmt.Errorf("no column is the %s; name it by --%s-column: the bill has %s", what, what,
			strings.Join(head, ", "))
	}
	return at, nil
}

func parseDay(text string) (string, error) {
	text = strings.TrimSpace(text)
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC().Format(time.DateOnly), nil
	}
	day, _, _ := strings.Cut(text, " ")
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		return "", fmt.Errorf("%q does not begin with a date such as 2026-11-23", text)
	}
	return day, nil
}

// parseAmount rounds half away from zero.
func parseAmount(text string) (money.MC, error) {
	text = strings.TrimPrefix(strings.ReplaceAll(strings.TrimSpace(text), ",", ""), "$")
	r, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 40 {
		return 0, fmt.Errorf("%q is not an amount in dollars", text)
	}
	r.Mul(r, new(big.Rat).SetInt64(int64(money.Dollar)))
	whole, ok := new(big.Int).SetString(r.FloatString(0), 10)
	if !ok || !whole.IsInt64() || whole.CmpAbs(big.NewInt(int64(money.Max))) > 0 {
		return 0, fmt.Errorf("%q is more than an amount can be", text)
	}
	return money.MC(whole.Int64()), nil
}

// A Difference is one model, in all or on a day, in ledger and bill.
type Difference struct {
	Day              string // "" = all days
	Model            string
	LedgerMC, BillMC money.MC
	Exceeds          bool // by more than the tolerance
}

// MC is the bill less the ledger: what the provider charged more than we did.
func (d Difference) MC() money.MC { return d.BillMC - d.LedgerMC }

// smallest is the difference that is always tolerated: a provider may round each line of its bill to a cent.
const smallest = money.Dollar / 100

// Compare compares costs of the ledger with lines of a bill: a line for each model, with the largest first, and one for
// each day of a model that differs by more than tolerance. The model of a bill's line is that of
// the ledger whose name is its longest beginning; another one stands for itself.
func Compare(ledger, bill []Cost, tolerance money.PPM) (models, days []Difference) {
	known := map[string]bool{}
	for _, c := range ledger {
		known[c.Model] = true
	}
	byModel, byDay := map[string]*Difference{}, map[[2]string]*Difference{}
	add := func(day, model string, ledgerMC, billMC money.MC) {
		m, d := byModel[model], byDay[[2]string{day, model}]
		if m == nil {
			m = &Difference{Model: model}
			byModel[model] = m
		}
		if d == nil {
			d = &Difference{Day: day, Model: model}
			byDay[[2]string{day, model}] = d
		}
		for _, sum := range []*Difference{m, d} {
			sum.LedgerMC += ledgerMC
			sum.BillMC += billMC
		}
	}
	for _, c := range ledger {
		add(c.Day, c.Model, c.AmountMC, 0)
	}
	for _, c := range bill {
		add(c.Day, matchModel(c.Model, known), 0, c.AmountMC)
	}
	for _, d := range byModel {
		d.Exceeds = exceeds(*d, tolerance)
		models = append(models, *d)
	}
	for _, d := range byDay {
		if d.Exceeds = exceeds(*d, tolerance); d.Exceeds {
			days = append(days, *d)
		}
	}
	slices.SortFunc(models, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(abs(b.MC()), abs(a.MC())), cmp.Compare(a.Model, b.Model))
	})
	slices.SortFunc(days, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Model, b.Model))
	})
	return models, days
}

// matchModel returns the longest known name that a bill's name begins with, and that ends there or at a sign that is
// no letter or dot: gpt-6-luna for "gpt-6-luna-2026-08-01, input".
func matchModel(name string, known map[string]bool) string {
	best := ""
	for id := range known {
		rest, ok := strings.CutPrefix(name, strings.ToLower(id))
		if !ok || len(id) <= len(best) {
			continue
		}
		if rest == "" || rest[0] == ',' || rest[0] == ' ' || rest[0] == '@' || isDated(rest) {
			best = id
		}
	}
	return cmp.Or(best, name)
}

// isDated reports whether what follows a model's name is a date: -2026-08-01, -20260801.
func isDated(rest string) bool {
	return len(rest) > 4 && rest[0] == '-' && strings.HasPrefix(rest[1:], "20")
}

// exceeds reports whether the difference is more than a share of the larger amount, and more than a cent.
func exceeds(d Difference, tolerance money.PPM) bool {
	larger := max(abs(d.LedgerMC), abs(d.BillMC))
	limit := new(big.Int).Mul(big.NewInt(int64(larger)), big.NewInt(int64(tolerance)))
	limit.Quo(limit, big.NewInt(int64(money.One)))
	return abs(d.MC()) > smallest && big.NewInt(int64(abs(d.MC()))).Cmp(limit) > 0
}

func abs(m money.MC) money.MC { return max(m, -m) }
