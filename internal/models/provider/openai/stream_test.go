package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// TestStreamInEverySplit: the app gets the provider's bytes, however they came.
func TestStreamInEverySplit(t *testing.T) {
	t.Parallel()
	check := func(how string, body func() io.Reader) {
		out := relay(served(func(context.Context) io.Reader { return body() }))
		if out.frames != roleFrame+textFrame+finishFrame || out.usageFrame != usageFrame ||
			!errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %+v", how, out)
		}
		if out.usage == nil || *out.usage != wantUsage {
			t.Errorf("%s: usage %+v", how, out.usage)
		}
	}
	for name, text := range map[string]string{
		"plain": sample, "CRLF": strings.ReplaceAll(sample, "\n", "\r\n"), "CR": strings.ReplaceAll(sample, "\n", "\r"),
		"mark and comments": "\xef\xbb\xbf: hi\n\n" + strings.ReplaceAll(sample, "data: ", ": ping\n\n: pong\ndata:"),
		"data behind":       sample + textFrame + "data: {\"error\":{}}\n\n",
	} {
		check(name+" byte by byte", func() io.Reader { return iotest.OneByteReader(strings.NewReader(text)) })
		for i := range len(text) {
			check(name+" in two parts", func() io.Reader {
				return io.MultiReader(strings.NewReader(text[:i]), strings.NewReader(text[i:]))
			})
		}
	}
}

