package oauth

import (
	"cmp"
	"net/url"
	"strconv"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
)

// The consent screen says in a hidden field which margin rates it showed. If one of them is higher when the form comes,
// the user has not agreed to it, and the screen is shown again (decision 141).

// rates are the margin rates of an app: its own under "", and those of features that have one under their slugs.
type rates map[string]money.PPM

func ratesOf(app apps.App, list []features.Feature) rates {
	r := rates{"": app.DevMargin}
	for _, f := range list {
		if f.DevMargin != nil {
			r[f.Slug] = *f.DevMargin
		}
	}
	return r
}

// of returns the rate of a feature, which is the app's if it has none of its own.
func (r rates) of(slug string) money.PPM {
	if rate, ok := r[slug]; ok {
		return rate
	}
	return r[""]
}

// encode writes rates for the hidden field.
func (r rates) encode() string {
	values := url.Values{}
	for slug, rate := range r {
		values.Set(slug, strconv.FormatInt(int64(rate), 10))
	}
	return values.Encode()
}

// readRates reads the hidden field, or returns nil if the form does not say what the screen showed.
func readRates(text string) rates {
	values, err := url.ParseQuery(text)
	if err != nil || !values.Has("") {
		return nil
	}
	r := rates{}
	for slug := range values {
		rate, err := strconv.ParseInt(values.Get(slug), 10, 64)
		if err != nil {
			return nil
		}
		r[slug] = money.PPM(rate)
	}
	return r
}

// raisedRates returns the rates of an app that are higher than the screen showed them: its own and those of its
// features.
func raisedRates(shown rates, app apps.App, list []features.Feature) (raised []apps.MarginChange) {
	if shown == nil {
		return nil
	}
	now := ratesOf(app, list)
	add := func(slug, name string) {
		c := apps.MarginChange{AppID: app.ID, Feature: slug, Name: name, Before: shown.of(slug), After: now.of(slug)}
		if c.After > c.Before {
			raised = append(raised, c)
		}
	}
	add("", "")
	for _, f := range list {
		if _, was := shown[f.Slug]; was || f.DevMargin != nil { // else it has the app's rate, before and now
			add(f.Slug, f.DisplayName)
		}
	}
	return raised
}

// A raisedError says that rates have risen since the consent screen was shown.
type raisedError struct {
	app    apps.App // as it is now
	raised []apps.MarginChange
}

func (e *raisedError) Error() string { return "the margin of app " + e.app.ID + " has risen" }

// problems returns what the screen says when it is shown again.
func (e *raisedError) problems() []ui.Problem {
	var list []ui.Problem
	for _, c := range e.raised {
		list = append(list, ui.Problem{
			Field: "price",
			Text: cmp.Or(e.app.Name, "The app") + " raised its price while this page was open. " + c.Of() + ": " +
				apps.FormatMargin(c.After) + " instead of " + apps.FormatMargin(c.Before) +
				". Nothing was shared or charged. To agree to it, allow it again.",
		})
	}
	return list
}
