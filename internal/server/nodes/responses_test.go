package nodes

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

const responsesPath = "/openai/v1/responses"

// responseBody returns a body of the Responses API.
func responseBody(text string, stream bool) string {
	return fmt.Sprintf(`{"model":"gpt-6-luna","max_output_tokens":200,"stream":%t,"input":%q}`, stream, text)
}

// TestResponsesRetries: an SDK's retry without a key is the same call, on this node and on another one, and is billed
// once.
func TestResponsesRetries(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	call := func(p *nodetest.Node, body, retries string) apitest.Answer {
		req, err := http.NewRequest("POST", p.BaseURL+responsesPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{
			"Authorization":           {"Bearer " + a.Connection.AccessToken},
			"Content-Type":            {"application/json"},
			"X-Stainless-Retry-Count": {retries},
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		return apitest.Read(t, resp)
	}
	for _, stream := range []bool{false, true} {
		body := responseBody(fmt.Sprint("Say hello. ", stream), stream)
		first := call(a.Node, body, "0")
		for _, p := range []*nodetest.Node{a.Node, b.Node} {
			again := call(p, body, "1")
			if again.Body != first.Body || again.Header.Get("Idempotent-Replayed") != "true" ||
				again.Header.Get("X-Request-Id") != first.Header.Get("X-Request-Id") {
				t.Errorf("retried %+v, first %+v", again, first)
			}
		}
		if next := call(b.Node, body, "0"); next.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id") {
			t.Errorf("the same request again must be another call: %+v", next)
		}
	}
	a.Verify()
}

// TestResponsesJoin sends one key to two nodes at once: the copies that join the stream while it runs get the bytes of
// its owner's client.
func TestResponsesJoin(t *testing.T) {
	t.Parallel()
	a, b := startPair(t)
	for _, stream := range []bool{false, true} {
		body := responseBody("!mock pace=50ms words=60 chunks=20", stream)
		key := "Idempotency-Key: " + servertest.UUID()
		answers := make(chan apitest.Answer)
		for i := range 6 {
			p := []*nodetest.Node{a.Node, b.Node}[i%2]
			go func() {
				resp := p.Call("POST", responsesPath, body, key)
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil {
					text = []byte(err.Error())
				}
				answers <- apitest.Answer{Status: resp.StatusCode, Header: resp.Header, Body: string(text)}
			}()
		}
		first, replayed := <-answers, 0
		all := []apitest.Answer{first}
		for range 5 {
			all = append(all, <-answers)
		}
		for _, got := range all {
			if got.Status != 200 || got.Body != first.Body {
				t.Errorf("stream %t: %+v, another copy %+v", stream, got, first)
			}
			if got.Header.Get("Idempotent-Replayed") == "true" {
				replayed++
			}
		}
		if replayed != 5 {
			t.Errorf("stream %t: %d of 6 copies are marked as replayed", stream, replayed)
		}
	}
	a.Verify()
}
