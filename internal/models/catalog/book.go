package catalog

import (
	"crypto/sha256"
	_ "embed" // for prices.yaml
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/models/tokens"
)

//go:embed prices.yaml
var builtin []byte

// Builtin loads the book that comes with Purser.
func Builtin() (*Catalog, error) { return Load(builtin) }

// Load reads a book of prices and checks all of it. Its error names every wrong
// member and its line.
func Load(text []byte) (*Catalog, error) { return new(Catalog).With(text) }

// bookFile is prices.yaml; its head explains the members.
type bookFile struct {
	Date   string      `yaml:"date"`
	Models []modelFile `yaml:"models"`
}

type modelFile struct {
	ID               string     `yaml:"id"`
	Off              bool       `yaml:"off"`
	Provider         string     `yaml:"provider"`
	Family           string     `yaml:"family"`
	ContextTokens    int64      `yaml:"context_tokens"`
	MaxOutputTokens  int64      `yaml:"max_output_tokens"`
	Vision           *bool      `yaml:"vision"`
	Tools            *bool      `yaml:"tools"`
	ForcedToolChoice *bool      `yaml:"forced_tool_choice"`
	Temperature      string     `yaml:"temperature"`
	Reasoning        *bool      `yaml:"reasoning"`
	Realtime         bool       `yaml:"realtime"`
	Efforts          []string   `yaml:"efforts"`
	ToolsEffort      string     `yaml:"tools_effort"`
	API              string     `yaml:"api"`
	Thinking         string     `yaml:"thinking"`
	DeprecatedAt     string     `yaml:"deprecated_at"`
	RetiresAt        string     `yaml:"retires_at"`
	Replacement      string     `yaml:"replacement"`
	Source           string     `yaml:"source"`
	Prices           []rateFile `yaml:"prices"`
}

type rateFile struct {
	From       string `yaml:"from"`
	To         string `yaml:"to"`
	Above      int64  `yaml:"above"`
	Input      string `yaml:"input"`
	Cached     string `yaml:"cached"`
	CacheWrite string `yaml:"cache_write"`
	Output     string `yaml:"output"`

	AudioInput  string `yaml:"audio_input"`
	AudioCached string `yaml:"audio_cached"`
	AudioOutput string `yaml:"audio_output"`
	ImageInput  string `yaml:"image_input"`
	ImageCached string `yaml:"image_cached"`
}

// With returns this catalogue changed by a file of the same form: each of its
// models replaces the one of that name, whole, or is added; one that is off is
// taken away. The prices keep the version of the file that they stand in.
func (c *Catalog) With(text []byte) (*Catalog, error) {
	var f bookFile
	if err := yaml.UnmarshalWithOptions(text, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("prices: %w", err)
	}
	b := &book{text: text, version: version(f.Date, text)}
	if b.day("$.date", f.Date) == nil {
		b.fault("$.date", "must say when the book was written")
	}
	if len(f.Models) == 0 {
		b.fault("$.models", "must not be empty")
	}
	rows := make(map[string]entry, len(f.Models))
	for i, m := range f.Models {
		at := fmt.Sprintf("$.models[%d]", i)
		if _, twice := rows[m.ID]; twice {
			b.fault(at+".id", "%s stands in the book twice", m.ID)
		}
		if rows[m.ID] = (entry{}); !m.Off {
			rows[m.ID] = entry{b.model(at, m), b.periods(at+".prices", m)}
		} else if _, ok := c.byID[m.ID]; !ok {
			b.fault(at+".off", "%s is not in the built-in book", m.ID)
		}
	}
	merged := c.merge(f.Models, rows)
	for i, m := range f.Models {
		if _, ok := merged.byID[m.Replacement]; !m.Off && m.Replacement != "" && (!ok || m.Replacement == m.ID) {
			b.fault(fmt.Sprintf("$.models[%d].replacement", i), "%s is not another model of the book", m.Replacement)
		}
	}
	if len(b.faults) > 0 {
		return nil, errors.Join(b.faults...)
	}
	if merged.version = b.version; c.version != "" {
		merged.version = c.version + "+" + b.version
	}
	return merged, nil
}

