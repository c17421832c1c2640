package summary

import (
	"cmp"
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/money"
)

// A Row is what one app, feature and model was charged in a period. Rows of the same three are added up.
type Row struct {
	App, Feature, Model string // Feature: "" = none, other = not registered
	Calls               int64
	Input, Output       int64    // tokens
	ChargeMC            money.MC // before refunds
	RefundedMC          money.MC // in the period, whenever the calls were
}

// Weights say what an input and an output token of a model cost in relation to each other.
type Weights struct{ Input, Output int64 }

// A Kind says why spend differs.
type Kind string

// The kinds of causes.
const (
	Started Kind = "started" // calls of an app or feature that had none before
	Ended   Kind = "ended"   // no more calls of an app or feature
	Calls   Kind = "calls"   // more or fewer calls
	Models  Kind = "models"  // other shares of models
	Length  Kind = "length"  // longer or shorter calls
	Prices  Kind = "prices"  // the rest: what a token costs, by prices, fee, margin and use of a cache
	Refunds Kind = "refunds" // more or less money was refunded
	Others  Kind = "other"   // the sum of further causes
)

// A Cause is a part of the difference.
type Cause struct {
	Kind                Kind
	App, Feature, Model string   // of the calls; "" = of all, or none
	AmountMC            money.MC // what it adds to the spend; negative = it saved money

	Calls, CallsBefore           int64    // Started, Ended, Calls; Models, Length and Prices: those of the model
	OfCalls, OfCallsBefore       int64    // Models: those of the feature, of all models
	Tokens, TokensBefore         int64    // Length: of a call on average, rounded down
	RefundedMC, RefundedBeforeMC money.MC // Refunds

	divided bool // the app has other features, so that a sentence must name this one
}

// Totals are the sums of a period.
type Totals struct {
	Calls    int64
	ChargeMC money.MC // less refunds
}

// A Summary is the spend of two periods. Its causes add up to the difference, and the largest comes first.
type Summary struct {
	Now, Before Totals
	Causes      []Cause
}

// ChangeMC returns how much more was spent than before.
func (s Summary) ChangeMC() money.MC { return s.Now.ChargeMC - s.Before.ChargeMC }

// Comparable reports whether there was anything before.
func (s Summary) Comparable() bool { return s.Before != Totals{} }

// A use is what a period has of an app, a feature or a model.
type use struct {
	calls, input, output int64
	charge, refunded     money.MC
}

func (u *use) add(r *Row) {
	u.calls += r.Calls
	u.input += r.Input
	u.output += r.Output
	u.charge += r.ChargeMC
	u.refunded += r.RefundedMC
}

// isEmpty reports whether there was no call. Refunds may be of calls of an earlier period.
func (u use) isEmpty() bool { return u.calls == 0 && u.charge == 0 }

// tokens returns how many tokens a call had on average.
func (u use) tokens() int64 {
	if u.calls == 0 {
		return 0
	}
	return (u.input + u.output) / u.calls
}

// both are the uses now and before.
type both [2]use

// A part is a feature of an app.
type part struct{ app, feature string }

// Compare explains the difference between two periods. weigh returns the weights of a model's tokens.
func Compare(now, before []Row, weigh func(model string) Weights) Summary {
	apps, features := map[string]*both{}, map[part]*both{}
	models := map[part]map[string]*both{}
	var s Summary
	for period, rows := range [][]Row{now, before} {
		totals := []*Totals{&s.Now, &s.Before}[period]
		for i := range rows {
			r := &rows[i]
			totals.Calls += r.Calls
			totals.ChargeMC += r.ChargeMC - r.RefundedMC
			of := part{app: r.App, feature: r.Feature}
			if models[of] == nil {
				models[of] = map[string]*both{}
			}
			valueOf(apps, r.App)[period].add(r)
			valueOf(features, of)[period].add(r)
			valueOf(models[of], r.Model)[period].add(r)
		}
	}
	count := map[string]int{} // features by app
	for of, u := range features {
		if !u[0].isEmpty() || !u[1].isEmpty() {
			count[of.app]++
		}
	}
	for app, u := range apps {
		if c, ok := compareEnds(u[0], u[1]); ok {
			c.App = app
			s.add(c)
		}
		s.add(Cause{
			Kind:             Refunds,
			App:              app,
			AmountMC:         u[1].refunded - u[0].refunded,
			RefundedMC:       u[0].refunded,
			RefundedBeforeMC: u[1].refunded,
		})
	}
	for of, u := range features {
		if app := apps[of.app]; app[0].isEmpty() || app[1].isEmpty() {
			continue // the app as a whole is a cause
		}
		list := compareFeature(*u, models[of], weigh)
		for i := range list {
			list[i].App, list[i].Feature, list[i].divided = of.app, of.feature, count[of.app] > 1
			s.add(list[i])
		}
	}
	slices.SortFunc(s.Causes, compareCauses)
	return s
}

