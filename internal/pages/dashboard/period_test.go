package dashboard_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestSpendByPeriod spends at different times: each period has its sum, and its bars and breakdowns make it. An hour
// leads to its calls.
func TestSpendByPeriod(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		for _, x := range []struct {
			cents money.MC
			until time.Duration // the next one
		}{{1, 40 * 24 * time.Hour}, {2, 5 * 24 * time.Hour}, {4, 30 * time.Hour}, {8, 3 * time.Hour}, {16, 0}} {
			w.Spend(w.conn, x.cents*money.Cent)
			w.Pass(x.until)
		}
		b := w.signedIn("person")
		for query, want := range map[string]struct {
			period, spent, compared string
			bars                    int
			cents, before           money.MC
		}{
			"?days=1":            {"24 hours", "$0.24", "500% more than before", 24, 24, 0},
			"?days=1&compare=1":  {"24 hours", "$0.24", "500% more than before", 24, 24, 4},
			"?days=7":            {"7 days", "$0.30", "Including free credit", 7, 30, 0},
			"":                   {"30 days", "$0.30", "over ten times more than before", 30, 30, 0},
			"?compare=1":         {"30 days", "$0.30", "", 30, 30, 1},
			"?days=90":           {"90 days", "$0.31", "Including free credit", 90, 31, 0},
			"?days=tomorrow":     {"30 days", "$0.30", "", 30, 30, 0},
			"?days=36500&live=1": {"30 days", "$0.30", "", 30, 30, 0},
		} {
			page := b.Get("/dashboard"+query).Want(t, 200, "Spent, last "+want.period).Body
			for _, text := range []string{want.spent, want.compared} {
				if !strings.Contains(page, text) {
					t.Errorf("%s lacks %q", query, text)
				}
			}
			for path, page := range map[string]string{
				"/dashboard":                page,
				"/connections/" + w.conn.ID: b.Get("/connections/"+w.conn.ID+query).Want(t, 200).Body,
			} {
				bars, sum, before := readBars(t, page)
				if bars != want.bars || sum != want.cents*money.Cent || before != want.before*money.Cent {
					t.Errorf("%s%s: %d bars of %v, and of %v before", path, query, bars, sum, before)
				}
			}
		}
		hour := w.Now().UTC().Format("2006-01-02T15") + "%3A00"
		b.Get("/dashboard?days=1").Want(t, 200, "from="+hour)
		body := b.Get("/activity?from="+hour).Want(t, 200).Body
		if n := strings.Count(body, "−$0.16"); n == 0 || strings.Contains(body, "−$0.08") {
			t.Errorf("the last hour's activity is not its call:\n%s", body)
		}
	})
}

var chartRow = regexp.MustCompile(`<td class="end num" data-value="(\d+)">[^/]*</span></td>` +
	`(?:<td class="end num" data-value="(\d+)">)?`)

// readBars returns the rows of a chart's table, and the sums of its values and of those of the period before.
func readBars(t *testing.T, page string) (bars int, sum, before money.MC) {
	t.Helper()
	number := func(text string) money.MC {
		n, err := strconv.ParseInt("0"+text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return money.MC(n)
	}
	_, table, _ := strings.Cut(page, `id="by-day-table"`)
	table, _, _ = strings.Cut(table, "</table>")
	for _, row := range chartRow.FindAllStringSubmatch(table, -1) {
		bars++
		sum += number(row[1])
		before += number(row[2])
	}
	return bars, sum, before
}
