package anthropic

import (
	"github.com/purserhq/purser/emulator/exchange"
)

// maxMarks is how many blocks of a request may have cache_control.
const maxMarks = 4

// addBlock ends a block of the prompt, whose content has been counted. mark is its cache_control.
func (q *messagesRequest) addBlock(p *exchange.Prompt, content []byte, mark raw, at string) *exchange.Refusal {
	marked := len(mark) > 0 && mark.Kind() != 'n'
	if marked {
		var c struct {
			Type string `json:"type"`
			TTL  string `json:"ttl"`
		}
		if f := decodeBody(mark, &c, at+".cache_control"); f != nil {
			return f
		}
		if c.Type != "ephemeral" || c.TTL != "" && c.TTL != "5m" { // the emulator knows one lifetime
			return badRequest("%s.cache_control: Input should be {'type': 'ephemeral'}", at)
		}
		if q.marks++; q.marks > maxMarks {
			return badRequest("A maximum of %d blocks with cache_control may be provided. Found %d.", maxMarks, q.marks)
		}
	}
	p.AddBlock(content, marked)
	return nil
}
