package mock_test

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/mock"
	"github.com/purserhq/purser/internal/models/tokens"
)

// ofSchema asks for JSON of a schema.
func ofSchema(schema string) *provider.Request {
	r := ask("Give me JSON")
	r.MaxTokens = 1_000_000
	r.ResponseFormat = json.RawMessage(`{"type":"json_schema","json_schema":{"name":"a","schema":` + schema + `}}`)
	return r
}

// TestOneRequestCostsLittle asks for what is long to make or to count. What an answer takes is bounded, whatever is
// asked: its making counts for no limit.
//
//nolint:paralleltest // it reads how much memory the process has allocated
func TestOneRequestCostsLittle(t *testing.T) {
	const maxAllocated, maxCounted, maxBody, maxStreamed = 16 << 20, 1 << 20, 200 << 10, 2 << 20
	long := strings.Repeat("x", 100_000)
	short := ofSchema(`{"const":"` + strings.Repeat("ab", 25_000) + `"}`)
	short.MaxTokens = 1
	nested := strings.Repeat(`{"type":"array","minItems":9,"items":`, 500) + `{}` + strings.Repeat("}", 500)
	for name, r := range map[string]*provider.Request{
		"a long value many times":  ofSchema(`{"type":"array","minItems":999,"items":{"const":"` + long + `"}}`),
		"a long choice many times": ofSchema(`{"type":"array","minItems":999,"items":{"enum":["` + long + `"]}}`),
		"a long name many times": ofSchema(
			`{"type":"array","minItems":999,"items":{"properties":{"` + long + `":{}}}}`),
		"a value that quotes":          ofSchema(`{"const":"` + strings.Repeat("<", 100_000) + `"}`),
		"a schema inside others":       ofSchema(nested),
		"one word, cut":                short,
		"many short words":             ofSchema(`{"const":"` + strings.Repeat("a ", 128_000) + `"}`),
		"many short words, in chunks":  ofSchema(`{"const":"` + strings.Repeat("a ", 8_000) + `"}`),
		"a message of short words":     ask(strings.Repeat("a ", 8<<20)),
		"a message of one word":        ask(strings.Repeat("界", 4<<20)),
		"a script of short words":      ask("!mock " + strings.Repeat("a ", 8<<20)),
		"a script of short lines":      ask(strings.Repeat("!mock a\n", 2<<20)),
		"a script of short other ones": ask(strings.Repeat("!slow a\n!cut a\n", 1<<20)),
	} {
		if name == "many short words, in chunks" {
			r.Turns[0].Blocks[0].Text = "!mock chunks=1000000"
		}
		counted := 0
		p := mock.New(func(text string) int {
			counted += len(text)
			return tokens.Count(text)
		}, func(*provider.Request) int64 { return 1 }, func() time.Time { return clock }, mock.MaxWords)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := p.Complete(t.Context(), r)
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		allocated := after.TotalAlloc - before.TotalAlloc
		if allocated > maxAllocated || counted > maxCounted || len(got.Body) > maxBody {
			t.Errorf("%s: %d bytes allocated, %d counted, %d answered", name, allocated, counted, len(got.Body))
		}
		s, err := p.Stream(t.Context(), r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		streamed := 0
		for err == nil {
			var c provider.Chunk
			c, err = s.Next()
			streamed += len(c.Frames)
		}
		if streamed > maxStreamed || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %d bytes streamed, %v", name, streamed, err)
		}
		_ = s.Close()
	}
}
