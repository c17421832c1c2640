// Package catalog knows the models that Purser offers, what each can do, and
// what the provider charges for it (spec §2, Model listing entry; spec §4.2;
// decisions, Money). The facts stand in prices.yaml, the book of prices: dated,
// with steps for long requests, and checked member by member when loaded.
package catalog

import (
	"time"
)

// A Model is what Purser knows of one model besides its prices.
type Model struct {
	ID               string
	Provider         string // openai, anthropic or google
	Family           string // how its tokens are counted, see package tokens
	ContextTokens    int64  // the most input and output that one call may have
	MaxOutputTokens  int64  // the model's ceiling, the last resort of spec §2, holds 5
	Vision           bool   // takes images
	Tools            bool   // takes tools
	ForcedToolChoice bool   // tool_choice may be required or name a tool
	Temperature      bool   // temperature is free; otherwise only the default is accepted
	Reasoning        bool
	Realtime         bool       // speaks in voice sessions, and only there
	Efforts          []string   // the levels of reasoning_effort it takes; none: the member is refused
	ToolsEffort      string     // the level that a request with tools must have; "" = any
	Responses        bool       // OpenAI takes its tools only through the Responses API
	Thinking         string     // Anthropic: always, on (may be switched off), off; Google: level, budget; else ""
	DeprecatedAt     *time.Time // when its end was announced
	RetiresAt        *time.Time // when it ends
	Replacement      string     // the model to use instead
}

// TakesEffort says whether the model takes this level of reasoning_effort.
func (m Model) TakesEffort(level string) bool {
	for _, e := range m.Efforts {
		if e == level {
			return true
		}
	}
	return false
}

// A Catalog is a checked book of prices. It never changes.
type Catalog struct {
	version string // "" only of the empty one
	entries []entry
	byID    map[string]int
}

// entry is a model with its prices over time.
type entry struct {
	model   Model
	periods []period
}

// period is a time during which the rates hold: from ≤ now < to.
type period struct {
	from, to time.Time // zero = without that end
	rates    Rates
}

func (p period) holds(now time.Time) bool {
	return !now.Before(p.from) && (p.to.IsZero() || now.Before(p.to))
}

// Version names the book: its date and the start of its hash; a book that an
// operator's file has changed has both names, joined by "+". Each price that was
// ever used is recorded with the name of the one file that it stands in.
func (c *Catalog) Version() string { return c.version }

// Find returns a model and its rates at this time. A model that has no price
// now, or is retired, is not found.
func (c *Catalog) Find(id string, now time.Time) (Model, Rates, bool) {
	i, ok := c.byID[id]
	if !ok {
		return Model{}, Rates{}, false
	}
	rates, ok := c.entries[i].at(now)
	if !ok {
		return Model{}, Rates{}, false
	}
	return c.entries[i].model, rates, true
}

func (e *entry) at(now time.Time) (Rates, bool) {
	if e.model.RetiresAt != nil && !now.Before(*e.model.RetiresAt) {
		return Rates{}, false
	}
	for _, p := range e.periods {
		if p.holds(now) {
			return p.rates, true
		}
	}
	return Rates{}, false
}

// Offered lists the models that Find finds at this time, in the book's order.
func (c *Catalog) Offered(now time.Time) []Listing {
	list := make([]Listing, 0, len(c.entries))
	for i := range c.entries {
		if rates, ok := c.entries[i].at(now); ok {
			list = append(list, listing(c.entries[i].model, rates))
		}
	}
	return list
}

// A Priced is a model with all its prices, those of other times included.
type Priced struct {
	Model   Model
	Periods []Period
}

// A Period is a time during which rates hold: From ≤ now < To; zero is without
// that end.
type Period struct {
	From, To time.Time
	Rates    Rates
}

// Holds says whether the rates hold at this time.
func (p Period) Holds(now time.Time) bool { return period{from: p.From, to: p.To}.holds(now) }

// Book lists every model of the book with all its prices, in the book's order.
func (c *Catalog) Book() []Priced {
	list := make([]Priced, len(c.entries))
	for i, e := range c.entries {
		list[i].Model = e.model
		for _, p := range e.periods {
			list[i].Periods = append(list[i].Periods, Period{p.from, p.to, p.rates})
		}
	}
	return list
}
