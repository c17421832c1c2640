package inference

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/klauspost/compress/s2"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// The svc block of a response is always rendered from its ledger row, so that a replay
// has the same bytes as the first response.

// appendBlock appends the svc block of contract §2.
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
		{"hold_amount_mc", int64(e.HoldMC)},
		{"provider_cost_mc", int64(e.ProviderCostMC)},
		{"svc_fee_mc", int64(e.SvcFeeMC)},
		{"dev_margin_mc", int64(e.DevMarginMC)},
		{"user_charge_mc", int64(e.UserChargeMC)},
		{"allocation_remaining_mc", int64(e.RemainingMC)},
	} {
		b = append(append(append(b, `,"`...), m.name...), `":`...)
		b = strconv.AppendInt(b, m.n, 10)
	}
	b = append(append(append(b, `,"user_charge_display":"`...), e.UserChargeMC.Display()...), '"')
	b = append(append(append(b, `,"allocation_remaining_display":"`...), e.RemainingMC.Display()...), '"')
	b = strconv.AppendInt(append(b, `,"max_tokens_applied":`...), policy.MaxTokens(e.Terms), 10)
	if saved, ok := receipts.CacheSaved(e); ok {
		b = strconv.AppendInt(append(b, `,"cache_saved_mc":`...), int64(saved), 10)
	}
	if e.IsWaived() {
		b = append(append(b, ','), rules.WaivedEmpty...)
	}
	b = append(append(append(b, `,"paid_by":"`...), e.PaidBy...), '"')
	return append(append(append(b, `,"settlement":"`...), e.Settlement...), `"}`...)
}

// withBlock returns a whole response: the provider's object with the svc block as its
// last member. In an estimated call, our count replaces the provider's usage.
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

// withUsage replaces the member usage of a provider's object by the ledger row's.
func withUsage(body []byte, e *rules.Entry) []byte {
	var members map[string]json.RawMessage
	usage, err := receipts.AppendUsage(nil, e)
	if err != nil || json.Unmarshal(body, &members) != nil {
		return body // cannot happen: the adapter has read an object
	}
	members["usage"] = usage
	if out, err := json.Marshal(members); err == nil {
		return out
	}
	return body
}

var doneFrame = []byte("data: [DONE]\n\n")

// finalFrames returns what ends a settled or pending stream: svc_final and [DONE]. On
// the OpenAI-compatible route, svc_final is in the usage chunk, and only if the client
// asked for one (decision 041).
func finalFrames(q *plan.Plan, r *result) ([]byte, error) {
	if q.Route.Chat && !q.IncludeUsage {
		return doneFrame, nil
	}
	b := make([]byte, 0, 1024)
	var err error
	if q.Route.Chat {
		b, err = appendChatChunk(b, r)
	} else {
		b = append(b, "data: {"...)
	}
	if err == nil {
		b, err = appendFinal(append(b, `"svc_final":`...), r)
	}
	if err != nil {
		return nil, err
	}
	return append(append(b, "}\n\n"...), doneFrame...), nil
}

// appendChatChunk appends the usage chunk of the OpenAI-compatible route up to where
// svc_final follows: the provider's, or, if it sent none, one with the ledger row's usage.
func appendChatChunk(b []byte, r *result) ([]byte, error) {
	if r.usage != nil {
		b = append(b, bytes.TrimSuffix(bytes.TrimRight(r.usage, " \r\n"), []byte("}"))...)
		return append(b, ','), nil
	}
	b = append(append(b, `data: {"id":`...), findMember(r.body, `"id":`, `"`+r.entry.RequestID()+`"`)...)
	b = append(b, `,"object":"chat.completion.chunk","created":`...)
	b = strconv.AppendInt(b, r.entry.CreatedUS/1e6, 10)
	b = append(append(b, `,"model":`...), strconv.Quote(r.entry.Model)...)
	b = append(b, `,"choices":[]`...)
	if r.pending {
		return append(b, `,"usage":null,`...), nil
	}
	b, err := receipts.AppendUsage(append(b, `,"usage":`...), &r.entry)
	return append(b, ','), err
}

// findMember returns the quoted text that first follows name in frames, or otherwise.
func findMember(frames []byte, name, otherwise string) string {
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

// minCompressed is the size from which a stored response is compressed.
const minCompressed = 512

// packResponse encodes a response for storage; nil if it is nil or too long.
func packResponse(body []byte) *rules.StoredResponse {
	switch {
	case body == nil, len(body) > maxStoredResponse:
		return nil
	case len(body) < minCompressed:
		return &rules.StoredResponse{Encoding: "raw", Body: body}
	}
	return &rules.StoredResponse{Encoding: "s2", Body: compress(body)}
}

// unpackResponse returns the response that packResponse encoded. reserve reserves the bytes that it takes.
func unpackResponse(stored rules.StoredResponse, reserve func(int64) error) ([]byte, error) {
	switch stored.Encoding {
	case "raw":
		return stored.Body, nil
	case "s2":
		n, err := s2.DecodedLen(stored.Body)
		if err == nil {
			err = reserve(answerFactor * int64(n))
		}
		if err != nil {
			return nil, err
		}
		return s2.Decode(nil, stored.Body)
	}
	return nil, errors.New("inference: unknown encoding " + stored.Encoding)
}
