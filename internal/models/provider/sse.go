package provider

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxEvent is the limit of one event of a provider's stream, in bytes, unless LimitEvent sets another.
const maxEvent = 1 << 20

// ErrEventTooLong is returned for an event above the limit.
var ErrEventTooLong = errors.New("provider: an event of the stream is too long")

var byteOrderMark = []byte("\xef\xbb\xbf")

// SSE reads a provider's stream of server-sent events for relaying. It returns whole events as they arrived, without
// encoding them again. An event in another form (CRLF, CR, comments, several data lines) is rewritten to the plain
// form "data: …\n\n". The same bytes give the same events however they are split into reads. Events without data are
// dropped.
type SSE struct {
	r       io.Reader
	buf     []byte
	eof     bool
	started bool // the byte order mark, if there is one, has been read

	begin  int  // start of the event being read
	line   int  // start of the line being read
	scan   int  // there is no line end between line and scan
	skipLF bool // the line before ended in a CR, which may be the first half of a CRLF

	lines    int    // data lines of the event being read
	from, to int    // the data line, if there is one
	joined   []byte // the data lines, if there are several
	plain    bool   // the event is one data line in plain form so far
	failed   bool   // the event has the name error

	copied        []byte // frames of a run that are not adjacent in buf
	maxEventBytes int
	omitFrames    bool

	pooled bool    // buf is taken from buffers when there is something to read
	taken  *[]byte // from buffers; nil = none
	wake   [1]byte // what is read first, without a buffer
}

// buffers pools the read buffers of SSEs.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, bufferBytes); return &b }}

const bufferBytes = 8 << 10

// NewSSE returns an SSE that reads from r. Its buffer grows up to the limit of an event. It has none while it waits for
// the next event, which for a slow stream is nearly always.
func NewSSE(r io.Reader) *SSE { return &SSE{r: r, maxEventBytes: maxEvent, pooled: true} }

// LimitEvent sets the limit of one event in bytes, for a dialect that does not split long content.
func (s *SSE) LimitEvent(bytes int) { s.maxEventBytes = bytes }

// OmitFrames makes SSE return events without frames, for a dialect that is translated, so that events in another form
// are not rewritten.
func (s *SSE) OmitFrames() { s.omitFrames = true }

// Release gives the buffer back, when no slice of an event is used any more and nothing more is read.
func (s *SSE) Release() {
	if s.taken != nil {
		buffers.Put(s.taken)
		s.taken = nil
	}
	s.buf, s.begin = nil, 0
}

// An Event is one event with data. Its slices are valid until the next read.
type Event struct {
	Payload []byte // the data lines, joined by LF
	Frame   []byte // the event as it is relayed
	Failed  bool   // the event has the name error
}

// Next returns the next event, and reads if the buffer has none. At the end of the stream it returns io.EOF; an event
// without its closing empty line counts as whole there.
func (s *SSE) Next() (Event, error) {
	for {
		if e, ok := s.parseNext(); ok {
			e.Frame = e.Frame[:len(e.Frame):len(e.Frame)]
			return e, nil
		}
		if err := s.readMore(); err != nil {
			return Event{}, err
		}
	}
}

