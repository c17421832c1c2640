package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxEvent bounds one event of a provider's stream.
const maxEvent = 1 << 20

// SSE reads a provider's stream of server-sent events for relaying. It hands out
// runs of whole events just as they arrived in one read, without encoding them
// again; an event in another spelling (CRLF, comments, several data lines) is
// rewritten to the plain one. The same bytes give the same events however they
// are split.
type SSE struct {
	r     io.Reader
	buf   []byte
	data  []byte // the data lines of the event being read
	plain bool   // the event so far is a single "data: …" line that ends in LF
	begin int    // where the event being read began
	line  int    // where the line being read began
	eof   bool
	first bool // nothing was read yet: a byte order mark may come
}

// NewSSE reads from r. buf is its first buffer; it grows up to maxEvent.
func NewSSE(r io.Reader, buf []byte) *SSE { return &SSE{r: r, buf: buf[:0], first: true} }

// An Event is one event with data, and how it came.
type Event struct {
	Payload []byte // the joined data lines
	Frame   []byte // "data: …\n\n"
}

// Next returns the next whole event, reading only when none is left. It returns
// io.EOF at the end. Its slices are valid until the next read: see Buffered.
func (s *SSE) Next() (Event, error) {
	for {
		if e, ok, err := s.parse(); ok || err != nil {
			return e, err
		}
		if s.eof {
			return s.rest()
		}
		if err := s.fill(); err != nil {
			return Event{}, err
		}
	}
}

// Buffered reports whether Next can return an event without reading, so that its
// slices and earlier ones stay valid.
func (s *SSE) Buffered() bool {
	return bytes.Contains(s.buf[s.line:], []byte("\n\n")) || bytes.Contains(s.buf[s.line:], []byte("\r\n\r\n"))
}

// fill reads once more, after it has moved what is left to the front.
func (s *SSE) fill() error {
	s.data = bytes.Clone(s.data) // it may point into what moves now
	if s.begin > 0 {
		n := copy(s.buf, s.buf[s.begin:])
		s.buf, s.line, s.begin = s.buf[:n], s.line-s.begin, 0
	}
	if len(s.buf) == cap(s.buf) {
		if len(s.buf) >= maxEvent {
			return fmt.Errorf("provider: an event has more than %d bytes", maxEvent)
		}
		s.buf = append(make([]byte, 0, max(4096, 2*cap(s.buf))), s.buf...)
	}
	n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	if s.first && len(s.buf) >= 3 {
		s.first = false
		s.buf = s.buf[:copy(s.buf, bytes.TrimPrefix(s.buf, []byte("\xef\xbb\xbf")))]
	}
	if errors.Is(err, io.EOF) {
		s.eof = true
		return nil
	}
	return err
}

// parse takes lines until an event is whole; false means: more bytes are needed.
func (s *SSE) parse() (Event, bool, error) {
	for {
		rest := s.buf[s.line:]
		i := bytes.IndexByte(rest, '\n')
		if j := bytes.IndexByte(rest[:max(i, 0)], '\r'); i < 0 || j >= 0 && j < i {
			if i < 0 {
				j = bytes.IndexByte(rest, '\r')
			}
			if j < 0 || j == len(rest)-1 && !s.eof { // a CR at the very end may be half a CRLF
				return Event{}, false, nil
			}
			if j+1 == len(rest) || rest[j+1] != '\n' {
				i = j
			} else {
				i = j + 1
			}
			if e, ok := s.take(rest[:j], i, false); ok {
				return e, true, nil
			}
			continue
		}
		if e, ok := s.take(rest[:i], i, true); ok {
			return e, true, nil
		}
		if len(s.data) > maxEvent {
			return Event{}, false, fmt.Errorf("provider: an event has more than %d bytes", maxEvent)
		}
	}
}

// take handles a line that ends at offset end of what is left.
func (s *SSE) take(line []byte, end int, plain bool) (Event, bool) {
	start := s.line
	s.line += end + 1
	if len(line) > 0 {
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			s.plain = false
			return Event{}, false
		}
		s.plain = plain && s.data == nil && start == s.begin && bytes.HasPrefix(value, []byte(" "))
		value = bytes.TrimPrefix(value, []byte(" "))
		if s.data == nil {
			s.data = value
		} else {
			s.data = append(append(append(make([]byte, 0, len(s.data)+len(value)+1), s.data...), '\n'), value...)
		}
		return Event{}, false
	}
	begin := s.begin
	s.begin = s.line
	if s.data == nil {
		return Event{}, false
	}
	e := Event{Payload: s.data}
	if s.plain && plain {
		e.Frame = s.buf[begin:s.line:s.line]
	} else {
		e.Frame = AppendFrame(nil, s.data)
	}
	s.data, s.plain = nil, false
	return e, true
}

// rest returns an event whose closing blank line never came, then io.EOF.
func (s *SSE) rest() (Event, error) {
	if line := s.buf[s.line:]; len(line) > 0 {
		s.take(bytes.TrimSuffix(line, []byte("\r")), len(line)-1, false)
	}
	s.begin = s.line
	if s.data == nil {
		return Event{}, io.EOF
	}
	e := Event{Payload: s.data, Frame: AppendFrame(nil, s.data)}
	s.data = nil
	return e, nil
}

// AppendFrame appends an event with payload, which has no line breaks or is
// split at them.
func AppendFrame(dst, payload []byte) []byte {
	for len(payload) > 0 || len(dst) == 0 {
		line, rest, more := bytes.Cut(payload, []byte("\n"))
		dst = append(append(append(dst, "data: "...), line...), '\n')
		if payload = rest; !more {
			break
		}
	}
	return append(dst, '\n')
}

// Kind of a payload, found without parsing ordinary chunks.
type Payload int

// The payloads that a relay tells apart.
const (
	Ordinary  Payload = iota // a chunk with choices, or one that only the app understands
	Finish                   // [DONE]
	Failure                  // an error object
	UsageOnly                // a chunk without choices that carries usage
	WithUsage                // a chunk with choices that carries usage too
	Garbage                  // not a JSON object
)

var (
	usageMember = []byte(`"usage"`)
	errorMember = []byte(`"error"`)
)

// Classify says what a payload is. For payloads with usage it returns that too,
// nil if it is unusable.
func Classify(payload []byte) (Payload, *Usage) {
	p := bytes.TrimSpace(payload)
	switch {
	case string(p) == "[DONE]":
		return Finish, nil
	case len(p) < 2 || p[0] != '{' || p[len(p)-1] != '}':
		return Garbage, nil
	case !carries(p, usageMember) && !carries(p, errorMember):
		return Ordinary, nil
	}
	var c struct {
		Error   json.RawMessage   `json:"error"`
		Usage   json.RawMessage   `json:"usage"`
		Choices []json.RawMessage `json:"choices"`
	}
	if err := json.Unmarshal(p, &c); err != nil {
		return Garbage, nil
	}
	switch {
	case present(c.Error):
		return Failure, nil
	case !present(c.Usage):
		return Ordinary, nil
	case len(c.Choices) == 0:
		return UsageOnly, ParseUsage(c.Usage)
	}
	return WithUsage, ParseUsage(c.Usage)
}

// carries reports whether the member may stand in p with something else than null.
func carries(p, name []byte) bool {
	for {
		i := bytes.Index(p, name)
		if i < 0 {
			return false
		}
		p = bytes.TrimLeft(p[i+len(name):], " \t\r\n")
		if len(p) > 0 && p[0] == ':' && !bytes.HasPrefix(bytes.TrimLeft(p[1:], " \t\r\n"), []byte("null")) {
			return true
		}
	}
}

func present(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
