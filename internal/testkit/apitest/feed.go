package apitest

import (
	"errors"
	"fmt"
	"strings"
)

// checkConnectionEvents checks the events of GET /v1/connection/events as far as they were read: the
// first one is the balance or what the client has missed, none follows the end, and ids do not repeat.
func (c *contract) checkConnectionEvents(body []byte) error {
	events := strings.Split(string(body), "\n\n")
	ids, ended := map[string]bool{}, false
	for i, text := range events[:len(events)-1] { // the last one may be read in part
		if strings.HasPrefix(text, ":") {
			continue
		}
		if ended {
			return errors.New("an event follows the end")
		}
		kind, id, err := c.checkConnectionEvent(text)
		if err != nil {
			return fmt.Errorf("event %d: %w\n%s", i, err, text)
		}
		if id != "" && ids[id] {
			return fmt.Errorf("event %d repeats the id %s", i, id)
		}
		ids[id], ended = true, kind == "end"
	}
	return nil
}

// checkConnectionEvent checks one event, and returns its type and id.
func (c *contract) checkConnectionEvent(text string) (kind, id string, err error) {
	fields := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		name, value, found := strings.Cut(line, ": ")
		if _, twice := fields[name]; !found || twice {
			return "", "", fmt.Errorf("unexpected line %q", line)
		}
		fields[name] = value
	}
	value, err := parseJSON([]byte(fields["data"]))
	if err != nil {
		return "", "", err
	}
	if err := c.validate(schemaOf("ConnectionStreamEvent"), value); err != nil {
		return "", "", err
	}
	kind, id = fields["event"], fields["id"]
	object := value.(map[string]any) // the schema says so
	if object["type"] != kind {
		return "", "", fmt.Errorf("event %s has the type %v", kind, object["type"])
	}
	if entry, ok := object["entry"].(map[string]any); ok && entry["id"] != id {
		return "", "", fmt.Errorf("the id is %s, and the entry's %v", id, entry["id"])
	}
	return kind, id, checkSums(value)
}
