package console

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/catalog"
)

// problems says what a store refuses in the words of the form: beside its field
// where it names one of the fields, else above the form. It returns nil for an
// error that the person could do nothing about.
func problems(err error, fields []ui.Field) []ui.Problem {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code.Status >= 500 && e.Code != apierr.ProviderError || e.Code == apierr.NotFound {
		return nil
	}
	member, rule, found := strings.Cut(e.Message, ": ")
	name, index, listed := strings.Cut(member, "[")
	i := slices.IndexFunc(fields, func(f ui.Field) bool { return f.ID == name })
	if !found || i < 0 {
		return []ui.Problem{{Field: "form", Text: sentence(e.Message)}}
	}
	text := fields[i].Label
	if n, err := strconv.Atoi(strings.TrimSuffix(index, "]")); listed && err == nil {
		text += ", line " + strconv.Itoa(n+1)
	}
	return []ui.Problem{{Field: name, Text: text + ": " + ended(rule)}}
}

// beside puts the problems to their fields.
func beside(fields []ui.Field, list []ui.Problem) []ui.Field {
	for i := range fields {
		for _, p := range list {
			if p.Field == fields[i].ID {
				fields[i].Error = p.Text
			}
		}
	}
	return fields
}

// typed puts what was typed back into the fields.
func typed(fields []ui.Field, form url.Values) []ui.Field {
	for i := range fields {
		fields[i].Value = form.Get(fields[i].ID)
		for j := range fields[i].Options {
			fields[i].Options[j].Chosen = fields[i].Options[j].ID == fields[i].Value
		}
	}
	return fields
}

// sentence begins with a capital and ends with a full stop.
func sentence(s string) string {
	c, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(c)) + ended(s[n:])
}

func ended(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// lines are what stands in a text area, one to a line, without empty ones.
func lines(text string) []string {
	list := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// ticked returns which of the boxes "prefix.x" are ticked, in the order of all.
func ticked(form url.Values, prefix string, all []string) []string {
	list := []string{}
	for _, x := range all {
		if form.Has(prefix + x) {
			list = append(list, x)
		}
	}
	return list
}

// boxes are the boxes "prefix.x", those of chosen ticked.
func boxes(prefix string, all, chosen []string) (list []ui.Option) {
	for _, x := range all {
		list = append(list, ui.Option{ID: prefix + x, Text: x, Chosen: slices.Contains(chosen, x)})
	}
	return list
}

func given[T any](v T) web.Field[T] { return web.Field[T]{Set: true, Value: v} }

func null[T any]() web.Field[T] { return web.Field[T]{Set: true, Null: true} }

// A reader reads optional values of a form and collects what is wrong with them.
type reader struct {
	form     url.Values
	problems []ui.Problem
}

func (r *reader) wrong(field, text string) {
	r.problems = append(r.problems, ui.Problem{Field: field, Text: text})
}

// text is a field's text.
func (r *reader) text(field string) web.Field[string] {
	return given(strings.TrimSpace(r.form.Get(field)))
}

// whole is a whole number; an empty field is null.
func (r *reader) whole(field, label string) web.Field[int64] {
	text := strings.TrimSpace(r.form.Get(field))
	if text == "" {
		return null[int64]()
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.wrong(field, label+": enter a whole number, or leave it empty.")
	}
	return given(n)
}

// dollars is an amount; an empty field is null.
func (r *reader) dollars(field, label string) web.Field[money.MC] {
	text := strings.TrimSpace(r.form.Get(field))
	if text == "" {
		return null[money.MC]()
	}
	amount, err := money.Parse(text)
	if err != nil {
		r.wrong(field, label+": enter an amount in dollars, such as 0.05, or leave it empty.")
	}
	return given(amount)
}

// percent is a rate, typed in percent with at most four decimals; an empty field
// is null if that may be, else nothing.
func (r *reader) percent(field, label string, optional bool) web.Field[jsontext.Value] {
	text := strings.TrimSuffix(strings.TrimSpace(r.form.Get(field)), "%")
	if text = strings.TrimSpace(text); text == "" && optional {
		return null[jsontext.Value]()
	}
	rate, err := money.ParseRate(text)
	if text == "" {
		rate, err = 0, nil
	}
	if err != nil || rate%100 != 0 || rate/100 > 10*money.One {
		r.wrong(field, label+": enter a percentage from 0 to 1000, such as 20 or 12.5.")
		return web.Field[jsontext.Value]{}
	}
	return given(jsontext.Value((rate / 100).String()))
}

// inPercent writes a rate the way it is typed.
func inPercent(rate money.PPM) string { return (rate * 100).String() }

// models are the offered ones, by provider in the catalogue's order.
func models(offered []catalog.Listing, chosen []string) (groups []ui.ModelGroup) {
	add := func(provider string, o ui.Option) {
		i := slices.IndexFunc(groups, func(g ui.ModelGroup) bool { return g.Provider == provider })
		if i < 0 {
			i, groups = len(groups), append(groups, ui.ModelGroup{Provider: provider})
		}
		groups[i].Models = append(groups[i].Models, o)
	}
	for _, m := range offered {
		add(providerName(m.Provider), ui.Option{
			ID:     modelPrefix + m.ID,
			Text:   m.ID,
			Chosen: slices.Contains(chosen, m.ID),
		})
	}
	for _, id := range chosen {
		if !slices.ContainsFunc(offered, func(m catalog.Listing) bool { return m.ID == id }) {
			add("No longer offered", ui.Option{ID: modelPrefix + id, Text: id, Chosen: true})
		}
	}
	return groups
}

const modelPrefix = "model."

func providerName(provider string) string {
	switch provider {
	case "openai":
		return "OpenAI"
	case "anthropic":
		return "Anthropic"
	case "google":
		return "Google"
	}
	return provider
}