// merge puts the rows of a file, whose order is that of models, over c. What is
// off has an empty row; it is also no longer anybody's replacement.
func (c *Catalog) merge(models []modelFile, rows map[string]entry) *Catalog {
	merged := &Catalog{byID: make(map[string]int, len(c.entries)+len(rows))}
	add := func(e entry) {
		if _, there := merged.byID[e.model.ID]; !there && e.model.ID != "" {
			merged.byID[e.model.ID] = len(merged.entries)
			merged.entries = append(merged.entries, e)
		}
	}
	for _, e := range c.entries {
		if row, ok := rows[e.model.ID]; ok {
			e = row
		}
		add(e)
	}
	for _, m := range models {
		add(rows[m.ID])
	}
	for i := range merged.entries {
		m := &merged.entries[i].model
		if row, ok := rows[m.Replacement]; ok && row.model.ID == "" {
			m.Replacement = ""
		}
	}
	return merged
}

func version(date string, text []byte) string {
	sum := sha256.Sum256(text)
	return date + "-" + hex.EncodeToString(sum[:4])
}

// book collects what is wrong while a file becomes a Catalog.
type book struct {
	text    []byte
	version string
	faults  []error
}

// fault notes that the member at a YAML path breaks a rule.
func (b *book) fault(path, rule string, args ...any) {
	where := "prices"
	if line := lineOf(b.text, path); line > 0 {
		where = fmt.Sprintf("prices: line %d", line)
	}
	b.faults = append(b.faults, fmt.Errorf("%s: %s: %s", where, path[len("$."):], fmt.Sprintf(rule, args...)))
}

// lineOf returns the line of the member at path, of what it would stand in if
// it is missing, or 0.
func lineOf(text []byte, path string) int {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return 0
	}
	for path != "$" {
		if p, err := yaml.PathString(path); err == nil {
			if node, err := p.FilterFile(file); err == nil {
				return node.GetToken().Position.Line
			}
		}
		path = path[:max(lastOf(path, '.'), lastOf(path, '['), 1)]
	}
	return 0
}

func lastOf(s string, c byte) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == c {
			return i
		}
	}
	return -1
}

