package provider_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/anthropic"
	"github.com/purserhq/purser/internal/models/provider/google"
	"github.com/purserhq/purser/internal/models/provider/openai"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

const refusedKey = "sk-ant-api03-KeyOfTheOperator"

// TestRefusalsAreCountedByText refuses requests with a text that no rule knows, by a status, as the first event of a
// stream, and after a word of the answer: each provider's pool counts the text, without what it quotes, without ids,
// and without our key.
func TestRefusalsAreCountedByText(t *testing.T) {
	t.Parallel()
	const text = `Items like \"a secret prompt\" need a plan, call_9xYz12345 of ` + refusedKey + ` has none.`
	for _, tt := range []struct {
		name   string
		make   func(url string) provider.Provider
		facts  provider.ModelFacts
		object string // the error, with the text
		event  string // the same in a stream
		word   string // the begin of an answer
	}{
		{
			name:   "openai",
			make:   func(url string) provider.Provider { return openai.New(url, refusedKey) },
			object: `{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":null}}`,
			event:  "data: {\"error\":{\"message\":%q,\"type\":\"invalid_request_error\",\"code\":null}}\n\n",
			word:   "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n",
		},
		{
			name:   "openai by Responses",
			make:   func(url string) provider.Provider { return openai.New(url, refusedKey) },
			facts:  provider.ModelFacts{Responses: true},
			object: `{"error":{"message":%q,"type":"invalid_request_error","param":null,"code":null}}`,
			event: "data: {\"type\":\"error\",\"error\":{\"message\":%q,\"type\":\"a_type_of_tomorrow\"," +
				"\"code\":\"a_code_of_tomorrow\"}}\n\n",
			word: "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n" +
				"data: {\"type\":\"response.output_item.added\",\"item\":{\"id\":\"m\",\"type\":\"message\"}}\n\n" +
				"data: {\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\"delta\":\"Hi\"}\n\n",
		},
		{
			name:   "anthropic",
			make:   func(url string) provider.Provider { return anthropic.New(url, refusedKey) },
			object: `{"type":"error","error":{"type":"invalid_request_error","message":%q}}`,
			event: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"," +
				"\"message\":%q}}\n\n",
			word: "event: message_start\n" +
				"data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{}}}\n\n" +
				"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0," +
				"\"content_block\":{\"type\":\"text\",\"text\":\"Hi\"}}\n\n",
		},
		{
			name:   "google",
			make:   func(url string) provider.Provider { return google.New(url, refusedKey) },
			object: `{"error":{"code":400,"message":%q,"status":"INVALID_ARGUMENT"}}`,
			event:  "data: {\"error\":{\"code\":400,\"message\":%q,\"status\":\"INVALID_ARGUMENT\"}}\r\n\r\n",
			word:   "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hi\"}]}}]}\r\n\r\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			said := strings.ReplaceAll(text, `\"`, `"`)
			answers := make(chan string, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer := <-answers
				if strings.HasPrefix(answer, "{") {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusBadRequest)
				} else {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				_, _ = io.WriteString(w, answer)
			}))
			t.Cleanup(server.Close)
			p := upstream.NewPool([]upstream.Key{{ID: "…1234", Provider: tt.make(server.URL)}}, time.Now,
				slog.New(slog.DiscardHandler), nil)
			r := &provider.Request{
				ID: "req_1", Model: "m", MaxTokens: 100, Facts: tt.facts, Stream: true,
				Turns: []conversation.Turn{conversation.Say("user", "a secret prompt")},
			}
			for n, answer := range []string{
				fmt.Sprintf(tt.object, said), fmt.Sprintf(tt.event, said), tt.word + fmt.Sprintf(tt.event, said),
			} {
				answers <- answer
				s, err := p.Stream(t.Context(), r)
				for err == nil {
					_, err = s.Next()
				}
				if s != nil {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
				want := []upstream.RefusalText{
					{Text: "Items like … need a plan, # of [removed] has none.", N: int64(n + 1)},
				}
				got := p.Refusals()
				for i := range got {
					got[i].Last = time.Time{}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("after %s: %v\n%s", answer, err, d)
				}
			}
		})
	}
}
