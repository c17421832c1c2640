package provider

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// newSSE returns an SSE with a buffer of its own, of this size; 0 = with those of the pool.
func newSSE(r io.Reader, size int) *SSE {
	if size == 0 {
		return NewSSE(r)
	}
	return &SSE{r: r, buf: make([]byte, 0, size), maxEventBytes: maxEvent}
}

// payloads reads all events; each frame must be the writer's.
func payloads(t testing.TB, r io.Reader, size int) ([]string, error) {
	t.Helper()
	var out []string
	for s := newSSE(r, size); ; {
		e, err := s.Next()
		if err != nil {
			return out, err
		}
		if want := string(AppendFrame(nil, e.Payload)); string(e.Frame) != want {
			t.Errorf("frame %q of payload %q", e.Frame, e.Payload)
		}
		payload := string(e.Payload)
		if e.Failed {
			payload = "error: " + payload
		}
		out = append(out, payload)
	}
}

// specified reads the same events the way the standard describes it, slowly.
func specified(text string) []string {
	text = strings.TrimPrefix(text, "\xef\xbb\xbf")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	var out, data []string
	name := ""
	finish := func() {
		if payload := strings.Join(data, "\n"); payload != "" {
			if name == "error" {
				payload = "error: " + payload
			}
			out = append(out, payload)
		}
		data, name = nil, ""
	}
	for _, line := range strings.Split(text, "\n") {
		if line == "" {
			finish()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimPrefix(value, " "); field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	finish()
	return out
}

var spellings = map[string]struct {
	text string
	want []string
}{
	"nothing":                {"", nil},
	"plain":                  {"data: {\"a\":1}\n\ndata: [DONE]\n\n", []string{`{"a":1}`, "[DONE]"}},
	"CRLF":                   {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
	"CRLF, then LF":          {"data: a\r\n\r\ndata: b\n\n", []string{"a", "b"}},
	"CR":                     {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
	"mixed line ends":        {"data: a\n\r\ndata: b\r\n\ndata: c\r\r\n\ndata: d\n\r", []string{"a", "b", "c", "d"}},
	"byte order mark":        {"\xef\xbb\xbfdata: a\n\n", []string{"a"}},
	"half a byte order mark": {"\xef\xbbdata: a\n\ndata: b\n\n", []string{"b"}},
	"mark in the middle":     {"data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"a"}},
	"comments":               {": hello\n\ndata: a\n: in between\n\n:\n: bye\n\n", []string{"a"}},
	"comment before data":    {": hello\ndata: a\n\ndata: b\n\n", []string{"a", "b"}},
	"no space":               {"data:a\n\ndata:  b\n\n", []string{"a", " b"}},
	"several data lines": {"data: {\ndata:\"a\":1\ndata: }\n\ndata: x\ndata: y\n\n",
		[]string{"{\n\"a\":1\n}", "x\ny"}},
	"other fields": {"event: message\nid: 7\nretry: 10\ndata: a\n\nid\ndata: b\nid\n\n",
		[]string{"a", "b"}},
	"named error": {"event: error\ndata: a\n\ndata: b\nevent:error\n\ndata: c\n\n",
		[]string{"error: a", "error: b", "c"}},
	"error without data":       {"event: error\n\ndata: a\n\n", []string{"a"}},
	"data without value":       {"data\n\ndata:\n\ndata: \n\ndata: a\n\n", []string{"a"}},
	"longer name":              {"database: x\n\ndata: a\n\n", []string{"a"}},
	"last event not closed":    {"data: a\n\ndata: b\n", []string{"a", "b"}},
	"last line not ended":      {"data: a\n\ndata: b", []string{"a", "b"}},
	"last line ends in a CR":   {"data: a\r\n\r\ndata: b\r", []string{"a", "b"}},
	"many empty lines":         {"\n\n\n\ndata: a\n\n\n\n\n", []string{"a"}},
	"many bytes of characters": {"data: {\"a\":\"日本語 🧾\"}\n\n", []string{`{"a":"日本語 🧾"}`}},
}

func TestEventsInEverySpellingAndEverySplit(t *testing.T) {
	t.Parallel()
	for name, c := range spellings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(c.want, specified(c.text)); d != "" {
				t.Fatalf("the standard says otherwise: %s", d)
			}
			readers := []io.Reader{strings.NewReader(c.text), iotest.OneByteReader(strings.NewReader(c.text)),
				iotest.DataErrReader(strings.NewReader(c.text))}
			for i := range len(c.text) {
				readers = append(readers, io.MultiReader(strings.NewReader(c.text[:i]), strings.NewReader(c.text[i:])))
			}
			for i, r := range readers {
				got, err := payloads(t, r, 16)
				if d := cmp.Diff(c.want, got); d != "" || !errors.Is(err, io.EOF) {
					t.Errorf("way %d: %v %s", i, err, d)
				}
			}
		})
	}
}

// TestRunStaysWhereItLies: what came plainly in one read goes out as that read.
func TestRunStaysWhereItLies(t *testing.T) {
	t.Parallel()
	text := "data: a\n\ndata: b\n\ndata: skip\n\ndata: c\r\n\r\ndata: d\n\ndata: open"
	s := newSSE(strings.NewReader(text), 128)
	var seen []string
	keep := func(e Event) (bool, error) {
		seen = append(seen, string(e.Payload))
		if string(e.Payload) == "open" {
			return false, io.ErrUnexpectedEOF
		}
		return string(e.Payload) != "skip", nil
	}
	run, err := s.Run(keep)
	if want := "data: a\n\ndata: b\n\ndata: c\n\ndata: d\n\n"; string(run) != want || err != nil {
		t.Errorf("run %q, %v", run, err)
	}
	if run, err = s.Run(keep); len(run) != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("then %q, %v", run, err)
	}
	if d := cmp.Diff([]string{"a", "b", "skip", "c", "d", "open"}, seen); d != "" {
		t.Error(d)
	}

	plain := []byte(strings.Repeat("data: x\n\n", 5))
	s = newSSE(bytes.NewReader(plain), 128)
	run, err = s.Run(func(Event) (bool, error) { return true, nil })
	if err != nil || !bytes.Equal(run, plain) || &run[0] != &s.buf[0] {
		t.Errorf("run %q was copied, %v", run, err)
	}
	if cap(run) != len(run) {
		t.Error("appending to a run would overwrite the events behind it")
	}
}

// TestRunDoesNotWaitWithEventsInHand: a comment behind an event keeps nobody waiting.
func TestRunDoesNotWaitWithEventsInHand(t *testing.T) {
	t.Parallel()
	s := newSSE(io.MultiReader(strings.NewReader("data: a\n\n: ping\n\ndata: half"),
		iotest.ErrReader(io.ErrClosedPipe)), 64)
	keep := func(Event) (bool, error) { return true, nil }
	if run, err := s.Run(keep); string(run) != "data: a\n\n" || err != nil {
		t.Errorf("%q, %v", run, err)
	}
	if run, err := s.Run(keep); run != nil || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%q, %v: an event that a fault cut off must not count", run, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	fits := "data: " + strings.Repeat("x", maxEvent-8) + "\n\n"
	if got, err := payloads(t, strings.NewReader(fits+fits), 512); len(got) != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("%d events, %v", len(got), err)
	}
	for what, text := range map[string]string{
		"a line":     "data: " + strings.Repeat("x", maxEvent) + "\n\n",
		"many lines": strings.Repeat("data: 0123456789\n", maxEvent/16) + "\n",
	} {
		if got, err := payloads(t, strings.NewReader(text), 512); len(got) != 0 || !errors.Is(err, ErrEventTooLong) {
			t.Errorf("%s: %d events, %v", what, len(got), err)
		}
	}
	// Comments, as keep-alives through a long silence, are no event.
	if got, err := payloads(t, strings.NewReader(strings.Repeat(": 0123456789\n", maxEvent/8)+"data: a\n\n"),
		512); len(got) != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("after comments: %q, %v", got, err)
	}
}

