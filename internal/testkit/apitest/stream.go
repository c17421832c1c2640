package apitest

import (
	"errors"
	"fmt"
	"strings"
)

// checkStream checks the events of a streamed answer (contract §4.3, Streaming). On
// the drop-in route the last chunk has the charge, if it was requested; on the others a
// separate event has it, unless an error says that nothing was billed. Without whole,
// only the events are checked.
func (c *contract) checkStream(body []byte, dropIn, whole bool) error {
	events := strings.Split(string(body), "\n\n")
	last := events[len(events)-1]
	events = events[:len(events)-1]
	if whole && last != "" {
		return fmt.Errorf("the stream ends within an event: %q", last)
	}
	var s streamState
	for i, event := range events {
		data, ok, err := payload(event)
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if !ok {
			continue
		}
		if err := s.next(c, data, dropIn); err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, data)
		}
	}
	switch {
	case !whole:
		return nil
	case !s.done:
		return errors.New("the stream does not end with [DONE]")
	case !s.final && !s.failed && !dropIn:
		return errors.New("the stream has no svc_final")
	}
	return nil
}

// payload returns the data of an event; a comment has none.
func payload(event string) (data string, ok bool, err error) {
	for line := range strings.SplitSeq(event, "\n") {
		if strings.HasPrefix(line, ":") {
			continue
		}
		rest, found := strings.CutPrefix(line, "data: ")
		if !found || ok {
			return "", false, fmt.Errorf("must be one line of data: %q", event)
		}
		data, ok = rest, true
	}
	return data, ok, nil
}

// streamState records the events so far.
type streamState struct{ final, failed, done bool }

func (s *streamState) next(c *contract, data string, dropIn bool) error {
	if s.done {
		return errors.New("comes after [DONE]")
	}
	if data == "[DONE]" {
		s.done = true
		return nil
	}
	if s.final {
		return errors.New("comes after svc_final")
	}
	value, err := parseJSON([]byte(data))
	if err != nil {
		return err
	}
	event, ok := value.(map[string]any)
	if !ok {
		return errors.New("must be an object")
	}
	schema := "ChatCompletionChunk"
	if event["error"] != nil {
		schema, s.failed = "Error", true
	} else if event["svc_final"] != nil {
		s.final = true
		if !dropIn {
			schema = "StreamEnd"
		}
	}
	if err := c.validate(schemaOf(schema), value); err != nil {
		return err
	}
	return checkSums(value)
}
