package ui

import (
	"net/url"
	"strings"
)

// A form that changes several settings of one thing says in a hidden field with which values the page showed them. What
// still has that value when the form comes was not typed, so it is not changed: a tab that was open for long sets
// nothing back that was changed meanwhile.

// fieldShown is the name of the hidden field.
const fieldShown = "shown"

// Shown is the value of the hidden field: the names and values of a form, encoded.
type Shown string

// ShownFields returns what the fields and boxes of a form show.
func ShownFields(fields []Field, boxes ...Option) Shown {
	values := url.Values{}
	for _, f := range fields {
		value := f.Value
		for i, o := range f.Options {
			if o.Chosen || i == 0 { // a browser chooses the first one of a select without a choice
				value = o.ID
			}
		}
		values.Set(f.ID, value)
	}
	for _, b := range boxes {
		if b.Chosen {
			values.Set(b.ID, "on")
		}
	}
	return Shown(values.Encode())
}

// ShownEntries returns what the fields of an operator's form show.
func ShownEntries(entries []Entry) Shown {
	var fields []Field
	for _, e := range entries {
		f := Field{ID: e.ID, Value: e.Value}
		for _, c := range e.Choices {
			f.Options = append(f.Options, Option{ID: c.ID, Chosen: c.Chosen})
		}
		fields = append(fields, f)
	}
	return ShownFields(fields)
}

// readShown returns the values that the page showed, or nil if the form does not say.
func readShown(form url.Values) url.Values {
	if !form.Has(fieldShown) {
		return nil
	}
	values, err := url.ParseQuery(form.Get(fieldShown))
	if err != nil {
		return nil // all of it counts as typed
	}
	return values
}

// ShownValue returns with what value the page showed a field.
func ShownValue(form url.Values, name string) string { return readShown(form).Get(name) }

// TypedFields returns the fields of a submitted form that have another value than the page showed. A form that does not
// say what it showed is returned as it is.
func TypedFields(form url.Values) url.Values {
	shown := readShown(form)
	if shown == nil {
		return form
	}
	typed := url.Values{}
	for name, values := range form {
		if name != fieldShown && (!shown.Has(name) || trimLines(form.Get(name)) != trimLines(shown.Get(name))) {
			typed[name] = values
		}
	}
	return typed
}

// trimLines returns a text as it is whatever line breaks a browser sends.
func trimLines(text string) string { return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) }

// Ticked reports whether a box is ticked after a submitted form. A box that is as the page showed it stays as it is
// now.
func Ticked(form url.Values, box string, now bool) bool {
	shown, ticked := readShown(form), form.Has(box)
	if shown != nil && shown.Has(box) == ticked {
		return now
	}
	return ticked
}