// TestStreamsThatEnd: a whole answer, with or without what normally ends it.
func TestStreamsThatEnd(t *testing.T) {
	t.Parallel()
	body := roleFrame + textFrame + finishFrame
	odd := `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{not json"}}]},"finish_reason":"never heard of"}]}` + "\n\n"
	both := `data: {"choices":[{"delta":{"content":"x"}}],"usage":` + sampleUsage + "}\n\n"
	absurd := strings.Replace(usageFrame, `"completion_tokens":3`, `"completion_tokens":-3`, 1)
	later := strings.NewReplacer(`"completion_tokens":3`, `"completion_tokens":4`, `"total_tokens":15`,
		`"total_tokens":16`).Replace(usageFrame)
	reset := iotest.ErrReader(errors.New("connection reset by peer"))
	for what, c := range map[string]struct {
		body    io.Reader
		want    relayed
		noUsage bool
	}{
		"[DONE] missing, usage present": {strings.NewReader(body + usageFrame),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"reset behind the usage": {io.MultiReader(strings.NewReader(body+usageFrame), reset),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"last event not closed": {strings.NewReader(body + usageFrame[:len(usageFrame)-2]),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"usage missing":            {strings.NewReader(body + doneFrame), relayed{frames: body}, true},
		"usage and [DONE] missing": {strings.NewReader(body), relayed{frames: body}, true},
		"usage first": {strings.NewReader(usageFrame + body + doneFrame),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"usage first, [DONE] missing": {strings.NewReader(usageFrame + body),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"usage absurd": {strings.NewReader(body + absurd + doneFrame),
			relayed{frames: body, usageFrame: absurd}, true},
		"usage twice, the last counts": {strings.NewReader(body + later + usageFrame + doneFrame),
			relayed{frames: body, usageFrame: usageFrame}, false},
		"usage beside text": {strings.NewReader(both + doneFrame), relayed{frames: both}, false},
		"odd reason and arguments": {strings.NewReader(odd + usageFrame + doneFrame),
			relayed{frames: odd, usageFrame: usageFrame}, false},
		"an empty event between": {strings.NewReader(roleFrame + "data:\n\n" + textFrame + finishFrame + usageFrame +
			doneFrame), relayed{
			frames:     body,
			usageFrame: usageFrame,
		}, false},
		"nothing but usage": {strings.NewReader(usageFrame + doneFrame), relayed{usageFrame: usageFrame},
			false},
		"[DONE] with a space and a CRLF": {strings.NewReader(body + usageFrame + "data:  [DONE] \r\n\r\n"),
			relayed{frames: body, usageFrame: usageFrame}, false},
	} {
		out := relay(served(func(context.Context) io.Reader { return c.body }))
		if out.frames != c.want.frames || out.usageFrame != c.want.usageFrame || !errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %+v", what, out)
		}
		if c.noUsage != (out.usage == nil) || out.usage != nil && *out.usage != wantUsage {
			t.Errorf("%s: usage %+v", what, out.usage)
		}
	}
}

// TestStreamsThatAreCut: what came before the fault goes out, then an error.
func TestStreamsThatAreCut(t *testing.T) {
	t.Parallel()
	body := roleFrame + textFrame
	for what, rest := range map[string]io.Reader{
		"silent end":      strings.NewReader(""),
		"usage first":     strings.NewReader(usageFrame),
		"half an event":   strings.NewReader(textFrame[:30]),
		"reset":           iotest.ErrReader(errors.New("connection reset by peer")),
		"an error object": strings.NewReader(`data: {"error":{"message":"overloaded"}}` + "\n\n" + doneFrame),
		"an error event":  strings.NewReader("event: error\ndata: {\"message\":\"overloaded\"}\n\n" + doneFrame),
		"not JSON":        strings.NewReader("data: <html>\n\n" + doneFrame),
		"broken JSON":     strings.NewReader("data: {\"choices\":[\n\n" + doneFrame),
		"not UTF-8":       strings.NewReader(strings.Replace(textFrame, "é", "\xe9", 1) + doneFrame),
		"no empty line":   strings.NewReader(strings.ReplaceAll(textFrame+finishFrame, "\n\n", "\n") + "\n"),
		"a huge line": strings.NewReader("data: {\"a\":\"" + strings.Repeat("x", 17<<20) + "\"}\n\n" +
			doneFrame),
		"a line without end": io.MultiReader(strings.NewReader("data: "), lineWithoutEnd{}),
	} {
		out := relay(served(func(context.Context) io.Reader { return io.MultiReader(strings.NewReader(body), rest) }))
		if out.frames != body || out.usage != nil || out.err == nil || errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %+v", what, out)
		}
	}
}

type lineWithoutEnd struct{}

func (lineWithoutEnd) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestStreamsThatNeverBegin: nothing was sent to the app, so a status still can be.
func TestStreamsThatNeverBegin(t *testing.T) {
	t.Parallel()
	for what, h := range map[string]http.HandlerFunc{
		"reset":            cuts(""),
		"cut in headers":   cuts("HTTP/1.1 200 OK\r\nContent-Ty"),
		"cut in a chunk":   cuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + roleFrame[:20]),
		"nothing":          answers(200, ""),
		"[DONE] at once":   answers(200, doneFrame),
		"a page":           answers(200, "<!doctype html><title>Sorry</title>"),
		"a whole answer":   answers(200, sampleBody),
		"an error object":  answers(200, "data: {\"error\":{\"message\":\"overloaded\"}}\n\n"),
		"an error, no SSE": answers(200, `{"error":{"message":"overloaded"}}`),
		"not JSON":         answers(200, "data: hello\n\n"),
		"compressed":       answers(200, "\x1f\x8b\x08", "Content-Encoding", "gzip"),
		"endless nothing":  endless,
		"status 500":       answers(500, `{"error":{"message":"boom"}}`),
		"a redirect":       answers(302, "", "Location", "http://127.0.0.1:1/"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, err := serve(t, h).Stream(t.Context(), request(true))
			if s != nil {
				t.Error("a stream all the same")
			}
			fault(t, err)
		})
	}
}

func TestResetInAStreamOverHTTP(t *testing.T) {
	t.Parallel()
	out := relay(serve(t, cuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n"+roleFrame+textFrame)))
	if out.frames != roleFrame+textFrame || out.usage != nil || out.err == nil || errors.Is(out.err, io.EOF) {
		t.Errorf("%+v", out)
	}
}

// TestSilenceInAStream: the provider's counts, the app's does not.
func TestSilenceInAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := served(func(ctx context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(roleFrame), pause(50*time.Second), strings.NewReader(textFrame),
				hangs{ctx})
		})
		begun := time.Now()
		out := relay(c)
		if out.frames != roleFrame+textFrame || !errors.Is(out.err, upstream.ErrSilent) ||
			time.Since(begun) != 50*time.Second+5*time.Minute {
			t.Errorf("after %v: %+v", time.Since(begun), out)
		}

		s, err := served(func(ctx context.Context) io.Reader {
			return obeys{ctx, iotest.OneByteReader(strings.NewReader(sample))}
		}).Stream(t.Context(), request(true))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			time.Sleep(time.Hour) // a slow app
			_, err = s.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("a slow app's stream ends with %v", err)
		}

		out = relay(served(func(ctx context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(usageFrame+roleFrame), pause(50*time.Second),
				strings.NewReader(textFrame+finishFrame+doneFrame))
		}))
		if out.frames != roleFrame+textFrame+finishFrame || out.usage == nil || !errors.Is(out.err, io.EOF) {
			t.Errorf("usage first, and a pause: %+v", out)
		}

		begun = time.Now()
		out = relay(served(func(ctx context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(roleFrame+finishFrame+usageFrame), hangs{ctx})
		}))
		if out.usage == nil || !errors.Is(out.err, io.EOF) || time.Since(begun) != finishWait {
			t.Errorf("without [DONE], after %v: %+v", time.Since(begun), out)
		}
	})
}

