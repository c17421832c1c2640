package anthropic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// Complete executes a request and returns the whole response. It too uses a stream (see the package comment).
func (c *Client) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	x, err := c.post(ctx, r)
	if err != nil {
		return nil, err
	}
	buf := buffers.Get().(*buffer)
	a := answer{content: buf.out}
	d := newDecoder(&a)
	d.shows = r.WantReasoning
	events := newEvents(x)
	defer func() {
		events.Release()
		buf.release(a.content)
	}()
	for err == nil {
		_, err = events.Run(d.handleEvent)
		if d.finished {
			x.Hurry(finishWait)
		}
		if a.size > maxAnswer {
			err = upstream.NewFailure(http.StatusOK, fmt.Errorf("the answer has more than %d bytes", maxAnswer))
		}
	}
	x.End(errors.Is(err, errDone))
	if err = d.classifyEnd(err); !errors.Is(err, io.EOF) {
		return nil, makeCutError(err, d.begun)
	}
	u := d.usage.makeUsage()
	return &provider.Response{Body: a.appendBody(appendHead(nil, r, "chat.completion", c.now().Unix()), u), Usage: u},
		nil
}

// answer collects a message. Its strings are raw JSON without the quotes.
type answer struct {
	content   []byte
	reasoning []byte // readable thinking
	thinking  []byte // the thinking blocks, with commas between
	calls     []call
	reason    string
	refusal   []byte // nil = none
	stop      []byte // the stop sequence that ended it; nil = none
	size      int
}

type call struct{ id, name, thinking, arguments []byte }

func (a *answer) beginMessage() {}

func (a *answer) appendText(piece []byte) {
	a.content = append(a.content, piece...)
	a.size += len(piece)
}

func (a *answer) appendReasoning(piece []byte) {
	a.reasoning = append(a.reasoning, piece...)
	a.size += len(piece)
}

func (a *answer) appendThinking(block []byte) {
	a.thinking = append(appendComma(a.thinking, len(a.thinking)), block...)
	a.size += len(block)
}

func (a *answer) appendCall(_ int, id, name, thinking []byte) {
	a.calls = append(a.calls, call{id: cloneBytes(id), name: cloneBytes(name), thinking: cloneBytes(thinking)})
	a.size += len(id) + len(name) + len(thinking)
}

func (a *answer) appendArguments(i int, piece []byte) {
	a.calls[i].arguments = append(a.calls[i].arguments, piece...)
	a.size += len(piece)
}

func (a *answer) finishMessage(f finish) {
	a.reason = f.reason
	if f.refusal != nil {
		a.refusal = cloneBytes(f.refusal)
	}
	if f.stop != nil {
		a.stop = cloneBytes(f.stop)
	}
}

func cloneBytes(b []byte) []byte { return append([]byte{}, b...) }

// appendBody appends the choice and the usage, if there is one, to the head.
func (a *answer) appendBody(b []byte, u *provider.Usage) []byte {
	b = append(b, `{"index":0,"message":{"role":"assistant","content":`...)
	if len(a.content) == 0 && len(a.calls) > 0 {
		b = append(b, "null"...)
	} else {
		b = append(append(append(b, '"'), a.content...), '"')
	}
	if a.refusal == nil {
		b = append(b, `,"refusal":null`...)
	} else {
		b = append(append(append(b, `,"refusal":"`...), a.refusal...), '"')
	}
	if len(a.reasoning) > 0 {
		b = append(append(append(b, `,"reasoning_content":"`...), a.reasoning...), '"')
	}
	b = appendExtra(b, a.thinking)
	for i, c := range a.calls {
		if i == 0 {
			b = append(b, `,"tool_calls":[`...)
		}
		b = append(append(appendComma(b, i), `{"id":"`...), c.id...)
		b = append(append(b, `","type":"function","function":{"name":"`...), c.name...)
		b = append(append(append(b, `","arguments":"`...), c.arguments...), `"}`...)
		b = append(appendExtra(b, c.thinking), '}')
	}
	if len(a.calls) > 0 {
		b = append(b, ']')
	}
	b = append(append(append(b, `},"logprobs":null,"finish_reason":"`...), a.reason...), '"')
	b = append(appendStop(b, a.stop), "}]"...)
	if u != nil {
		b = appendUsage(append(b, `,"usage":`...), u)
	}
	return append(b, '}')
}
