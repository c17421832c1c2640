package voice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// maxEvent is far above any event of the provider.
const maxEvent = 4 << 20

// A sideband is asked whether it lives, so that a dead one is lost 8 s after it died
// and the call is hung up within the 15 s of F-85 even if none can be had again.
const (
	pingEvery = 4 * time.Second
	pongIn    = 4 * time.Second
)

// provider is where calls are made, and by which key.
type provider struct{ base, key string }

// errNoProvider says that nobody has a key for the provider.
var errNoProvider = errors.New("voice: the provider is not configured")

func (h *Handler) provider(ctx context.Context, b *book) (provider, error) {
	p := provider{h.BaseURL, h.Key}
	if b.OwnKey {
		key, ok := h.Own(ctx, b.OwnerID)
		if !ok {
			return p, errNoProvider
		}
		p.key = key
	}
	if p.key == "" {
		return p, errNoProvider
	}
	return p, nil
}

// call makes a call of the browser's offer (wire, D.1): the provider's answer, and
// its name of the call.
func (h *Handler) call(ctx context.Context, b *book, offer []byte, c session.Config) (answer []byte, callID string, err error) {
	p, err := h.provider(ctx, b)
	if err != nil {
		return nil, "", err
	}
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, part := range []struct {
		name, kind string
		data       []byte
	}{{"sdp", "application/sdp", offer}, {"session", "application/json", mustJSON(c.RealtimeSession(true))}} {
		w, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {fmt.Sprintf(`form-data; name=%q`, part.name)}, "Content-Type": {part.kind}})
		if err != nil {
			return nil, "", err
		}
		if _, err := w.Write(part.data); err != nil {
			return nil, "", err
		}
	}
	if err := form.Close(); err != nil {
		return nil, "", err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", p.base+"/realtime/calls", &body)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Content-Type", form.FormDataContentType())
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := h.Client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxOffer))
	if err != nil {
		return nil, "", err
	}
	location := resp.Header.Get("Location")
	callID = location[strings.LastIndexByte(location, '/')+1:]
	if resp.StatusCode != http.StatusCreated || callID == "" {
		return nil, "", fmt.Errorf("voice: the provider answered a call with %d, location %q: %.300s", resp.StatusCode, location, answer)
	}
	return answer, callID, nil
}

// attach opens the sideband of a call. Gone says that the provider does not know it.
func (h *Handler) attach(ctx context.Context, b *book, callID string) (ws *websocket.Conn, gone bool, err error) {
	p, err := h.provider(ctx, b)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, p.base+"/realtime?call_id="+url.QueryEscape(callID), &websocket.DialOptions{
		HTTPClient: h.Client, HTTPHeader: http.Header{"Authorization": {"Bearer " + p.key}},
	})
	if err != nil {
		return nil, resp != nil && resp.StatusCode == http.StatusNotFound, err
	}
	ws.SetReadLimit(maxEvent)
	return ws, false, nil
}

// hangUp ends a call. One that the provider does not know is gone.
func (h *Handler) hangUp(ctx context.Context, b *book, callID string) error {
	p, err := h.provider(ctx, b)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, "POST", p.base+"/realtime/calls/"+url.PathEscape(callID)+"/hangup", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+p.key)
	resp, err := h.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 && resp.StatusCode != http.StatusNotFound {
		return fmt.Errorf("voice: the provider answered a hang-up with %d", resp.StatusCode)
	}
	return nil
}

// hangUpUnknown ends a call that no row knows of, as often as it takes.
func (h *Handler) hangUpUnknown(b *book, sessionID, callID string) {
	_ = until(h.giveUp, func(ctx context.Context) error { // each failure is in the log
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		err := h.hangUp(ctx, b, callID)
		if err != nil {
			h.Log.ErrorContext(ctx, "a call that is in no row could not be hung up; it is tried again", "session_id", sessionID, "call_id", callID, "error", err)
		}
		return err
	})
}

// dial attaches the session's sideband: a call may be too young to be found, and a
// sideband that was lost is dialled again. It reads until that ends.
func (r *running) dial(callID string, againNow bool) {
	window, missing := session.AttachTimeout, 0
	if againNow {
		window = session.RedialTimeout
	}
	ctx := r.here
	deadline := time.Now().Add(window)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		ws, gone, err := r.h.attach(ctx, &r.book, callID)
		if err == nil {
			r.listen(ctx, ws)
			return
		}
		if gone {
			missing++
		}
		if over := againNow && missing >= 2; over || time.Now().Add(pause).After(deadline) {
			r.h.Log.WarnContext(ctx, "the sideband could not be attached", "session_id", r.id, "error", err)
			r.post(session.AttachFailed{Gone: gone})
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// listen reads a sideband to its end.
func (r *running) listen(ctx context.Context, ws *websocket.Conn) {
	r.connect(&line{
		send: func(event []byte) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			return ws.Write(ctx, websocket.MessageText, event)
		},
		close: func() { _ = ws.CloseNow() },
	})
	r.post(session.SidebandUp{})
	r.seen()
	var heard atomic.Int64 // twice the events, and one more while one is taken in
	watched, stop := context.WithCancel(ctx)
	defer stop()
	time.AfterFunc(pingEvery, func() { watchLine(watched, ws, &heard) })
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			_ = ws.CloseNow()
			r.post(session.SidebandDown{})
			return
		}
		heard.Add(1)
		there := r.hear(data)
		if heard.Add(1); !there {
			_ = ws.CloseNow()
			return
		}
	}
}

// watchLine pings a sideband, and closes one that is open and dead: what is said in
// its call would go unmetered for as long as nobody noticed (F-85). A reader that
// is busy is not the provider's fault. It looks again until ctx ends.
func watchLine(ctx context.Context, ws *websocket.Conn, heard *atomic.Int64) {
	if ctx.Err() != nil {
		return
	}
	before := heard.Load()
	ping, cancel := context.WithTimeout(ctx, pongIn)
	err := ws.Ping(ping)
	cancel()
	if err != nil && before%2 == 0 && heard.Load() == before {
		_ = ws.CloseNow() // its reader tells the session
		return
	}
	time.AfterFunc(pingEvery, func() { watchLine(ctx, ws, heard) })
}
