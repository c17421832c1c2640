package mock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// answer is the response to one request.
type answer struct {
	script
	waited  time.Duration
	id      string
	created int64 // Unix seconds
	model   string
	text    string
	call    string // name of the tool that is called, "" = none
	callID  string
	finish  string
	input   int64 // tokens
	output  int64
	cap     int64
}

// compose makes the response to r.
func (p *Provider) compose(r *provider.Request) *answer {
	seed := fingerprint(r.Turns)
	a := &answer{
		script:  readScript(r),
		id:      fmt.Sprintf("chatcmpl-mock%016x", seed),
		created: p.now().Unix(),
		model:   r.Model,
		finish:  "stop",
		input:   p.input(r),
		cap:     r.MaxTokens,
	}
	a.words, a.chunks = min(a.words, p.maxWords), min(a.chunks, p.maxWords)
	if a.call = chooseTool(r); a.call != "" {
		a.callID, a.finish = fmt.Sprintf("call_mock%016x", seed), "tool_calls"
		a.output = min(int64(p.count(a.call)+p.count("{}")), r.MaxTokens)
		return a
	}
	a.text = composeText(r, seed, a.words)
	p.limitText(a, r)
	return a
}

// fingerprint returns a hash of a conversation: FNV-1a, without the copies of the texts that hash/fnv would need.
func fingerprint(turns []conversation.Turn) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	hash := uint64(offset)
	add := func(texts ...string) {
		for _, t := range texts {
			for i := range len(t) {
				hash = (hash ^ uint64(t[i])) * prime
			}
			hash *= prime // a zero byte
		}
	}
	for i := range turns {
		t := &turns[i]
		blocks, callID, text := t.Blocks, "", ""
		if len(blocks) > 0 && blocks[0].Kind == conversation.ResultBlock {
			blocks, callID = blocks[0].Blocks, blocks[0].ID
		}
		if len(blocks) > 0 && blocks[0].Kind == conversation.TextBlock {
			blocks, text = blocks[1:], blocks[0].Text
		}
		add(t.Role, text, t.Name, callID, "")
		for j := range blocks {
			switch b := &blocks[j]; b.Kind {
			case conversation.CallBlock:
				add(b.ID, b.Name, b.Arguments)
			case conversation.ImageBlock:
				add("", b.Picture.URL)
			default:
				add(b.Text)
			}
		}
	}
	return hash
}

// chooseTool returns the tool that the model calls: the forced one or the first. It returns "" if the last message is a
// tool's result (contract §4.3).
func chooseTool(r *provider.Request) string {
	switch {
	case len(r.Tools) == 0, r.ToolChoice.Mode == "none":
		return ""
	case len(r.Turns) > 0 && r.Turns[len(r.Turns)-1].Role == "tool":
		return ""
	case r.ToolChoice.Mode == "function":
		return r.ToolChoice.Name
	}
	return r.Tools[0].Name
}

// limitText cuts the text at a stop sequence and at max_tokens, and counts it.
func (p *Provider) limitText(a *answer, r *provider.Request) {
	for _, stop := range r.Stop {
		if stop != "" {
			a.text, _, _ = strings.Cut(a.text, stop)
		}
	}
	if a.output = int64(p.count(a.text)); a.output <= r.MaxTokens {
		return
	}
	a.finish = "length"
	words := strings.SplitAfter(a.text, " ")
	whole := p.countFitting(words, r.MaxTokens) // of the words, then what fits of the next one
	next := strings.Split(words[min(whole, len(words)-1)], "")
	pieces := append([]string{strings.Join(words[:whole], "")}, next...)
	a.text = strings.Join(pieces[:p.countFitting(pieces, r.MaxTokens)], "")
	a.output = int64(p.count(a.text))
}

