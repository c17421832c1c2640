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

// The parts of a bar lie on top of each other, and never reach above it.
func TestDividedBars(t *testing.T) {
	t.Parallel()
	dollars := func(list ...int64) []int64 {
		for i := range list {
			list[i] *= int64(money.Dollar)
		}
		return list
	}
	c := Chart{ID: "c", Series: []string{"rest", "margin"}, Bars: []Bar{
		{Label: "a", Value: 4 * int64(money.Dollar), Parts: dollars(3, 1)},
		{Label: "b", Value: 2 * int64(money.Dollar), Parts: dollars(2)},
		{Label: "c", Value: int64(money.Dollar), Parts: dollars(2, -1)},
		{Label: "d", Value: int64(money.Dollar), Parts: dollars(-8, 9)},
		{Label: "e"},
	}}
	svg, err := c.SVG()
	if err != nil {
		t.Fatal(err)
	}
	wellFormed(t, string(svg))
	counts(t, string(svg), map[string]int{
		`class="series-1"`:                       3,
		`class="series-2"`:                       2,
		`y="58.5" width="14.00%" height="133.5"`: 1,
		`y="14.0" width="14.00%" height="44.5"`:  1,
		"a: rest $3.00 of $4.00":                 1,
		"a: margin $1.00 of $4.00":               1,
	})
}
