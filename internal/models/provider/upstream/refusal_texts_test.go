package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

func TestOutlineText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"This organization has been disabled.", "This organization has been disabled."},
		{"messages.12.content.0: Input should be 'text' or 'image'", "messages.#.content.#: Input should be … or …"},
		{
			`Invalid value: "my secret's plan". Supported values are: 'a', 'b'`,
			"Invalid value: …. Supported values are: …, …",
		},
		{"max_tokens: 70,000 > 64.000 for claude-x", "max_tokens: # > # for claude-x"},
		{"You can't use `tool's` here, and it isn't 'don't' either", "You can't use … here, and it isn't … either"},
		{`cut off: "a prompt without an end, 12`, "cut off: …"},
		{"cut off: 'a prompt without an end", "cut off: …"},
		{"input {'a': 1} is wrong; so is “Zürich”", "input … is wrong; so is …"},
		{"tool call toolu_01AbCdEfGh of msg_9xYz12345 is unknown", "tool call # of # is unknown"},
		{"file 3fa85f64-5717-4562-b3fc-2c963f66afa6 for claude-haiku-4-5", "file # for claude-haiku-#-#"},
		{"got QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9w here", "got # here"},
		{"", ""},
		{strings.Repeat("é", 300), strings.Repeat("é", 200)},
	} {
		if got := outlineText(c.text); got != c.want {
			t.Errorf("%s: %q, want %q", c.text, got, c.want)
		}
	}
}

// A refuser refuses each request with the next of its errors.
type refuser struct {
	provider.Provider
	next func() *provider.Error
}

func (refuser) Name() string { return "acme" }

func (r refuser) Complete(context.Context, *provider.Request) (*provider.Response, error) {
	return nil, r.next()
}

// TestRefusalsAreCounted counts refusals by their text, and at most a hundred texts.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	n := 0
	p := NewPool([]Key{{ID: "…1234", Provider: refuser{next: func() *provider.Error {
		n++
		e := &provider.Error{Kind: provider.Rejected, Status: 400, Refusal: "line " + fmt.Sprint(n)}
		switch {
		case n > 10 && n <= 200:
			e.Refusal = "line of " + string(rune('a'+n/26)) + string(rune('a'+n%26))
		case n == 201:
			e.Refusal = "" // our own
		}
		return e
	}}}}, time.Now, slog.New(slog.DiscardHandler), nil)
	for range 201 {
		if _, err := p.Complete(t.Context(), &provider.Request{}); err == nil {
			t.Fatal("not refused")
		}
	}
	list := p.Refusals()
	if len(list) != maxRefusalTexts+1 || list[0].Text != otherTexts || list[0].N != 91 ||
		list[1].Text != "line #" || list[1].N != 10 || list[1].Last.IsZero() {
		t.Errorf("%d texts: %+v", len(list), list[:2])
	}
}
