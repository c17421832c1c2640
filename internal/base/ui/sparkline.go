package ui

import (
	"html/template"
	"strings"
)

// Measures of a sparkline, in units of its view box.
const sparkWidth, sparkHeight = 96, 24

// Sparkline draws values, the oldest first, as a line for a table or a card. It has no text: what stands next to it
// says the same in words. Values below zero are drawn as zero. Fewer than two values, or zeros alone, draw a flat line.
func Sparkline(values []int64) template.HTML {
	var most int64 = 1
	for _, v := range values {
		most = max(most, v)
	}
	var points strings.Builder
	if len(values) < 2 {
		values = []int64{0, 0}
	}
	for i, v := range values {
		if i > 0 {
			points.WriteByte(' ')
		}
		x := 1 + float64(i)/float64(len(values)-1)*(sparkWidth-2)
		y := sparkHeight - 2 - float64(max(v, 0))/float64(most)*(sparkHeight-4) // a drawing, no money
		points.WriteString(coordinate(x) + "," + coordinate(y))
	}
	line := points.String()
	base := "," + coordinate(sparkHeight-1)
	area := coordinate(1) + base + " " + line + " " + coordinate(sparkWidth-1) + base
	return template.HTML(`<svg class="spark" viewBox="0 0 96 24" aria-hidden="true" focusable="false">` +
		`<polygon points="` + area + `"/><polyline points="` + line + `"/></svg>`) // numbers alone
}