// Run calls keep for each event in the buffer, and reads until there is one. It returns the frames of the events that
// keep accepts, in one slice. An error of keep ends the run, and is returned with the frames accepted before it.
func (s *SSE) Run(keep func(Event) (bool, error)) ([]byte, error) {
	var run []byte
	copied := false
	for found := false; ; {
		e, ok := s.parseNext()
		switch {
		case ok:
		case found:
			return run[:len(run):len(run)], nil
		default:
			if err := s.readMore(); err != nil {
				return nil, err
			}
			continue
		}
		found = true
		kept, err := keep(e)
		if err != nil {
			return run[:len(run):len(run)], err
		}
		switch {
		case !kept:
		case run == nil:
			run = e.Frame
		case !copied && isAdjacent(run, e.Frame):
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

// isAdjacent reports whether b follows a directly in the same array.
func isAdjacent(a, b []byte) bool {
	return cap(a) > len(a) && &a[:len(a)+1][len(a)] == &b[0]
}

// readMore moves an unfinished event to the front of the buffer and reads once. It returns io.EOF if the stream has
// ended.
func (s *SSE) readMore() error {
	if s.eof {
		return io.EOF
	}
	if s.begin > 0 {
		n := copy(s.buf[:cap(s.buf)], s.buf[s.begin:])
		s.line, s.scan, s.from, s.to = s.line-s.begin, s.scan-s.begin, s.from-s.begin, s.to-s.begin
		s.buf, s.begin = s.buf[:n], 0
	}
	if s.pooled && len(s.buf) == 0 {
		if err := s.await(); err != nil || s.eof {
			return err
		}
	}
	if len(s.buf) == cap(s.buf) {
		if len(s.buf) >= s.maxEventBytes {
			return ErrEventTooLong
		}
		s.buf = append(make([]byte, 0, min(max(4096, 2*cap(s.buf)), s.maxEventBytes)), s.buf...)
		if r, ok := s.r.(interface{ Arrived(bytes int) }); ok {
			r.Arrived(cap(s.buf))
		}
	}
	n, err := s.readSome(s.buf[len(s.buf):cap(s.buf)])
	s.buf = s.buf[:len(s.buf)+n]
	return err
}

// await reads the first byte of what comes next, and then takes a buffer.
func (s *SSE) await() error {
	s.Release()
	n, err := s.readSome(s.wake[:])
	if n > 0 {
		s.taken = buffers.Get().(*[]byte)
		s.buf = append((*s.taken)[:0], s.wake[:n]...)
	}
	return err
}

// readSome reads once, or until something comes. At the end of the stream it sets eof.
func (s *SSE) readSome(p []byte) (int, error) {
	for range 100 {
		n, err := s.r.Read(p)
		switch {
		case errors.Is(err, io.EOF):
			s.eof = true
			return n, nil
		case n > 0: // the next read returns the error again
			return n, nil
		case err != nil:
			return 0, err
		}
	}
	return 0, io.ErrNoProgress
}

// parseNext returns the next whole event of the buffer, or false if more bytes are needed.
func (s *SSE) parseNext() (Event, bool) {
	if !s.started {
		if len(s.buf) < len(byteOrderMark) && bytes.HasPrefix(byteOrderMark, s.buf) && !s.eof {
			return Event{}, false
		}
		if s.started = true; bytes.HasPrefix(s.buf, byteOrderMark) {
			s.begin, s.line, s.scan = len(byteOrderMark), len(byteOrderMark), len(byteOrderMark)
		}
	}
	for {
		end, next, ok := s.lineEnd()
		if !ok {
			return s.parseLast()
		}
		if e, ok := s.addLine(end, next); ok {
			return e, true
		}
	}
}

// lineEnd returns the end of the line being read and the start of the next line.
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

// addLine adds the line up to end to the event and moves on to next. An empty line ends the event.
func (s *SSE) addLine(end, next int) (Event, bool) {
	start := s.line
	line, lf := s.buf[start:end], end < len(s.buf) && s.buf[end] == '\n'
	s.line, s.scan = next, next
	if len(line) == 0 {
		return s.endEvent(next, lf)
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
		s.begin = next // the event does not need this line
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

// endEvent ends the event before next, and returns it if it has data.
func (s *SSE) endEvent(next int, lf bool) (Event, bool) {
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
	case s.omitFrames:
	case plain:
		e.Frame = s.buf[begin:next]
	default:
		e.Frame = AppendFrame(nil, e.Payload)
	}
	return e, true
}

// parseLast returns the last event of a stream that ended without the closing empty line.
func (s *SSE) parseLast() (Event, bool) {
	if !s.eof || s.begin == len(s.buf) {
		return Event{}, false
	}
	if s.line < len(s.buf) {
		s.addLine(len(s.buf), len(s.buf))
	}
	return s.endEvent(len(s.buf), false)
}

// AppendFrame appends an event with this payload, with one data line for each line of it.
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
