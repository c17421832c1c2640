package exchange

import (
	"slices"
	"strings"
)

// The providers.
const (
	OpenAI    = "openai"
	Anthropic = "anthropic"
	Google    = "google"
)

// A Model describes one model.
type Model struct {
	ID        string
	Provider  string // openai, anthropic or google
	Context   int
	MaxOutput int

	Efforts []string // OpenAI: the levels of effort it takes, the default first; none = it does not reason
	// OpenAI, tools on Chat Completions: "" always, "unset" unless an effort is asked for, "none"
	// only with that effort, "never"
	ChatTools string

	// Thinking of Claude: "always"; "between" = on, lowest is between_tools; "may" = on,
	// may be disabled; "off" = unless asked for; "budget" = the same, by a budget only.
	// Of Gemini: "level" or "budget".
	Thinking   string
	Fixed      bool // takes no temperature but 1
	Unforced   bool // takes no forced tool choice
	Prefill    bool // goes on from an assistant message
	Signatures bool // Gemini: wants its thought signatures back

	Dimensions  int  // numbers of its embeddings; 0 = the model writes text
	MinCached   int  // Anthropic, Google: tokens of the shortest prefix that is cached
	CacheWrites bool // OpenAI: usage has cache_write_tokens
}

// DefaultModels returns the models that the emulator serves by default.
func DefaultModels() []Model {
	type list = []string
	with, without := list{"medium", "none", "low", "high", "xhigh", "max"},
		list{"medium", "low", "high", "xhigh", "max"}
	quiet := list{"none", "low", "medium", "high", "xhigh"}
	all := []Model{
		{ID: "gpt-6.2-astra", Efforts: without, ChatTools: "never", Fixed: true},
		{ID: "gpt-6.2-sol", Efforts: without, ChatTools: "never", Fixed: true},
		{ID: "gpt-6-astra", Efforts: without, ChatTools: "never", Fixed: true},
		{ID: "gpt-6.1-sol", Efforts: without, ChatTools: "never", Fixed: true},
		{ID: "gpt-6.1-terra", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-6-sol", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-6-luna", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-5.6-sol", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-5.6-terra", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-5.6-luna", Efforts: with, ChatTools: "none", Fixed: true},
		{ID: "gpt-5.5", Efforts: list{"medium", "none", "low", "high", "xhigh"}, ChatTools: "none", Fixed: true},
		{ID: "gpt-5.4", Efforts: quiet, ChatTools: "unset", Fixed: true},
		{ID: "gpt-5.4-mini", Efforts: quiet, ChatTools: "unset", Fixed: true, Context: 400_000},
		{ID: "gpt-4o-mini", Context: 128_000, MaxOutput: 16_384},
		{ID: "gpt-4.1-mini", Context: 1_047_576, MaxOutput: 32_768},
		{ID: "text-embedding-3-small", Context: 8192, Dimensions: 1536},
		{ID: "text-embedding-3-large", Context: 8192, Dimensions: 3072},

		{ID: "claude-opus-5-5", Thinking: "always", Fixed: true, Unforced: true},
		{ID: "claude-fable-5-1", Thinking: "always", Fixed: true, Unforced: true},
		{ID: "claude-sonnet-5-5", Thinking: "between", Fixed: true, Unforced: true},
		{ID: "claude-haiku-5-5", Thinking: "may", Fixed: true},
		{ID: "claude-opus-5", Thinking: "may", Fixed: true},
		{ID: "claude-sonnet-5", Thinking: "may", Fixed: true},
		{ID: "claude-sonnet-4-6", Thinking: "off"},
		{ID: "claude-haiku-4-5", Thinking: "budget", Context: 200_000, MaxOutput: 64_000, Prefill: true},

		{ID: "gemini-4-argon", Thinking: "level", Signatures: true},
		{ID: "gemini-3.8-flash", Thinking: "level", Signatures: true},
		{ID: "gemini-3.5-flash", Thinking: "level", Signatures: true},
		{ID: "gemini-3.5-flash-lite", Thinking: "level", Signatures: true},
		{ID: "gemini-3.1-pro-preview", Thinking: "level", Signatures: true},
		{ID: "gemini-2.5-flash", Thinking: "budget", MaxOutput: 65_535},
		{ID: "gemini-2.5-flash-lite", Thinking: "budget", MaxOutput: 65_535},
		{ID: "gemini-embedding-001", Context: 2048, Dimensions: 3072},
	}
	for i := range all {
		setDefaults(&all[i])
	}
	return all
}

// setDefaults sets the fields that the models of a provider have in common.
func setDefaults(m *Model) {
	provider, context, output := OpenAI, 1_050_000, 128_000
	switch m.ID[:3] {
	case "cla":
		provider, context = Anthropic, 1_000_000
	case "gem":
		provider, context, output = Google, 1_048_576, 65_536
	}
	m.Provider = provider
	switch {
	case provider == OpenAI:
		m.CacheWrites = strings.HasPrefix(m.ID, "gpt-6") || strings.HasPrefix(m.ID, "gpt-5.6")
	case provider == Google && m.Thinking == "level", m.ID == "claude-opus-5-5", m.ID == "claude-haiku-4-5":
		m.MinCached = 4096
	default:
		m.MinCached = 1024
	}
	if m.Context == 0 {
		m.Context = context
	}
	if m.MaxOutput == 0 {
		m.MaxOutput = output
	}
}

// FindModel finds a model of a provider.
func (e *Server) FindModel(provider, id string) (Model, bool) {
	i := slices.IndexFunc(e.models, func(m Model) bool { return m.Provider == provider && m.ID == id })
	if i < 0 {
		return Model{}, false
	}
	return e.models[i], true
}

// ListModels lists the models of a provider.
func (e *Server) ListModels(provider string) (list []Model) {
	for _, m := range e.models {
		if m.Provider == provider {
			list = append(list, m)
		}
	}
	return list
}
