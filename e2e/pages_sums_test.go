package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A shownTable is a table of a page. Its name is its id, or else its first head.
type shownTable struct {
	Name  string
	Heads []string
	Rows  [][]shownCell
}

// A shownCell has the text of a cell and, in tables of charts, its exact number: micro-cents or a count.
type shownCell struct{ Text, Value string }

// shownFigures are the tables of the page and its figures, each as its label and then its value.
type shownFigures struct {
	Tiles  []string
	Tables []shownTable
}

const readFigures = `(() => {
	const clean = (e) => e.textContent.replace(/\s+/g, " ").trim();
	return {
		Tiles: [...document.querySelectorAll("dl > div, .tile")].map(clean),
		Tables: [...document.querySelectorAll("table")].map((table) => ({
			Name: table.id || clean(table.querySelector("th")),
			Heads: [...table.querySelectorAll("thead th")].map(clean),
			Rows: [...table.querySelectorAll("tbody tr")].map((row) =>
				[...row.children].map((cell) => ({ Text: clean(cell), Value: cell.dataset.value || "" }))),
		})),
	};
})()`

// column returns the cells under a head.
func (f *shownFigures) column(name, head string) (cells []shownCell, err error) {
	for _, table := range f.Tables {
		for i, h := range table.Heads {
			if table.Name != name || h != head {
				continue
			}
			for _, row := range table.Rows {
				cells = append(cells, row[i])
			}
			return cells, nil
		}
	}
	return nil, fmt.Errorf("no column %q of a table %q", head, name)
}

// sum adds a column up as the page shows its total. Charts have exact numbers. In other tables the amounts
// are shares of the total that the page shows, so what is shown adds up.
func sum(cells []shownCell) (total int64, isMoney, exact bool, err error) {
	for _, c := range cells {
		isMoney = isMoney || strings.Contains(c.Text, "$")
		exact = exact || c.Value != ""
	}
	for _, c := range cells {
		text := strings.NewReplacer("$", "", ",", "", "−", "-").Replace(c.Text)
		var n int64
		switch {
		case exact:
			n, err = strconv.ParseInt(c.Value, 10, 64)
		case isMoney:
			var mc money.MC
			mc, err = money.Parse(text)
			n = int64(mc)
		default:
			n, err = strconv.ParseInt(text, 10, 64)
		}
		if err != nil {
			return 0, false, false, err
		}
		total += n
	}
	return total, isMoney, exact, nil
}

// TestPagesAddUp adds up the parts that pages show of sixty days of calls: they make the totals of the same page.
func TestPagesAddUp(t *testing.T) {
	testkit.Long(t, "sixty days of calls; packages dashboard, usage and operatorpages prove sums")
	t.Parallel()
	p := servertest.Start(t, "", "--empty=false", "--history=60d")
	app := "/developer/apps/" + p.App.ID
	calls := []string{"calls-table Calls", "Feature Calls", "Model Calls"}
	spent := []string{"by-day-table Spent", "Feature Spent", "Model Spent"}
	margin := []string{"by-day-table Your margin", "Feature Your margin", "Model Your margin"}
	for _, visitor := range []struct {
		login sample.Login
		pages map[string]map[string][]string // totals of a page by their label, and the columns that make them
	}{
		{p.TestAccount, map[string]map[string][]string{
			"/dashboard":         {"Spent, last 30 days": append([]string{"App Spent"}, spent...)},
			"/dashboard?days=1":  {"Spent, last 24 hours": append([]string{"App Spent"}, spent...)},
			"/dashboard?days=90": {"Spent, last 90 days": append([]string{"App Spent"}, spent...)},
		}},
		{p.Developer, map[string]map[string][]string{
			app: {"Spent by users": spent[:1], "Your margin": margin[:1]},
			app + "/analytics": {
				"Spent by users": spent,
				"Your margin":    margin,
				"Calls":          calls[1:],
			},
			app + "/analytics?by=feature&days=90": {
				"Spent by users": spent,
				"Your margin":    margin[1:],
				"Calls":          calls[1:],
			},
			app + "/analytics?by=model&days=7": {
				"Spent by users": spent,
				"Your margin":    margin[1:],
				"Calls":          calls[1:],
			},
			app + "/analytics?tab=usage": {"Calls": calls},
		}},
		{p.Operator, map[string]map[string][]string{
			"/operator": {
				"Fees earned, 30 days":   {"volume-table Fees"},
				"Provider cost, 30 days": {"volume-table Provider cost"},
			},
		}},
	} {
		b := newTab(t, p.BaseURL)
		b.open(p.DashboardURL + "/dashboard")
		b.signIn(visitor.login.Email, visitor.login.Password)
		for path, totals := range visitor.pages {
			b.open(p.DashboardURL + path)
			for strings.Contains(b.text(), "Figures are being computed") { // by a job; the tab's own limit ends it
				time.Sleep(50 * time.Millisecond)
				b.open(p.DashboardURL + path)
			}
			figures := run(b, chromedp.Evaluate[shownFigures](readFigures))
			figures.checkTotals(t, path, totals)
			figures.checkStacks(t, path)
		}
	}
}

// checkTotals compares the sums of columns with the totals of the page.
func (f *shownFigures) checkTotals(t *testing.T, path string, totals map[string][]string) {
	t.Helper()
	for label, columns := range totals {
		for _, column := range columns {
			name, head, _ := strings.Cut(column, " ")
			cells, err := f.column(name, head)
			if err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			n, isMoney, _, err := sum(cells)
			if err != nil {
				t.Errorf("%s: %s: %v", path, column, err)
				continue
			}
			want := ui.Count(n)
			if isMoney {
				want = ui.TotalMoney(money.MC(n)).Text
			}
			if n == 0 {
				t.Errorf("%s: %s is empty, so nothing is shown by it", path, column)
			}
			if shown := f.tile(label); !strings.HasPrefix(shown, want) {
				t.Errorf("%s: %s is %q, and %s adds up to %s", path, label, shown, column, want)
			}
		}
	}
}

// tile returns the first figure of a label.
func (f *shownFigures) tile(label string) string {
	for _, tile := range f.Tiles {
		if rest, ok := strings.CutPrefix(tile, label); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "not there"
}

// checkStacks checks that the series of each stacked chart add up to its last one, the whole.
func (f *shownFigures) checkStacks(t *testing.T, path string) {
	t.Helper()
	for _, table := range f.Tables {
		for _, row := range table.Rows {
			var parts []int64
			for _, c := range row {
				if n, err := strconv.ParseInt(c.Value, 10, 64); err == nil {
					parts = append(parts, n)
				}
			}
			if len(parts) < 3 { // a chart of one series
				continue
			}
			var total int64
			for _, n := range parts[:len(parts)-1] {
				total += n
			}
			if total != parts[len(parts)-1] {
				t.Errorf("%s: %s, %s: %v do not add up", path, table.Name, row[0].Text, parts)
			}
		}
	}
}
