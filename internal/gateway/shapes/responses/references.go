package responses

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
)

// A Finder returns an item of an earlier answer by its id; nil = it is not stored.
type Finder func(itemID string) (item []byte, err error)

var ourItem = regexp.MustCompile(`^(?:msg|rs|fc|ctc)_([0-9a-z]+)_\d+$`)

// RequestOf returns the id of the request whose answer has an item, and false if the item is not ours.
func RequestOf(itemID string) (requestID string, ok bool) {
	m := ourItem.FindStringSubmatch(itemID)
	if m == nil {
		return "", false
	}
	return "req_" + m[1], true
}

// Items returns the items of a stored answer, by their ids.
func Items(answer []byte) map[string][]byte {
	items := map[string][]byte{}
	add := func(item jsontext.Value) {
		var named struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(item, &named) == nil && named.ID != "" {
			items[named.ID] = item
		}
	}
	if len(answer) > 0 && answer[0] == '{' {
		var whole struct {
			Output []jsontext.Value `json:"output"`
		}
		if json.Unmarshal(shapes.WithoutBill(answer), &whole) == nil {
			for _, item := range whole.Output {
				add(item)
			}
		}
		return items
	}
	for len(answer) > 0 {
		var data []byte
		data, answer = shapes.NextEvent(answer)
		var event struct {
			Type string         `json:"type"`
			Item jsontext.Value `json:"item"`
		}
		if json.Unmarshal(data, &event) == nil && event.Type == "response.output_item.done" {
			add(event.Item)
		}
	}
	return items
}

// readReference reads an item that stands in an earlier answer. Reasoning that is not stored any more is left out: the
// model thinks again.
func (r *inputReader) readReference(itemID, path string) error {
	var item []byte
	var err error
	if r.c.find != nil {
		item, err = r.c.find(itemID)
	}
	switch {
	case err != nil:
		return err
	case item != nil:
		return r.readItem(item, path)
	case strings.HasPrefix(itemID, "rs_"):
		if !r.ignored {
			r.ignored = true
			r.c.request.Ignore("item_reference")
		}
		return nil
	}
	return plan.Invalid("%s.id: the answer with the item %q is not stored here; send the item itself, and set store "+
		"to false", path, itemID)
}
