// Package catalog holds the models that Purser offers, what each can do, and what its provider charges (contract §2,
// Model listing entry; contract §4.2; decision 016). The price list is prices.yaml: it is dated, has steps for long
// requests, and is checked member by member when it is loaded.
package catalog

import (
	"slices"
	"time"
)

// A Model is one model without its prices.
type Model struct {
	ID               string
	Provider         string // openai, anthropic or google
	Family           string // selects how its tokens are counted, see package tokens
	ContextTokens    int64  // most input and output tokens of one call; of one input of an embedding model
	MaxOutputTokens  int64  // the model's output limit, the last resort of contract §2, holds 5
	Vision           bool   // accepts images
	Tools            bool   // accepts tools
	ForcedToolChoice bool   // tool_choice may be required or name a tool
	Temperature      bool   // any temperature; otherwise only the default is accepted
	Reasoning        bool
	Realtime         bool       // serves voice sessions, and nothing else
	Voices           []string   // of a realtime model; none = they are not known
	Transcription    bool       // writes down what users say in voice sessions, and nothing else
	Embedding        bool       // makes embeddings, and nothing else: it has no output tokens
	MinDimensions    int64      // of an embedding: the fewest numbers that a request may ask for
	MaxDimensions    int64      // of an embedding: the numbers of a full one, and the default
	Efforts          []string   // accepted levels of reasoning_effort
	ToolsEffort      string     // OpenAI: the only level with which Chat Completions takes tools; "" = any
	Responses        bool       // OpenAI: tools need the Responses API
	Thinking         string     // Anthropic: always, on, off or budget; Google: level or budget; otherwise ""
	Prefill          bool       // Anthropic: goes on from an assistant message that ends the conversation
	DeprecatedAt     *time.Time // when its retirement was announced
	RetiresAt        *time.Time // when it is retired
	Replacement      string     // the model to use instead; "" = none
	PriceAssumed     bool       // a part of its price was not read on a page of its provider
}

// AcceptsEffort reports whether the model accepts a level of reasoning_effort.
func (m Model) AcceptsEffort(level string) bool {
	for _, e := range m.Efforts {
		if e == level {
			return true
		}
	}
	return false
}

// HasVoice reports whether a realtime model may have a voice: one whose voices are not known may have any.
func (m Model) HasVoice(name string) bool {
	return len(m.Voices) == 0 || slices.Contains(m.Voices, name)
}

// A Catalog is a checked price list. It never changes.
type Catalog struct {
	version string // "" = the empty catalog
	entries []entry
	byID    map[string]int
}

// entry is a model with its rates over time.
type entry struct {
	model   Model
	periods []period
}

// period is a time in which rates are valid: from ≤ now < to.
type period struct {
	from, to time.Time // zero = unbounded
	rates    Rates
}

func (p period) contains(now time.Time) bool {
	return !now.Before(p.from) && (p.to.IsZero() || now.Before(p.to))
}

// Version returns the name of the price list: its date and the start of its hash. With an operator's file, both names
// are joined by "+". Each price that was ever used is recorded with the name of the file that contains it.
func (c *Catalog) Version() string { return c.version }

// Find returns a model and its rates at a time. It finds no model that is retired then, or has no price.
func (c *Catalog) Find(id string, now time.Time) (Model, Rates, bool) {
	i, ok := c.byID[id]
	if !ok {
		return Model{}, Rates{}, false
	}
	rates, ok := c.entries[i].ratesAt(now)
	if !ok {
		return Model{}, Rates{}, false
	}
	return c.entries[i].model, rates, true
}

func (e *entry) ratesAt(now time.Time) (Rates, bool) {
	if e.model.RetiresAt != nil && !now.Before(*e.model.RetiresAt) {
		return Rates{}, false
	}
	for _, p := range e.periods {
		if p.contains(now) {
			return p.rates, true
		}
	}
	return Rates{}, false
}

// Offered lists the models that Find finds at a time, in the order of the price list, without those of transcription.
func (c *Catalog) Offered(now time.Time) []Listing {
	list := make([]Listing, 0, len(c.entries))
	for i := range c.entries {
		if rates, ok := c.entries[i].ratesAt(now); ok && !c.entries[i].model.Transcription {
			list = append(list, newListing(c.entries[i].model, rates))
		}
	}
	return list
}

// A Priced is a model with its rates of all times.
type Priced struct {
	Model   Model
	Periods []Period
}

// A Period is a time in which rates are valid: From ≤ now < To. A zero time is unbounded.
type Period struct {
	From, To time.Time
	Rates    Rates
}

// Contains reports whether the rates are valid at a time.
func (p Period) Contains(now time.Time) bool { return period{from: p.From, to: p.To}.contains(now) }

// Transcribing lists the models of transcription that Find finds at a time, in the order of the price list.
func (c *Catalog) Transcribing(now time.Time) (ids []string) {
	for i := range c.entries {
		if _, ok := c.entries[i].ratesAt(now); ok && c.entries[i].model.Transcription {
			ids = append(ids, c.entries[i].model.ID)
		}
	}
	return ids
}

// All lists every model with its rates of all times, in the order of the price list.
func (c *Catalog) All() []Priced {
	list := make([]Priced, len(c.entries))
	for i, e := range c.entries {
		list[i].Model = e.model
		for _, p := range e.periods {
			list[i].Periods = append(list[i].Periods, Period{p.from, p.to, p.rates})
		}
	}
	return list
}
