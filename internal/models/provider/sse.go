package provider

import (
	"bytes"
	"errors"
	"io"
)

// maxEvent bounds one event of a provider's stream, in bytes, unless Bound says
// otherwise.
const maxEvent = 1 << 20

// ErrEventTooLong is returned for an event above the bound.
var ErrEventTooLong = errors.New("provider: an event of the stream is too long")

var byteOrderMark = []byte("\xef\xbb\xbf")

// SSE reads a provider's stream of server-sent events for relaying. It hands
// out whole events just as they arrived, without encoding them again; an event
// in another spelling (CRLF, CR, comments, several data lines) is rewritten to
// the plain one, "data: …\n\n". The same bytes give the same events however they
// are split. Events without data are dropped.
type SSE struct {
	r    io.Reader
	buf  []byte
	eof  bool
	open bool // the stream has begun: no byte order mark can come any more

	begin  int  // where the event being read begins
	line   int  // where the line being read begins
	scan   int  // from line to here there is no line end
	skipLF bool // the line before ended in a CR that may be half a CRLF

	lines    int    // data lines of the event being read
	from, to int    // the only data line
	joined   []byte // all of them, when there are several
	plain    bool   // the event is one plain data line so far
	failed   bool   // the event is named error

	copied []byte // frames of a run that could not stay where they lie
	most   int    // bytes in one event
	bare   bool   // nobody wants frames
}

// NewSSE reads from r. buf is its first buffer; it grows up to 1 MiB.
func NewSSE(r io.Reader, buf []byte) *SSE { return &SSE{r: r, buf: buf[:0], most: maxEvent} }

// Bound sets how many bytes an event may have, for a dialect that does not send
// long things in pieces.
func (s *SSE) Bound(bytes int) { s.most = bytes }

// Bare makes the events come without frames, for a dialect that is translated:
// an event that does not have the plain spelling is then not written anew.
func (s *SSE) Bare() { s.bare = true }

// Buffer returns the buffer, to be used again when nothing refers to it.
func (s *SSE) Buffer() []byte { return s.buf }

// An Event is one event with data. Its slices are valid until the next one is read.
type Event struct {
	Payload []byte // the data lines, joined by LF
	Frame   []byte // the event as it is relayed
	Failed  bool   // the event is named error
}

// Next returns the next event, reading if none is at hand. At the end it
// returns io.EOF; an event that the end cut off counts as whole.
func (s *SSE) Next() (Event, error) {
	for {
		if e, ok := s.take(); ok {
			e.Frame = e.Frame[:len(e.Frame):len(e.Frame)]
			return e, nil
		}
		if err := s.fill(); err != nil {
			return Event{}, err
		}
	}
}

// Run calls keep for each event at hand, reading until there is one, and returns
// the frames of those that it keeps, in one piece. An error of keep ends the run;
// what was kept before it is returned with it.
func (s *SSE) Run(keep func(Event) (bool, error)) ([]byte, error) {
	var run []byte
	copied := false
	for some := false; ; {
		e, ok := s.take()
		switch {
		case ok:
		case some:
			return run[:len(run):len(run)], nil
		default:
			if err := s.fill(); err != nil {
				return nil, err
			}
			continue
		}
		some = true
		kept, err := keep(e)
		if err != nil {
			return run[:len(run):len(run)], err
		}
		switch {
		case !kept:
		case run == nil:
			run = e.Frame
		case !copied && adjoin(run, e.Frame):
			run = run[:len(run)+len(e.Frame)]
		default:
			if !copied {
				copied, s.copied = true, append(s.copied[:0], run...)
			}
			s.copied = append(s.copied, e.Frame...)
			run = s.copied
		}
	}
}

// adjoin reports whether b lies right behind a in one array.
func adjoin(a, b []byte) bool {
	return cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}

