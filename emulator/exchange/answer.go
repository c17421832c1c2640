package exchange

import (
	"crypto/rand"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/emulator/script"
	"github.com/purserhq/purser/internal/models/tokens"
)

// A Prompt is a request of any dialect, as far as the answer depends on it.
type Prompt struct {
	Model  Model
	Stream bool

	Text    string   // the last that the user said, with its steering
	Rounds  int      // rounds of calls since then
	Results []string // results of tools since then

	Tools    []Tool
	Choice   string // auto, none, required, or named
	Named    string
	Parallel bool

	Limit  int // tokens of output; 0 = the model's
	Input  InputTokens
	Thinks bool
	Schema jsontext.Value // that the text must fit; nil = any text

	Blocks   []Block // that the cache may keep
	CacheKey string  // OpenAI: prompts of one key share a cache
}

// A Tool is a function that the model may call, with the JSON schema of its arguments.
type Tool struct {
	Name   string
	Schema jsontext.Value
}

// An InputTokens counts the tokens of what was sent.
type InputTokens struct{ Text, Images int }

// AddTexts adds the tokens of texts.
func (t *InputTokens) AddTexts(texts ...string) {
	for _, s := range texts {
		t.Text += tokens.Count(s)
	}
}

// AddMessage adds the tokens that each message has in addition to its text.
func (t *InputTokens) AddMessage() { t.Text += 4 }

// ReportedCount returns the count that the API reports: ppm scales that of texts only.
func (t InputTokens) ReportedCount(ppm int) int { return (t.Text*ppm+999_999)/1_000_000 + t.Images }

// A ToolCall is one that the answer makes.
type ToolCall struct{ ID, Name, Args string }

// The ends of an answer.
const (
	EndStop      = "stop"
	EndLength    = "length"
	EndToolCalls = "calls"
	EndRefusal   = "refusal"
	EndSafety    = "safety"
	EndMalformed = "malformed"
)

// An Answer is the model's answer, independent of the dialect.
type Answer struct {
	Reasoned bool // the model has thought
	Thought  string
	Text     string
	Calls    []ToolCall
	End      string
	Usage    Usage

	order string // of blocks, as the script has it; "" = thoughts, text, calls
}

// A Block of an answer is a thought, a text or a call.
type AnswerBlock struct {
	Kind byte // r, t, c
	Text string
	Call ToolCall
	Last bool // no text follows
}

// Blocks returns the blocks of the answer in their order. The text is divided among its blocks, and what has no block
// follows.
func (a *Answer) Blocks() (list []AnswerBlock) {
	order := a.order
	if order == "" && a.Reasoned {
		order = "r"
	}
	parts, calls := strings.Count(order, "t"), a.Calls
	if parts == 0 {
		order, parts = order+"t", 1
	}
	words := strings.SplitAfter(a.Text, " ")
	for _, kind := range order + strings.Repeat("c", len(calls)) {
		b := AnswerBlock{Kind: byte(kind)}
		switch {
		case kind == 'r' && a.Reasoned:
			b.Text = a.Thought
		case kind == 't':
			n := len(words) / parts
			b.Text, words, parts = strings.Join(words[:n], ""), words[n:], parts-1
			if b.Last = parts == 0; b.Text == "" {
				continue
			}
		case kind == 'c' && len(calls) > 0:
			b.Call, calls = calls[0], calls[1:]
		default:
			continue
		}
		list = append(list, b)
	}
	return list
}

// A Usage follows OpenAI's convention: input includes the cached and the written part,
// output includes the reasoning.
type Usage struct {
	Input     int `json:"input"`
	Cached    int `json:"cached"`
	Written   int `json:"written"`
	Output    int `json:"output"`
	Reasoning int `json:"reasoning"`
}

// ReasoningTokens is how many tokens a model thinks, if there is room.
const ReasoningTokens = 24

const vocabulary = "the quiet harbour keeps its lamps lit while 你好 travellers naïve and 🙂 patient count every token " +
	"that passes a gate of glass before morning comes"

// composeAnswer makes the answer to a prompt. It depends on nothing else, so that the
// answer is the same streamed or not.
func composeAnswer(p *Prompt, s *script.Script, steps [][]script.Call, said string, ppm int) *Answer {
	a := &Answer{End: EndStop, Reasoned: p.Thinks, order: s.Blocks}
	count := func(text string) int { return (tokens.Count(text)*ppm + 999_999) / 1_000_000 }
	limit := p.Model.MaxOutput
	if p.Limit > 0 {
		limit = min(limit, p.Limit)
	}
	if p.Thinks {
		a.Usage.Reasoning = min(ReasoningTokens, limit/3)
	}
	if s.Thinking {
		a.Thought = "The user says something, and I think about how to answer it."
	}
	a.Usage.Input = p.Input.ReportedCount(ppm)
	a.Calls = p.ChooseCalls(s, steps)
	if len(a.Calls) == 0 || s.Say {
		a.Text = ComposeText(said, p.Results, s.Words)
		if p.Schema != nil {
			a.Text = sampleArguments(p.Schema)
		}
	}
	switch {
	case s.ReasoningOnly:
		a.Text, a.Calls, a.Reasoned, a.End = "", nil, true, EndLength
		a.Usage.Reasoning = limit
	case s.Refusal:
		a.Text, a.Calls, a.End = "I cannot help with that.", nil, EndRefusal
	case s.Safety:
		a.Text, a.Calls, a.End = FirstHalf(a.Text), nil, EndSafety
	case s.MalformedCall:
		a.End = EndMalformed
	case len(a.Calls) > 0:
		a.End = EndToolCalls
	}
	a.fitLimit(limit-a.Usage.Reasoning, count)
	if s.Usage != nil {
		u := append(slices.Clone(s.Usage), 0)
		a.Usage = Usage{Input: u[0], Cached: u[1], Written: u[2], Output: u[3], Reasoning: u[4]}
	}
	return a
}

