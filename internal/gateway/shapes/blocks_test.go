package shapes_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/models/conversation"
)

// An answered block is a letter for its kind, and its text: thinking of Claude, text, or a call.
type answered struct {
	kind byte // h, t, c
	text string
}

// write has a writer write blocks, each in two pieces. It returns all that a stream is.
func write(w shapes.Writer, blocks []answered) (stream []byte) {
	end := conversation.Stopped
	give := func(d conversation.Delta) {
		w.Write(&d)
		stream = append(stream, w.Take()...)
	}
	give(conversation.Delta{Kind: conversation.Begin})
	for i, b := range blocks {
		quoted := func(text string) []byte {
			q, err := json.Marshal(text)
			if err != nil {
				panic(err)
			}
			return q[1 : len(q)-1]
		}
		half := len(b.text) / 2
		pieces := []string{b.text[:half], b.text[half:]}
		switch b.kind {
		case 'h':
			for _, p := range pieces {
				give(conversation.Delta{Kind: conversation.Reasoning, Block: i, Text: quoted(p)})
			}
			give(conversation.Delta{
				Kind:   conversation.Thought,
				Block:  i,
				Opaque: fmt.Appendf(nil, `{"type":"thinking","thinking":"%s","signature":"s%d"}`, quoted(b.text), i),
				Origin: conversation.Anthropic,
			})
		case 't':
			for _, p := range pieces {
				give(conversation.Delta{Kind: conversation.Text, Block: i, Text: quoted(p)})
			}
		case 'c':
			end = conversation.Called
			id := fmt.Appendf(nil, "c%d", i)
			give(conversation.Delta{Kind: conversation.Call, Block: i, ID: id, Name: []byte("f")})
			give(conversation.Delta{Kind: conversation.Arguments, Block: i, Text: quoted(`{"x":`)})
			give(conversation.Delta{Kind: conversation.Arguments, Block: i, Text: quoted(`"` + b.text + `"}`)})
		}
	}
	give(conversation.Delta{Kind: conversation.End, Reason: end})
	return append(stream, w.End()...)
}

// A block of an answer as clients read it, of any shape.
type block struct {
	Type, Text, Thinking, Signature, Arguments string
	Encrypted                                  string `json:"encrypted_content"`
	Input                                      json.RawMessage
	Content, Summary                           []struct{ Text string }
}

func (b *block) String() string {
	switch b.Type {
	case "text":
		return "t" + b.Text
	case "message":
		return "t" + b.Content[0].Text
	case "thinking":
		return "h" + b.Thinking + "/" + b.Signature
	case "reasoning":
		extra, _ := base64.StdEncoding.DecodeString(b.Encrypted) // what is no Base64 has no signature either
		_, signature, _ := strings.Cut(string(extra), `"signature":"`)
		signature, _, _ = strings.Cut(signature, `"`)
		return "h" + b.Summary[0].Text + "/" + signature
	case "tool_use":
		return "c" + string(b.Input)
	case "function_call":
		return "c" + b.Arguments
	}
	return b.Type
}

// describe returns the blocks that should come of some, in the words of String.
func describe(blocks []answered) (out []string) {
	for i, b := range blocks {
		switch b.kind {
		case 'h':
			out = append(out, fmt.Sprintf("h%s/s%d", b.text, i))
		case 't':
			out = append(out, "t"+b.text)
		case 'c':
			out = append(out, `c{"x":"`+b.text+`"}`)
		}
	}
	return out
}

var blockCalls = map[string]func() (shapes.Call, error){
	"messages": func() (shapes.Call, error) {
		return messages.Parse([]byte(`{"model":"m","max_tokens":5000,"thinking":{"type":"adaptive"},` +
			`"messages":[{"role":"user","content":"a"}]}`))
	},
	"responses": func() (shapes.Call, error) {
		return responses.Parse([]byte(`{"model":"m","input":"a","include":["reasoning.encrypted_content"],` +
			`"reasoning":{"effort":"low","summary":"auto"}}`))
	},
	"contents": func() (shapes.Call, error) {
		return contents.Parse([]byte(`{"contents":[{"parts":[{"text":"a"}]}],"generationConfig":{"thinkingConfig":`+
			`{"includeThoughts":true}}}`), "m", true)
	},
}

