package ui

import (
	"bytes"
	_ "embed"
	"html/template"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/money"
)

// A Unit says what the values of a Chart are.
type Unit string

// The units of charts.
const (
	InMoney  Unit = ""   // micro-cents
	InCounts Unit = "n"  // calls, tokens, users …
	InMillis Unit = "ms" // milliseconds
)

// A Bar is one value of a Chart.
type Bar struct {
	Label  string // as people read it: "21 Nov"
	Start  string // the day as 2026-11-21, for downloads
	Value  int64  // in the chart's unit
	Note   string // next to the value in the table, such as "12 calls"; "" = nothing
	Parts  []int64
	Before int64  // the value of the period before, if the chart compares
	Href   string // address of what the bar sums; "" = none
}

// A Chart shows values side by side: as bars, and as a table with the numbers.
//
// The drawing needs no script. The script charts.js draws the table instead, in the same box, and
// adds a crosshair, keys and links.
type Chart struct {
	ID      string // unique on its page
	Title   string
	Desc    string // what a person should take from it, in a sentence
	Heads   [3]string
	Bars    []Bar
	Series  []string // names of the parts of each bar, from below; none = bars of one piece
	Links   []string // addresses of what each series sums; nil = none, "" = none for this one
	Compare bool     // draw what was before as a dashed line
	Lines   bool     // draw each series as a line; its parts do not add up, and one below zero is missing
	Unit    Unit
}

// A ListedBar is a row of the table below a Chart.
type ListedBar struct {
	Bar
	Shown Amount
	Cells []ChartCell // of the parts
	Past  ChartCell   // of the period before
}

// A ChartCell is a value of the table as text, and as the integer that the drawing uses.
type ChartCell struct {
	Amount
	Value int64
}

// ListedBars returns the rows of the table. Their amounts add up to the total, and the parts of each add up to it.
func (c Chart) ListedBars() []ListedBar {
	var whole, parts, before []int64
	for _, b := range c.Bars {
		whole, before = append(whole, b.Value), append(before, b.Before)
		parts = append(parts, fit(b.Parts, len(c.Series))...)
	}
	wholes, befores, cells := c.Unit.format(whole), c.Unit.format(before), c.Unit.format(parts)
	list := make([]ListedBar, len(c.Bars))
	for i, b := range c.Bars {
		list[i] = ListedBar{Bar: b, Shown: wholes[i], Past: ChartCell{befores[i], b.Before}}
		for j := range c.Series {
			at := i*len(c.Series) + j
			list[i].Cells = append(list[i].Cells, ChartCell{cells[at], parts[at]})
		}
	}
	return list
}

// fit returns n values: what lacks is zero.
func fit(values []int64, n int) []int64 {
	list := make([]int64, n)
	copy(list, values)
	return list
}

// format writes values. Amounts of money add up to the total of all.
func (u Unit) format(values []int64) []Amount {
	if u == InMoney {
		parts := make([]money.MC, len(values))
		for i, v := range values {
			parts[i] = money.MC(v)
		}
		return SplitTotal(parts...)
	}
	list := make([]Amount, len(values))
	for i, v := range values {
		list[i].Text = u.text(v)
	}
	return list
}

// text writes one value.
func (u Unit) text(v int64) string {
	switch {
	case u == InCounts:
		return Count(v)
	case u == InMillis && v < 0:
		return "–"
	case u == InMillis:
		return Millis(v)
	}
	return Exact(money.MC(v))
}

// Millis writes a duration that is given in milliseconds: "850 ms", "1.25 s".
func Millis(ms int64) string {
	if ms < 1000 {
		return strconv.FormatInt(ms, 10) + " ms"
	}
	return strconv.FormatFloat(time.Duration(ms*int64(time.Millisecond)).Seconds(), 'f', -1, 64) + " s"
}

// Measures of the drawing, in CSS pixels. Its width is that of the page.
const (
	chartHeight         = 220
	chartTop, chartFoot = 14, 28 // space above the bars, and below them for labels
	chartDigit          = 6.6    // the widest digit of an amount on the axis
	chartWide           = 620.0  // a usual width, to see for which labels there is room
)

// Empty says that there is nothing to draw.
func (c Chart) Empty() bool { return c.most() <= 0 }

func (c Chart) most() (most int64) {
	for _, b := range c.Bars {
		if c.Lines {
			for _, part := range b.Parts {
				most = max(most, part)
			}
		} else {
			most = max(most, b.Value)
		}
		if c.Compare {
			most = max(most, b.Before)
		}
	}
	return most
}

