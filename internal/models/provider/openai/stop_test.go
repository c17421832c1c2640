package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// hearPieces returns what a reply with stop sequences says when events come, and how it ends.
func hearPieces(t *testing.T, stops []string, events ...string) (said, end string) {
	t.Helper()
	y := newReply(New("", "a key of a test"), stops, func(d *conversation.Delta) {
		if end != "" {
			t.Errorf("%q: %d %q comes after the end", stops, d.Kind, d.Text)
		}
		text := ""
		if err := json.Unmarshal([]byte(`"`+string(d.Text)+`"`), &text); err != nil {
			t.Errorf("%v: %q", err, d.Text)
		}
		switch d.Kind {
		case conversation.Text, conversation.Arguments, conversation.Reasoning:
			said += text
		case conversation.Call:
			said += "(" + string(d.Name) + ")"
		case conversation.End:
			end = d.Reason.String() + " " + text
		}
	})
	events = append(events, `{"type":"response.completed","response":{"usage":`+responsesUsageSample+`}}`)
	for _, e := range events {
		if _, err := y.handleEvent(provider.Event{Payload: []byte(e)}); err != nil && !errors.Is(err, errDone) {
			t.Fatalf("%v: %s", err, e)
		}
	}
	if y.usage == nil || *y.usage != responsesUsageWant {
		t.Errorf("%q: the usage is %+v", stops, y.usage)
	}
	return said, end
}

func textPiece(itemID, text string) string {
	return fmt.Sprintf(`{"type":"response.output_text.delta","item_id":%q,"delta":"%s"}`, itemID, quote(text))
}

// TestStopInEverySplit ends a text before the first stop sequence in it, in whatever pieces it comes, and passes what
// only looked like the begin of one.
func TestStopInEverySplit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text  string
		stops []string
		want  string
		found string
	}{
		{"Thought: x\nObservation: y", []string{"Observation:"}, "Thought: x\n", "Observation:"},
		{"aaab", []string{"aab"}, "a", "aab"},
		{"abcabd.", []string{"abd"}, "abc", "abd"},
		{"one two three", []string{"three", "two"}, "one ", "two"},
		{"one two", []string{"two three", "t"}, "one ", "t"},
		{"Grüße, 世界 😀!", []string{"界 😀"}, "Grüße, 世", "界 😀"},
		{"STOP", []string{"STOP"}, "", "STOP"},
		{"a \"quoted\" \\ word", []string{"\\"}, "a \"quoted\" ", "\\"},
		{"ends with Obs", []string{"Observation:"}, "ends with Obs", ""},
		{"nothing of it", []string{"xyz", "\n\n"}, "nothing of it", ""},
	} {
		want, end := tt.want, "stop "+tt.found
		var splits [][]string
		runes := []rune(tt.text)
		for i := range len(runes) + 1 {
			for j := i; j <= len(runes); j++ {
				splits = append(splits, []string{string(runes[:i]), string(runes[i:j]), string(runes[j:])})
			}
		}
		for _, pieces := range append(splits, strings.Split(tt.text, "")) {
			var events []string
			for _, p := range pieces {
				events = append(events, textPiece("m", p))
			}
			if said, ended := hearPieces(t, tt.stops, events...); said != want || ended != end {
				t.Errorf("%q %q: %q, %q, want %q, %q", pieces, tt.stops, said, ended, want, end)
			}
		}
	}
}

// TestStopIsOfOneText: a stop sequence is looked for in each message by itself, and neither in reasoning nor in calls.
// Nothing that comes after it is passed.
func TestStopIsOfOneText(t *testing.T) {
	t.Parallel()
	const (
		message = `{"type":"response.output_item.added","item":{"id":"m2","type":"message","phase":"final_answer"}}`
		call    = `{"type":"response.output_item.added","item":{"id":"f","type":"function_call","call_id":"c",` +
			`"name":"f"}}`
		arguments = `{"type":"response.function_call_arguments.delta","item_id":"f","delta":"{\"a\":\"STOP\"}"}`
		whole     = `{"type":"response.output_item.done","item":{"id":"m1","type":"message","content":` +
			`[{"type":"output_text","text":"a STOP b"}]}}`
		summary = `{"type":"response.reasoning_summary_text.delta","item_id":"r","delta":"STOP? "}`
	)
	for _, tt := range []struct {
		name      string
		events    []string
		said, end string
	}{
		{"two messages", []string{textPiece("m1", "ST"), message, textPiece("m2", "OP")}, "STOP", "stop "},
		{"a call between", []string{textPiece("m1", "ST"), call, arguments}, `ST(f){"a":"STOP"}`, "tool_calls "},
		{"reasoning", []string{summary, textPiece("m1", "yes STOP no")}, "STOP? yes ", "stop STOP"},
		{"reasoning after", []string{textPiece("m1", "ST"), summary}, "STSTOP? ", "stop "},
		{"a call after", []string{textPiece("m1", "a STOP"), call, arguments}, "a ", "stop STOP"},
		{"a call before", []string{call, arguments, textPiece("m1", "a STOP")}, `(f){"a":"STOP"}a `, "tool_calls "},
		{"the text again", []string{textPiece("m1", "a STOP b"), whole}, "a ", "stop STOP"},
		{"a whole message", []string{whole}, "a ", "stop STOP"},
	} {
		if said, end := hearPieces(t, []string{"STOP"}, tt.events...); said != tt.said || end != tt.end {
			t.Errorf("%s: %q, %q, want %q, %q", tt.name, said, end, tt.said, tt.end)
		}
	}
}
