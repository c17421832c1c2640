package purser

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A serverEvent is one event of a text/event-stream.
type serverEvent struct {
	id   string // the latest id of the stream
	data []byte
}

// maxEventBytes is the largest line of a stream.
const maxEventBytes = 16 << 20

// An eventReader reads server-sent events.
type eventReader struct {
	lines *bufio.Scanner
	id    string
}

func newEventReader(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEventBytes)
	return &eventReader{lines: lines}
}

// next returns the next event with data. The error is io.ErrUnexpectedEOF at the end of the stream.
func (r *eventReader) next() (serverEvent, error) {
	var data []byte
	hasData := false
	for r.lines.Scan() {
		line := r.lines.Bytes()
		if len(line) == 0 {
			if hasData {
				return serverEvent{r.id, data}, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":")) // a comment has an empty name
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			data, hasData = append(data, value...), true
		case "id":
			r.id = string(value)
		}
	}
	if err := r.lines.Err(); err != nil {
		return serverEvent{}, err
	}
	return serverEvent{}, io.ErrUnexpectedEOF
}

// maxSilence is how long a stream may send nothing. The service sends a comment after 15 seconds.
const maxSilence = time.Minute

var errSilent = errors.New("the stream has sent nothing for a minute")

// An openStream is a stream of events that has begun. A minute of silence ends it.
type openStream struct {
	header   http.Header
	first    *serverEvent // the first event, until it is taken
	events   *eventReader
	body     io.ReadCloser
	ctx      context.Context
	cancel   context.CancelCauseFunc
	watchdog *time.Timer
}

// openStream sends a request until a stream has sent its first event. The time limit of the request
// is for the answer to begin.
func (c *Client) openStream(ctx context.Context, r request) (opened *openStream, err error) {
	r.header.Set("Accept", "text/event-stream")
	err = c.repeat(ctx, r, func(header http.Header) error {
		opened, err = c.tryStream(ctx, r, header)
		return err
	})
	return opened, err
}

func (c *Client) tryStream(ctx context.Context, r request, header http.Header) (*openStream, error) {
	s := &openStream{}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.watchdog = time.AfterFunc(r.timeout, func() { s.cancel(newTimeoutError(r.timeout)) })
	response, err := c.roundTrip(s.ctx, r, header)
	if err != nil {
		s.watchdog.Stop()
		s.cancel(nil)
		return nil, err
	}
	s.watchdog.Stop()
	s.watchdog = time.AfterFunc(maxSilence, func() { s.cancel(errSilent) })
	s.header, s.body, s.events = response.Header, response.Body, newEventReader(s)
	if kind := s.header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		s.close()
		return nil, fmt.Errorf("purser: unexpected answer of type %q", kind)
	}
	first, err := s.events.next()
	if err != nil {
		s.close()
		return nil, newConnectionError(err)
	}
	s.first = &first
	return s, nil
}

// next returns the next event.
func (s *openStream) next() (serverEvent, error) {
	if s.first != nil {
		first := *s.first
		s.first = nil
		return first, nil
	}
	return s.events.next()
}

// Read reads the body, for the reader of events. Each byte starts the watchdog again.
func (s *openStream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.watchdog.Reset(maxSilence)
	}
	if err != nil && err != io.EOF {
		err = causeOf(s.ctx, err)
	}
	return n, err
}

// close ends the stream.
func (s *openStream) close() {
	s.watchdog.Stop()
	s.cancel(nil)
	_ = s.body.Close() // nothing is lost
}
