package contents

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// What a model gives for the way back travels in thoughtSignature, which clients of Google's send back unchanged. A
// signature of Google is passed on as it is. For all else it is a mark of ours: in Base64, a JSON object, which
// Google's are not.

// A mark says what stood before a part, and what is known of it.
type mark struct {
	Thoughts []jsontext.Value `json:"thoughts"` // the reasoning before the part, as extra_content
	Call     jsontext.Value   `json:"call"`     // of a call, as extra_content
	Phase    string           `json:"phase"`    // of a text

	native []byte // a signature of Google, as extra_content
}

var errMark = errors.New("must be sent back as it came")

// readMark reads a signature.
func readMark(signature string) (m mark, err error) {
	if signature == "" {
		return m, nil
	}
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(standard.Replace(signature), "="))
	if err == nil && bytes.HasPrefix(plain, []byte("{")) {
		if web.DecodeSaid(plain, &m) != nil || m.Call != nil && !shapes.IsObject(m.Call) ||
			slices.ContainsFunc(m.Thoughts, func(extra jsontext.Value) bool { return !shapes.IsObject(extra) }) {
			return m, errMark
		}
		return m, nil
	}
	m.native = conversation.Google.AppendExtra(nil, provider.AppendQuote(nil, signature))
	return m, nil
}

// appendMark appends the member thoughtSignature for what stood before a part, with a comma before it.
func appendMark(b []byte, p *piece) []byte {
	switch {
	case len(p.thoughts) == 0 && p.own.opaque == nil && len(p.phase) == 0 && !p.begins:
		return b
	case len(p.thoughts) == 1 && p.thoughts[0].origin == conversation.Google && p.own.opaque == nil:
		return append(append(b, `,"thoughtSignature":`...), p.thoughts[0].opaque...)
	case len(p.thoughts) == 0 && p.own.origin == conversation.Google:
		return append(append(b, `,"thoughtSignature":`...), p.own.opaque...)
	}
	m := []byte(`{"thoughts":[`)
	for i, t := range p.thoughts {
		if i > 0 {
			m = append(m, ',')
		}
		m = t.origin.AppendExtra(m, t.opaque)
	}
	m = append(m, ']')
	if p.own.opaque != nil {
		m = p.own.origin.AppendExtra(append(m, `,"call":`...), p.own.opaque)
	}
	if len(p.phase) > 0 {
		m = append(append(append(m, `,"phase":"`...), p.phase...), '"')
	}
	b = append(b, `,"thoughtSignature":"`...)
	return append(base64.StdEncoding.AppendEncode(b, append(m, '}')), '"')
}
