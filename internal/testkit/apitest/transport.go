package apitest

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
)

// Transport returns a RoundTripper that checks every answer that passes as Check
// does. Streams stay streams: they are checked when they have been read to their
// end, or as far as they were read when they are closed. base may be nil for
// http.DefaultTransport.
func Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{t, base}
}

type transport struct {
	t    testing.TB
	base http.RoundTripper
}

// RoundTrip sends the request and checks the answer.
func (tr *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := tr.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if mediaType(resp) == "text/event-stream" {
		resp.Body = &watched{ReadCloser: resp.Body, report: func(body []byte, whole bool) {
			if err := checkAnswer(req, resp, body, whole); err != nil {
				tr.t.Errorf("%s %s streamed: %v\n%s", req.Method, req.URL.Path, err, shorten(body))
			}
		}}
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err := checkAnswer(req, resp, body, true); err != nil {
		tr.t.Errorf("%s %s answered %d: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, shorten(body))
	}
	return resp, nil
}

// watched keeps what is read of a stream, and reports it once.
type watched struct {
	io.ReadCloser
	mu     sync.Mutex
	body   []byte
	once   sync.Once
	report func(body []byte, whole bool)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.ReadCloser.Read(p)
	w.mu.Lock()
	w.body = append(w.body, p[:n]...)
	body := w.body
	w.mu.Unlock()
	if err == io.EOF {
		w.once.Do(func() { w.report(body, true) })
	}
	return n, err
}

func (w *watched) Close() error {
	w.mu.Lock()
	body := w.body
	w.mu.Unlock()
	w.once.Do(func() { w.report(body, false) })
	return w.ReadCloser.Close()
}