// Ticks returns the values of the lines across the drawing: zero, and up to four multiples of 1, 2,
// 2.5 or 5 times a power of ten, of which the last is not below the largest value.
func (c Chart) Ticks() []int64 {
	most := max(c.most(), 1)
	step := niceStep(most)
	list := []int64{0}
	for at := int64(0); at < most && at <= math.MaxInt64-step; {
		at += step
		list = append(list, at)
	}
	return list
}

// niceStep returns the least of 1, 2, 2.5 and 5 times a power of ten of which four reach most.
func niceStep(most int64) int64 {
	quarter := (most-1)/4 + 1
	for unit := int64(1); ; unit *= 10 {
		for _, n := range []int64{unit, 2 * unit, unit * 5 / 2, 5 * unit} {
			if n >= quarter {
				return n
			}
		}
	}
}

// A Tick is a line across the drawing, with its text on the axis.
type Tick struct {
	Value int64
	Text  string
	Y     string
}

// LabelledTicks returns the ticks with their texts.
func (c Chart) LabelledTicks() []Tick {
	values, top := c.Ticks(), c.Top()
	list := make([]Tick, len(values))
	for i, v := range values {
		list[i] = Tick{v, c.Unit.text(v), coordinate(chartY(v, top))}
	}
	return list
}

// Gutter returns the width of the axis: that of its longest text.
func (c Chart) Gutter() int {
	widest := 0
	for _, tick := range c.LabelledTicks() {
		widest = max(widest, utf8.RuneCountInString(tick.Text))
	}
	return int(float64(widest)*chartDigit) + 12
}

// chartY returns how far below the top of the drawing a value is.
func chartY(v, top int64) float64 {
	// a drawing, no money
	return chartHeight - chartFoot - float64(max(v, 0))/float64(top)*(chartHeight-chartTop-chartFoot)
}

// drawingText has one element a line.
//
//go:embed chart.svg.tmpl
var drawingText string

var drawing = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("chart").Parse(strings.ReplaceAll(drawingText, "\n", "")))
})

// A mark is a bar or a part of one.
type mark struct {
	X, Y, W, H string
	Class, Tip string
}

// A stroke is a piece of a line.
type stroke struct{ X1, Y1, X2, Y2, Class string }

type label struct {
	X, Text string
	Anchor  string // which part of the text is at X
	Some    bool   // left out where there is little room
}

// SVG draws the bars from zero to a round number above the largest. Colours come from the style
// sheet. What is not above zero has no bar: a day of more refunds than calls is in the table.
func (c Chart) SVG() (template.HTML, error) {
	top := c.Top()
	d := struct {
		Chart
		Height, Beside, Base int
		Labels               []label
		Marks                []mark
		Strokes              []stroke
	}{Chart: c, Height: chartHeight, Beside: c.Gutter() - 8, Base: chartHeight - 8, Labels: c.labels()}
	if c.Lines {
		d.Strokes = c.lines(top)
	} else {
		d.Marks = c.marks(top)
	}
	if c.Compare {
		d.Strokes = append(d.Strokes, c.line(top, "before", func(b Bar) int64 { return b.Before })...)
	}
	var out bytes.Buffer
	if err := drawing().Execute(&out, d); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil // every text in it was escaped by the template
}

// seriesClass returns the class that colours a part of a bar.
func (c Chart) seriesClass(i int) string { return "series-" + strconv.Itoa(i%maxSeries+1) }

// maxSeries is the number of colours.
const maxSeries = 8

// SeriesClasses returns the class of each series.
func (c Chart) SeriesClasses() []string {
	list := make([]string, len(c.Series))
	for i := range list {
		list[i] = c.seriesClass(i)
	}
	return list
}

// A LegendItem is a series of the legend.
type LegendItem struct{ Name, Class, Href string }

// Legend returns the series with their colours and links.
func (c Chart) Legend() []LegendItem {
	list := make([]LegendItem, len(c.Series))
	for i, name := range c.Series {
		list[i] = LegendItem{Name: name, Class: c.seriesClass(i)}
		if i < len(c.Links) {
			list[i].Href = c.Links[i]
		}
	}
	return list
}