// TestNoBufferWhileWaiting: an SSE that has read all that has come holds no buffer, and takes one for what comes next.
func TestNoBufferWhileWaiting(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	var s *SSE
	var held []bool
	s = NewSSE(readerFunc(func(p []byte) (int, error) {
		held = append(held, s.taken != nil)
		return r.Read(p)
	}))
	go func() {
		for range 2 {
			_, _ = w.Write([]byte("data: a\n\n"))
		}
		_ = w.Close()
	}()
	for range 2 {
		if e, err := s.Next(); err != nil || string(e.Frame) != "data: a\n\n" {
			t.Errorf("%q, %v", e.Frame, err)
		}
	}
	if _, err := s.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if d := cmp.Diff([]bool{false, true, false, true, false}, held); d != "" {
		t.Error(d)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestReaderGivesUpOnAReaderThatNeverReads(t *testing.T) {
	t.Parallel()
	if _, err := NewSSE(lazy{}).Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
}

type lazy struct{}

func (lazy) Read([]byte) (int, error) { return 0, nil }

// FuzzReader: the events are those of the standard, however the bytes are split.
func FuzzReader(f *testing.F) {
	for _, c := range spellings {
		f.Add([]byte(c.text), uint16(len(c.text)/2))
	}
	f.Fuzz(func(t *testing.T, text []byte, at uint16) {
		if len(text) > 1<<16 {
			return
		}
		want := specified(string(text))
		split := int(at) % (len(text) + 1)
		for _, size := range []int{0, 16} {
			for _, r := range []io.Reader{
				bytes.NewReader(text), iotest.OneByteReader(bytes.NewReader(text)),
				io.MultiReader(bytes.NewReader(text[:split]), bytes.NewReader(text[split:])),
			} {
				got, err := payloads(t, r, size)
				if d := cmp.Diff(want, got); d != "" || !errors.Is(err, io.EOF) {
					t.Fatalf("%q, buffer of %d: %v %s", text, size, err, d)
				}
			}
		}
		var runs []byte
		for s := newSSE(io.MultiReader(bytes.NewReader(text[:split]), bytes.NewReader(text[split:])),
			16); ; {
			run, err := s.Run(func(Event) (bool, error) { return true, nil })
			if err != nil {
				break
			}
			runs = append(runs, run...)
		}
		again := specified(string(runs))
		for i := range again { // names do not survive, only data
			want[i] = strings.TrimPrefix(want[i], "error: ")
			again[i] = strings.TrimPrefix(again[i], "error: ")
		}
		if d := cmp.Diff(want, again); d != "" {
			t.Fatalf("runs of %q: %s", text, d)
		}
	})
}

// FuzzAppendFrame: what is written is read back, and nothing else.
func FuzzAppendFrame(f *testing.F) {
	for _, s := range []string{"a", sampleChunk, "a\nb", "a\r\nb\rc", "\n", " a", "data: x\n\n"} {
		f.Add([]byte(s), []byte("b"))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var want []string
		for _, p := range [][]byte{a, b} {
			if line := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(p)); line != "" {
				want = append(want, line)
			}
		}
		got, err := payloads(t, bytes.NewReader(AppendFrame(AppendFrame(nil, a), b)), 16)
		if d := cmp.Diff(want, got); d != "" || !errors.Is(err, io.EOF) {
			t.Fatalf("%v %s", err, d)
		}
	})
}

// TestBoundAndBare: what a dialect that is translated asks for.
func TestBoundAndBare(t *testing.T) {
	t.Parallel()
	text := "data: " + strings.Repeat("x", 2*maxEvent) + "\r\n\r\ndata: a\n\ndata: b\ndata: c\n\n"
	s := NewSSE(strings.NewReader(text))
	s.LimitEvent(3 * maxEvent)
	s.OmitFrames()
	for _, want := range []string{strings.Repeat("x", 2*maxEvent), "a", "b\nc"} {
		if e, err := s.Next(); err != nil || string(e.Payload) != want || e.Frame != nil {
			t.Errorf("%d bytes, %v, frame %q", len(e.Payload), err, e.Frame)
		}
	}
	s = NewSSE(strings.NewReader(text))
	s.LimitEvent(maxEvent + 100)
	if _, err := s.Next(); !errors.Is(err, ErrEventTooLong) {
		t.Error(err)
	}
}
