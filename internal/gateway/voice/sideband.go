package voice

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// A sideband is pinged, so that a dead one is found within 8 s, and its call is hung up within the
// 15 s of F-85 even if no other sideband can be attached.
const (
	pingInterval = 4 * time.Second
	pongTimeout  = 4 * time.Second
)

// dialSideband attaches the sideband of a call. It repeats that: the provider may not find a new
// call at first. Of a call that had a sideband before, two answers that it is not found mean that it
// is gone.
func dialSideband(
	ctx context.Context, p *Provider, t *billingTerms, callID string, again bool,
) (ws *websocket.Conn, gone bool, err error) {
	timeout, notFound := session.AttachTimeout, 0
	if again {
		timeout = session.RedialTimeout
	}
	deadline := time.Now().Add(timeout)
	pauses := retry.Backoff{First: 50 * time.Millisecond, Max: 500 * time.Millisecond}
	for {
		ws, gone, err := p.attachSideband(ctx, t, callID)
		if err == nil {
			return ws, false, nil
		}
		if gone {
			notFound++
		}
		pause := pauses.Next()
		if again && notFound >= 2 || time.Now().Add(pause).After(deadline) || !retry.Sleep(ctx, pause) {
			return nil, gone, err
		}
	}
}

// readSideband gives the events of a sideband to handle, until the sideband ends or handle returns
// false. It reports whether the sideband was lost, and whether the provider closed it as at the end of a
// call.
func readSideband(
	ctx context.Context, ws *websocket.Conn, handle func(event []byte) bool,
) (lost, clean bool) {
	defer func() { _ = ws.CloseNow() }()
	var progress readProgress
	watched, stop := context.WithCancel(ctx)
	defer stop()
	time.AfterFunc(pingInterval, func() { pingSideband(watched, ws, &progress) })
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return true, websocket.CloseStatus(err) == websocket.StatusNormalClosure
		}
		progress.steps.Add(1)
		more := handle(data)
		if progress.steps.Add(1); !more {
			return false, false
		}
	}
}

// readProgress counts two steps an event: one when it is read, one when it is handled.
type readProgress struct{ steps atomic.Int64 }

// pingSideband pings a sideband and closes it if it is dead: an open socket would hide that the call
// is not metered (F-85). A reader that is handling an event does not answer pings, and is no sign of a
// dead sideband. The ping repeats itself until ctx ends.
func pingSideband(ctx context.Context, ws *websocket.Conn, progress *readProgress) {
	if ctx.Err() != nil {
		return
	}
	before := progress.steps.Load()
	ping, cancel := context.WithTimeout(ctx, pongTimeout)
	err := ws.Ping(ping)
	cancel()
	handling := before%2 == 1
	if err != nil && !handling && progress.steps.Load() == before {
		_ = ws.CloseNow() // readSideband reports the loss
		return
	}
	time.AfterFunc(pingInterval, func() { pingSideband(ctx, ws, progress) })
}
