package apitest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// channelEvents is the schema of the events on the control channel of a voice session. Its
// alternatives differ by their type (contract §4.4).
const channelEvents = "VoiceControlEvent"

// Event reports to t what the contract does not allow in an event of a control channel:
// it must meet the schema of its type. The contract lists which of the provider's events
// are relayed, and has no schema for them.
func Event(t testing.TB, event []byte) {
	t.Helper()
	if err := checkEvent(event); err != nil {
		t.Errorf("a control channel told %s: %v", shorten(event), err)
	}
}

func checkEvent(event []byte) error {
	c, err := loadContract()
	if err != nil {
		return err
	}
	value, err := parseJSON(event)
	if err != nil {
		return err
	}
	var of struct{ Type string }
	if err := json.Unmarshal(event, &of); err != nil {
		return err
	}
	for name, kinds := range c.events() {
		if !slices.Contains(kinds, of.Type) {
			continue
		}
		if err := c.validate(schemaOf(name), value); err != nil {
			return err
		}
		return c.undocumented(name, value)
	}
	return fmt.Errorf("openapi.yaml has no event %q", of.Type)
}

// undocumented is about members of our own events that their schema does not have:
// the contract lets a member be added, and the document has to be told of it. What the
// provider says may have any.
func (c *contract) undocumented(name string, value any) error {
	object, _ := value.(map[string]any) // the schema is one of objects
	if kind, _ := object["type"].(string); !strings.HasPrefix(kind, "svc.") {
		return nil
	}
	for member := range object {
		if c.doc.Components.Schemas[name].Value.Properties[member] == nil {
			return fmt.Errorf("%s has no member %q", name, member)
		}
	}
	return nil
}

// events are the schemas of the control channel's events by name, each with the types
// that it is of.
func (c *contract) events() map[string][]string {
	all := map[string][]string{}
	for _, ref := range c.doc.Components.Schemas[channelEvents].Value.OneOf {
		name := ref.Ref[strings.LastIndexByte(ref.Ref, '/')+1:]
		all[name] = kindsOf(ref.Value)
	}
	return all
}

func kindsOf(schema *openapi3.Schema) (kinds []string) {
	of := schema.Properties["type"].Value
	for _, v := range slices.Concat(of.Enum, []any{of.Const}) {
		if kind, ok := v.(string); ok {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Events returns the types of all events of a control channel, sorted.
func Events() (kinds []string) {
	c, err := loadContract()
	if err != nil {
		panic(err)
	}
	for _, list := range c.events() {
		kinds = append(kinds, list...)
	}
	slices.Sort(kinds)
	return kinds
}
