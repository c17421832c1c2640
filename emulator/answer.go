package emulator

import (
	"crypto/rand"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/tokens"
)

// A prompt is what a request of any dialect comes down to.
type prompt struct {
	model  Model
	stream bool

	text   string   // the last that the user said, with its steering
	rounds int      // rounds of calls since then
	seen   []string // results of tools since then

	tools    []tool
	choice   string // auto, none, required, or named
	named    string
	parallel bool

	limit  int // tokens of output; 0 = the model's
	input  tally
	thinks bool
}

type tool struct {
	name   string
	schema jsontext.Value
}

// A tally counts the tokens of what was sent.
type tally struct{ text, images int }

func (t *tally) add(texts ...string) {
	for _, s := range texts {
		t.text += tokens.Count(s)
	}
}

// message is what each message costs beside its text.
func (t *tally) message() { t.text += 4 }

// reported is the count that is told; the tokens of images are the same for all.
func (t tally) reported(ppm int) int { return (t.text*ppm+999_999)/1_000_000 + t.images }

// A toolCall is one that the answer makes.
type toolCall struct{ id, name, args string }

// ends of an answer
const (
	ended     = "stop"
	cutShort  = "length"
	calling   = "calls"
	refused   = "refusal"
	filtered  = "safety"
	malformed = "malformed"
)

// An answer is what the model says, before it is put into a dialect.
type answer struct {
	thoughts bool // the model has thought
	thought  string
	text     string
	calls    []toolCall
	end      string
	usage    usage
}

// A usage has OpenAI's convention: input includes the cached and the written
// part, output the reasoning.
type usage struct{ input, cached, written, output, reasoning int }

// thinking is how many tokens a model thinks, if there is room.
const thinking = 24

const vocabulary = "the quiet harbour keeps its lamps lit while 你好 travellers naïve and 🙂 patient count every token that passes a gate of glass before morning comes"

// compose makes the answer to a prompt. It depends on nothing else, so that the
// answer is the same streamed or not.
func compose(p *prompt, s *script, steps [][]wanted, said string, ppm int) *answer {
	a := &answer{end: ended, thoughts: p.thinks}
	count := func(text string) int { return (tokens.Count(text)*ppm + 999_999) / 1_000_000 }
	limit := p.model.MaxOutput
	if p.limit > 0 {
		limit = min(limit, p.limit)
	}
	if p.thinks {
		a.usage.reasoning = min(thinking, limit/3)
	}
	if s.thinking {
		a.thought = "The user says something, and I think about how to answer it."
	}
	a.usage.input = p.input.reported(ppm)
	a.calls = p.choose(s, steps)
	if len(a.calls) == 0 || s.say {
		a.text = prose(said, p.seen, s.words)
	}
	switch {
	case s.spent:
		a.text, a.calls, a.thoughts, a.end = "", nil, true, cutShort
		a.usage.reasoning = limit
	case s.refusal:
		a.text, a.calls, a.end = "I cannot help with that.", nil, refused
	case s.safety:
		a.text, a.calls, a.end = half(a.text), nil, filtered
	case s.malformedCall:
		a.end = malformed
	case len(a.calls) > 0:
		a.end = calling
	}
	a.fit(limit-a.usage.reasoning, count)
	if s.usage != nil {
		u := append(slices.Clone(s.usage), 0)
		a.usage = usage{input: u[0], cached: u[1], written: u[2], output: u[3], reasoning: u[4]}
	}
	return a
}

// fit counts the output and cuts it off at what is left of the limit.
func (a *answer) fit(left int, count func(string) int) {
	cost := func(text string) int {
		n := count(text)
		for _, c := range a.calls {
			n += count(c.name) + count(c.args) + 8
		}
		return n
	}
	n := cost(a.text)
	if a.end != malformed && n > left {
		a.end = cutShort
		words := strings.SplitAfter(a.text, " ")
		if len(a.calls) > 0 {
			last := &a.calls[len(a.calls)-1]
			last.args = half(last.args)
		} else {
			fits := sort.Search(len(words), func(n int) bool { return cost(strings.Join(words[:n+1], "")) > left })
			a.text = strings.Join(words[:fits], "")
		}
		n = left
	}
	a.usage.output = a.usage.reasoning + n
}

// choose decides which tools the model calls now.
func (p *prompt) choose(s *script, steps [][]wanted) (calls []toolCall) {
	if len(p.tools) == 0 || p.choice == "none" {
		return nil
	}
	var want []wanted
	forced := p.choice == "required" || p.choice == "named"
	switch {
	case p.rounds < len(steps):
		want = steps[p.rounds]
	case s.calls > 0 && p.rounds == 0, forced:
		want = []wanted{{name: p.tools[0].name}}
	}
	if p.choice == "named" {
		want = slices.DeleteFunc(slices.Clone(want), func(w wanted) bool { return w.name != p.named })
		if len(want) == 0 {
			want = []wanted{{name: p.named}}
		}
	}
	for i := range max(s.calls, len(want)) {
		if len(want) > 0 && (i == 0 || p.parallel) {
			calls = append(calls, p.call(want[i%len(want)], s))
		}
	}
	return calls
}

// call makes one call, with arguments from the schema if none are given.
func (p *prompt) call(w wanted, s *script) toolCall {
	args := w.args
	if args == "" {
		args = "{}"
		if i := slices.IndexFunc(p.tools, func(t tool) bool { return t.name == w.name }); i >= 0 && !s.emptyArgs {
			args = sample(p.tools[i].schema)
		}
	}
	if s.emptyArgs {
		args = "{}"
	}
	if s.malformedCall {
		args = half(args)
	}
	return toolCall{name: w.name, args: args}
}

// sample makes arguments that fit a simple schema: the required properties.
func sample(schema jsontext.Value) string {
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
	return string(encode(args))
}

// prose is the canned answer, of exactly so many words if words is not 0.
func prose(said string, results []string, words int) string {
	text := "You said nothing."
	if said != "" {
		text = "You said: " + clip(said, 400) + "."
	}
	if len(results) > 0 {
		text = "The tools say: " + clip(strings.Join(results, "; "), 400) + "."
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

// clip shortens a text to n characters.
func clip(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n]) + "…"
	}
	return text
}

// half is the first half of a text.
func half(text string) string {
	i := len(text) / 2
	for i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return text[:i]
}

// pieces divides a text into deltas of so many words.
func pieces(text string, words int) (list []string) {
	for part := range slices.Chunk(strings.SplitAfter(text, " "), words) {
		if p := strings.Join(part, ""); p != "" {
			list = append(list, p)
		}
	}
	return list
}

// crumbs divides arguments into pieces of a few bytes, wherever that may be, but
// not within a character.
func crumbs(args string) (list []string) {
	for args != "" {
		n := min(6, len(args))
		for n < len(args) && !utf8.RuneStart(args[n]) {
			n++
		}
		list, args = append(list, args[:n]), args[n:]
	}
	return list
}

// random returns n random letters and digits.
func random(n int) (text string) {
	for len(text) < n {
		text += rand.Text()
	}
	return strings.ToLower(text[:n])
}

// encode is JSON of what we have made ourselves, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err)
	}
	return b
}
