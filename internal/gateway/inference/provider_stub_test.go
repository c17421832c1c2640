package inference

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A providerStub is all providers on one raw socket. It plays what a test has put under the mark in a request's prompt,
// and answers other requests.
type providerStub struct {
	url string

	mu    sync.Mutex
	plays map[string]*play
	keys  []string // of requests without a mark
	conns map[net.Conn]bool
}

// A play is what the stub does with a request.
type play struct {
	answer *answer
	at     int                     // so many events are sent; of a body 0, half of it, or all
	way    way                     // what follows
	raw    func(key string) string // instead of an answer: all that is sent before the connection is closed
	sent   chan struct{}           // closed when it is sent
	goOn   chan struct{}           // closed to have the rest sent; of way left
	once   sync.Once

	heard func(path string, body []byte) // takes the request, which is answered as usual; nil = nobody
}

func newProviderStub(t *testing.T) *providerStub {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &providerStub{url: "http://" + l.Addr().String(), plays: map[string]*play{}, conns: map[net.Conn]bool{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c] = true
			s.mu.Unlock()
			serving.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		serving.Wait()
	})
	return s
}

var playMark = regexp.MustCompile(`PLAY-[0-9]+`)

// put puts a play under a mark.
func (s *providerStub) put(mark string, p *play) {
	p.sent, p.goOn = make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	s.plays[mark] = p
	s.mu.Unlock()
}

// drop forgets what it was given to play.
func (s *providerStub) drop(mark string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.plays, mark)
}

// takeKeys returns the keys of the requests without a mark since the last time.
func (s *providerStub) takeKeys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys, s.keys = s.keys, nil
	return keys
}

func (s *providerStub) serve(c net.Conn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.Header.Get("X-Api-Key") +
			r.Header.Get("X-Goog-Api-Key")
		s.mu.Lock()
		p := s.plays[string(playMark.Find(body))]
		if p == nil {
			s.keys = append(s.keys, key)
		}
		s.mu.Unlock()
		if p == nil {
			p = ordinaryPlay(r)
		}
		if p.heard != nil {
			p.heard(r.URL.Path, body)
			p = ordinaryPlay(r)
		}
		if !p.play(c, isStreamed(r, body), key) {
			return
		}
	}
}

func isStreamed(r *http.Request, body []byte) bool {
	return strings.Contains(r.URL.Path, ":stream") || bytes.Contains(body, []byte(`"stream":true`))
}

// ordinaryPlay is a complete answer to a request.
func ordinaryPlay(r *http.Request) *play {
	d := dialects[0]
	switch {
	case strings.HasSuffix(r.URL.Path, "/responses"):
		d = dialects[1]
	case strings.HasSuffix(r.URL.Path, "/messages"):
		d = dialects[2]
	case strings.Contains(r.URL.Path, "/models/"):
		d = dialects[3]
	}
	u := trueUsage
	p := &play{answer: d.write(d, generations["text"], true, lateUsage, &u), sent: make(chan struct{})}
	p.at = len(p.answer.events)
	return p
}

// play sends the answer, and reports whether the connection can be used again.
func (p *play) play(c net.Conn, streamed bool, key string) bool {
	announce := func() { p.once.Do(func() { close(p.sent) }) } // at the first try
	if p.raw != nil {
		_, _ = io.WriteString(c, p.raw(key))
		announce()
		return false
	}
	isBody := !streamed && p.answer.body != ""
	send := p.sendEvents
	if isBody {
		send = p.sendBody
	}
	rest := send(c)
	announce()
	if isBody && rest == "" { // the connection is used again
		return true
	}
	switch p.way {
	case ending:
		if isBody {
			return false
		}
		_, _ = io.WriteString(c, "0\r\n\r\n")
		return true
	case cuts:
		return false
	case left:
		select {
		case <-p.goOn:
			_, _ = io.WriteString(c, rest)
			return false
		case <-closed(c):
		}
		return false
	}
	<-closed(c)
	return false
}

// closed returns what is closed when the other side has closed the connection.
func closed(c net.Conn) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c)
	}()
	return gone
}

// sendBody sends nothing, the first half, or all of a body. It returns the rest.
func (p *play) sendBody(c net.Conn) (rest string) {
	body := p.answer.body
	all := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(body)) +
		body
	sent := all
	switch p.at {
	case 0:
		sent = ""
	case 1:
		sent = all[:len(all)-len(body)/2]
	}
	_, _ = io.WriteString(c, sent)
	return all[len(sent):]
}

// sendEvents sends a stream up to a boundary, with a chunk of the body for each event. It returns the rest.
func (p *play) sendEvents(c net.Conn) (rest string) {
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, e := range p.answer.events[:p.at] {
		if _, err := io.WriteString(c, httpChunk(e)); err != nil {
			break
		}
	}
	for _, e := range p.answer.events[p.at:] {
		rest += httpChunk(e)
	}
	return rest + "0\r\n\r\n"
}

func httpChunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

// A reading is what a client of one of the routes has read so far.
type reading struct {
	mu     sync.Mutex
	status int
	id     string
	raw    bytes.Buffer
	err    error // of the connection
	ended  chan struct{}
}

