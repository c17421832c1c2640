package google

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/exchange"
)

// thoughtPrefix begins the thought signatures of the emulator. placeholderSignatures are
// accepted as well.
const thoughtPrefix = "emulated thought of "

// langChainSignature begins a signature that Gemini once gave, and LangChain sends for every call that has none.
const langChainSignature = "ErYCCrMCAdHtim9kOoOkrPiCNVsmlpMI"

var placeholderSignatures = []string{"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}

// checkSignatures checks the calls since the last text of the user: the first of each
// step must have what the model gave it (provider notes C.4).
func (q *generateRequest) checkSignatures(m exchange.Model) *exchange.Refusal {
	if !m.Signatures {
		return nil
	}
	start := 0
	for i, c := range q.Contents {
		if c.Role == "user" && c.countResponses() == 0 {
			start = i
		}
	}
	for i, c := range q.Contents {
		first := true
		for j, part := range c.Parts {
			if f := part.checkSignature(); f != nil {
				return f
			}
			if part.FunctionCall == nil {
				continue
			}
			if first && i >= start && part.ThoughtSignature == "" {
				return badRequest(
					"Function call is missing a thought_signature in functionCall parts. This is required for tools "+
						"to work correctly, and missing thought_signature may lead to degraded model performance. "+
						"Additional data, function call `default_api:%s` , position %d. Please refer to "+
						"https://ai.google.dev/gemini-api/docs/thought-signatures for more "+
						"details.", part.FunctionCall.Name, j+1)
			}
			first = false
		}
	}
	return nil
}

// checkSignature checks that a signature is one that a model gave.
func (part *inputPart) checkSignature() *exchange.Refusal {
	text := part.ThoughtSignature
	if text == "" || slices.Contains(placeholderSignatures, text) || strings.HasPrefix(text, langChainSignature) {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err == nil && slices.Contains(placeholderSignatures, string(b)) {
		return nil // the SDK encodes it a second time
	}
	if err != nil || !strings.HasPrefix(string(b), thoughtPrefix) {
		return badRequest("Corrupted thought signature.")
	}
	return nil
}
