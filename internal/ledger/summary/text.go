package summary

import (
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
)

// A Span is days in UTC, the last one included, as 2026-11-21.
type Span struct{ From, To string }

// Has reports whether a day is one of the span.
func (s Span) Has(day string) bool { return s.From <= day && day <= s.To }

// A Period is the days that a summary compares.
type Period struct {
	Now, Before Span
	now, before time.Time // first days
	whole       bool      // Before is a whole month, shorter than Now
}

// MonthTo returns the month of a time up to its day, and the same days of the month before, as far as it has them.
func MonthTo(at time.Time) Period {
	at = at.UTC()
	first := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	p := Period{now: first, before: first.AddDate(0, -1, 0)}
	last := p.before.AddDate(0, 0, at.Day()-1)
	if !last.Before(first) {
		last, p.whole = first.AddDate(0, 0, -1), true
	}
	p.Now = Span{first.Format(time.DateOnly), at.Format(time.DateOnly)}
	p.Before = Span{p.before.Format(time.DateOnly), last.Format(time.DateOnly)}
	return p
}

// describeBefore writes the period before.
func (p Period) describeBefore() string {
	month := p.before.Month().String()
	switch {
	case p.whole:
		return "in all of " + month
	case p.Before.From == p.Before.To:
		return "on the same day of " + month
	}
	return "in the same days of " + month
}

// Start returns the first moment of Before.
func (p Period) Start() time.Time { return p.before }

// Month returns the month as 2026-11.
func (p Period) Month() string { return p.now.Format("2006-01") }

// A Sentence is a part of the explanation. Cause is what it names; nil = the sum.
type Sentence struct {
	Text  string
	Cause *Cause
}

// maxNamed is how many causes have a sentence.
const maxNamed = 2

// Sentences explains the summary: what was spent, and the causes that matter. It returns none if nothing was spent in
// either period, and only the first if there is nothing to compare. nameOf returns the name of an app.
func (s Summary) Sentences(p Period, nameOf func(app string) string) []Sentence {
	if s.Now == (Totals{}) && !s.Comparable() {
		return nil
	}
	w := newWriter(s, nameOf)
	spent := fmt.Sprintf("You spent %s in %s so far", w.spent(s.Now.ChargeMC), p.now.Month())
	if !s.Comparable() {
		return []Sentence{{Text: spent + "."}}
	}
	change := s.ChangeMC()
	if w.isNothing(change) {
		spent += ", about as much as " + p.describeBefore() + "."
	} else {
		spent += fmt.Sprintf(", %s than %s.", w.difference(change), p.describeBefore())
	}
	list := []Sentence{{Text: spent}}
	var named money.MC // of the change, by the sentences so far
	for i := range s.Causes {
		c := &s.Causes[i]
		if len(list) > maxNamed || !w.matters(c.AmountMC) {
			break
		}
		text := w.explain(c)
		var part string
		switch within := abs(named+c.AmountMC) <= abs(change) && (c.AmountMC > 0) == (change > 0); {
		case !within || named == 0 && i > 0:
			part = w.difference(c.AmountMC) + " is because "
		case named != 0:
			part = "Another " + w.amount(abs(c.AmountMC)) + " is because "
		case w.amount(abs(c.AmountMC)) == w.amount(abs(change)):
			part = "All of it is because "
		case abs(c.AmountMC) >= abs(change)-abs(c.AmountMC):
			part = "Most of it, " + w.amount(abs(c.AmountMC)) + ", is because "
		default:
			part = w.amount(abs(c.AmountMC)) + " of it is because "
		}
		if (c.AmountMC > 0) == (change > 0) && abs(named+c.AmountMC) <= abs(change) {
			named += c.AmountMC
		}
		list = append(list, Sentence{part + text + ".", c})
	}
	return list
}

// Text joins sentences.
func Text(list []Sentence) string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = s.Text
	}
	return strings.Join(texts, " ")
}

// A writer writes the amounts of one summary alike.
type writer struct {
	nameOf func(string) string
	amount func(money.MC) string
	least  money.MC // the smallest cause that has a sentence
}

// newWriter returns a writer that writes cents, or four decimals where both sums are less than a dollar. A cause
// matters if it is a tenth of the change and a hundredth of what was spent.
func newWriter(s Summary, nameOf func(string) string) writer {
	largest := max(abs(s.Now.ChargeMC), abs(s.Before.ChargeMC))
	w := writer{nameOf: nameOf, amount: ui.Total, least: max(abs(s.ChangeMC())/10, largest/100, 1)}
	if largest < money.Dollar {
		w.amount = ui.Price
	}
	return w
}

// isNothing reports whether an amount reads as zero.
func (w writer) isNothing(mc money.MC) bool { return w.amount(abs(mc)) == w.amount(0) }

func (w writer) matters(mc money.MC) bool { return abs(mc) >= w.least && !w.isNothing(mc) }

func (w writer) spent(mc money.MC) string {
	if mc == 0 {
		return "nothing"
	}
	return w.amount(mc)
}

// difference writes "$1.30 more".
func (w writer) difference(mc money.MC) string {
	if mc < 0 {
		return w.amount(-mc) + " less"
	}
	return w.amount(mc) + " more"
}

// explain writes what goes after "because".
func (w writer) explain(c *Cause) string {
	who := w.nameOf(c.App)
	switch c.Kind {
	case Started, Ended, Calls:
		return fmt.Sprintf("%s made %s%s instead of %s", who, countCalls(c.Calls), c.feature(), count(c.CallsBefore))
	case Models:
		if c.Model == "" {
			return fmt.Sprintf("%s used other models%s", who, c.feature())
		}
		return fmt.Sprintf("%s made %s of %s%s with %s instead of %s of %s", who, count(c.Calls), countCalls(c.OfCalls),
			c.feature(), c.Model, count(c.CallsBefore), count(c.OfCallsBefore))
	case Length:
		if (c.Tokens > c.TokensBefore) == (c.AmountMC > 0) && c.Tokens != c.TokensBefore {
			return fmt.Sprintf("%s’s calls%s with %s had %s tokens on average instead of %s", who, c.feature(),
				c.Model, ui.Count(c.Tokens), ui.Count(c.TokensBefore))
		}
		return fmt.Sprintf("%s’s calls%s with %s had another share of output tokens", who, c.feature(), c.Model)
	case Prices:
		more := "more"
		if c.AmountMC < 0 {
			more = "less"
		}
		return fmt.Sprintf("tokens of %s’s calls%s with %s cost %s on average", who, c.feature(), c.Model, more)
	}
	return fmt.Sprintf("%s was refunded for %s instead of %s", w.amount(c.RefundedMC), who,
		w.spent(c.RefundedBeforeMC)) // the kind is Refunds: sentences are about single causes
}

// feature writes which calls of an app it is about.
func (c *Cause) feature() string {
	switch {
	case !c.divided:
		return ""
	case c.Feature == "":
		return " without a feature"
	case c.Feature == "other":
		return " for other features"
	}
	return " for " + c.Feature
}

func count(n int64) string {
	if n == 0 {
		return "none"
	}
	return ui.Count(n)
}

func countCalls(n int64) string {
	switch n {
	case 0:
		return "no calls"
	case 1:
		return "1 call"
	}
	return ui.Count(n) + " calls"
}
