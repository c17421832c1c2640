package inference

import (
	"bytes"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/contents"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/conversation/completions"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/tokens"
)

// A shapedAnswer writes what a provider answers in the shape of the client. Clients of Chat Completions get what
// adapters give, as it comes: they have none.
type shapedAnswer struct {
	writer  shapes.Writer
	format  shapes.Format
	reader  completions.Reader // of a provider that speaks Chat Completions
	summary conversation.Summary
}

// newShapedAnswer returns the answer to a request of a shape; nil if it has no deltas.
func newShapedAnswer(shape shapes.Call, h shapes.Head) *shapedAnswer {
	if shape == nil {
		return nil
	}
	w := shape.NewWriter(h)
	if w == nil {
		return nil
	}
	a := &shapedAnswer{writer: w, format: shape.Format()}
	a.reader = completions.NewReader(a.write)
	return a
}

// write takes a delta.
func (a *shapedAnswer) write(d *conversation.Delta) {
	a.summary.Note(d)
	a.writer.Write(d)
}

// conclude ends an answer whose provider has not said why it ended, and notes no reason of it. It returns what the
// client gets.
func (a *shapedAnswer) conclude() []byte {
	if a.summary.Ended {
		return nil
	}
	a.writer.Write(&conversation.Delta{Kind: conversation.End})
	return a.writer.Take()
}

// frames returns what the client gets for a chunk.
func (a *attempt) frames(c *provider.Chunk) []byte {
	if a.shaped == nil {
		return c.Frames
	}
	a.shaped.reader.Read(c.Frames)
	return a.shaped.writer.Take()
}

// body returns what is stored of an answer that came whole, and sent with its bill.
func (a *attempt) body(r *provider.Response) []byte {
	if a.shaped == nil {
		return r.Body
	}
	if r.Body != nil {
		a.shaped.reader.ReadWhole(r.Body)
	}
	return a.shaped.writer.End()
}

// finishReason returns the finish_reason of an answer: its body, or the frames of a stream.
func (a *attempt) finishReason(output []byte) string {
	if a.shaped == nil {
		return provider.LastFinishReason(output)
	}
	return a.shaped.summary.FinishReason()
}

// isEmpty reports whether the model ended its answer by itself and gave nothing that an app can read. body is what is
// stored.
func (a *attempt) isEmpty(body []byte) bool {
	if a.shaped == nil {
		return provider.IsEmptyAnswer(body)
	}
	s := &a.shaped.summary
	return s.Ended && s.Reason == conversation.Stopped && !s.Gave
}

// format returns the form of what the client gets; nil = that of Chat Completions.
func (a *attempt) format() shapes.Format {
	if a.shaped == nil {
		return nil
	}
	return a.shaped.format
}

// formatOf returns the form of a stream of which some was sent; nil = that of Chat Completions.
func formatOf(sent []byte) shapes.Format {
	if f := messages.FormatOf(sent); f != nil {
		return f
	}
	if f := contents.FormatOf(sent); f != nil {
		return f
	}
	return responses.FormatOf(sent)
}

// generatedText returns all that the model generated in the frames of a stream, or in a whole answer.
func generatedText(f shapes.Format, output []byte) string {
	switch {
	case f != nil:
		return f.Text(output)
	case len(output) > 0 && output[0] == '{':
		return provider.GeneratedBodyText(output)
	}
	return provider.GeneratedText(output)
}

// countText returns how many tokens a whole answer has.
func countText(f shapes.Format, output []byte) int64 {
	return int64(tokens.Count(generatedText(f, output)))
}

// failFrames returns what ends a stream of which sent was sent with an error, as it is stored.
func failFrames(f shapes.Format, sent []byte, e *apierr.Error, l web.Links) []byte {
	frame := errorFrame(e, l)
	if f == nil {
		return frame
	}
	failure := []byte("{}")
	provider.Members(bytes.TrimSpace(bytes.TrimPrefix(frame, []byte("data: "))), func(name, value []byte) bool {
		if string(name) == "error" {
			failure = value
		}
		return true
	})
	return f.Fail(sent, failure)
}

// splitStored splits a stored stream into what was sent while it ran, and its end, which the bill completes.
func splitStored(body []byte) (sent, end []byte) {
	if bytes.IndexByte(body, 0) >= 0 {
		return shapes.SplitStream(body)
	}
	end = provider.LastUsageFrame(body)
	return body[:len(body)-len(end)], end
}

// fillBill returns an answer, or the end of one, with what its ledger row says. pending = the row does not exist yet;
// nil = nothing is known of the bill.
func fillBill(f shapes.Format, answer []byte, r *result) ([]byte, error) {
	var usage, block, final []byte // of r
	var err error
	switch {
	case r == nil:
	case r.pending:
		block = []byte(`{"settlement":"pending"}`)
		final, err = appendFinal(nil, r)
	default:
		if usage, err = receipts.AppendUsage(nil, &r.entry); err == nil {
			block = appendBlock(nil, &r.entry)
			final, err = appendFinal(nil, r)
		}
	}
	if err != nil {
		return nil, err
	}
	return shapes.FillHoles(answer, func(b []byte, hole string) []byte {
		switch hole {
		case shapes.UsageHole:
			return f.AppendUsage(b, usage)
		case shapes.BlockHole:
			return appendMember(b, "svc", block)
		}
		return appendMember(b, "svc_final", final)
	}), nil
}

// appendMember appends a further member of an object, if there is a value.
func appendMember(b []byte, name string, value []byte) []byte {
	if value == nil {
		return b
	}
	return append(append(append(append(b, `,"`...), name...), `":`...), value...)
}

// appendFinal appends svc_final.
func appendFinal(b []byte, r *result) ([]byte, error) {
	if r.pending { // event request.settled will carry usage and svc block (contract §4.3)
		return append(b, `{"usage":null,"svc":null,"settlement":"pending"}`...), nil
	}
	b, err := receipts.AppendUsage(append(b, `{"usage":`...), &r.entry)
	if err != nil {
		return nil, err
	}
	b = appendBlock(append(b, `,"svc":`...), &r.entry)
	return append(append(append(b, `,"settlement":"`...), r.entry.Settlement...), `"}`...), nil
}

// fillBody returns a whole answer as the client gets it.
func fillBody(shape shapes.Call, body []byte, e *rules.Entry) ([]byte, error) {
	if bytes.IndexByte(body, 0) >= 0 {
		return fillBill(shape.Format(), body, &result{entry: *e})
	}
	body = withBlock(body, e)
	if shape != nil {
		body = shape.Body(body)
	}
	return body, nil
}
