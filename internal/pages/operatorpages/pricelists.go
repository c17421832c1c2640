package operatorpages

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/models/catalog"
)

// A priceLine has the prices of one model in one period, for requests of more than AboveInput input tokens. It is
// stored as JSON. Days are UTC, as 2026-11-21.
type priceLine struct {
	Model      string              `json:"model"`
	Provider   string              `json:"provider"`
	From       string              `json:"from,omitempty"`    // first day; "" = unbounded
	To         string              `json:"to,omitempty"`      // first day after the period; "" = unbounded
	Retires    string              `json:"retires,omitempty"` // the day on which the model is retired; "" = not known
	AboveInput int64               `json:"above_input,omitempty"`
	List       string              `json:"list"`           // version of the file with the price
	PricesMC   map[string]money.MC `json:"mc_per_million"` // by the ids of priceKinds
}

// priceKinds are the kinds of prices.
var priceKinds = []struct{ id, name string }{
	{"input", "Input"}, {"cached", "Cached input"}, {"cache_write", "Cache write"}, {"output", "Output"},
	{"audio_input", "Audio input"}, {"audio_cached", "Cached audio"}, {"audio_output", "Audio output"},
	{"image_input", "Image input"}, {"image_cached", "Cached image"},
}

// priceLines lists the prices of a price list in its order.
func priceLines(c *catalog.Catalog) (list []priceLine) {
	for _, m := range c.All() {
		for _, p := range m.Periods {
			for _, step := range p.Rates.Steps {
				line := priceLine{
					Model:      m.Model.ID,
					Provider:   m.Model.Provider,
					From:       formatDay(p.From),
					To:         formatDay(p.To),
					AboveInput: step.AboveInput,
					List:       p.Rates.PriceList,
					PricesMC:   map[string]money.MC{"input": step.Input},
				}
				if m.Model.RetiresAt != nil {
					line.Retires = formatDay(*m.Model.RetiresAt)
				}
				if !p.Rates.Embedding {
					line.PricesMC["cached"], line.PricesMC["cache_write"] = step.Cached, step.CacheWrite
					line.PricesMC["output"] = step.Output
				}
				if v := p.Rates.Voice; v != nil {
					line.PricesMC["audio_input"], line.PricesMC["audio_cached"] = v.AudioInput, v.AudioCached
					line.PricesMC["audio_output"] = v.AudioOutput
					line.PricesMC["image_input"], line.PricesMC["image_cached"] = v.ImageInput, v.ImageCached
				}
				list = append(list, line)
			}
		}
	}
	return list
}

func formatDay(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateOnly)
}

// The states of a price line.
const (
	priceInForce   = "now"
	priceScheduled = "scheduled"
	priceEnded     = "ended" // its period is over, or its model is retired
)

// stateOn returns the state of the line on a day.
func (l priceLine) stateOn(day string) string {
	switch {
	case l.Retires != "" && day >= l.Retires, l.To != "" && day >= l.To:
		return priceEnded
	case day < l.From:
		return priceScheduled
	}
	return priceInForce
}

// A PriceRecorder stores each price list that its node uses.
type PriceRecorder struct {
	DB      *db.DB
	Catalog *catalog.Source
	Now     func() time.Time
	stored  string // the version that was stored last
}

// Once stores the current price list if it is not stored yet.
func (p *PriceRecorder) Once(ctx context.Context) error {
	current := p.Catalog.Current()
	if current.Version() == p.stored {
		return nil
	}
	text, err := json.Marshal(priceLines(current))
	if err != nil {
		return err
	}
	err = savePriceList(ctx, p.DB, priceList{
		version: current.Version(),
		firstUS: p.Now().UnixMicro(),
		models:  int64(len(current.All())),
	}, string(text))
	if err != nil {
		return fmt.Errorf("operatorpages: save price list: %w", err)
	}
	if text := p.Catalog.Text(); text != nil {
		if err := p.keepFile(ctx, string(text)); err != nil {
			return fmt.Errorf("operatorpages: keep the file of prices: %w", err)
		}
	}
	p.stored = current.Version()
	return nil
}

// PricesFileSetting is the name under which the database has the text of the last good file of prices: with it a node
// starts whose own file is wrong.
const PricesFileSetting = "prices_file"