// marks draws each bar: whole, or as its parts on top of each other.
func (c Chart) marks(top int64) (list []mark) {
	step := 100 / float64(max(len(c.Bars), 1))
	for i, b := range c.Bars {
		if b.Value <= 0 {
			continue
		}
		m := mark{X: coordinate2(float64(i)*step + step*0.15), W: coordinate2(step * 0.7), Class: "series-1"}
		m.Tip = b.Label + ": " + c.Unit.display(b.Value)
		if len(c.Series) == 0 {
			y := min(chartY(b.Value, top), chartHeight-chartFoot-1.5)
			m.Y, m.H = coordinate(y), coordinate(chartHeight-chartFoot-y)
			list = append(list, m)
			continue
		}
		var sum int64
		for j, part := range fit(b.Parts, len(c.Series)) {
			part = min(max(part, 0), b.Value-sum)
			if part == 0 {
				continue
			}
			low, y := chartY(sum, top), chartY(sum+part, top)
			p := m
			p.Class, p.Y, p.H = c.seriesClass(j), coordinate(y), coordinate(low-y)
			p.Tip = b.Label + ": " + c.Series[j] + " " + c.Unit.display(part) + " of " + c.Unit.display(b.Value)
			list = append(list, p)
			sum += part
		}
	}
	return list
}

// display writes a value with everything that is known of it.
func (u Unit) display(v int64) string {
	if u == InMoney {
		return money.MC(v).Display()
	}
	return u.text(v)
}

// lines draws each series as a line.
func (c Chart) lines(top int64) (list []stroke) {
	for j := range c.Series {
		list = append(list,
			c.line(top, c.seriesClass(j), func(b Bar) int64 { return fit(b.Parts, len(c.Series))[j] })...)
	}
	return list
}

// line draws one line through the middle of each bar.
func (c Chart) line(top int64, class string, value func(Bar) int64) (list []stroke) {
	step := 100 / float64(max(len(c.Bars), 1))
	for i := 1; i < len(c.Bars); i++ {
		if value(c.Bars[i-1]) < 0 || value(c.Bars[i]) < 0 {
			continue
		}
		list = append(list, stroke{
			X1:    coordinate2((float64(i) - 0.5) * step),
			Y1:    coordinate(chartY(value(c.Bars[i-1]), top)),
			X2:    coordinate2((float64(i) + 0.5) * step),
			Y2:    coordinate(chartY(value(c.Bars[i]), top)),
			Class: "stroke " + class,
		})
	}
	return list
}

// labelStep returns how many bars lie between two labels: whole weeks, if the bars are more than ten days.
func (c Chart) labelStep() int {
	n := len(c.Bars)
	switch {
	case n <= 10:
		return 1
	case n <= 24:
		return 4
	case n <= 45:
		return 7
	}
	return (n/7 + 6) / 7 * 7
}

// labels returns the labels below the bars, counted back from the newest.
func (c Chart) labels() (list []label) {
	step, every := 100/float64(max(len(c.Bars), 1)), c.labelStep()
	for i, b := range c.Bars {
		back := len(c.Bars) - 1 - i
		if back%every != 0 {
			continue
		}
		l := label{
			X:      coordinate2((float64(i) + 0.5) * step),
			Text:   b.Label,
			Anchor: "middle",
			Some:   back/every%2 == 1,
		}
		room := float64(utf8.RuneCountInString(b.Label)) * chartDigit / 2 / chartWide * 100
		switch middle := (float64(i) + 0.5) * step; {
		case middle+room > 100: // it would leave the drawing: end it below the end of its bar
			l.X, l.Anchor = coordinate2((float64(i)+0.85)*step), "end"
		case middle-room < 0:
			l.X, l.Anchor = coordinate2((float64(i)+0.15)*step), "start"
		}
		list = append(list, l)
	}
	return list
}

// Top returns the value at the upper end of the drawing.
func (c Chart) Top() int64 {
	values := c.Ticks()
	return values[len(values)-1]
}

func coordinate(x float64) string { return strconv.FormatFloat(x, 'f', 1, 64) }

// coordinate2 is for percentages, of which a tenth is visible.
func coordinate2(x float64) string { return strconv.FormatFloat(x, 'f', 2, 64) }

// chartScripts draw charts in the browser. A page with a chart names them.
var chartScripts = []string{"uplot", "charts"}

func (Dashboard) scripts() []string   { return chartScripts }
func (Analytics) scripts() []string   { return chartScripts }
func (AppOverview) scripts() []string { return chartScripts }
