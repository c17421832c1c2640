package completions

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
)

// TestOrdered: an order that fits its message rearranges its blocks; any other changes nothing.
func TestOrdered(t *testing.T) {
	t.Parallel()
	message := func(extra string) []conversation.Block {
		return []conversation.Block{
			{Kind: conversation.ReasoningBlock, Extra: []byte(extra)},
			{Text: "aé🙂b"},
			{Kind: conversation.CallBlock, ID: "1", Extra: []byte(`{"anthropic":{"thinking":[{"x":1},{"x":2}]}}`)},
			{Kind: conversation.CallBlock, ID: "2"},
		}
	}
	thought := func(x string) conversation.Block {
		return conversation.Block{
			Kind:  conversation.ReasoningBlock,
			Extra: []byte(`{"anthropic":{"thinking":[{"x":` + x + `}]}}`),
		}
	}
	one, two := conversation.Block{Kind: conversation.CallBlock, ID: "1"}, message("")[3]
	google := conversation.Block{
		Kind:  conversation.ReasoningBlock,
		Extra: []byte(`{"google":{"thought_signature":"s"}}`),
	}
	for extra, want := range map[string][]conversation.Block{
		`{"svc":{"order":["thought",3,"thought","call","call",{"text":1,"phase":"final_answer"}]}}`: {
			thought("1"), {Text: "aé🙂"}, thought("2"), one, two, {Text: "b", Phase: "final_answer"},
		},
		`{"google":{"thought_signature":"s"},"svc":{"order":[4,"extra","thought","thought","call","call"]}}`: {
			{Text: "aé🙂b"}, google, thought("1"), thought("2"), one, two,
		},
		`{"svc":{"order":["call",4,"call"]}}`: {message("")[2], {Text: "aé🙂b"}, two},

		`{"svc":{"order":["thought",5,"thought","call","call"]}}`:                      nil, // more text than there is
		`{"svc":{"order":["thought",3,"thought","call","call"]}}`:                      nil, // less
		`{"svc":{"order":["thought",4,"call","call"]}}`:                                nil, // a thought is left
		`{"svc":{"order":[4,"thought","thought","thought","call"]}}`:                   nil, // there is none
		`{"svc":{"order":[4,"call","call","call"]}}`:                                   nil,
		`{"svc":{"order":[4,"call"]}}`:                                                 nil,
		`{"svc":{"order":[4,"call",null,"call"]}}`:                                     nil,
		`{"svc":{"order":[-1,"call",5,"call"]}}`:                                       nil,
		`{"svc":{"order":["other",4,"call","call"]}}`:                                  nil,
		`{"svc":{"order":{}}}`:                                                         nil,
		`{"svc":[]}`:                                                                   nil,
		`{"svc":{"order":[` + strings.Repeat("0,", maxElements) + `4,"call","call"]}}`: nil, // too many
	} {
		if want == nil {
			want = message(extra)
		}
		if diff := cmp.Diff(want, Ordered(message(extra))); diff != "" {
			t.Errorf("%.100s:\n%s", extra, diff)
		}
	}
}

// TestCountChars counts what a client counts after it has read the string.
func TestCountChars(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int{
		``: 0, `ab`: 2, `é日🙂`: 3, `\n\"\\u`: 4, `\u00e9`: 1, `\ud83d\ude00x`: 2, `\uD83D\uDE00`: 1, `\ud83d`: 1,
		`\ude00\ud83d`: 2, `\ud83d\n`: 2,
	} {
		if got := countChars([]byte(raw)); got != want {
			t.Errorf("%s has %d characters, want %d", raw, got, want)
		}
	}
}
