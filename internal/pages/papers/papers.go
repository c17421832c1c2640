// Package papers prints statements as PDF files (decisions 111, 113).
package papers

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"codeberg.org/go-pdf/fpdf"
	"golang.org/x/text/encoding/charmap"

	"github.com/purserhq/purser/internal/base/money"
)

// A Paper is a statement to print.
type Paper struct {
	Title   string
	Heading []string // its lines
	Tables  []Table
	Notes   []string // its paragraphs
	At      time.Time
}

// A Table has texts in its first column and amounts in the others, at most four.
type Table struct {
	Title string // "" = none
	Head  []string
	Rows  []Row
}

// A Row is a line of a table.
type Row struct {
	Cells  []string
	Strong bool
	Border string // T or B: a line above or below; "" = none
}

// Decimal writes an amount in US dollars with all digits of its micro-cents.
func Decimal(mc money.MC) string {
	sign := ""
	if mc < 0 {
		sign, mc = "-", -mc
	}
	return fmt.Sprintf("%s%d.%08d", sign, int64(mc/money.Dollar), int64(mc%money.Dollar))
}

// Measures of the page, in millimetres.
const (
	margin     = 20
	width      = 170
	line       = 7
	amount     = 50 // of the only column of amounts
	amounts    = 30 // of each of several
	maxText    = 60 // characters of a text beside one amount
	maxShorter = 25 // beside several
)

// PDF returns a paper as a PDF file, the same of the same paper. It has the fonts that every reader has, which know
// the characters of Western European languages; others are shown as question marks.
func PDF(p Paper) ([]byte, error) {
	doc := fpdf.New("P", "mm", "A4", "")
	doc.SetCatalogSort(true)
	doc.SetCreationDate(p.At)
	doc.SetModificationDate(p.At)
	doc.SetMargins(margin, margin, margin)
	doc.SetAutoPageBreak(true, margin)
	doc.SetTitle(western(p.Title), false)
	doc.AliasNbPages("")
	doc.SetFooterFunc(func() {
		doc.SetY(-margin + 5)
		doc.SetFont("Helvetica", "", 8)
		doc.CellFormat(0, 5, "Page "+strconv.Itoa(doc.PageNo())+" of {nb}", "", 0, "C", false, 0, "")
	})
	doc.AddPage()
	doc.SetFont("Helvetica", "B", 18)
	doc.CellFormat(0, 10, western(p.Title), "", 1, "L", false, 0, "")
	doc.SetFont("Helvetica", "", 10)
	for _, text := range p.Heading {
		doc.MultiCell(0, 5.5, western(text), "", "L", false)
	}
	for _, t := range p.Tables {
		printTable(doc, t)
	}
	doc.Ln(4)
	doc.SetFont("Helvetica", "", 9)
	for _, text := range p.Notes {
		doc.MultiCell(0, 5, western(text), "", "L", false)
	}
	var file bytes.Buffer
	err := doc.Output(&file)
	return file.Bytes(), err
}

func printTable(doc *fpdf.Fpdf, t Table) {
	doc.Ln(6)
	if t.Title != "" {
		doc.SetFont("Helvetica", "B", 12)
		doc.CellFormat(0, line, western(t.Title), "", 1, "L", false, 0, "")
	}
	column, size, most := float64(amount), 10.0, maxText
	if len(t.Head) > 2 {
		column, size, most = amounts, 9, maxShorter
	}
	for _, r := range append([]Row{{Cells: t.Head, Border: "B"}}, t.Rows...) {
		style := ""
		if r.Strong {
			style = "B"
		}
		doc.SetFont("Helvetica", style, size)
		for i, text := range r.Cells {
			w, align, next := column, "R", 0
			if i == 0 {
				w, align, text = width-column*float64(len(r.Cells)-1), "L", shorten(text, most)
			}
			if i == len(r.Cells)-1 {
				next = 1
			}
			doc.CellFormat(w, line, western(text), r.Border, next, align, false, 0, "")
		}
	}
}

// shorten cuts a text after most characters.
func shorten(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// western returns a text in Windows-1252, the encoding of the fonts.
func western(text string) string {
	var b strings.Builder
	for _, r := range text {
		c, ok := charmap.Windows1252.EncodeRune(r)
		if !ok || c < ' ' {
			c = '?'
		}
		b.WriteByte(c)
	}
	return b.String()
}
