package catalog

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for prices.yaml
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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

// LoadBuiltin loads the price list that is part of the binary.
func LoadBuiltin() (*Catalog, error) { return Load(builtin) }

// Load reads and checks a price list. Its error names every wrong member with its line.
func Load(text []byte) (*Catalog, error) { return new(Catalog).With(text) }

// priceFile is prices.yaml, which explains its members at the top.
type priceFile struct {
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
	Voices           []string   `yaml:"voices"`
	Transcription    bool       `yaml:"transcription"`
	Embedding        bool       `yaml:"embedding"`
	MinDimensions    int64      `yaml:"min_dimensions"`
	MaxDimensions    int64      `yaml:"max_dimensions"`
	Efforts          []string   `yaml:"efforts"`
	ToolsEffort      string     `yaml:"tools_effort"`
	API              string     `yaml:"api"`
	Thinking         string     `yaml:"thinking"`
	Prefill          bool       `yaml:"prefill"`
	DeprecatedAt     string     `yaml:"deprecated_at"`
	RetiresAt        string     `yaml:"retires_at"`
	Replacement      string     `yaml:"replacement"`
	Confidence       string     `yaml:"confidence"`
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

// With returns the catalog with the changes of another price list: each model of that list replaces the whole model
// of that name or is added, and one that is off is removed. Prices keep the version of the file that contains them.
func (c *Catalog) With(text []byte) (*Catalog, error) {
	var f priceFile
	decoder := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("prices: %w", err)
	}
	var more any
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("prices: the file has more than one document, of which the first would be read alone")
	}
	b := &priceList{text: text, version: version(f.Date, text)}
	if b.parseDay("$.date", f.Date) == nil {
		b.addFault("$.date", "must be the date of the price list")
	}
	if len(f.Models) == 0 {
		b.addFault("$.models", "must not be empty")
	}
	rows := make(map[string]entry, len(f.Models))
	for i, m := range f.Models {
		at := fmt.Sprintf("$.models[%d]", i)
		if _, twice := rows[m.ID]; twice {
			b.addFault(at+".id", "%s is listed twice", m.ID)
		}
		if rows[m.ID] = (entry{}); !m.Off {
			rows[m.ID] = entry{b.readModel(at, m), b.readPeriods(at+".prices", m)}
		} else if _, ok := c.byID[m.ID]; !ok {
			b.addFault(at+".off", "%s is not in the built-in price list", m.ID)
		}
	}
	merged := c.merge(f.Models, rows)
	for i, m := range f.Models {
		if _, ok := merged.byID[m.Replacement]; !m.Off && m.Replacement != "" && (!ok || m.Replacement == m.ID) {
			b.addFault(fmt.Sprintf("$.models[%d].replacement", i), "%s is not another model of the price list",
				m.Replacement)
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

// merge returns c with the rows of a file, in the order of models. A model that is off has an empty row; it is
// removed also where it is a replacement.
func (c *Catalog) merge(models []modelFile, rows map[string]entry) *Catalog {
	merged := &Catalog{byID: make(map[string]int, len(c.entries)+len(rows))}
	add := func(e entry) {
		if _, exists := merged.byID[e.model.ID]; !exists && e.model.ID != "" {
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

// priceList is a file while it is checked; it collects faults.
type priceList struct {
	text    []byte
	version string
	faults  []error
}

// addFault records that the member at a YAML path violates a rule.
func (b *priceList) addFault(path, rule string, args ...any) {
	where := "prices"
	if line := lineOf(b.text, path); line > 0 {
		where = fmt.Sprintf("prices: line %d", line)
	}
	b.faults = append(b.faults, fmt.Errorf("%s: %s: %s", where, path[len("$."):], fmt.Sprintf(rule, args...)))
}

// lineOf returns the line of the member at path, or of its parent if it is missing, or 0.
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
		path = path[:max(lastIndexByte(path, '.'), lastIndexByte(path, '['), 1)]
	}
	return 0
}

func lastIndexByte(s string, c byte) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == c {
			return i
		}
	}
	return -1
}

var (
	voiceName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	modelID   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,63}$`)
	providers = []string{"openai", "anthropic", "google"}
	efforts   = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	thinkings = map[string][]string{
		"openai": {""}, "anthropic": {"always", "on", "off", "budget"}, "google": {"level", "budget"},
	}
)

// maxDimensions bounds the size of an answer: providers offer 4,096 numbers at most.
const maxDimensions = 4096

// readModel reads and checks one model.
func (b *priceList) readModel(at string, f modelFile) Model {
	m := Model{
		ID:               f.ID,
		Provider:         f.Provider,
		Family:           f.Family,
		ContextTokens:    f.ContextTokens,
		MaxOutputTokens:  f.MaxOutputTokens,
		Vision:           b.requireBool(at+".vision", f.Vision),
		Tools:            b.requireBool(at+".tools", f.Tools),
		ForcedToolChoice: b.requireBool(at+".forced_tool_choice", f.ForcedToolChoice),
		Temperature:      f.Temperature == "free",
		Reasoning:        b.requireBool(at+".reasoning", f.Reasoning),
		Realtime:         f.Realtime,
		Voices:           f.Voices,
		Transcription:    f.Transcription,
		Embedding:        f.Embedding,
		MinDimensions:    f.MinDimensions,
		MaxDimensions:    f.MaxDimensions,
		Efforts:          f.Efforts,
		ToolsEffort:      f.ToolsEffort,
		Responses:        f.API == "responses",
		Thinking:         f.Thinking,
		Prefill:          f.Prefill,
		DeprecatedAt:     b.parseDay(at+".deprecated_at", f.DeprecatedAt),
		RetiresAt:        b.parseDay(at+".retires_at", f.RetiresAt),
		Replacement:      f.Replacement,
		PriceAssumed:     f.Confidence == priceAssumed,
	}
	rules := []struct {
		ok     bool
		member string
		rule   string
	}{
		{modelID.MatchString(f.ID), "id", "must be of a-z, 0-9, '.' and '-'"},
		{slices.Contains(providers, f.Provider), "provider", "must be openai, anthropic or google"},
		{tokens.KnownFamily(f.Family, f.Embedding), "family", "is not known to package tokens"},
		{f.Embedding == (f.MaxOutputTokens == 0) && f.MaxOutputTokens >= 0, "max_output_tokens",
			"must be above 0, and is not for an embedding model"},
		{f.ContextTokens > f.MaxOutputTokens, "context_tokens", "must be above max_output_tokens"},
		{m.Tools || !m.ForcedToolChoice, "forced_tool_choice", "must be false without tools"},
		{f.Temperature == "free" || f.Temperature == "fixed", "temperature", "must be free or fixed"},
		{f.ToolsEffort == "" || f.Provider == "openai" && m.Tools && m.AcceptsEffort(f.ToolsEffort), "tools_effort",
			"must be one of efforts, on a model of openai with tools"},
		{f.API == "" || m.Responses && f.Provider == "openai" && m.Tools, "api",
			"must be responses, on a model of openai with tools"},
		{slices.Contains(thinkings[f.Provider], f.Thinking) && m.Reasoning ||
			f.Thinking == "" && !m.Reasoning, "thinking",
			"must be always, on, off or budget at anthropic, and level or budget at google"},
		{!f.Prefill || f.Provider == "anthropic", "prefill", "is for models of anthropic only"},
		{m.Reasoning || len(f.Efforts) == 0, "efforts", "must be empty on a model that does not reason"},
		{m.DeprecatedAt == nil || m.RetiresAt == nil ||
			m.DeprecatedAt.Before(*m.RetiresAt), "deprecated_at", "must be before retires_at"},
		{!f.Realtime || f.Provider == "openai" && f.API == "", "realtime", "is for models of openai only"},
		{f.Realtime || len(f.Voices) == 0, "voices", "are of realtime models only"},
		{!f.Transcription || f.Provider == "openai" && f.API == "" && !f.Realtime && !f.Embedding &&
			!m.Vision && !m.Tools && !m.Reasoning && !m.Temperature, "transcription",
			"is for models of openai that can do nothing else"},
		{!f.Embedding || f.Provider != "anthropic" && !f.Realtime && f.API == "" &&
			!m.Vision && !m.Tools && !m.Reasoning && !m.Temperature, "embedding",
			"is for models of openai and google that can do nothing else"},
		{f.Embedding == (f.MaxDimensions > 0) && f.MaxDimensions <= maxDimensions, "max_dimensions",
			fmt.Sprintf("must be 1 to %d on an embedding model, and is for no other", maxDimensions)},
		{f.Embedding == (f.MinDimensions > 0) && f.MinDimensions <= f.MaxDimensions, "min_dimensions",
			"must be 1 to max_dimensions on an embedding model, and is for no other"},
		{f.Confidence == "" || m.PriceAssumed, "confidence", "must be assumed, or absent"},
		{f.Source != "", "source", "must name where and when the prices were read"},
	}
	for _, r := range rules {
		if !r.ok {
			b.addFault(at+"."+r.member, "%s", r.rule)
		}
	}
	for i, v := range f.Voices {
		if !voiceName.MatchString(v) || slices.Contains(f.Voices[:i], v) {
			b.addFault(fmt.Sprintf("%s.voices[%d]", at, i), "%s is not the name of a voice, or is listed twice", v)
		}
	}
	for i, e := range f.Efforts {
		if !slices.Contains(efforts, e) || slices.Contains(f.Efforts[:i], e) {
			b.addFault(fmt.Sprintf("%s.efforts[%d]", at, i), "%s is not a level, or is listed twice", e)
		}
	}
	return m
}

// requireBool reads a boolean that must be given.
func (b *priceList) requireBool(at string, v *bool) bool {
	if v == nil {
		b.addFault(at, "must be true or false")
		return false
	}
	return *v
}

// parseDay reads a date as the start of that day in UTC, or nil if it is empty.
func (b *priceList) parseDay(at, s string) *time.Time {
	if s == "" {
		return nil
	}
	t, err := time.Parse(time.DateOnly, s)
	if err != nil {
		b.addFault(at, "%q is not a date such as 2026-11-21", s)
		return nil
	}
	return &t
}

// readPeriods reads the rows of prices as rates over time: rows of the same dates are the steps of one period, and
// periods do not overlap.
func (b *priceList) readPeriods(at string, m modelFile) []period {
	if len(m.Prices) == 0 {
		b.addFault(at, "must not be empty")
	}
	var periods []period
	for i := 0; i < len(m.Prices); {
		first, row, before := m.Prices[i], fmt.Sprintf("%s[%d]", at, i), len(b.faults)
		var steps []Step
		for ; i < len(m.Prices) && m.Prices[i].From == first.From && m.Prices[i].To == first.To; i++ {
			steps = append(steps, b.readStep(fmt.Sprintf("%s[%d]", at, i), m.Prices[i], m))
		}
		var voice *Voice
		if m.Realtime {
			voice = b.readVoice(row, first)
		} else if m.Transcription {
			voice = b.readTranscription(row, first, steps[0])
		}
		p := b.readDates(row, first)
		for _, other := range periods {
			if p.overlaps(other) {
				b.addFault(row, "overlaps a row above")
			}
		}
		if len(b.faults) == before {
			var err error
			p.rates, err = newRates(Rates{PriceList: b.version, Steps: steps, Voice: voice, Embedding: m.Embedding})
			if err != nil {
				b.addFault(row, "%v", err)
			}
		}
		periods = append(periods, p)
	}
	return periods
}

func (b *priceList) readDates(at string, f rateFile) period {
	var p period
	if t := b.parseDay(at+".from", f.From); t != nil {
		p.from = *t
	}
	if t := b.parseDay(at+".to", f.To); t != nil {
		p.to = *t
	}
	if !p.to.IsZero() && !p.from.Before(p.to) {
		b.addFault(at+".to", "must be after from")
	}
	return p
}

func (p period) overlaps(q period) bool {
	return (p.to.IsZero() || q.from.Before(p.to)) && (q.to.IsZero() || p.from.Before(q.to))
}

func (b *priceList) readStep(at string, f rateFile, m modelFile) Step {
	if m.Embedding {
		return b.readEmbeddingStep(at, f)
	}
	if f.Above < 0 || f.Above >= max(m.ContextTokens, 1) {
		b.addFault(at+".above", "must be below context_tokens")
	}
	if m.Transcription { // it caches nothing
		f.Cached = f.Input
	}
	s := Step{
		AboveInput: f.Above,
		Input:      b.readPrice(at+".input", f.Input),
		Cached:     b.readPrice(at+".cached", f.Cached),
		Output:     b.readPrice(at+".output", f.Output),
	}
	s.CacheWrite = s.Input
	if f.CacheWrite != "" {
		s.CacheWrite = b.readPrice(at+".cache_write", f.CacheWrite)
	}
	return s
}

// readEmbeddingStep reads the price of an embedding model, which is for input alone.
func (b *priceList) readEmbeddingStep(at string, f rateFile) Step {
	if f.Above != 0 || f.Cached != "" || f.CacheWrite != "" || f.Output != "" {
		b.addFault(at, "an embedding model has only the price of its input")
	}
	input := b.readPrice(at+".input", f.Input)
	return Step{Input: input, Cached: input, CacheWrite: input}
}

// readVoice reads the prices that only a realtime model has.
func (b *priceList) readVoice(at string, f rateFile) *Voice {
	return &Voice{
		AudioInput:  b.readPrice(at+".audio_input", f.AudioInput),
		AudioCached: b.readPrice(at+".audio_cached", f.AudioCached),
		AudioOutput: b.readPrice(at+".audio_output", f.AudioOutput),
		ImageInput:  b.readPrice(at+".image_input", f.ImageInput),
		ImageCached: b.readPrice(at+".image_cached", f.ImageCached),
	}
}

// readTranscription reads the price of audio that a model writes down. The classes that it has not cost the same.
func (b *priceList) readTranscription(at string, f rateFile, text Step) *Voice {
	if f.CacheWrite != "" || f.AudioCached != "" || f.AudioOutput != "" || f.ImageInput != "" || f.ImageCached != "" {
		b.addFault(at, "a model of transcription has only the prices of input, output and audio_input")
	}
	audio := b.readPrice(at+".audio_input", f.AudioInput)
	return &Voice{audio, audio, text.Output, audio, audio}
}

var decimal = regexp.MustCompile(`^[0-9]{1,6}\.[0-9]{2,3}$`)

// readPrice reads dollars per million tokens. Three decimals are exactly the six decimals of the listing's price per
// thousand.
func (b *priceList) readPrice(at, s string) money.MC {
	p, err := money.Parse(s)
	if err != nil || !decimal.MatchString(s) || p <= 0 || p > maxPrice {
		b.addFault(at, "%q is not a price in dollars such as \"0.25\" or \"0.125\"", s)
	}
	return p
}
