package ui

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

func TestRoundUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mc, want money.MC }{
		{0, 2},
		{1, 2},
		{2, 2},
		{3, 4},
		{5, 5},
		{6, 10},
		{10, 10},
		{11, 20},
		{99, 100},
		{3 * money.Dollar, 4 * money.Dollar},
		{money.Max, 0},
	} {
		got := roundUp(c.mc)
		if c.want == 0 && got < c.mc || c.want > 0 && got != c.want {
			t.Errorf("roundUp(%d) = %d, want %d", c.mc, got, c.want)
		}
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
			{Label: "19 Nov", Amount: money.Dollar}, {Label: "20 Nov", Amount: 0},
			{Label: hostile, Amount: 4 * money.Dollar}, {Label: "22 Nov", Amount: -money.Dollar},
			{Label: "23 Nov", Amount: 1},
		}}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	s := string(svg)
	for what, want := range map[string]int{
		"<rect":                      3,
		`height="172.0"`:             1,
		`height="43.0"`:              1,
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
	for d := xml.NewDecoder(strings.NewReader(s)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, s)
		}
	}
	for _, none := range []Chart{{}, {Bars: []Bar{{Amount: -1}, {}}}} {
		if _, err := none.SVG(); err != nil || !none.Empty() {
			t.Errorf("%+v: %v, empty %t", none, err, none.Empty())
		}
	}
}

// U8: each label stands below its own bar, also the last one, which must not leave the drawing.
func TestChartLabelsStandBelowTheirBars(t *testing.T) {
	t.Parallel()
	rects := regexp.MustCompile(`<rect class="bar-mark" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"[^>]*><title>(\d+):`)
	texts := regexp.MustCompile(`<text(?: class="some")? x="([0-9.]+)" y="212" text-anchor="(middle|end)">(\d+)</text>`)
	number := func(text string) float64 {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, days := range []int{1, 7, 30, 90} {
		var c Chart
		for i := range days {
			c.Bars = append(c.Bars, Bar{Label: fmt.Sprint(i + 1), Amount: money.Dollar})
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
		if len(bars) != days || len(labels) == 0 || labels[len(labels)-1][3] != fmt.Sprint(days) {
			t.Fatalf("%d days: %d bars, labels %v", days, len(bars), labels)
		}
		for _, m := range labels {
			at, bar := number(m[1]), bars[m[3]]
			middle := (bar[0] + bar[1]) / 2
			switch {
			case m[2] == "end" && (at < bar[1]-0.2 || at > bar[1]+0.2 || middle+chartLabel/2 <= chartWidth):
				t.Errorf("%d days: label %s ends at %.1f, its bar at %.1f", days, m[3], at, bar[1])
			case m[2] == "middle" && (at < middle-0.2 || at > middle+0.2 || at+chartLabel/2 > chartWidth):
				t.Errorf("%d days: label %s is at %.1f, its bar at %.1f", days, m[3], at, middle)
			}
		}
	}
}
