package google

import (
	"github.com/purserhq/purser/emulator/exchange"
)

func (c *inputContent) countCalls() (n int) {
	for _, part := range c.Parts {
		if part.FunctionCall != nil {
			n++
		}
	}
	return n
}

func (c *inputContent) countResponses() (n int) {
	for _, part := range c.Parts {
		if part.FunctionResponse != nil {
			n++
		}
	}
	return n
}

// checkOrder checks that responses follow their calls directly (provider notes C.3).
func (q *generateRequest) checkOrder() *exchange.Refusal {
	for i := range q.Contents {
		c := &q.Contents[i]
		if c.countCalls() > 0 && (i == 0 || q.Contents[i-1].Role != "user") {
			return badRequest(
				"Please ensure that function call turn comes immediately after a user turn or after a function " +
					"response turn.")
		}
		if n := c.countResponses(); n > 0 && (i == 0 || q.Contents[i-1].countCalls() == 0) {
			return badRequest("Please ensure that function response turn comes immediately after a function call turn.")
		} else if i > 0 && q.Contents[i-1].countCalls() != n {
			return badRequest(
				"Please ensure that the number of function response parts is equal to the number of function call " +
					"parts of the function call turn.")
		}
	}
	if q.Contents[len(q.Contents)-1].countCalls() > 0 {
		return badRequest(
			"Please ensure that the number of function response parts is equal to the number of function call parts " +
				"of the function call turn.")
	}
	return nil
}