func (p *PriceRecorder) keepFile(ctx context.Context, text string) error {
	return p.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if kept, err := settings.Lock(ctx, tx, PricesFileSetting); err != nil || kept == text {
			return err
		}
		return settings.Set(ctx, tx, PricesFileSetting, text)
	})
}

// A priceList is a version of the price list without its lines.
type priceList struct {
	version         string
	firstUS, models int64
}

// A priceChange is a price that differs between two price lists.
type priceChange struct {
	model, provider, kind string // the kind's name
	aboveInput            int64
	day                   string   // from which it differs; "" = now
	beforeMC, afterMC     money.MC // per million tokens; 0 = there is no such price
}

// comparePrices lists the prices that differ between two price lists, today or on a day to come.
func comparePrices(before, after []priceLine, today string) (list []priceChange) {
	models, was, is := []string{}, map[string][]priceLine{}, map[string][]priceLine{}
	for _, side := range []struct {
		lines []priceLine
		of    map[string][]priceLine
	}{{after, is}, {before, was}} {
		for _, l := range side.lines {
			if is[l.Model] == nil && was[l.Model] == nil {
				models = append(models, l.Model)
			}
			side.of[l.Model] = append(side.of[l.Model], l)
		}
	}
	for _, model := range models {
		list = append(list, compareModel(was[model], is[model], today)...)
	}
	return list
}

// compareModel lists the differences of one model. A price that differs in the same way on several days is listed once.
func compareModel(before, after []priceLine, today string) (list []priceChange) {
	lines := slices.Concat(after, before)
	days, steps := []string{today}, []int64{}
	for _, l := range lines {
		for _, day := range []string{l.From, l.To, l.Retires} {
			if day > today {
				days = append(days, day)
			}
		}
		steps = append(steps, l.AboveInput)
	}
	slices.Sort(days)
	slices.Sort(steps)
	for _, step := range slices.Compact(steps) {
		for _, kind := range priceKinds {
			last := priceChange{}
			for _, day := range slices.Compact(days) {
				c := priceChange{
					model:      lines[0].Model,
					provider:   lines[0].Provider,
					kind:       kind.name,
					aboveInput: step,
					beforeMC:   priceOn(before, day, step, kind.id),
					afterMC:    priceOn(after, day, step, kind.id),
				}
				if c.beforeMC == last.beforeMC && c.afterMC == last.afterMC {
					continue
				}
				last = c
				if day != today {
					c.day = day
				}
				if c.beforeMC != c.afterMC {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

// priceOn returns the price of a model on a day for requests of more than aboveInput tokens; 0 = there is none.
func priceOn(lines []priceLine, day string, aboveInput int64, kind string) (mc money.MC) {
	step := int64(-1)
	for _, l := range lines {
		if l.stateOn(day) == priceInForce && l.AboveInput <= aboveInput && l.AboveInput > step {
			step, mc = l.AboveInput, l.PricesMC[kind]
		}
	}
	return mc
}

// formatChange returns a difference in percent, rounded half away from zero to a tenth: +25%, −12.5%.
func formatChange(beforeMC, afterMC money.MC) string {
	if beforeMC <= 0 || afterMC <= 0 {
		return ""
	}
	sign, difference := "+", int64(afterMC-beforeMC)
	if difference < 0 {
		sign, difference = "−", -difference
	}
	tenths := (difference*2000 + int64(beforeMC)) / (2 * int64(beforeMC))
	if tenths == 0 {
		return sign + "<0.1%"
	}
	text := fmt.Sprintf("%s%d", sign, tenths/10)
	if tenths%10 != 0 {
		text += fmt.Sprintf(".%d", tenths%10)
	}
	return text + "%"
}

// A changeCount counts differences.
type changeCount struct{ raised, lowered, added, removed int64 }

func countChanges(list []priceChange) (n changeCount) {
	for _, c := range list {
		switch {
		case c.beforeMC == 0:
			n.added++
		case c.afterMC == 0:
			n.removed++
		case c.afterMC > c.beforeMC:
			n.raised++
		default:
			n.lowered++
		}
	}
	return n
}
