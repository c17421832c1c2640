package history

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"
)

// questions are what the user says in the voice session.
var questions = []string{"What is that tower over there?", "And where can I sit by the water?"}

// talk makes a voice session with the mock voice, on a connection with this token.
func (m *Maker) talk(ctx context.Context, token string) error {
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	var session struct {
		ID     string `json:"id"`
		Client struct {
			Ticket string `json:"ticket"`
		} `json:"client"`
	}
	err := m.call(ctx, "POST", "/v1/realtime/sessions", map[string]any{
		"model":        "gpt-realtime-2.1-mini",
		"instructions": "You are a guide in a harbour town. Be brief.",
		"feature":      "guide",
	}, bearer, &session)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // a WebSocket needs a connection
	if err != nil {
		return err
	}
	s := &http.Server{Handler: m.handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }() // until Close
	defer func() { _ = s.Close() }()
	ws, _, err := websocket.Dial(ctx,
		fmt.Sprintf("ws://%s/v1/realtime/sessions/%s/mock?ticket=%s", l.Addr(), session.ID,
			url.QueryEscape(session.Client.Ticket)), nil)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(1 << 20)
	for _, text := range questions {
		if err := m.say(ctx, ws, text); err != nil {
			return err
		}
		m.wait(40 * time.Second) // the user hears the answer and thinks
	}
	return m.call(ctx, "POST", "/v1/realtime/sessions/"+session.ID+"/end", map[string]string{"when": "immediate"},
		bearer,
		nil)
}

// say lets the user of a voice session say something, and waits for the end of the reply.
func (m *Maker) say(ctx context.Context, ws *websocket.Conn, text string) error {
	item, err := json.Marshal(map[string]any{
		"type": "conversation.item.create",
		"item": map[string]any{
			"type":    "message",
			"role":    "user",
			"content": []map[string]string{{"type": "input_text", "text": text}},
		},
	})
	if err != nil {
		return err
	}
	for _, event := range [][]byte{item, []byte(`{"type":"response.create"}`)} {
		if err := ws.Write(ctx, websocket.MessageText, event); err != nil {
			return err
		}
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		var event struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(data, &event); err != nil {
			return err
		}
		if event.Type == "response.done" {
			return nil
		}
	}
}
