package ui

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// The lines across a drawing are zero and up to four equal steps of a round number, and reach the largest value.
func TestTicks(t *testing.T) {
	t.Parallel()
	const dollar = int64(money.Dollar)
	for _, c := range []struct {
		most int64
		want []int64
	}{
		{0, []int64{0, 1}},
		{1, []int64{0, 1}},
		{3, []int64{0, 1, 2, 3}},
		{5, []int64{0, 2, 4, 6}},
		{62, []int64{0, 20, 40, 60, 80}},
		{100, []int64{0, 25, 50, 75, 100}},
		{101, []int64{0, 50, 100, 150}},
		{3 * dollar, []int64{0, dollar, 2 * dollar, 3 * dollar}},
		{62 * dollar / 100, []int64{0, dollar / 5, 2 * dollar / 5, 3 * dollar / 5, 4 * dollar / 5}},
	} {
		if got := (Chart{Bars: []Bar{{Value: c.most}}}).Ticks(); !slices.Equal(got, c.want) {
			t.Errorf("up to %d: %v, want %v", c.most, got, c.want)
		}
	}
	if got := (Chart{Bars: []Bar{{Value: math.MaxInt64}}}).Ticks(); !slices.IsSorted(got) || len(got) > 5 {
		t.Errorf("the largest value: %v", got)
	}
}

// A drawing is well-formed, says what it is to those who cannot see it, takes no
// markup from its texts, and has a bar for what is above zero.
func TestChart(t *testing.T) {
	t.Parallel()
	c := Chart{ID: "spend",
		Title: "Spent <b>",
		Desc:  hostile,
		Bars: []Bar{
			{Label: "19 Nov", Value: int64(money.Dollar)}, {Label: "20 Nov", Value: 0},
			{Label: hostile, Value: 4 * int64(money.Dollar)}, {Label: "22 Nov", Value: -int64(money.Dollar)},
			{Label: "23 Nov", Value: 1},
		}}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	s := string(svg)
	for what, want := range map[string]int{
		"<rect":                      3,
		`height="178.0"`:             1,
		`height="44.5"`:              1,
		`height="1.5"`:               1,
		"style=":                     0,
		"<script":                    0,
		"<title id=\"spend-title\">": 1,
		`aria-labelledby="spend-title spend-desc"`: 1,
		"19 Nov: $1.00": 1,
		">$4.00<":       1,
		">$2.00<":       1,
	} {
		if got := strings.Count(s, what); got != want {
			t.Errorf("%d times %s, want %d\n%s", got, what, want, s)
		}
	}
	wellFormed(t, s)
	for _, none := range []Chart{{}, {Bars: []Bar{{Value: -1}, {}}}} {
		if _, err := none.SVG(); err != nil || !none.Empty() {
			t.Errorf("%+v: %v, empty %t", none, err, none.Empty())
		}
	}
}

// U8: each label stands below its own bar, also the last one, which must not leave the drawing.
// Among more than ten days the labels are whole weeks apart.
func TestChartLabelsStandBelowTheirBars(t *testing.T) {
	t.Parallel()
	rects := regexp.MustCompile(
		`<rect class="series-1" x="([0-9.]+)%" y="[0-9.]+" width="([0-9.]+)%"[^>]*><title>(\d+):`)
	texts := regexp.MustCompile(
		`<text(?: class="some")? x="([0-9.]+)%" y="212" text-anchor="(start|middle|end)">(\d+)</text>`)
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for days, apart := range map[int]int{1: 1, 7: 1, 24: 4, 30: 7, 90: 14} {
		var c Chart
		for i := range days {
			c.Bars = append(c.Bars, Bar{Label: fmt.Sprint(i + 1), Value: int64(money.Dollar)})
		}
		svg, err := c.SVG()
		if err != nil {
			t.Fatal(err)
		}
		bars := map[string][2]float64{} // start and end
		for _, m := range rects.FindAllStringSubmatch(string(svg), -1) {
			bars[m[3]] = [2]float64{number(m[1]), number(m[1]) + number(m[2])}
		}
		labels := texts.FindAllStringSubmatch(string(svg), -1)
		if len(bars) != days || len(labels) != (days-1)/apart+1 || labels[len(labels)-1][3] != fmt.Sprint(days) {
			t.Fatalf("%d days: %d bars, labels %v", days, len(bars), labels)
		}
		for i, m := range labels {
			at, bar := number(m[1]), bars[m[3]]
			middle := (bar[0] + bar[1]) / 2
			switch want := map[string]float64{"start": bar[0], "middle": middle, "end": bar[1]}[m[2]]; {
			case at < want-0.02 || at > want+0.02:
				t.Errorf("%d days: label %s has its %s at %.2f, its bar is %v", days, m[3], m[2], at, bar)
			case i > 0 && number(m[3])-number(labels[i-1][3]) != float64(apart):
				t.Errorf("%d days: labels %s and %s, want %d days apart", days, labels[i-1][3], m[3], apart)
			}
			room := float64(len(m[3])) * chartDigit / 2 / chartWide * 100
			if m[2] == "middle" && (at+room > 100 || at-room < 0) {
				t.Errorf("%d days: label %s leaves the drawing", days, m[3])
			}
		}
	}
}

// The rows of a chart's table add up to the total of all, and the parts of a row to what the row shows.
func TestChartTableAddsUp(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	cents := func(a Amount) (n int64) {
		digits := strings.NewReplacer("−", "-", "$", "", ".", "", ",", "").Replace(a.Text)
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 50 {
		c := Chart{Series: []string{"a", "b", "c"}}
		var all money.MC
		for range 1 + random.IntN(90) {
			b := Bar{Parts: []int64{random.Int64N(3e6), random.Int64N(3e6) - 1e6, random.Int64N(1e9)}}
			for _, part := range b.Parts {
				b.Value += part
			}
			all += money.MC(b.Value)
			c.Bars = append(c.Bars, b)
		}
		var sum int64
		for _, row := range c.ListedBars() {
			var parts int64
			for _, cell := range row.Cells {
				parts += cents(cell.Amount)
			}
			if parts != cents(row.Shown) {
				t.Fatalf("parts of %d cents, the row says %s", parts, row.Shown.Text)
			}
			sum += parts
		}
		if want := cents(TotalMoney(all)); sum != want {
			t.Fatalf("rows of %d cents, the total is %d", sum, want)
		}
	}
}
