package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/emulator/script"
)

// locateError returns the place of an error in the body.
func locateError(err error) (pointer string, unknown bool) {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return string(e.JSONPointer), errors.Is(e.Err, json.ErrUnknownName)
	}
	return "", false
}

// WaitFor waits for d, and reports whether ctx is still alive.
func WaitFor(ctx context.Context, d time.Duration) bool {
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

// sendFault causes the script's fault before the answer, and reports whether there is one.
func (e *Server) sendFault(w http.ResponseWriter, r *http.Request, rec *Record, d Dialect, s *script.Script) bool {
	switch {
	case s.Hang < 0:
		<-r.Context().Done()
		e.FinishRecord(rec, 0, ErrHung)
	case s.Cut == 0:
		e.FinishRecord(rec, 0, ResetConnection(http.NewResponseController(w)))
	case s.Redirect:
		w.Header().Set("Location", "/emulator/elsewhere")
		w.WriteHeader(http.StatusFound)
		e.FinishRecord(rec, http.StatusFound, nil)
	case s.HTML:
		status := max(s.Status, 0)
		if status == 0 {
			status = http.StatusBadGateway
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, err := w.Write(
			[]byte("<html>\r\n<head><title>Bad Gateway</title></head>\r\n<body><center><h1>Bad " +
				"Gateway</h1></center></body>\r\n</html>\r\n"))
		e.FinishRecord(rec, status, err)
	case s.Status != 0:
		for name, values := range s.Header {
			w.Header()[name] = values
		}
		e.RefuseRequest(w, rec, d, &Refusal{
			Status:  s.Status,
			Code:    s.Code,
			Message: "The emulator was asked for this error.",
		}, s)
	default:
		return false
	}
	return true
}

var (
	// ErrHung ends an answer that was asked to hang.
	ErrHung = errors.New("hung until the client went")
	errCut  = errors.New("cut")
)

// sendAnswer sends an answer, with the script's faults within it.
func (e *Server) sendAnswer(w http.ResponseWriter, r *http.Request, rec *Record, d Dialect, p *Prompt, a *Answer,
	s *script.Script) {
	d.SetHeaders(w.Header(), p.Stream)
	o := &clientWriter{
		w:          w,
		control:    http.NewResponseController(w),
		left:       s.Cut,
		split:      s.Split,
		beforeLast: func() { e.FinishRecord(rec, http.StatusOK, nil) },
	}
	var (
		whole  []byte
		events [][]byte
		err    error
	)
	if p.Stream {
		events = addOddities(d.EncodeEvents(a, s), p, s)
	} else {
		whole = d.EncodeAnswer(a, s)
	}
	if s.ReportsUsage() {
		e.recordUsage(rec, a.Usage)
	}
	if p.Stream {
		err = sendStream(r.Context(), o, d, events, s)
	} else {
		err = sendWhole(r.Context(), o, d, whole, s)
	}
	if err != nil || s.End != script.Never || s.ErrorAt != script.Never {
		e.FinishRecord(rec, http.StatusOK, err)
	}
}

// addOddities adds events that a client must ignore: the first one again, and one of an unknown type with members of
// known names that are of other types.
func addOddities(events [][]byte, p *Prompt, s *script.Script) [][]byte {
	if !bytes.HasPrefix(events[0], []byte("event: ")) { // it has no types, but a chunk may begin an answer
		if s.Twice && p.Model.Provider == OpenAI {
			events = slices.Insert(events, 1, events[0])
		}
		return events
	}
	if s.Twice {
		events = slices.Insert(events, 1, events[0])
	}
	if s.Unknown < len(events) {
		odd := map[string]any{
			"delta": map[string]any{"text": []int{1}}, "code": map[string]any{"a": 1}, "message": 7, "error": "none",
			"index": "zero", "output_index": "zero", "item": []any{}, "item_id": 7, "content_block": 7,
			"response": "none", "usage": "much", "sequence_number": nil,
		}
		events = slices.Insert(events, s.Unknown, EncodeEvent("odd.delta", EncodeTyped("odd.delta", odd)))
	}
	return events
}

// sendWhole sends an answer at once.
func sendWhole(ctx context.Context, o *clientWriter, d Dialect, body []byte, s *script.Script) error {
	switch {
	case s.ErrorAt != script.Never:
		body = d.EncodeError(streamError(s), s)
	case s.Garbage != script.Never:
		body = []byte(`{"id": "oops`)
	case s.End != script.Never:
		body = body[:len(body)/2]
	case s.Huge:
		body = padObject(body)
	}
	o.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if s.Hang != script.Never {
		if err := o.writeBytes(body[:len(body)/2]); err != nil {
			return err
		}
		<-ctx.Done()
		return ErrHung
	}
	o.beforeLast()
	return o.writeBytes(body)
}

// streamError returns the error in mid-stream.
func streamError(s *script.Script) *Refusal {
	status := http.StatusInternalServerError
	if s.Code == "overloaded_error" {
		status = 529
	}
	return &Refusal{Status: status, Code: s.Code, Message: "The emulator was asked for this error in mid-stream."}
}

// sendStream sends events one by one.
func sendStream(ctx context.Context, o *clientWriter, d Dialect, events [][]byte, s *script.Script) error {
	for i, event := range events {
		if s.Pace > 0 && !WaitFor(ctx, s.Pace) {
			return ctx.Err()
		}
		switch i {
		case s.ErrorAt:
			return o.writeBytes(d.EncodeErrorEvent(streamError(s), s))
		case s.End:
			return o.flush()
		case s.Hang:
			if err := o.flush(); err != nil {
				return err
			}
			<-ctx.Done()
			return ErrHung
		case s.Garbage:
			event = []byte("data: {\"oops\r\n\r\n")
		}
		if s.Huge && i == min(1, len(events)-1) {
			event = padObject(event)
		}
		if i == len(events)-1 {
			o.beforeLast()
		}
		if err := o.writeBytes(event); err != nil {
			return err
		}
	}
	return nil
}

// padObject puts a member of more than a megabyte into the first object.
func padObject(event []byte) []byte {
	return bytes.Replace(event, []byte("{"), []byte(`{"padding":"`+strings.Repeat("0123456789abcdef", 75_000)+`",`), 1)
}

// clientWriter is the connection to the client.
type clientWriter struct {
	w          http.ResponseWriter
	control    *http.ResponseController
	left       int // bytes until it is reset
	split      bool
	beforeLast func() // called before the last write, so that the record is complete when the client has the answer
}

func (o *clientWriter) writeBytes(p []byte) error {
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
		return ResetConnection(o.control)
	}
	if o.left != script.Never {
		o.left -= len(p)
	}
	return nil
}

func (o *clientWriter) flush() error { return o.control.Flush() }

// ResetConnection breaks the connection as a crash does, without a proper end.
func ResetConnection(control *http.ResponseController) error {
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
