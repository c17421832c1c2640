package shapes

import "encoding/json"

// A Failure is the error of an envelope as clients of other APIs are told of it.
type Failure struct {
	Code    string
	Message string // with the address where the user can help: agents show nothing but the message
	TooLong bool   // the request is too long for its model
}

// ReadFailure reads the error of an envelope.
func ReadFailure(failure []byte) Failure {
	var e struct {
		Code        string  `json:"code"`
		Message     string  `json:"message"`
		IncreaseURL *string `json:"increase_url"`
		ReviewURL   *string `json:"review_url"`
		Details     struct {
			Reason any `json:"reason"`
		} `json:"details"`
	}
	if json.Unmarshal(failure, &e) != nil {
		e.Message = "The answer broke off."
	}
	switch {
	case e.IncreaseURL != nil:
		e.Message += ". Raise the spend cap at " + *e.IncreaseURL
	case e.ReviewURL != nil:
		e.Message += ". Resume it at " + *e.ReviewURL
	}
	return Failure{e.Code, e.Message, e.Details.Reason == TooLong}
}