// countFitting returns how many of the pieces are a text of at most so many tokens, by bisection: a longer text rarely
// has fewer tokens.
func (p *Provider) countFitting(pieces []string, maxTokens int64) int {
	low, high := 0, len(pieces)
	for low < high {
		mid := (low + high + 1) / 2
		if int64(p.count(strings.Join(pieces[:mid], ""))) <= maxTokens {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// makeUsageJSON returns the usage that is reported, nil for none.
func (a *answer) makeUsageJSON() []byte {
	output, total := strconv.FormatInt(a.output, 10), a.input+a.output
	switch a.usage {
	case "none":
		return nil
	case "wrong":
		output = "-5"
	case "fraction":
		output += ".5"
	case "huge":
		huge := 1000*a.cap + 1_000_000
		output, total = strconv.FormatInt(huge, 10), a.input+huge
	}
	return fmt.Appendf(nil,
		`{"prompt_tokens":%d,"completion_tokens":%s,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}`,
		a.input, output, total)
}

// makeBody returns the whole response, with usage unless it is nil.
func (a *answer) makeBody(usage []byte) []byte {
	b := a.makeHead("chat.completion")
	b = append(b, `[{"index":0,"message":{"role":"assistant","content":`...)
	if a.call != "" {
		b = append(append(b, `null,"refusal":null,"tool_calls":[`...), a.makeToolCall("{}")...)
		b = append(b, ']')
	} else {
		b = append(provider.AppendQuote(b, a.text), `,"refusal":null`...)
	}
	b = append(provider.AppendQuote(append(b, `},"logprobs":null,"finish_reason":`...), a.finish), "}]"...)
	if usage != nil {
		b = append(append(b, `,"usage":`...), usage...)
	}
	return append(b, '}')
}

// makeHead returns the start of a response or chunk in OpenAI's shape, up to the value of choices.
func (a *answer) makeHead(object string) []byte {
	b := provider.AppendQuote([]byte(`{"id":`), a.id)
	b = provider.AppendQuote(append(b, `,"object":`...), object)
	b = strconv.AppendInt(append(b, `,"created":`...), a.created, 10)
	b = provider.AppendQuote(append(b, `,"model":`...), a.model)
	return append(b, `,"service_tier":"default","system_fingerprint":null,"choices":`...)
}

func (a *answer) makeToolCall(arguments string) []byte {
	b := provider.AppendQuote([]byte(`{"id":`), a.callID)
	b = provider.AppendQuote(append(b, `,"type":"function","function":{"name":`...), a.call)
	return append(provider.AppendQuote(append(b, `,"arguments":`...), arguments), "}}"...)
}

// splitText returns the words of the text, each with its space.
func (a *answer) splitText() []string {
	if a.text == "" {
		return nil
	}
	return strings.SplitAfter(a.text, " ")
}

// countParts returns how many chunks the text has: two words in each, or as the script says.
func (a *answer) countParts(words []string) int {
	if a.chunks > 0 {
		return min(a.chunks, len(words))
	}
	return (len(words) + 1) / 2
}

// countChunks returns how many chunks the stream has, without the usage chunk.
func (a *answer) countChunks(words []string) int {
	if a.call != "" {
		return 3
	}
	return 2 + a.countParts(words)
}

// makeNthChunk returns the n-th chunk of the stream: the role, the tool call or the parts of
// the text, and the finish reason.
func (a *answer) makeNthChunk(words []string, n int) []byte {
	parts := a.countParts(words)
	switch {
	case n == a.countChunks(words)-1:
		return a.makeChunk("{}", strconv.Quote(a.finish))
	case a.call != "" && n == 0:
		return a.makeChunk(`{"role":"assistant","content":null,"refusal":null,"tool_calls":[{"index":0,`+
			string(a.makeToolCall("")[1:])+`]}`, "null")
	case a.call != "":
		return a.makeChunk(`{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}`, "null")
	case n == 0:
		return a.makeChunk(`{"role":"assistant","content":"","refusal":null}`, "null")
	}
	i := n - 1
	part := strings.Join(words[i*len(words)/parts:(i+1)*len(words)/parts], "")
	return a.makeChunk(`{"content":`+string(provider.AppendQuote(nil, part))+`}`, "null")
}

func (a *answer) makeChunk(delta, finish string) []byte {
	b := append(a.makeHead("chat.completion.chunk"), `[{"index":0,"delta":`...)
	b = append(append(append(b, delta...), `,"logprobs":null,"finish_reason":`...), finish...)
	return append(b, `}],"usage":null}`...)
}

func (a *answer) makeUsageChunk(usage []byte) []byte {
	return append(append(append(a.makeHead("chat.completion.chunk"), `[],"usage":`...), usage...), '}')
}
