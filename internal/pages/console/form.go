package console

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/catalog"
)

// formProblems turns a store's refusal into problems of the form: of the field that its message names, or of the form
// as a whole. It returns nil for an error that the user can do nothing about.
func formProblems(err error, fields []ui.Field) []ui.Problem {
	e, ok := errors.AsType[*apierr.Error](err)
	if !ok || e.Code.Status >= 500 && e.Code != apierr.ProviderError || e.Code == apierr.NotFound {
		return nil
	}
	member, rule, found := strings.Cut(e.Message, ": ")
	name, index, listed := strings.Cut(member, "[")
	i := slices.IndexFunc(fields, func(f ui.Field) bool { return f.ID == name })
	if !found || i < 0 {
		return []ui.Problem{{Field: "form", Text: ui.Sentence(e.Message)}}
	}
	text := fields[i].Label
	if n, err := strconv.Atoi(strings.TrimSuffix(index, "]")); listed && err == nil {
		text += ", line " + strconv.Itoa(n+1)
	}
	return []ui.Problem{{Field: name, Text: text + ": " + ui.EndSentence(rule)}}
}

// withErrors adds the problems to the fields that they are about.
func withErrors(fields []ui.Field, list []ui.Problem) []ui.Field {
	for i := range fields {
		for _, p := range list {
			if p.Field == fields[i].ID {
				fields[i].Error = p.Text
			}
		}
	}
	return fields
}

// withValues fills the fields with the values that the submitted form has for them.
func withValues(fields []ui.Field, form url.Values) []ui.Field {
	for i := range fields {
		if !form.Has(fields[i].ID) {
			continue
		}
		fields[i].Value = form.Get(fields[i].ID)
		for j := range fields[i].Options {
			fields[i].Options[j].Chosen = fields[i].Options[j].ID == fields[i].Value
		}
	}
	return fields
}

// splitLines returns the lines of a text area, trimmed and without empty ones.
func splitLines(text string) []string {
	list := []string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// checkedBoxes returns which of the boxes "prefix.x" are ticked, in the order of all.
func checkedBoxes(form url.Values, prefix string, all []string) []string {
	list := []string{}
	for _, x := range all {
		if form.Has(prefix + x) {
			list = append(list, x)
		}
	}
	return list
}

// tickedBoxes returns which of the boxes "prefix.x" are ticked after the submitted form, where those of chosen are
// ticked now, in the order of all.
func tickedBoxes(form url.Values, prefix string, all, chosen []string) []string {
	list := []string{}
	for _, x := range all {
		if ui.Ticked(form, prefix+x, slices.Contains(chosen, x)) {
			list = append(list, x)
		}
	}
	return list
}

// checkboxes returns the boxes "prefix.x", with those of chosen ticked.
func checkboxes(prefix string, all, chosen []string) (list []ui.Option) {
	for _, x := range all {
		list = append(list, ui.Option{ID: prefix + x, Text: x, Chosen: slices.Contains(chosen, x)})
	}
	return list
}

// setField returns a member that is present in a change.
func setField[T any](v T) web.Field[T] { return web.Field[T]{Set: true, Value: v} }

// nullField returns a member that is null in a change.
func nullField[T any]() web.Field[T] { return web.Field[T]{Set: true, Null: true} }

// A formReader reads values of a form and collects what is wrong with them. A field that the form lacks is absent from
// the change.
type formReader struct {
	form     url.Values
	problems []ui.Problem
}

func (r *formReader) addProblem(field, text string) {
	r.problems = append(r.problems, ui.Problem{Field: field, Text: text})
}

// readText returns a field's text, trimmed.
func (r *formReader) readText(field string) web.Field[string] {
	if !r.form.Has(field) {
		return web.Field[string]{}
	}
	return setField(strings.TrimSpace(r.form.Get(field)))
}

// readInteger returns a whole number; null for an empty field.
func (r *formReader) readInteger(field, label string) web.Field[int64] {
	text := strings.TrimSpace(r.form.Get(field))
	if !r.form.Has(field) {
		return web.Field[int64]{}
	}
	if text == "" {
		return nullField[int64]()
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.addProblem(field, label+": enter a whole number, or leave it empty.")
	}
	return setField(n)
}

// readLines returns the lines of a text area.
func (r *formReader) readLines(field string) web.Field[[]string] {
	if !r.form.Has(field) {
		return web.Field[[]string]{}
	}
	return setField(splitLines(r.form.Get(field)))
}

// readSwitch returns whether a choice of on and off is on; null if neither is chosen.
func (r *formReader) readSwitch(field string) web.Field[bool] {
	switch text := r.form.Get(field); {
	case !r.form.Has(field):
		return web.Field[bool]{}
	case text == "":
		return nullField[bool]()
	case text != "on" && text != "off":
		r.addProblem(field, "Choose one of the options.")
		return web.Field[bool]{}
	default:
		return setField(text == "on")
	}
}

// readDollars returns an amount; null for an empty field.
func (r *formReader) readDollars(field, label string) web.Field[money.MC] {
	text := strings.TrimSpace(r.form.Get(field))
	if !r.form.Has(field) {
		return web.Field[money.MC]{}
	}
	if text == "" {
		return nullField[money.MC]()
	}
	amount, err := money.Parse(text)
	if err != nil {
		r.addProblem(field, label+": enter an amount in dollars, such as 0.05, or leave it empty.")
	}
	return setField(amount)
}

// readPercent returns a rate that was typed in percent, with at most four decimals. An empty field is null if it is
// optional, and 0 otherwise.
func (r *formReader) readPercent(field, label string, optional bool) web.Field[jsontext.Value] {
	text := strings.TrimSuffix(strings.TrimSpace(r.form.Get(field)), "%")
	if !r.form.Has(field) {
		return web.Field[jsontext.Value]{}
	}
	if text = strings.TrimSpace(text); text == "" && optional {
		return nullField[jsontext.Value]()
	}
	rate, err := money.ParseRate(text)
	if text == "" {
		rate, err = 0, nil
	}
	if err != nil || rate%100 != 0 || rate/100 > 10*money.One {
		r.addProblem(field, label+": enter a percentage from 0 to 1000, such as 20 or 12.5.")
		return web.Field[jsontext.Value]{}
	}
	return setField(jsontext.Value((rate / 100).String()))
}

// formatPercent returns a rate in percent, as readPercent reads it.
func formatPercent(rate money.PPM) string { return (rate * 100).String() }

// modelGroups returns checkboxes for the offered models by provider, in the catalog's order, and for chosen models that
// are no longer offered.
func modelGroups(offered []catalog.Listing, chosen []string) (groups []ui.ModelGroup) {
	add := func(provider string, o ui.Option) {
		i := slices.IndexFunc(groups, func(g ui.ModelGroup) bool { return g.Provider == provider })
		if i < 0 {
			i, groups = len(groups), append(groups, ui.ModelGroup{Provider: provider})
		}
		groups[i].Models = append(groups[i].Models, o)
	}
	for _, m := range offered {
		add(catalog.ProviderName(m.Provider), ui.Option{
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
