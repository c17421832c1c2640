package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// place says where in the body an error is.
func place(err error) (pointer string, unknown bool) {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return string(e.JSONPointer), errors.Is(e.Err, json.ErrUnknownName)
	}
	return "", false
}

// pause waits, unless the client goes away.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// fail does what goes wrong before the answer, if anything does.
func (e *Emulator) fail(w http.ResponseWriter, r *http.Request, rec *record, d dialect, s *script) bool {
	switch {
	case s.hang < 0:
		<-r.Context().Done()
		e.ended(rec, 0, errHung)
	case s.cut == 0:
		e.ended(rec, 0, reset(http.NewResponseController(w)))
	case s.redirect:
		w.Header().Set("Location", "/emulator/elsewhere")
		w.WriteHeader(http.StatusFound)
		e.ended(rec, http.StatusFound, nil)
	case s.html:
		status := max(s.status, 0)
		if status == 0 {
			status = http.StatusBadGateway
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, err := w.Write([]byte("<html>\r\n<head><title>Bad Gateway</title></head>\r\n<body><center><h1>Bad Gateway</h1></center></body>\r\n</html>\r\n"))
		e.ended(rec, status, err)
	case s.status != 0:
		for name, values := range s.header {
			w.Header()[name] = values
		}
		e.refuse(w, rec, d, &refusal{status: s.status, code: s.code, message: "The emulator was asked for this error."}, s)
	default:
		return false
	}
	return true
}

var (
	errHung = errors.New("hung until the client went")
	errCut  = errors.New("cut")
)

// play sends an answer, with what goes wrong within it.
func (e *Emulator) play(w http.ResponseWriter, r *http.Request, rec *record, d dialect, p *prompt, a *answer, s *script) {
	d.headers(w.Header(), p.stream)
	o := &out{w: w, control: http.NewResponseController(w), left: s.cut, split: s.split, last: func() { e.ended(rec, http.StatusOK, nil) }}
	var err error
	if p.stream {
		err = stream(r.Context(), o, d, d.events(a, s), s)
	} else {
		err = whole(r.Context(), o, d, d.whole(a, s), s)
	}
	if err != nil || s.end != never || s.err != never {
		e.ended(rec, http.StatusOK, err)
	}
}

// whole sends an answer at once.
func whole(ctx context.Context, o *out, d dialect, body []byte, s *script) error {
	switch {
	case s.err != never:
		body = d.refuse(midway(s), s)
	case s.garbage != never:
		body = []byte(`{"id": "oops`)
	case s.end != never:
		body = body[:len(body)/2]
	case s.huge:
		body = pad(body)
	}
	o.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if s.hang != never {
		if err := o.write(body[:len(body)/2]); err != nil {
			return err
		}
		<-ctx.Done()
		return errHung
	}
	o.last()
	return o.write(body)
}

// midway is the error that happens while the model speaks.
func midway(s *script) *refusal {
	status := http.StatusInternalServerError
	if s.code == "overloaded_error" {
		status = 529
	}
	return &refusal{status: status, code: s.code, message: "The emulator was asked for this error in mid-stream."}
}

// stream sends events one by one.
func stream(ctx context.Context, o *out, d dialect, events [][]byte, s *script) error {
	for i, event := range events {
		if s.pace > 0 && !pause(ctx, s.pace) {
			return ctx.Err()
		}
		switch i {
		case s.err:
			return o.write(d.errorEvent(midway(s)))
		case s.end:
			return o.flush()
		case s.hang:
			if err := o.flush(); err != nil {
				return err
			}
			<-ctx.Done()
			return errHung
		case s.garbage:
			event = []byte("data: {\"oops\r\n\r\n")
		}
		if s.huge && i == min(1, len(events)-1) {
			event = pad(event)
		}
		if i == len(events)-1 {
			o.last()
		}
		if err := o.write(event); err != nil {
			return err
		}
	}
	return nil
}

// pad puts a member of more than a megabyte into the first object.
func pad(event []byte) []byte {
	return bytes.Replace(event, []byte("{"), []byte(`{"padding":"`+strings.Repeat("0123456789abcdef", 75_000)+`",`), 1)
}

// out is the connection to the client.
type out struct {
	w       http.ResponseWriter
	control *http.ResponseController
	left    int // bytes until it is reset
	split   bool
	last    func() // told before the last write, so that the record is whole when the client has it
}

func (o *out) write(p []byte) error {
	over := len(p) >= o.left
	if over {
		p = p[:o.left]
	}
	step := max(len(p), 1)
	if o.split {
		step = 1
	}
	for i := 0; i < len(p); i += step {
		if _, err := o.w.Write(p[i:min(i+step, len(p))]); err != nil {
			return err
		}
		if err := o.flush(); err != nil {
			return err
		}
	}
	if over {
		return reset(o.control)
	}
	if o.left != never {
		o.left -= len(p)
	}
	return nil
}

func (o *out) flush() error { return o.control.Flush() }

// reset breaks the connection as a crash does, without a proper end.
func reset(control *http.ResponseController) error {
	conn, _, err := control.Hijack()
	if err != nil {
		return fmt.Errorf("cannot cut: %w", err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return err
		}
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return errCut
}