func valueOf[K comparable](m map[K]*both, key K) *both {
	if m[key] == nil {
		m[key] = &both{}
	}
	return m[key]
}

// add appends a cause, unless it adds nothing.
func (s *Summary) add(c Cause) {
	if c.AmountMC != 0 {
		s.Causes = append(s.Causes, c)
	}
}

func compareCauses(a, b Cause) int {
	return cmp.Or(cmp.Compare(abs(b.AmountMC), abs(a.AmountMC)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.App, b.App),
		cmp.Compare(a.Feature, b.Feature), cmp.Compare(a.Model, b.Model))
}

func abs(mc money.MC) money.MC { return max(mc, -mc) }

// compareEnds returns the cause of calls in only one of the periods.
func compareEnds(now, before use) (c Cause, ok bool) {
	c = Cause{AmountMC: now.charge - before.charge, Calls: now.calls, CallsBefore: before.calls}
	switch {
	case before.isEmpty():
		c.Kind = Started
	case now.isEmpty():
		c.Kind = Ended
	default:
		return Cause{}, false
	}
	return c, true
}

// compareFeature divides the difference between the calls of a feature. Each step changes one thing and keeps the
// others: how many calls, by which models, how long, and at what price. The steps begin at the charge before and end at
// the charge now, so that they add up however each of them is rounded.
func compareFeature(u both, models map[string]*both, weigh func(string) Weights) []Cause {
	now, before := u[0], u[1]
	if c, ok := compareEnds(now, before); ok {
		return []Cause{c}
	}
	asBefore := scale(before.charge, now.calls, before.calls) // the charge now, had only the number of calls changed
	list := []Cause{{
		Kind:        Calls,
		AmountMC:    asBefore - before.charge,
		Calls:       now.calls,
		CallsBefore: before.calls,
	}}
	mix := Cause{
		Kind:          Models,
		AmountMC:      -asBefore,
		OfCalls:       now.calls,
		OfCallsBefore: before.calls,
	}
	effects := map[string]money.MC{} // what the changed share of a model adds, compared with an average call
	for _, model := range slices.Sorted(maps.Keys(models)) {
		m := models[model]
		is, was := m[0], m[1]
		sameCalls := is.charge // of a model that is new here
		if was.calls > 0 {
			sameCalls = scale(was.charge, is.calls, was.calls) // at the charge of a call before
			sameTokens := sameCalls
			if w := weigh(model); is.calls > 0 && w.volume(was) > 0 {
				sameTokens = scale(was.charge, w.volume(is), w.volume(was)) // at the price of a token before
			}
			c := Cause{Model: model, Calls: is.calls, CallsBefore: was.calls}
			length, prices := c, c
			length.Kind, length.AmountMC = Length, sameTokens-sameCalls
			length.Tokens, length.TokensBefore = is.tokens(), was.tokens()
			prices.Kind, prices.AmountMC = Prices, is.charge-sameTokens
			list = append(list, length, prices)
		}
		mix.AmountMC += sameCalls
		effects[model] = sameCalls - scale(asBefore, is.calls, now.calls) -
			scale(was.charge, now.calls, before.calls) + scale(asBefore, was.calls, before.calls)
	}
	var largest money.MC
	for _, model := range slices.Sorted(maps.Keys(effects)) { // name the model that explains most of the mix
		effect := effects[model]
		if mix.AmountMC < 0 {
			effect = -effect
		}
		if effect > largest {
			largest, mix.Model = effect, model
			mix.Calls, mix.CallsBefore = models[model][0].calls, models[model][1].calls
		}
	}
	return append(list, mix)
}

// volume returns the tokens by their weights.
func (w Weights) volume(u use) int64 { return u.input*w.Input + u.output*w.Output }

// scale returns amount × now ÷ before, rounded down in size. Without calls or tokens before it returns the amount.
func scale(amount money.MC, now, before int64) money.MC {
	n, err := money.MulDiv(int64(abs(amount)), now, before, money.Down)
	if err != nil {
		return amount
	}
	if amount < 0 {
		n = -n
	}
	return money.MC(n)
}

// Limit returns at most n causes: the smallest are summed in the last one.
func (s Summary) Limit(n int) []Cause {
	if len(s.Causes) <= n {
		return s.Causes
	}
	list := slices.Clone(s.Causes[:n-1])
	rest := Cause{Kind: Others}
	for _, c := range s.Causes[n-1:] {
		rest.AmountMC += c.AmountMC
	}
	return append(list, rest)
}
