package ui

import (
	"bytes"
	"html/template"
	"sync"
	"unicode/utf8"
)

// A Rank is one line of Ranks: a name, how much of it there is, and what of that
// is drawn apart.
type Rank struct {
	Name, Shown string
	Value, Part int64
}

// Ranks compares named things by bars that lie under each other. It stands beside
// a table of the same.
type Ranks struct {
	ID    string // unique on its page
	Title string
	Desc  string
	List  []Rank
	Parts [2]string // as in a Chart
}

// Measures of the drawing, in units of its view box.
const (
	rankWidth, rankStep = 360, 38
	rankBar, rankBase   = 9, 22 // height of a bar, and where it begins below its name
	maxRanks            = 8
	maxRankName         = 30 // characters
)

// Empty says that there is nothing to draw.
func (r Ranks) Empty() bool { return r.most() <= 0 }

func (r Ranks) most() (most int64) {
	for _, x := range r.List {
		most = max(most, x.Value)
	}
	return most
}

var rankDrawing = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("ranks").Parse(rankText))
})

const rankText = `<svg class="chart ranks" viewBox="0 0 {{.Width}} {{.Height}}" role="img" ` +
	`aria-labelledby="{{.ID}}-title {{.ID}}-desc">` +
	`<title id="{{.ID}}-title">{{.Title}}</title><desc id="{{.ID}}-desc">{{.Desc}}</desc>` +
	`{{range .Lines}}<text x="0" y="{{.TextY}}">{{.Name}}</text><text class="shown" x="{{$.Width}}" y="{{.TextY}}" text-anchor="end">{{.Shown}}</text>` +
	`<rect class="track" x="0" y="{{.Y}}" width="{{$.Width}}" height="{{$.Bar}}" rx="3"/>` +
	`{{if .W}}<rect class="{{if .Divided}}bar-rest{{else}}bar-mark{{end}}" x="0" y="{{.Y}}" width="{{.W}}" height="{{$.Bar}}" rx="3"/>{{end}}` +
	`{{if .PartW}}<rect class="bar-mark" x="{{.PartX}}" y="{{.Y}}" width="{{.PartW}}" height="{{$.Bar}}" rx="3"/>{{end}}{{end}}</svg>`

type rankLine struct {
	Name, Shown  string
	TextY, Y, W  string
	Divided      bool
	PartX, PartW string
}

// SVG draws the first lines, which should be the largest. What is not above zero
// has no bar.
func (r Ranks) SVG() (template.HTML, error) {
	list, most := r.List[:min(len(r.List), maxRanks)], r.most()
	d := struct {
		Ranks
		Width, Height, Bar int
		Lines              []rankLine
	}{Ranks: r, Width: rankWidth, Height: len(list)*rankStep - 4, Bar: rankBar}
	for i, x := range list {
		top := i * rankStep
		line := rankLine{
			Name:    shortened(x.Name),
			Shown:   x.Shown,
			TextY:   coordinate(float64(top + 15)),
			Y:       coordinate(float64(top + rankBase)),
			Divided: r.Parts[1] != "",
		}
		if x.Value > 0 {
			width := max(2, float64(x.Value)/float64(most)*rankWidth) // a drawing, no money
			line.W = coordinate(width)
			if part := min(max(x.Part, 0), x.Value); line.Divided && part > 0 {
				w := float64(part) / float64(x.Value) * width
				line.PartX, line.PartW = coordinate(width-w), coordinate(w)
			}
		}
		d.Lines = append(d.Lines, line)
	}
	var out bytes.Buffer
	if err := rankDrawing().Execute(&out, d); err != nil {
		return "", err
	}
	return template.HTML(out.String()), nil // every text in it was escaped by the template
}

// shortened cuts a name for which the drawing has no room.
func shortened(name string) string {
	if utf8.RuneCountInString(name) <= maxRankName {
		return name
	}
	return string([]rune(name)[:maxRankName-1]) + "…"
}
