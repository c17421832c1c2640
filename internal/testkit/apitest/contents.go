package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// googlePrefix begins the paths of Google's clients.
const googlePrefix = "/google/"

// unwrapGoogleError checks an error of Google's form, and returns the envelope that it carries.
func (c *contract) unwrapGoogleError(status int, body []byte) ([]byte, error) {
	value, err := parseJSON(body)
	if err != nil {
		return nil, err
	}
	if err := c.validate(schemaOf("GoogleError"), value); err != nil {
		return nil, err
	}
	var e struct {
		Error struct {
			Code    int
			Details []struct{ Reason string }
			Svc     json.RawMessage
		}
	}
	var ours struct{ Code string }
	if err := errors.Join(json.Unmarshal(body, &e), json.Unmarshal(e.Error.Svc, &ours)); err != nil {
		return nil, err
	}
	if e.Error.Code != status || len(e.Error.Details) != 1 || e.Error.Details[0].Reason != strings.ToUpper(ours.Code) {
		return nil, fmt.Errorf("code %d and details %v do not say %d and %s", e.Error.Code, e.Error.Details, status,
			ours.Code)
	}
	return Envelope(googlePrefix, body), nil
}

// Envelope returns the envelope of an error: what was answered, or what an error of Google's form carries.
func Envelope(path string, body []byte) []byte {
	var e struct {
		Error struct{ Svc json.RawMessage }
	}
	if !strings.HasPrefix(path, googlePrefix) || json.Unmarshal(body, &e) != nil {
		return body
	}
	return slices.Concat([]byte(`{"error":`), e.Error.Svc, []byte("}"))
}

// checkContentStream checks the chunks of a stream of Google's form: the last one ends the answer and has its charge,
// or is an error. Without whole, only the chunks are checked.
func (c *contract) checkContentStream(body []byte, whole bool) error {
	events := strings.Split(string(body), "\n\n")
	if last := events[len(events)-1]; whole && last != "" {
		return fmt.Errorf("the stream ends within an event: %q", last)
	}
	ended := false
	for i, event := range events[:len(events)-1] {
		if ended {
			return fmt.Errorf("event %d comes after the end: %s", i, event)
		}
		var err error
		if ended, err = c.checkContentChunk(event); err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, event)
		}
	}
	if whole && !ended {
		return errors.New("the stream ends without a reason or an error")
	}
	return nil
}

// checkContentChunk reports whether a chunk is the last one.
func (c *contract) checkContentChunk(event string) (ended bool, err error) {
	data, ok := strings.CutPrefix(event, "data: ")
	if !ok || strings.Contains(data, "\n") { // a comment would be a fault to Google's clients
		return false, errors.New("must be one line of data")
	}
	value, err := parseJSON([]byte(data))
	if err != nil {
		return false, err
	}
	var chunk struct {
		Error      *struct{ Code int }
		Final      json.RawMessage `json:"svc_final"`
		Candidates []struct{ FinishReason string }
	}
	if err := json.Unmarshal([]byte(data), &chunk); err != nil {
		return false, err
	}
	if chunk.Error != nil {
		_, err := c.unwrapGoogleError(chunk.Error.Code, []byte(data))
		return true, err
	}
	if err := c.validate(schemaOf("GenerateContentResponse"), value); err != nil {
		return false, err
	}
	ended = chunk.Candidates[0].FinishReason != ""
	if ended != (chunk.Final != nil) {
		return false, errors.New("svc_final belongs into the chunk with the reason")
	}
	return ended, checkSums(value)
}