// fitLimit counts the output and cuts it off at what is left of the limit.
func (a *Answer) fitLimit(left int, count func(string) int) {
	cost := func(text string) int {
		n := count(text)
		for _, c := range a.Calls {
			n += count(c.Name) + count(c.Args) + 8
		}
		return n
	}
	n := cost(a.Text)
	if a.End != EndMalformed && n > left {
		a.End = EndLength
		words := strings.SplitAfter(a.Text, " ")
		if len(a.Calls) > 0 {
			last := &a.Calls[len(a.Calls)-1]
			last.Args = FirstHalf(last.Args)
		} else {
			fits := sort.Search(len(words), func(n int) bool { return cost(strings.Join(words[:n+1], "")) > left })
			a.Text = strings.Join(words[:fits], "")
		}
		n = left
	}
	a.Usage.Output = a.Usage.Reasoning + n
}

// ChooseCalls decides which tools the model calls now.
func (p *Prompt) ChooseCalls(s *script.Script, steps [][]script.Call) (calls []ToolCall) {
	if len(p.Tools) == 0 || p.Choice == "none" {
		return nil
	}
	var want []script.Call
	forced := p.Choice == "required" || p.Choice == "named"
	switch {
	case p.Rounds < len(steps):
		want = steps[p.Rounds]
	case s.Calls > 0 && p.Rounds == 0, forced:
		want = []script.Call{{Name: p.Tools[0].Name}}
	}
	if p.Choice == "named" {
		want = slices.DeleteFunc(slices.Clone(want), func(w script.Call) bool { return w.Name != p.Named })
		if len(want) == 0 {
			want = []script.Call{{Name: p.Named}}
		}
	}
	for i := range max(s.Calls, len(want)) {
		if len(want) > 0 && (i == 0 || p.Parallel) {
			calls = append(calls, p.makeCall(want[i%len(want)], s))
		}
	}
	return calls
}

// makeCall makes one call, with arguments from the schema if none are given.
func (p *Prompt) makeCall(w script.Call, s *script.Script) ToolCall {
	args := w.Args
	if args == "" {
		args = "{}"
		if i := slices.IndexFunc(p.Tools, func(t Tool) bool { return t.Name == w.Name }); i >= 0 && !s.EmptyArgs {
			args = sampleArguments(p.Tools[i].Schema)
		}
	}
	if s.EmptyArgs {
		args = "{}"
	}
	if s.MalformedCall {
		args = FirstHalf(args)
	}
	return ToolCall{Name: w.Name, Args: args}
}

// sampleArguments makes arguments that fit a simple schema: the required properties.
func sampleArguments(schema jsontext.Value) string {
	var s struct {
		Properties map[string]struct {
			Type jsontext.Value   `json:"type"`
			Enum []jsontext.Value `json:"enum"`
		} `json:"properties"`
		Required []string `json:"required"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil {
		return "{}"
	}
	args := map[string]any{}
	for _, name := range s.Required {
		property := s.Properties[name]
		switch kind := strings.ToLower(string(property.Type)); {
		case len(property.Enum) > 0:
			args[name] = property.Enum[0]
		case strings.Contains(kind, "integer"), strings.Contains(kind, "number"):
			args[name] = 7
		case strings.Contains(kind, "boolean"):
			args[name] = true
		case strings.Contains(kind, "array"):
			args[name] = []any{}
		case strings.Contains(kind, "object"):
			args[name] = map[string]any{}
		default:
			args[name] = "a " + name
		}
	}
	return string(Encode(args))
}

// ComposeText returns the canned answer, with exactly so many words unless words is 0.
func ComposeText(said string, results []string, words int) string {
	text := "You said nothing."
	if said != "" {
		text = "You said: " + truncateText(said, 400) + "."
	}
	if len(results) > 0 {
		text = "The tools say: " + truncateText(strings.Join(results, "; "), 400) + "."
	}
	if words == 0 {
		return text + " I am a canned answer, the same for the same request. 👋"
	}
	list := strings.Fields(text)
	for pool := strings.Fields(vocabulary); len(list) < words; {
		list = append(list, pool...)
	}
	return strings.Join(list[:words], " ")
}

// truncateText shortens a text to n characters.
func truncateText(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n]) + "…"
	}
	return text
}

// FirstHalf is the first half of a text.
func FirstHalf(text string) string {
	i := len(text) / 2
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return text[:i]
}

// SplitWords divides a text into deltas of so many words.
func SplitWords(text string, words int) (list []string) {
	for part := range slices.Chunk(strings.SplitAfter(text, " "), words) {
		if p := strings.Join(part, ""); p != "" {
			list = append(list, p)
		}
	}
	return list
}

// SplitArguments divides arguments into pieces of a few bytes, wherever that may be, but
// not within a character.
func SplitArguments(args string) (list []string) {
	for args != "" {
		n := min(6, len(args))
		for n < len(args) && !utf8.RuneStart(args[n]) {
			n++
		}
		list, args = append(list, args[:n]), args[n:]
	}
	return list
}

// RandomID returns n random letters and digits.
func RandomID(n int) (text string) {
	for len(text) < n {
		text += rand.Text()
	}
	return strings.ToLower(text[:n])
}

// Encode encodes a value of the emulator as JSON, which cannot fail.
func Encode(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return b
}