// TestCloseAtAnyTime: from another goroutine, while Next waits.
func TestCloseAtAnyTime(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, roleFrame)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(gone)
	})
	s, err := c.Stream(t.Context(), request(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := s.Next()
		ended <- err
	}()
	_ = s.Close() // never fails
	if err := <-ended; err == nil || errors.Is(err, io.EOF) {
		t.Errorf("Next says %v", err)
	}
	<-gone // the provider knows
	if _, err := s.Next(); err == nil {
		t.Error("Next goes on after Close")
	}
	_ = s.Close()
}

// TestCloseReadsToTheEnd: else the transport would throw the connection away.
func TestCloseReadsToTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := make(chan string, 3)
		for _, tail := range []func(context.Context) io.Reader{
			func(context.Context) io.Reader { return strings.NewReader("") },
			func(context.Context) io.Reader { return strings.NewReader("more") },
			func(ctx context.Context) io.Reader { return hangs{ctx} },
		} {
			begun := time.Now()
			out := relay(served(func(ctx context.Context) io.Reader {
				return io.MultiReader(strings.NewReader(sample), noticed{tail(ctx), ends})
			}))
			if !errors.Is(out.err, io.EOF) || time.Since(begun) > 20*time.Millisecond {
				t.Errorf("after %v: %+v", time.Since(begun), out)
			}
		}
		if a, b, c := <-ends, <-ends, <-ends; a != "EOF" || b != "<nil>" || c != "context canceled" {
			t.Error(a, b, c)
		}
	})
}

// noticed tells how its first read ended.
type noticed struct {
	io.Reader
	ends chan<- string
}

func (n noticed) Read(p []byte) (int, error) {
	k, err := n.Reader.Read(p)
	select {
	case n.ends <- fmt.Sprint(err):
	default:
	}
	return k, err
}

// TestConnectionsAreKept: a call that ended well leaves its connection to the next.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"stream":true`) {
			answers(200, sampleBody)(w, r)
			return
		}
		for _, frame := range strings.SplitAfter(sample, "\n\n") {
			_, _ = io.WriteString(w, frame)
			w.(http.Flusher).Flush()
		}
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	c := New(srv.URL, sampleKey)
	const rounds = 50
	for range rounds {
		if out := relay(c); !errors.Is(out.err, io.EOF) || out.usage == nil {
			t.Fatalf("%+v", out)
		}
		if _, err := c.Complete(t.Context(), request(false)); err != nil {
			t.Fatal(err)
		}
	}
	if n := opened.Load(); n > rounds/10 {
		t.Errorf("%d connections for %d calls one after another", n, 2*rounds)
	}
}

