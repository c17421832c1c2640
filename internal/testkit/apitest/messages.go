package apitest

import (
	"errors"
	"fmt"
	"strings"
)

// anthropicPrefix begins the paths of Anthropic's clients.
const anthropicPrefix = "/anthropic/"

// checkMessageStream checks the events of a streamed message: blocks open and close in turn, and the last event is
// message_stop or error. Without whole, only the events are checked.
func (c *contract) checkMessageStream(body []byte, whole bool) error {
	events := strings.Split(string(body), "\n\n")
	last := events[len(events)-1]
	if whole && last != "" {
		return fmt.Errorf("the stream ends within an event: %q", last)
	}
	var s messageState
	for i, event := range events[:len(events)-1] {
		if strings.HasPrefix(event, ":") {
			continue
		}
		if err := s.next(c, event); err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, event)
		}
	}
	if whole && !s.ended {
		return errors.New("the stream ends without message_stop or error")
	}
	return nil
}

// messageState records the events so far.
type messageState struct {
	begun, open, stopped, ended bool
	blocks                      int // that were closed
}

func (s *messageState) next(c *contract, event string) error {
	name, data, ok := strings.Cut(strings.TrimPrefix(event, "event: "), "\ndata: ")
	if !ok || strings.Contains(data, "\n") {
		return errors.New("must be a name and one line of data")
	}
	value, err := parseJSON([]byte(data))
	if err != nil {
		return err
	}
	if err := c.validate(schemaOf("AnthropicEvent"), value); err != nil {
		return err
	}
	members, ok := value.(map[string]any)
	if !ok || members["type"] != name {
		return fmt.Errorf("type must be %q, the name of the event", name)
	}
	index := fmt.Sprint(members["index"])
	fault := ""
	switch {
	case s.ended:
		fault = "comes after the end"
	case name == "error" || name == "ping":
	case name == "message_start" == s.begun:
		fault = "message_start must come first, and once"
	case strings.HasPrefix(name, "content_block") && (s.stopped || index != fmt.Sprint(s.blocks) ||
		(name == "content_block_start") == s.open):
		fault = "blocks must come one after the other"
	case strings.HasPrefix(name, "message_") && s.open, (name == "message_stop") != s.stopped &&
		strings.HasPrefix(name, "message_") && name != "message_start":
		fault = "message_delta and message_stop must end the message"
	}
	if fault != "" {
		return errors.New(fault)
	}
	switch name {
	case "message_start":
		s.begun = true
	case "content_block_start":
		s.open = true
	case "content_block_stop":
		s.open = false
		s.blocks++
	case "message_delta":
		s.stopped = true
	case "message_stop", "error":
		s.ended = true
	}
	return checkSums(value)
}
