package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// checkResponseStream checks the events of a stream of the Responses API: they are numbered, items open before their
// parts and close once, and the last event has the response. Without whole, only the events are checked.
func (c *contract) checkResponseStream(body []byte, whole bool) error {
	events := strings.Split(string(body), "\n\n")
	last := events[len(events)-1]
	if whole && last != "" {
		return fmt.Errorf("the stream ends within an event: %q", last)
	}
	s := responseState{open: map[int64]bool{}}
	for i, event := range events[:len(events)-1] {
		if strings.HasPrefix(event, ":") {
			continue
		}
		if err := s.next(c, event); err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, event)
		}
	}
	if whole && !s.ended {
		return errors.New("the stream ends without its response")
	}
	return nil
}

// responseState records the events so far.
type responseState struct {
	count int64
	items int64
	open  map[int64]bool // items, by output_index
	ended bool
}

func (s *responseState) next(c *contract, event string) error {
	name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
	if !ok || strings.Contains(data, "\n") {
		return errors.New("must be a name and one line of data")
	}
	value, err := parseJSON([]byte(data))
	if err != nil {
		return err
	}
	if err := c.validate(schemaOf("ResponseEvent"), value); err != nil {
		return err
	}
	var e struct {
		Type     string
		Sequence int64 `json:"sequence_number"`
		Index    int64 `json:"output_index"`
		Response *struct{ Output []any }
	}
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return err
	}
	_, isEnd := map[string]bool{
		"response.completed":  true,
		"response.incomplete": true,
		"response.failed":     true,
	}[e.Type]
	added := e.Type == "response.output_item.added"
	_, ofItem := value.(map[string]any)["output_index"]
	fault := ""
	switch {
	case e.Type != name:
		fault = "type must be the name of the event"
	case s.ended:
		fault = "comes after the end"
	case e.Sequence != s.count:
		fault = fmt.Sprintf("sequence_number must be %d", s.count)
	case (s.count == 0) != (e.Type == "response.created"):
		fault = "response.created must come first, and once"
	case added && e.Index != s.items:
		fault = "items must be numbered in order"
	case ofItem && !added && !s.open[e.Index]:
		fault = "the item is not open"
	case isEnd && e.Response == nil:
		fault = "the last event must have the response"
	case isEnd && e.Type != "response.failed" && int64(len(e.Response.Output)) != s.items:
		fault = "the response must have all items"
	case e.Type == "response.completed" && len(s.open) > 0:
		fault = "items are still open"
	}
	if fault != "" {
		return errors.New(fault)
	}
	s.count++
	s.ended = isEnd
	switch {
	case added:
		s.items++
		s.open[e.Index] = true
	case e.Type == "response.output_item.done":
		delete(s.open, e.Index)
	}
	return checkSums(value)
}
