package openai

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

func TestRequestOnTheWire(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			if d := cmp.Diff(string(encodeChat(request(stream))), string(body)); d != "" {
				t.Error(d)
			}
			if r.Method != "POST" || r.URL.Path != "/v1/chat/completions" || r.ContentLength != int64(len(body)) ||
				r.TransferEncoding != nil {
				t.Errorf("%s %s, length %d of %d, %v", r.Method, r.URL, r.ContentLength, len(body), r.TransferEncoding)
			}
			for name, want := range map[string]string{
				"Authorization":       "Bearer " + sampleKey,
				"Content-Type":        "application/json",
				"Accept-Encoding":     "identity",
				"X-Client-Request-Id": "dfe7be6cee3b99ca63628de710b914dd",
			} {
				if got := r.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			if stream {
				answers(200, sample)(w, r)
			} else {
				answers(200, sampleBody)(w, r)
			}
		})
		if stream {
			if out := relay(c); !errors.Is(out.err, io.EOF) {
				t.Error(out.err)
			}
		} else if _, err := c.Complete(t.Context(), request(false)); err != nil {
			t.Error(err)
		}
	}
}

func TestAnswerIsRelayedByteForByte(t *testing.T) {
	t.Parallel()
	odd := `{"choices":[{"message":{"tool_calls":[{"function":{"name":"f","arguments":"{not json"}}]},"finish_reason":"never heard of"}],"usage":` + sampleUsage + `}`
	long := strings.Replace(sampleBody, "Hé", strings.Repeat("Hé ", 100_000), 1)
	for _, body := range []string{sampleBody, odd, long} {
		for how, h := range map[string]http.HandlerFunc{
			"with its length": answers(200, "\n"+body+" \r\n"),
			"chunked": func(w http.ResponseWriter, r *http.Request) {
				for _, part := range []string{body[:10], body[10:50], body[50:]} {
					_, _ = io.WriteString(w, part)
					w.(http.Flusher).Flush()
				}
			},
		} {
			got, err := serve(t, h).Complete(t.Context(), request(false))
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if string(got.Body) != body {
				t.Errorf("%s: %.300s", how, got.Body)
			}
			if got.Usage == nil || *got.Usage != wantUsage {
				t.Errorf("%s: usage %+v", how, got.Usage)
			}
		}
	}
}

func TestMissingOrAbsurdUsageIsNone(t *testing.T) {
	t.Parallel()
	for _, usage := range []string{`null`, `{}`, `{"prompt_tokens":-12,"completion_tokens":3}`,
		`{"prompt_tokens":12,"completion_tokens":2.5}`, `"12"`} {
		body := strings.Replace(sampleBody, sampleUsage, usage, 1)
		got, err := serve(t, answers(200, body)).Complete(t.Context(), request(false))
		if err != nil || got.Usage != nil || string(got.Body) != body {
			t.Errorf("usage %s: %+v, %v", usage, got, err)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for what, h := range map[string]http.HandlerFunc{
		"an error in a 200": answers(200,
			`{"error":{"message":"overloaded","type":"server_error"},"choices":[{}]}`),
		"no choices":             answers(200, `{"choices":[],"usage":`+sampleUsage+`}`),
		"choices missing":        answers(200, `{"usage":`+sampleUsage+`}`),
		"choices of no list":     answers(200, `{"choices":{"0":{}}}`),
		"a page":                 answers(200, "<!doctype html><title>Sorry</title>", "Content-Type", "text/html"),
		"nothing":                answers(200, ""),
		"half":                   answers(200, sampleBody[:40]),
		"not UTF-8":              answers(200, strings.Replace(sampleBody, "Hé", "H\xe9", 1)),
		"compressed":             answers(200, "\x1f\x8b\x08", "Content-Encoding", "gzip"),
		"cut":                    cuts("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + sampleBody[:40]),
		"cut in a chunk":         cuts("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + sampleBody[:40]),
		"reset at once":          cuts(""),
		"not HTTP":               cuts("SSH-2.0-OpenSSH_9.6\r\n"),
		"huge headers":           answers(200, sampleBody, "X-Padding", strings.Repeat("x", 128<<10)),
		"too long, and says so":  answers(200, sampleBody, "Content-Length", "100000000"),
		"another success":        answers(204, ""),
		"too long, without word": endless,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got, err := serve(t, h).Complete(t.Context(), request(false))
			if got != nil {
				t.Errorf("answer %.200s", got.Body)
			}
			fault(t, err)
		})
	}
}

// endless sends until nobody reads any more.
func endless(w http.ResponseWriter, _ *http.Request) {
	part := []byte(strings.Repeat(" ", 1<<20))
	for {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Store(true) }))
	t.Cleanup(other.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		c := serve(t, answers(status, "", "Location", other.URL))
		_, err := c.Complete(t.Context(), request(false))
		if e := fault(t, err); e.Status != status {
			t.Errorf("status %d, want %d", e.Status, status)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed with our key")
	}
}

// TestSilenceIsBounded: before the headers, and within a body.
func TestSilenceIsBounded(t *testing.T) {
	t.Parallel()
	for _, stream := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := New("http://provider.test/v1", sampleKey, Timeouts(3*time.Minute, time.Minute))
			c.Transport = scripted(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			begun := time.Now()
			err := run(c, stream)
			if fault(t, err); !errors.Is(err, upstream.ErrSilent) || time.Since(begun) != 3*time.Minute {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}

			c = served(func(ctx context.Context) io.Reader {
				return io.MultiReader(strings.NewReader(" "), hangs{ctx})
			})
			begun = time.Now()
			err = run(c, stream)
			if fault(t, err); !errors.Is(err, upstream.ErrSilent) || time.Since(begun) != 5*time.Minute {
				t.Errorf("in the body, after %v: %v", time.Since(begun), err)
			}
		})
	}
}

// run makes one call of either kind.
func run(c *Client, stream bool) error {
	if stream {
		return relay(c).err
	}
	_, err := c.Complete(context.Background(), request(false))
	return err
}

func TestCancelingEndsACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := served(func(ctx context.Context) io.Reader { return io.MultiReader(strings.NewReader(" "), hangs{ctx}) })
		for _, f := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := c.Complete(ctx, request(false)); return err },
			func(ctx context.Context) error { _, err := c.Stream(ctx, request(true)); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begun := time.Now()
			if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != time.Second {
				t.Errorf("after %v: %v", time.Since(begun), err)
			}
			cancel()
		}
	})
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	_, err := New("http://pro vider:x", sampleKey).Complete(t.Context(), request(false))
	fault(t, err)
	var p provider.Provider = New("http://provider.test", sampleKey)
	if p.Name() != "openai" {
		t.Error(p.Name())
	}
}