// readCall sends a request and reads the answer in the background.
func readCall(ctx context.Context, r *http.Request) *reading {
	got := &reading{ended: make(chan struct{})}
	go func() {
		defer close(got.ended)
		resp, err := http.DefaultClient.Do(r.WithContext(ctx))
		if err != nil {
			got.fail(err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		got.mu.Lock()
		got.status, got.id = resp.StatusCode, resp.Header.Get("X-Request-Id")
		got.mu.Unlock()
		for b := make([]byte, 64<<10); ; {
			n, err := resp.Body.Read(b)
			got.mu.Lock()
			got.raw.Write(b[:n])
			got.mu.Unlock()
			if err != nil {
				if err != io.EOF {
					got.fail(err)
				}
				return
			}
		}
	}()
	return got
}

func (g *reading) fail(err error) {
	g.mu.Lock()
	g.err = err
	g.mu.Unlock()
}

func (g *reading) hasEnded() bool {
	select {
	case <-g.ended:
		return true
	default:
		return false
	}
}

// A message is what a stream adds up to for its client.
type message struct {
	said     string // text, reasoning and tool calls, as they came
	text     []byte // said, while it is read
	finished bool   // it has a reason for its end
	failed   bool   // it has an error
	done     bool   // its last event came
}

// message parses what was read of a stream in the shape of a route.
func (g *reading) message(route string) message {
	g.mu.Lock()
	text := g.raw.String()
	g.mu.Unlock()
	return parseMessage(route, text)
}

func parseMessage(route, text string) (m message) {
	read := (*message).readChunk
	switch route {
	case "messages":
		read = (*message).readAnthropic
	case "responses":
		read = (*message).readResponses
	case "contents":
		read = (*message).readContents
	}
	for event := range strings.SplitSeq(text, "\n\n") {
		for line := range strings.SplitSeq(event, "\n") {
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				read(&m, data)
			}
		}
	}
	m.said = string(m.text)
	return m
}

func (m *message) add(parts ...string) {
	for _, part := range parts {
		m.text = append(m.text, part...)
	}
}

// readChunk reads a chunk of Chat Completions.
func (m *message) readChunk(data string) {
	if data == "[DONE]" {
		m.done = true
		return
	}
	var c struct {
		Choices []struct {
			Delta struct {
				Reasoning string `json:"reasoning_content"`
				Content   string `json:"content"`
				Refusal   string `json:"refusal"`
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
			Finish *string `json:"finish_reason"`
		}
		Error json.RawMessage
	}
	if json.Unmarshal([]byte(data), &c) != nil {
		return
	}
	m.failed = m.failed || c.Error != nil
	for _, choice := range c.Choices {
		m.add(choice.Delta.Reasoning, choice.Delta.Content, choice.Delta.Refusal)
		for _, call := range choice.Delta.ToolCalls {
			m.add(call.Function.Name, call.Function.Arguments)
		}
		m.finished = m.finished || choice.Finish != nil
	}
}

// readAnthropic reads an event of Messages.
func (m *message) readAnthropic(data string) {
	var e struct {
		Type  string
		Block struct{ Type, Name string } `json:"content_block"`
		Delta struct {
			Text, Thinking string
			Partial        string  `json:"partial_json"`
			Reason         *string `json:"stop_reason"`
		}
	}
	if json.Unmarshal([]byte(data), &e) != nil {
		return
	}
	switch e.Type {
	case "content_block_start":
		m.add(e.Block.Name)
	case "content_block_delta":
		m.add(e.Delta.Thinking, e.Delta.Text, e.Delta.Partial)
	case "message_delta":
		m.finished = m.finished || e.Delta.Reason != nil
	case "message_stop":
		m.done = true
	case "error":
		m.failed, m.done = true, true
	}
}

// readContents reads a chunk of Google's API.
func (m *message) readContents(data string) {
	var c struct {
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text string
					Call *struct {
						Name string
						Args json.RawMessage
					} `json:"functionCall"`
				}
			}
			Reason string `json:"finishReason"`
		}
		Error json.RawMessage
	}
	if json.Unmarshal([]byte(data), &c) != nil {
		return
	}
	m.failed = m.failed || c.Error != nil
	for _, candidate := range c.Candidates {
		for _, p := range candidate.Content.Parts {
			m.add(p.Text)
			if p.Call != nil {
				m.add(p.Call.Name, string(p.Call.Args))
			}
		}
		m.finished = m.finished || candidate.Reason != ""
	}
	m.done = m.finished || m.failed
}

// readResponses reads an event of Responses.
func (m *message) readResponses(data string) {
	var e struct {
		Type, Delta string
		Item        struct{ Type, Name string }
	}
	if json.Unmarshal([]byte(data), &e) != nil {
		return
	}
	switch e.Type {
	case "response.output_item.added":
		if e.Item.Type == "function_call" {
			m.add(e.Item.Name)
		}
	case "response.output_text.delta", "response.refusal.delta", "response.reasoning_summary_text.delta",
		"response.function_call_arguments.delta":
		m.add(e.Delta)
	case "response.completed", "response.incomplete":
		m.finished, m.done = true, true
	case "response.failed", "error":
		m.failed, m.done = true, true
	}
}
