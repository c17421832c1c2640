package purser

import (
	"context"
	"iter"
	"net/http"
	"net/url"
)

// Events streams what happens to the connection, from now on or after the event with an id. It reconnects by itself and
// yields no event twice. It ends with an event of type end when the connection is revoked, and with an error when ctx
// ends or the service refuses.
func (c *Connection) Events(ctx context.Context, after string) iter.Seq2[LiveEvent, error] {
	return func(yield func(LiveEvent, error) bool) {
		reader := liveReader{connection: c, ctx: ctx, last: after, yield: yield}
		for tries := 0; ; tries++ {
			received := reader.events
			goOn, err := reader.readStream()
			if err != nil {
				yield(LiveEvent{}, err)
				return
			}
			if !goOn {
				return
			}
			if reader.events > received {
				tries = 0
			}
			if err := c.client.clock.sleep(ctx, backoff(tries)); err != nil {
				yield(LiveEvent{}, err)
				return
			}
		}
	}
}

// A liveReader reads streams of events, one after the other.
type liveReader struct {
	connection *Connection
	ctx        context.Context
	last       string // id of the last event
	rejected   string // an access token that has expired
	events     int    // how many were yielded
	yield      func(LiveEvent, error) bool
}

// readStream reads one stream. It says whether another one follows.
func (r *liveReader) readStream() (goOn bool, err error) {
	client, used := r.connection.client, ""
	opened, err := client.openStream(r.ctx, request{
		method:     http.MethodGet,
		path:       r.path(),
		header:     http.Header{},
		timeout:    client.timeout(defaultTimeout),
		repeatable: true,
		authorize: func(ctx context.Context, header http.Header, rejected string) (string, error) {
			if rejected == "" {
				rejected = r.rejected
			}
			token, err := r.connection.authorize(ctx, header, rejected)
			used = token
			return token, err
		},
	})
	if err != nil {
		refused := asError(err)
		if refused != nil && refused.isTemporary() && r.ctx.Err() == nil {
			return true, nil // the service may come back
		}
		return false, err
	}
	defer opened.close()
	for {
		event, err := opened.next()
		if err != nil {
			return r.ctx.Err() == nil, r.ctx.Err()
		}
		live, err := decode[LiveEvent](event.data)
		if err != nil {
			return true, nil // something between has spoilt it
		}
		if live.Type == "end" && live.Reconnect {
			if live.Reason == "token_expired" {
				r.rejected = used
			}
			return true, nil
		}
		if event.id != "" && event.id != r.last {
			live.ID, r.last = event.id, event.id
		}
		r.events++
		if !r.yield(live, nil) || live.Type == "end" {
			return false, nil
		}
	}
}

func (r *liveReader) path() string {
	path := "/v1/connection/events"
	if r.last != "" {
		path += "?after=" + url.QueryEscape(r.last)
	}
	return path
}