// TestStreamsSideBySide: buffers that are used again never mix two answers.
func TestStreamsSideBySide(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mine := strings.ReplaceAll(sample, "Hé", r.Header.Get("X-Client-Request-Id"))
		for _, frame := range strings.SplitAfter(mine, "\n\n") {
			_, _ = io.WriteString(w, frame)
			w.(http.Flusher).Flush()
		}
	})
	errs := make(chan error)
	for _, name := range []string{"ann", "bob", "cid", "dan"} {
		go func() {
			for range 50 {
				if err := relayAs(c, name); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func relayAs(c *Client, name string) error {
	r := request(true)
	r.ID = name
	s, err := c.Stream(context.Background(), r)
	if err != nil {
		return err
	}
	defer s.Close()
	var all []byte
	for {
		chunk, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		all = append(all, chunk.Frames...)
	}
	if got := provider.GeneratedText(all); got != upstream.HashRequestID(name)+" 🧾" {
		return errors.New("got " + got + " for " + name)
	}
	return nil
}

// TestUsageInEachChunkIsNotTheEnd: servers that send usage with each chunk, and are cut, have not sent the usage of the
// response.
func TestUsageInEachChunkIsNotTheEnd(t *testing.T) {
	t.Parallel()
	withUsage := func(frame string) string {
		return strings.Replace(frame, `"usage":null`, `"usage":`+sampleUsage, 1)
	}
	parts := withUsage(roleFrame) + withUsage(textFrame)
	out := relay(served(func(context.Context) io.Reader { return strings.NewReader(parts) }))
	if out.frames != parts || out.usage != nil || !errors.Is(out.err, io.ErrUnexpectedEOF) {
		t.Errorf("cut: %+v", out)
	}
	whole := parts + withUsage(finishFrame)
	for what, end := range map[string]string{"cut behind the finish": "", "whole": doneFrame} {
		out = relay(served(func(context.Context) io.Reader { return strings.NewReader(whole + end) }))
		if out.frames != whole || out.usage == nil || *out.usage != wantUsage || !errors.Is(out.err, io.EOF) {
			t.Errorf("%s: %+v", what, out)
		}
	}
}

// TestWholeAnswerToAStream: a server that does not stream answers with what it has, which is relayed as one chunk, and
// an error in its place is that error: nothing is asked again.
func TestWholeAnswerToAStream(t *testing.T) {
	t.Parallel()
	answer := `{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":` +
		`{"role":"assistant","content":"Hé","tool_calls":[{"id":"call_1","type":"function","function":{"name":"now",` +
		`"arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":` + sampleUsage + `}`
	var asked atomic.Int64
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		answers(200, answer, "Content-Type", "application/json; charset=utf-8")(w, nil)
	})
	out := relay(c)
	for _, part := range []string{
		`"chat.completion.chunk"`, `"content":"Hé"`, `"index":0`, `"finish_reason":"tool_calls"`,
	} {
		if !strings.Contains(out.frames, part) {
			t.Errorf("%s is not in %s", part, out.frames)
		}
	}
	if out.usage == nil || *out.usage != wantUsage || out.usageFrame == "" || !errors.Is(out.err, io.EOF) ||
		asked.Load() != 1 {
		t.Errorf("%+v, asked %d times", out, asked.Load())
	}

	c = serve(t, answers(200, `{"error":{"message":"max_tokens is too large","type":"invalid_request_error"}}`,
		"Content-Type", "application/json"))
	if e, ok := errors.AsType[*provider.Error](relay(c).err); !ok || e.Kind != provider.Rejected || e.Retry {
		t.Errorf("%+v", e)
	}
	for _, bad := range []string{
		`{"choices":[null,5,"x"]}`, `{"choices":[]}`, `{"choices":[{"delta":{}}]}`, `[]`, `x`,
	} {
		c = serve(t, answers(200, bad, "Content-Type", "application/json"))
		if e, ok := errors.AsType[*provider.Error](relay(c).err); !ok || e.Kind != provider.Failed {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}