var (
	modelID   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,63}$`)
	providers = []string{"openai", "anthropic", "google"}
	efforts   = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	thinkings = map[string][]string{"openai": {""}, "anthropic": {"always", "on", "off"}, "google": {"level", "budget"}}
)

// model checks the facts of one model.
func (b *book) model(at string, f modelFile) Model {
	m := Model{
		ID: f.ID, Provider: f.Provider, Family: f.Family,
		ContextTokens: f.ContextTokens, MaxOutputTokens: f.MaxOutputTokens,
		Vision: b.fact(at+".vision", f.Vision), Tools: b.fact(at+".tools", f.Tools),
		ForcedToolChoice: b.fact(at+".forced_tool_choice", f.ForcedToolChoice),
		Temperature:      f.Temperature == "free", Reasoning: b.fact(at+".reasoning", f.Reasoning), Realtime: f.Realtime,
		Efforts: f.Efforts, ToolsEffort: f.ToolsEffort, Responses: f.API == "responses", Thinking: f.Thinking,
		DeprecatedAt: b.day(at+".deprecated_at", f.DeprecatedAt), RetiresAt: b.day(at+".retires_at", f.RetiresAt),
		Replacement: f.Replacement,
	}
	rules := []struct {
		ok     bool
		member string
		rule   string
	}{
		{modelID.MatchString(f.ID), "id", "must be of a-z, 0-9, '.' and '-'"},
		{slices.Contains(providers, f.Provider), "provider", "must be openai, anthropic or google"},
		{tokens.KnownFamily(f.Family), "family", "is not known to package tokens"},
		{f.MaxOutputTokens > 0, "max_output_tokens", "must be above 0"},
		{f.ContextTokens > f.MaxOutputTokens, "context_tokens", "must be above max_output_tokens"},
		{m.Tools || !m.ForcedToolChoice, "forced_tool_choice", "must be false without tools"},
		{f.Temperature == "free" || f.Temperature == "fixed", "temperature", "must be free or fixed"},
		{f.ToolsEffort == "" || m.Tools && m.TakesEffort(f.ToolsEffort), "tools_effort", "must be one of efforts, on a model with tools"},
		{f.API == "" || m.Responses && f.Provider == "openai" && m.Tools, "api", "must be responses, on a model of openai with tools"},
		{slices.Contains(thinkings[f.Provider], f.Thinking) && m.Reasoning || f.Thinking == "" && !m.Reasoning, "thinking", "must say how this provider's model thinks: always, on or off at anthropic, level or budget at google"},
		{m.Reasoning || len(f.Efforts) == 0, "efforts", "must be empty on a model that does not reason"},
		{m.DeprecatedAt == nil || m.RetiresAt == nil || m.DeprecatedAt.Before(*m.RetiresAt), "deprecated_at", "must be before retires_at"},
		{!f.Realtime || f.Provider == "openai" && f.API == "", "realtime", "is for models of openai only"},
		{f.Source != "", "source", "must say where the prices were read, and when"},
	}
	for _, r := range rules {
		if !r.ok {
			b.fault(at+"."+r.member, "%s", r.rule)
		}
	}
	for i, e := range f.Efforts {
		if !slices.Contains(efforts, e) || slices.Contains(f.Efforts[:i], e) {
			b.fault(fmt.Sprintf("%s.efforts[%d]", at, i), "%s is no level, or stands there twice", e)
		}
	}
	return m
}

// fact reads a yes or no that must be stated.
func (b *book) fact(at string, v *bool) bool {
	if v == nil {
		b.fault(at, "must be true or false")
		return false
	}
	return *v
}

// day reads a date as the start of that day in UTC; nil for none.
func (b *book) day(at, s string) *time.Time {
	if s == "" {
		return nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		b.fault(at, "%q is not a date such as 2026-11-21", s)
		return nil
	}
	return &t
}

// periods turns the rows of prices into rates over time: rows of the same dates
// are the steps of one period, and periods do not overlap.
func (b *book) periods(at string, m modelFile) []period {
	if len(m.Prices) == 0 {
		b.fault(at, "must not be empty")
	}
	var periods []period
	for i := 0; i < len(m.Prices); {
		first, row, before := m.Prices[i], fmt.Sprintf("%s[%d]", at, i), len(b.faults)
		var steps []Step
		for ; i < len(m.Prices) && m.Prices[i].From == first.From && m.Prices[i].To == first.To; i++ {
			steps = append(steps, b.step(fmt.Sprintf("%s[%d]", at, i), m.Prices[i], m.ContextTokens))
		}
		var voice *Voice
		if m.Realtime {
			voice = b.voice(row, first)
		}
		p := b.dates(row, first)
		for _, other := range periods {
			if p.overlaps(other) {
				b.fault(row, "overlaps a row above")
			}
		}
		if len(b.faults) == before {
			var err error
			if p.rates, err = newRates(b.version, steps, voice); err != nil {
				b.fault(row, "%v", err)
			}
		}
		periods = append(periods, p)
	}
	return periods
}

func (b *book) dates(at string, f rateFile) period {
	var p period
	if t := b.day(at+".from", f.From); t != nil {
		p.from = *t
	}
	if t := b.day(at+".to", f.To); t != nil {
		p.to = *t
	}
	if !p.to.IsZero() && !p.from.Before(p.to) {
		b.fault(at+".to", "must be after from")
	}
	return p
}

func (p period) overlaps(q period) bool {
	return (p.to.IsZero() || q.from.Before(p.to)) && (q.to.IsZero() || p.from.Before(q.to))
}

func (b *book) step(at string, f rateFile, contextTokens int64) Step {
	if f.Above < 0 || f.Above >= max(contextTokens, 1) {
		b.fault(at+".above", "must be below context_tokens")
	}
	s := Step{
		AboveInput: f.Above,
		Input:      b.price(at+".input", f.Input),
		Cached:     b.price(at+".cached", f.Cached),
		Output:     b.price(at+".output", f.Output),
	}
	s.CacheWrite = s.Input
	if f.CacheWrite != "" {
		s.CacheWrite = b.price(at+".cache_write", f.CacheWrite)
	}
	return s
}

// voice reads what only a realtime model has.
func (b *book) voice(at string, f rateFile) *Voice {
	return &Voice{
		AudioInput:  b.price(at+".audio_input", f.AudioInput),
		AudioCached: b.price(at+".audio_cached", f.AudioCached),
		AudioOutput: b.price(at+".audio_output", f.AudioOutput),
		ImageInput:  b.price(at+".image_input", f.ImageInput),
		ImageCached: b.price(at+".image_cached", f.ImageCached),
	}
}

var decimal = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{2,3}$`)

// price reads dollars per million tokens. Three decimals are exactly the six of
// the listing's price per thousand.
func (b *book) price(at, s string) money.MC {
	p, err := money.Parse(s)
	if err != nil || !decimal.MatchString(s) || p <= 0 || p > maxPrice {
		b.fault(at, "%q is not a price in dollars such as \"0.25\" or \"0.125\"", s)
	}
	return p
}
