package webhooks

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
)

var (
	eventSection  = regexp.MustCompile("(?ms)^### ([a-z_]+\\.[a-z_]+)\n.*?^```json\n(.*?)^```$")
	contractEvent = regexp.MustCompile(`(?m)^\| ([a-z_]+\.[a-z_]+) \|`)
	apiEvents     = regexp.MustCompile(`EventType:\n +type: string\n +enum: \[([^\]]*)\]`)
)

// TestEventGuideIsComplete holds the guide, the contract and the API description against Types. The example of each
// event in the guide has the members that a delivery has.
func TestEventGuideIsComplete(t *testing.T) {
	t.Parallel()
	guide := readRepositoryFile(t, "docs/guide/webhooks.md")
	var described []string
	for _, m := range eventSection.FindAllStringSubmatch(guide, -1) {
		kind, example := m[1], map[string]any{}
		described = append(described, kind)
		if err := json.Unmarshal([]byte(m[2]), &example); err != nil {
			t.Errorf("webhooks.md: the example of %s: %v", kind, err)
			continue
		}
		if got, want := shapeOf(example), shapeOf(sampleData(t, kind)); !reflect.DeepEqual(got, want) {
			t.Errorf("webhooks.md: the example of %s has\n%v, and a delivery has\n%v", kind, got, want)
		}
	}
	if !slices.Equal(described, Types) {
		t.Errorf("webhooks.md has the events %q, want %q", described, Types)
	}
	_, section, _ := strings.Cut(readRepositoryFile(t, "docs/contract.md"), "### Webhook events")
	section, _, _ = strings.Cut(section, "\n### ")
	var agreed []string
	for _, m := range contractEvent.FindAllStringSubmatch(section, -1) {
		agreed = append(agreed, m[1])
	}
	if !slices.Equal(agreed, Types) {
		t.Errorf("contract §6 has the events %q, want %q", agreed, Types)
	}
	m := apiEvents.FindStringSubmatch(readRepositoryFile(t, "api/openapi.yaml"))
	if m == nil || !slices.Equal(strings.Split(m[1], ", "), Types) {
		t.Errorf("EventType of openapi.yaml is %q, want %q", m, Types)
	}
}

// sampleData returns the data of a sample event as it is delivered.
func sampleData(t *testing.T, kind string) map[string]any {
	t.Helper()
	text, err := makeSample(kind, "app_1", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	e := storedEvent{Event: rules.Event{Type: kind, AppID: "app_1", Data: text}, test: true}
	m, err := e.makeMessage(web.Links{Dashboard: "https://my.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	if err := json.Unmarshal(body, &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// shapeOf returns the names of a value's members, at all levels, without the values.
func shapeOf(value any) any {
	switch value := value.(type) {
	case map[string]any:
		shape := map[string]any{}
		for name, member := range value {
			shape[name] = shapeOf(member)
		}
		return shape
	case []any:
		if len(value) > 0 {
			return []any{shapeOf(value[0])}
		}
	}
	return nil
}

func readRepositoryFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