// parts returns the blocks of responses of Google's API: of one, or of the chunks of a stream.
func parts(t *testing.T, answers ...[]byte) (out []string) {
	t.Helper()
	goesOn := false
	for _, answer := range answers {
		var body struct {
			Candidates []struct {
				Content struct {
					Parts []struct {
						Text      *string
						Thought   bool
						Signature []byte                          `json:"thoughtSignature"`
						Call      *struct{ Args json.RawMessage } `json:"functionCall"`
					}
				}
			}
		}
		if err := json.Unmarshal(answer, &body); err != nil {
			t.Fatalf("%v: %s", err, answer)
		}
		for _, p := range body.Candidates[0].Content.Parts {
			var mark struct {
				Thoughts []struct{ Anthropic struct{ Thinking []block } }
			}
			if len(p.Signature) > 0 {
				if err := json.Unmarshal(p.Signature, &mark); err != nil {
					t.Fatalf("%v: %s", err, p.Signature)
				}
			}
			for _, thought := range mark.Thoughts {
				out = append(out, thought.Anthropic.Thinking[0].String())
			}
			switch {
			case p.Call != nil:
				out = append(out, "c"+string(p.Call.Args))
			case p.Thought, *p.Text == "" && len(p.Signature) == 0:
			case goesOn && len(p.Signature) == 0:
				out[len(out)-1] += *p.Text
			default:
				out = append(out, "t"+*p.Text)
			}
			goesOn = p.Call == nil && !p.Thought
		}
	}
	return out
}

// whole returns the blocks of a whole answer, or of the last event of a stream of responses.
func whole(t *testing.T, name string, answer []byte) (out []string) {
	t.Helper()
	if name == "contents" {
		return parts(t, shapes.WithoutBill(answer))
	}
	var body struct{ Content, Output []*block }
	if err := json.Unmarshal(shapes.WithoutBill(answer), &body); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, b := range append(body.Content, body.Output...) {
		out = append(out, b.String())
	}
	return out
}

// streamed returns the blocks of a stream.
func streamed(t *testing.T, name string, stream []byte) (out []string) {
	t.Helper()
	if name == "contents" {
		var chunks [][]byte
		for event := range bytes.SplitSeq(bytes.TrimSpace(shapes.WithoutBill(stream)), []byte("\n\n")) {
			chunks = append(chunks, bytes.TrimPrefix(event, []byte("data: ")))
		}
		return parts(t, chunks...)
	}
	var open *block
	for rest := shapes.WithoutBill(stream); len(rest) > 0; {
		var data []byte
		data, rest = shapes.NextEvent(rest)
		var e struct {
			Type     string
			Block    *block `json:"content_block"`
			Delta    json.RawMessage
			Response json.RawMessage
		}
		if err := json.Unmarshal(data, &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if name == "responses" {
			if e.Type == "response.completed" {
				return whole(t, name, e.Response)
			}
			continue
		}
		switch e.Type {
		case "content_block_start":
			open = e.Block
			open.Input = nil
		case "content_block_delta":
			var d struct {
				Text, Thinking, Signature string
				Partial                   string `json:"partial_json"`
			}
			if err := json.Unmarshal(e.Delta, &d); err != nil {
				t.Fatal(err)
			}
			open.Text += d.Text
			open.Thinking += d.Thinking
			open.Signature += d.Signature
			open.Input = append(open.Input, d.Partial...)
		case "content_block_stop":
			out = append(out, open.String())
		}
	}
	return out
}

// FuzzBlocks answers with any sequence of blocks: each client gets them all in their order, streamed and whole, and
// what is counted of both is the same.
func FuzzBlocks(f *testing.F) {
	for _, kinds := range []string{"t", "hthct", "hchc", "tct", "tt", "hh", "cc", "thtctht"} {
		f.Add(kinds, "some words")
	}
	f.Fuzz(func(t *testing.T, kinds, text string) {
		var blocks []answered
		text = strings.Map(func(r rune) rune {
			if r < 'a' || 'z' < r {
				return ' '
			}
			return r
		}, text)
		for i := range min(len(kinds), 50) {
			if strings.IndexByte("htc", kinds[i]) >= 0 {
				blocks = append(blocks, answered{kinds[i], fmt.Sprint(i, text)})
			}
		}
		for name, parse := range blockCalls {
			c, err := parse()
			if err != nil {
				t.Fatal(err)
			}
			head := shapes.Head{RequestID: "req_1", Model: "m"}
			body := write(c.NewWriter(head), blocks)
			head.Stream = true
			stream := write(c.NewWriter(head), blocks)
			want := describe(blocks)
			if got := streamed(t, name, stream); !slices.Equal(got, want) {
				t.Errorf("%s: streamed %q, want %q", name, got, want)
			}
			if got := whole(t, name, body); !slices.Equal(got, want) {
				t.Errorf("%s: whole %q, want %q", name, got, want)
			}
			if inBody, inStream := c.Format().Text(body), c.Format().Text(stream); inBody != inStream {
				t.Errorf("%s: %q is counted of a whole answer, and %q of the stream", name, inBody, inStream)
			}
			sent, end := shapes.SplitStream(stream)
			if string(sent)+string(end) != string(stream) || strings.Contains(string(sent), "\x00") {
				t.Errorf("%s: it is split into %q and %q", name, sent, end)
			}
		}
	})
}
