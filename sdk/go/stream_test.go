package purser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

const streamedAnswer = `: comment

data: {"id":"1","choices":[{"index":0,"delta":{"role":"assistant","content":"Be"},"finish_reason":null}]}

data: {"id":"1","choices":[{"index":0,"delta":{"content":"cause."},"finish_reason":"stop"}]}

`

const streamEnd = `data: {"svc_final":{"settlement":"settled","usage":{"total_tokens":7},"svc":{"user_charge_mc":2400}}}

data: [DONE]

`

func writeStream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Request-Id", "req_1")
	_, _ = io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

func readText(s *Stream) (text string, err error) {
	for chunk, err := range s.Chunks() {
		if err != nil {
			return text, err
		}
		text += chunk.Text
	}
	return text, nil
}

func TestStream(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { writeStream(w, streamedAnswer+streamEnd) })
	stream := c.WithToken("token").Stream(t.Context(), "gpt-6-luna", question)
	if _, err := stream.Bill(); err == nil {
		t.Error("a bill before the end")
	}
	text, err := readText(stream)
	bill, billErr := stream.Bill()
	answer, answerErr := stream.Answer()
	if err := errors.Join(err, billErr, answerErr); err != nil {
		t.Fatal(err)
	}
	if text != "Because." || bill.UserChargeMC != 2400 || bill.Settlement != "settled" || bill.Usage.TotalTokens != 7 ||
		answer.Text != text || answer.FinishReason != "stop" || stream.RequestID() != "req_1" {
		t.Errorf("%q, %+v", text, bill)
	}
	if _, err := readText(stream); err == nil {
		t.Error("a stream was read twice")
	}
}

func TestStreamedToolCalls(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, call := range []string{
			`{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""},` +
				`"extra_content":{"x":1}}`,
			`{"index":0,"function":{"arguments":"{\"city\":"}}`,
			`{"index":1,"id":"call_2","function":{"name":"time","arguments":"{}"}}`,
			`{"index":0,"function":{"arguments":"\"Oslo\"}"}}`,
		} {
			writeStream(w, `data: {"choices":[{"index":0,"delta":{"tool_calls":[`+call+"]}}]}\n\n")
		}
		writeStream(w, streamEnd)
	})
	stream := c.WithToken("token").Stream(t.Context(), "gpt-6-luna", question)
	if _, err := readText(stream); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Answer()
	if err != nil {
		t.Fatal(err)
	}
	calls := answer.Message.ToolCalls
	if len(calls) != 2 || calls[0].ID != "call_1" || calls[0].Arguments != `{"city":"Oslo"}` || calls[0].Extra == nil ||
		calls[1].Name != "time" {
		t.Errorf("%+v", calls)
	}
}

// TestBrokenStream cuts streams off: before their first chunk they are repeated, afterwards not.
func TestBrokenStream(t *testing.T) {
	t.Parallel()
	tries, keys := 0, map[string]bool{}
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		tries++
		if tries == 1 {
			writeStream(w, ": nothing yet\n\n")
			panic(http.ErrAbortHandler)
		}
		writeStream(w, streamedAnswer)
		panic(http.ErrAbortHandler)
	})
	stream := c.WithToken("token").Stream(t.Context(), "gpt-6-luna", question)
	text, err := readText(stream)
	refused := asError(err)
	if text != "Because." || refused == nil || refused.Code != CodeStreamBroken || tries != 2 || len(keys) != 1 ||
		refused.RequestID != "req_1" {
		t.Errorf("%q after %d tries with %d keys: %v", text, tries, len(keys), err)
	}
}

func TestErrorInStream(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) {
		writeStream(w, streamedAnswer+
			`data: {"error":{"code":"connection_frozen","message":"no","review_url":"https://r.example"}}`+
			"\n\n"+strings.Replace(streamEnd, "settled", "estimated", 1))
	})
	stream := c.WithToken("token").Stream(t.Context(), "gpt-6-luna", question)
	_, err := readText(stream)
	bill, billErr := stream.Bill()
	if refused := asError(err); refused == nil || refused.Action != ActionAskUser || refused.ReviewURL == "" ||
		refused.Status != 403 || billErr != nil || bill.Settlement != "estimated" {
		t.Errorf("%v, %+v", err, bill)
	}
}

func TestStreamThatIsLeft(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		writeStream(w, streamedAnswer)
		<-r.Context().Done()
		close(ended)
	})
	for range c.WithToken("token").Stream(t.Context(), "gpt-6-luna", question).Chunks() {
		break
	}
	<-ended // leaving the loop ends the request
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended = make(chan struct{})
	for _, err := range c.WithToken("token").Stream(ctx, "gpt-6-luna", question).Chunks() {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
	<-ended
}

func TestLiveEvents(t *testing.T) {
	t.Parallel()
	streams := 0
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth/token" {
			writeTokens(w, 1)
			return
		}
		streams++
		after, token := r.URL.Query().Get("after"), r.Header.Get("Authorization")
		balance := "id: led_%d\nevent: balance\ndata: {\"type\":\"balance\",\"connection\":{\"id\":\"conn_1\"}}\n\n"
		switch streams {
		case 1:
			writeStream(w, fmt.Sprintf(balance, 1)+
				"id: led_2\nevent: charge\n"+
				"data: {\"type\":\"charge\",\"entry\":{\"id\":\"led_2\",\"user_charge_mc\":7}}\n\n"+
				"event: end\ndata: {\"type\":\"end\",\"reason\":\"token_expired\",\"reconnect\":true}\n\n")
		case 2:
			if after != "led_2" || token != "Bearer access-1" {
				t.Errorf("the second stream is after %q with %q", after, token)
			}
			writeStream(w, "data: {\"type\":\"hold\",\"hold_amount_mc\":9}\n\n")
			panic(http.ErrAbortHandler)
		case 3, 4, 5, 6, 7: // more than the tries of one request
			refuse(w, 503, "unavailable")
		default:
			writeStream(w, "data: {\"type\":\"end\",\"reason\":\"connection_revoked\",\"reconnect\":false}\n\n")
		}
	})
	var got []string
	for event, err := range connect(t, c, time.Hour).Events(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Type+" "+event.ID)
	}
	if all := strings.Join(got, ", "); all != "balance led_1, charge led_2, hold , end " {
		t.Errorf("%s", all)
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/oauth/token" {
			writeTokens(w, 1)
			return
		}
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Authorization") != "Bearer access-1" {
			refuse(w, 401, "unauthorized")
			return
		}
		if r.Header.Get("X-Api-Key") != "" || string(body) != "question" {
			t.Errorf("%q with %v", body, r.Header)
		}
		writeCompletion(w)
	})
	client := connect(t, c, time.Hour).HTTPClient()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.options.BaseURL+"/openai/v1/responses",
		strings.NewReader("question"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer other")
	request.Header.Set("X-Api-Key", "other")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 200 || request.Header.Get("Authorization") != "Bearer other" {
		t.Errorf("%d", response.StatusCode)
	}
	if _, err := client.Get("https://attacker.example/v1"); err == nil || !strings.Contains(err.Error(), "reveal") {
		t.Errorf("the token went to another host: %v", err)
	}
}
