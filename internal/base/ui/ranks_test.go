package ui

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// wellFormed fails the test unless a drawing is XML without scripts and styles.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
	}
	if strings.Contains(svg, "<script") || strings.Contains(svg, "style=") {
		t.Errorf("not only a drawing: %s", svg)
	}
}

func counts(t *testing.T, s string, want map[string]int) {
	t.Helper()
	for what, n := range want {
		if got := strings.Count(s, what); got != n {
			t.Errorf("%d times %s, want %d\n%s", got, what, n, s)
		}
	}
}

// Bars are as long as their values, their part ends where they end, long names are
// cut, and texts stay texts.
func TestRanks(t *testing.T) {
	t.Parallel()
	r := Ranks{ID: "r",
		Title: "By <b>",
		Desc:  hostile,
		Parts: [2]string{"rest", "part"},
		List: []Rank{
			{"first", "$4.00", 400, 100}, {hostile, "$2.00", 200, 999}, {strings.Repeat("é", 60), "$0.00", 0, 0},
			{"back", "−$1.00", -100, -100},
		}}
	svg, err := r.SVG()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(svg))
	counts(t, string(svg), map[string]int{
		`class="bar-rest"`:                   2,
		`class="bar-mark"`:                   2,
		`class="track"`:                      4,
		`x="0" y="22.0" width="360.0"`:       1,
		`x="270.0" y="22.0" width="90.0"`:    1,
		`x="0.0" y="60.0" width="180.0"`:     1,
		">" + strings.Repeat("é", 29) + "…<": 1,
		"<script":                            0,
	})
	r.Parts, r.List = [2]string{}, append(r.List, make([]Rank, 20)...)
	if svg, err = r.SVG(); err != nil {
		t.Fatal(err)
	}
	counts(t, string(svg), map[string]int{`class="track"`: maxRanks, `class="bar-rest"`: 0, `class="bar-mark"`: 2})
	if !(Ranks{}).Empty() || !(Ranks{List: []Rank{{Value: -1}}}).Empty() || r.Empty() {
		t.Error("what is empty and what is not")
	}
}

// What is drawn apart stands on top of its bar, and never above it.
func TestDividedBars(t *testing.T) {
	t.Parallel()
	c := Chart{ID: "c", Parts: [2]string{"rest", "margin"}, Bars: []Bar{
		{Label: "a", Amount: 4 * money.Dollar, Part: money.Dollar}, {Label: "b", Amount: 2 * money.Dollar}, {
			Label:  "c",
			Amount: money.Dollar,
			Part:   -money.Dollar,
		}, {
			Label:  "d",
			Amount: money.Dollar,
			Part:   9 * money.Dollar,
		}, {Label: "e"},
	}}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(svg))
	counts(t, string(svg), map[string]int{
		`class="bar-rest"`:                     4,
		`class="bar-mark"`:                     2,
		`y="14.0" width="85.1" height="172.0"`: 1,
		`y="14.0" width="85.1" height="43.0"`:  1,
		"a: $4.00; margin: $1.00":              2,
	})
}