// fill reads once, after it has moved an unfinished event to the front. It
// returns io.EOF when there was nothing more to read.
func (s *SSE) fill() error {
	if s.eof {
		return io.EOF
	}
	if s.begin > 0 {
		n := copy(s.buf[:cap(s.buf)], s.buf[s.begin:])
		s.line, s.scan, s.from, s.to = s.line-s.begin, s.scan-s.begin, s.from-s.begin, s.to-s.begin
		s.buf, s.begin = s.buf[:n], 0
	}
	if len(s.buf) == cap(s.buf) {
		if len(s.buf) >= s.most {
			return ErrEventTooLong
		}
		s.buf = append(make([]byte, 0, min(max(4096, 2*cap(s.buf)), s.most)), s.buf...)
	}
	for range 100 {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			s.eof = true
			return nil
		case n > 0: // an error comes again with the next read
			return nil
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}

// take returns the next event that is whole; false means: more bytes are needed.
func (s *SSE) take() (Event, bool) {
	if !s.open {
		if len(s.buf) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, s.buf) && !s.eof {
			return Event{}, false
		}
		if s.open = true; bytes.HasPrefix(s.buf, byteOrderMark) {
			s.begin, s.line, s.scan = len(byteOrderMark), len(byteOrderMark), len(byteOrderMark)
		}
	}
	for {
		end, next, ok := s.lineEnd()
		if !ok {
			return s.last()
		}
		if e, ok := s.add(end, next); ok {
			return e, true
		}
	}
}

// lineEnd returns where the line being read ends and where the next one begins.
func (s *SSE) lineEnd() (end, next int, ok bool) {
	if s.skipLF && s.line < len(s.buf) {
		if s.skipLF = false; s.buf[s.line] == '\n' {
			if s.begin == s.line {
				s.begin++
			}
			s.line++
			s.scan = s.line
		}
	}
	rest := s.buf[s.scan:]
	lf := bytes.IndexByte(rest, '\n')
	if lf >= 0 {
		rest = rest[:lf]
	}
	if cr := bytes.IndexByte(rest, '\r'); cr >= 0 {
		end = s.scan + cr
		switch {
		case cr+1 == lf:
			return end, end + 2, true
		case end+1 == len(s.buf):
			s.skipLF = true
		}
		return end, end + 1, true
	}
	if lf < 0 {
		s.scan = len(s.buf)
		return 0, 0, false
	}
	return s.scan + lf, s.scan + lf + 1, true
}

// add takes in the line up to end and moves on to next. An empty line makes the
// event whole.
func (s *SSE) add(end, next int) (Event, bool) {
	start := s.line
	line, lf := s.buf[start:end], end < len(s.buf) && s.buf[end] == '\n'
	s.line, s.scan = next, next
	if len(line) == 0 {
		return s.finish(next, lf)
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	trimmed := bytes.TrimPrefix(value, []byte(" "))
	switch {
	case string(name) == "data":
		s.plain = s.lines == 0 && lf && len(trimmed) < len(value)
		s.addData(trimmed, end-len(trimmed), end)
		return Event{}, false
	case string(name) == "event":
		s.failed = string(trimmed) == "error"
	}
	if s.plain = false; s.lines == 0 {
		s.begin = next // nothing of it is needed
	}
	return Event{}, false
}

func (s *SSE) addData(value []byte, from, to int) {
	switch s.lines++; s.lines {
	case 1:
		s.from, s.to = from, to
	case 2:
		s.joined = append(append(append(s.joined[:0], s.buf[s.from:s.to]...), '\n'), value...)
	default:
		s.joined = append(append(s.joined, '\n'), value...)
	}
}

// finish ends the event before next and returns it if it has data.
func (s *SSE) finish(next int, lf bool) (Event, bool) {
	begin, lines, plain := s.begin, s.lines, s.plain && lf
	e := Event{Failed: s.failed}
	s.begin, s.lines, s.plain, s.failed = next, 0, false, false
	switch lines {
	case 0:
		return e, false
	case 1:
		e.Payload = s.buf[s.from:s.to]
	default:
		e.Payload = s.joined
	}
	if len(e.Payload) == 0 {
		return e, false
	}
	switch {
	case s.bare:
	case plain:
		e.Frame = s.buf[begin:next]
	default:
		e.Frame = AppendFrame(nil, e.Payload)
	}
	return e, true
}

// last returns an event whose closing empty line never came.
func (s *SSE) last() (Event, bool) {
	if !s.eof || s.begin == len(s.buf) {
		return Event{}, false
	}
	if s.line < len(s.buf) {
		s.add(len(s.buf), len(s.buf))
	}
	return s.finish(len(s.buf), false)
}

// AppendFrame appends the event with this payload, one data line for each of
// its lines.
func AppendFrame(dst, payload []byte) []byte {
	for {
		i := bytes.IndexAny(payload, "\r\n")
		if i < 0 {
			return append(append(append(dst, "data: "...), payload...), "\n\n"...)
		}
		dst = append(append(append(dst, "data: "...), payload[:i]...), '\n')
		if payload[i] == '\r' && i+1 < len(payload) && payload[i+1] == '\n' {
			i++
		}
		payload = payload[i+1:]
	}
}
