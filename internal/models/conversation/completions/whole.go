package completions

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// A Whole collects the deltas of an answer that goes to the client in one piece, or passes them on to whom its request
// names. Its strings are raw JSON without the quotes.
type Whole struct {
	answer
	begin     []byte // the answer up to its first choice
	content   []byte
	refusal   []byte
	reasoning []byte // readable
	thoughts  []byte // with commas between; of the text, its signature
	origin    conversation.Origin
	tools     []call
	reason    conversation.Reason
	stop      []byte // the stop sequence that ended it; nil = none
	size      int
}

type call struct {
	head  []byte // up to its arguments
	text  []byte // the arguments
	extra []byte // extra_content, with a comma before it
}

// NewWhole returns a collector of the answer to a request, which came at now. It appends its text to buf.
func NewWhole(buf []byte, r *provider.Request, now time.Time) *Whole {
	return &Whole{answer: newAnswer(r, now), content: buf}
}

// Size returns the bytes of what was collected.
func (w *Whole) Size() int { return w.size }

// Buffer returns the slice of NewWhole, which may have grown.
func (w *Whole) Buffer() []byte { return w.content }

// Write takes a delta.
func (w *Whole) Write(d *conversation.Delta) {
	w.size += len(d.Text) + len(d.Opaque) + len(d.Name) + len(d.ID)
	if w.r.To != nil {
		w.r.To(d)
		return
	}
	defer w.order.note(d)
	switch d.Kind {
	case conversation.Begin:
		*w = Whole{answer: answer{r: w.r, created: w.created, reasons: w.reasons}, content: w.content[:0]}
		w.begin = w.appendHead(nil, d, "chat.completion")
	case conversation.Text:
		w.content = append(w.content, d.Text...)
		if d.Opaque != nil { // the last signature is that of the text
			w.thoughts, w.origin = slices.Clone(d.Opaque), d.Origin
		}
	case conversation.Refusal:
		w.refusal = append(w.refusal, d.Text...)
	case conversation.Reasoning:
		if w.reasons {
			w.reasoning = append(w.reasoning, d.Text...)
		}
	case conversation.Thought:
		switch {
		case !w.reasons:
			w.keep(d)
		case d.Origin == conversation.Google: // it has one signature
			w.thoughts, w.origin = slices.Clone(d.Opaque), d.Origin
		default:
			w.thoughts, w.origin = appendElement(w.thoughts, d.Opaque), d.Origin
		}
	case conversation.Call:
		w.calls = append(w.calls, d.Block)
		w.tools = append(w.tools, call{
			head:  appendCall(nil, d.ID, d.Name, nil),
			text:  slices.Clone(d.Text),
			extra: w.appendOwed(nil, d),
		})
	case conversation.Arguments:
		c := &w.tools[slices.Index(w.calls, d.Block)]
		c.text = append(c.text, d.Text...)
	case conversation.End:
		w.reason, w.stop = d.Reason, slices.Clone(d.Text)
	}
}

// AppendBody appends the whole answer, with its usage if there is one; nothing if the deltas were passed on.
func (w *Whole) AppendBody(b []byte, u *provider.Usage) []byte {
	if w.r.To != nil {
		return b
	}
	b = append(append(b, w.begin...), `{"index":0,"message":{"role":"assistant","content":`...)
	b = appendText(b, w.content, len(w.tools) == 0)
	b = appendText(append(b, `,"refusal":`...), w.refusal, false)
	if len(w.reasoning) > 0 {
		b = append(append(append(b, `,"reasoning_content":"`...), w.reasoning...), '"')
	}
	if len(w.thoughts) > 0 {
		b = appendExtra(append(b, ','), w.origin, w.thoughts)
	}
	if !w.reasons && !w.order.isPlain() {
		if len(w.thoughts) > 0 {
			b[len(b)-1] = ','
		} else {
			b = append(b, `,"extra_content":{`...)
		}
		b = append(w.order.append(b), '}')
	}
	for i := range w.tools {
		c := &w.tools[i]
		if i == 0 {
			b = append(b, `,"tool_calls":[{`...)
		} else {
			b = append(b, ",{"...)
		}
		b = append(append(b, c.head[:len(c.head)-1]...), c.text...)
		b = append(append(append(b, `"}`...), c.extra...), '}')
	}
	if len(w.tools) > 0 {
		b = append(b, ']')
	}
	b = append(append(append(b, `},"logprobs":null,"finish_reason":"`...), w.reason.String()...), '"')
	b = append(appendStop(b, w.stop), "}]"...)
	if u != nil {
		b = provider.AppendUsage(append(b, `,"usage":`...), u)
	}
	return append(b, '}')
}

// appendText appends a string, or null in place of one that is empty and need not be there.
func appendText(b, text []byte, always bool) []byte {
	if len(text) == 0 && !always {
		return append(b, "null"...)
	}
	return append(append(append(b, '"'), text...), '"')
}
