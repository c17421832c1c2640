package ui

import (
	"bytes"
	"html/template"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
)

// A Bar is one value of a Chart.
type Bar struct {
	Label  string // as people read it: "21 Nov"
	Amount money.MC
	Note   string   // next to the amount in the table, such as "12 calls"; "" = nothing
	Part   money.MC // of the amount, what is drawn apart, on top, if the chart has Parts
}

// A ListedBar is a Bar in the table below a Chart.
type ListedBar struct {
	Bar
	Money Amount
}

// ListedBars returns the bars for the table. Their amounts add up to the total.
func (c Chart) ListedBars() []ListedBar {
	parts := make([]money.MC, len(c.Bars))
	for i, b := range c.Bars {
		parts[i] = b.Amount
	}
	list := make([]ListedBar, len(c.Bars))
	for i, amount := range SplitTotal(parts...) {
		list[i] = ListedBar{c.Bars[i], amount}
	}
	return list
}

// A Chart shows amounts side by side: as bars, and as a table for whoever wants
// the numbers or cannot see the bars.
type Chart struct {
	ID    string // unique on its page
	Title string
	Desc  string // what a person should take from it, in a sentence
	Heads [3]string
	Bars  []Bar
	Parts [2]string // what is below in a bar, and what its Part is; "" = bars are of one piece
}

// Measures of the drawing, in units of its view box.
const (
	chartWidth, chartHeight = 720, 220
	chartTop, chartLeft     = 14, 112 // space above the bars, and left of them for amounts
	chartFoot               = 34      // below them, for labels
	chartLabel              = 76      // the widest label
)

// Empty says that there is nothing to draw.
func (c Chart) Empty() bool { return c.most() <= 0 }

func (c Chart) most() (most money.MC) {
	for _, b := range c.Bars {
		most = max(most, b.Amount)
	}
	return most
}

var drawing = template.Must(template.New(
	"chart").Parse(`<svg class="chart" viewBox="0 0 {{.Width}} {{.Height}}" role="img" aria-labelledby="{{.ID}}-title {{.ID}}-desc">` +
	`<title id="{{.ID}}-title">{{.Title}}</title><desc id="{{.ID}}-desc">{{.Desc}}</desc>` +
	`{{range .Lines}}<line class="grid" x1="{{$.Left}}" x2="{{$.Width}}" y1="{{.Y}}" y2="{{.Y}}"/><text x="{{$.Beside}}" y="{{.Y}}" dy="4" text-anchor="end">{{.Text}}</text>{{end}}` +
	`{{range .Marks}}{{if .H}}<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.W}}" height="{{.H}}" rx="2"><title>{{.Tip}}</title></rect>{{end}}{{end}}` +
	`{{range .Labels}}<text{{if .Some}} class="some"{{end}} x="{{.X}}" y="{{$.Base}}" text-anchor="{{.Anchor}}">{{.Text}}</text>{{end}}</svg>`))

type mark struct {
	X, Y, W, H string
	Class, Tip string
}

type label struct {
	X, Y, Text string
	Anchor     string // which part of the text is at X
	Some       bool   // may be left out where there is little room
}

// SVG draws the bars from zero to a round number above the largest. Colours come
// from the style sheet. What is not above zero has no bar: a day of more refunds
// than calls stands in the table.
func (c Chart) SVG() (template.HTML, error) {
	top := roundUp(c.most())
	height := func(mc money.MC) float64 {
		if mc <= 0 {
			return 0
		}
		return max(1.5, float64(mc)/float64(top)*(chartHeight-chartTop-chartFoot)) // a drawing, no money
	}
	base := float64(chartHeight - chartFoot)
	d := struct {
		Chart
		Width, Height, Left, Beside, Base int
		Lines, Labels                     []label
		Marks                             []mark
	}{Chart: c, Width: chartWidth, Height: chartHeight, Left: chartLeft, Beside: chartLeft - 8, Base: chartHeight - 8}
	for _, part := range []money.MC{0, top / 2, top} {
		line := label{
			Y:    coordinate(base - float64(part)/float64(top)*(chartHeight-chartTop-chartFoot)),
			Text: Exact(part),
		}
		d.Lines = append(d.Lines, line)
	}
	step := float64(chartWidth-chartLeft) / float64(max(len(c.Bars), 1))
	for i, b := range c.Bars {
		x, h := chartLeft+float64(i)*step, height(b.Amount)
		m := mark{
			X:     coordinate(x + step*0.15),
			Y:     coordinate(base - h),
			W:     coordinate(step * 0.7),
			Class: "bar-mark",
			Tip:   b.Label + ": " + b.Amount.Display(),
		}
		if h > 0 {
			m.H = coordinate(h)
		}
		if c.Parts[1] == "" {
			d.Marks = append(d.Marks, m)
		} else {
			d.Marks = append(d.Marks, c.divided(m, b, h, base)...)
		}
		if every := (len(c.Bars) + 5) / 6; (len(c.Bars)-1-i)%every == 0 && x+step/2 > chartLeft+34 {
			l := label{
				X:      coordinate(x + step/2),
				Text:   b.Label,
				Anchor: "middle",
				Some:   (len(c.Bars)-1-i)/every%2 == 1,
			}
			if x+step/2 > chartWidth-chartLabel/2 { // it would leave the drawing: end it below the end of its bar
				l.X, l.Anchor = coordinate(x+step*0.85), "end"
			}
			d.Labels = append(d.Labels, l)
		}
	}
	var out bytes.Buffer
	if err := drawing.Execute(&out, d); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil // every text in it was escaped by the template
}

// divided draws a bar in two: the whole of it, and its part on top.
func (c Chart) divided(m mark, b Bar, height, base float64) []mark {
	part := min(max(b.Part, 0), b.Amount)
	m.Class = "bar-rest"
	m.Tip += "; " + c.Parts[1] + ": " + b.Part.Display()
	if height == 0 || part <= 0 {
		return []mark{m}
	}
	top := m
	top.Class, top.H = "bar-mark", coordinate(float64(part)/float64(b.Amount)*height)
	top.Y = coordinate(base - height)
	return []mark{m, top}
}

// roundUp returns 1, 2, 4 or 5 times a power of ten that is not below mc, so that
// half of it is round as well.
func roundUp(mc money.MC) money.MC {
	for unit := money.MC(1); ; unit *= 10 {
		for _, n := range []money.MC{1, 2, 4, 5} {
			if unit*n >= mc && unit*n > 1 {
				return unit * n
			}
		}
	}
}

func coordinate(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }
