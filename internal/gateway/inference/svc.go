package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/klauspost/compress/s2"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

// The bill of a call is always rendered from its ledger row, so that a replay
// shows the same bytes as the first answer.

// appendBlock writes the svc block of spec §2.
func appendBlock(b []byte, e *rules.Entry) []byte {
	b = append(b, `{"feature":`...)
	if e.Feature == "" {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendQuote(b, e.Feature) // a slug needs no JSON escapes
	}
	for _, m := range [...]struct {
		name string
		n    int64
	}{
		{"hold_amount_mc", int64(e.HoldMC)}, {"provider_cost_mc", int64(e.ProviderCostMC)}, {"svc_fee_mc", int64(e.SvcFeeMC)},
		{"dev_margin_mc", int64(e.DevMarginMC)}, {"user_charge_mc", int64(e.UserChargeMC)}, {"allocation_remaining_mc", int64(e.RemainingMC)},
	} {
		b = append(append(append(b, `,"`...), m.name...), `":`...)
		b = strconv.AppendInt(b, m.n, 10)
	}
	b = append(append(append(b, `,"user_charge_display":"`...), e.UserChargeMC.Display()...), '"')
	b = append(append(append(b, `,"allocation_remaining_display":"`...), e.RemainingMC.Display()...), '"')
	b = append(append(append(b, `,"paid_by":"`...), e.PaidBy...), '"')
	return append(append(append(b, `,"settlement":"`...), e.Settlement...), `"}`...)
}

// usageJSON writes the token classes that are stored and audited.
func usageJSON(u provider.Usage) string {
	b := make([]byte, 0, 96)
	for i, m := range [...]struct {
		name string
		n    int64
	}{{"input", u.Input}, {"cached", u.Cached}, {"cache_write", u.CacheWrite}, {"output", u.Output}, {"reasoning", u.Reasoning}} {
		b = append(b, `{,,,,`[i], '"')
		b = append(append(b, m.name...), `":`...)
		b = strconv.AppendInt(b, m.n, 10)
	}
	return string(append(b, '}'))
}

// storedUsage is what usageJSON writes.
type storedUsage struct {
	Input      int64 `json:"input"`
	Cached     int64 `json:"cached"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning"`

	AudioInput  int64 `json:"audio_input"` // these: of a voice reply
	AudioCached int64 `json:"audio_cached"`
	AudioOutput int64 `json:"audio_output"`
	ImageInput  int64 `json:"image_input"`
	ImageCached int64 `json:"image_cached"`
}

// usageOf reads a row's token counts.
func usageOf(e *rules.Entry) (storedUsage, error) {
	var u storedUsage
	if err := jsonv2.Unmarshal([]byte(e.Usage), &u); err != nil {
		return storedUsage{}, fmt.Errorf("usage of %s: %w", e.ID, err)
	}
	return u, nil
}

// appendUsage writes a row's token counts in OpenAI's shape.
func appendUsage(b []byte, e *rules.Entry) ([]byte, error) {
	u, err := usageOf(e)
	if err != nil {
		return nil, err
	}
	input := u.Input + u.Cached + u.CacheWrite
	return fmt.Appendf(b, `{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
		input, u.Output, input+u.Output, u.Cached, u.CacheWrite, u.Reasoning), nil
}

// withBlock returns a whole answer: the provider's object with the svc block as
// its last member. Where the provider's usage was of no use, ours stands there.
func withBlock(body []byte, e *rules.Entry) []byte {
	body = bytes.TrimRight(body, " \t\r\n")
	if e.Settlement == rules.Estimated {
		body = withUsage(body, e)
	}
	out := make([]byte, 0, len(body)+512)
	out = append(out, body[:len(body)-1]...)
	out = append(out, `,"svc":`...)
	return append(appendBlock(out, e), '}', '\n')
}

// withUsage replaces the member usage of a provider's object by the row's.
func withUsage(body []byte, e *rules.Entry) []byte {
	var members map[string]json.RawMessage
	usage, err := appendUsage(nil, e)
	if err != nil || json.Unmarshal(body, &members) != nil {
		return body // an object it is: it was read before
	}
	members["usage"] = usage
	if out, err := json.Marshal(members); err == nil {
		return out
	}
	return body
}

var done = []byte("data: [DONE]\n\n")

// finale returns what ends a settled or pending stream: svc_final and [DONE]. On the
// drop-in route it rides in the usage chunk, and only if the client asked for one.
func finale(q *plan, r *result) ([]byte, error) {
	b := make([]byte, 0, 1024)
	if !q.route.chat {
		b = append(b, "data: {"...)
	} else if !q.IncludeUsage {
		return done, nil
	} else if b = ordinary(b, r); r.usage == nil && r.pending {
		b = append(b, `,"usage":null,`...)
	} else if r.usage == nil {
		usage, err := appendUsage(append(b, `,"usage":`...), &r.entry)
		if err != nil {
			return nil, err
		}
		b = append(usage, ',')
	} else {
		b = append(b, ',')
	}
	if r.pending { // both are told by request.settled (spec §4.3)
		b = append(b, `"svc_final":{"usage":null,"svc":null,"settlement":"pending"}}`+"\n\n"...)
		return append(b, done...), nil
	}
	b = append(b, `"svc_final":{"usage":`...)
	b, err := appendUsage(b, &r.entry)
	if err != nil {
		return nil, err
	}
	b = appendBlock(append(b, `,"svc":`...), &r.entry)
	b = append(append(append(b, `,"settlement":"`...), r.entry.Settlement...), `"}}`...)
	return append(append(b, "\n\n"...), done...), nil
}

// ordinary writes an open chunk: the provider's usage chunk without its closing
// brace, or one like it with the stream's own id.
func ordinary(b []byte, r *result) []byte {
	if r.usage != nil {
		return append(b, bytes.TrimSuffix(bytes.TrimRight(r.usage, " \r\n"), []byte("}"))...)
	}
	b = append(append(b, `data: {"id":`...), member(r.body, `"id":`, `"`+r.entry.RequestID()+`"`)...)
	b = append(b, `,"object":"chat.completion.chunk","created":`...)
	b = strconv.AppendInt(b, r.entry.CreatedUS/1e6, 10)
	b = append(append(b, `,"model":`...), strconv.Quote(r.entry.Model)...)
	return append(b, `,"choices":[]`...)
}

// member returns the quoted text that follows name in the first frame.
func member(frames []byte, name, otherwise string) string {
	if i := bytes.Index(frames, []byte(name)); i >= 0 {
		rest := bytes.TrimLeft(frames[i+len(name):], " ")
		if len(rest) > 0 && rest[0] == '"' {
			if j := bytes.IndexByte(rest[1:], '"'); j >= 0 {
				return string(rest[:j+2])
			}
		}
	}
	return otherwise
}

// keep packs an answer for replays; nil if it is too long to be kept.
func keep(body []byte) *rules.StoredResponse {
	if len(body) > maxKept {
		return nil
	}
	if len(body) < 512 {
		return &rules.StoredResponse{Encoding: "raw", Body: body}
	}
	return &rules.StoredResponse{Encoding: "s2", Body: s2.Encode(nil, body)}
}

// unpack returns what keep packed.
func unpack(a rules.StoredResponse) ([]byte, error) {
	switch a.Encoding {
	case "raw":
		return a.Body, nil
	case "s2":
		return s2.Decode(nil, a.Body)
	}
	return nil, errors.New("inference: unknown encoding " + a.Encoding)
}
