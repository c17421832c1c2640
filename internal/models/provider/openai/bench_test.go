package openai

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// The figures include the upstream, which runs in the same process.

func BenchmarkComplete(b *testing.B) {
	c := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, sampleBody)
	})
	r := request(false)
	r.Turns[0].Blocks[0].Text = strings.Repeat("a question ", 100)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Complete(context.Background(), r); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkStream(b *testing.B) {
	text := roleFrame + strings.Repeat(textFrame, 20) + finishFrame + usageFrame + doneFrame
	c := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, text)
	})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if out := relay(c); out.usage == nil {
				b.Error(out.err)
			}
		}
	})
}

// BenchmarkAdapter is the adapter alone, on a transport that does nothing.
func BenchmarkAdapter(b *testing.B) {
	text := roleFrame + strings.Repeat(textFrame, 20) + finishFrame + usageFrame + doneFrame
	b.Run("complete", func(b *testing.B) {
		c := served(func(context.Context) io.Reader { return strings.NewReader(sampleBody) })
		r := request(false)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Complete(context.Background(), r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stream", func(b *testing.B) {
		c := served(func(context.Context) io.Reader { return strings.NewReader(text) })
		r := request(true)
		b.ReportAllocs()
		for b.Loop() {
			s, err := c.Stream(context.Background(), r)
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = s.Next()
			}
			_ = s.Close()
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	r := request(true)
	r.Turns[0].Blocks[0].Text = strings.Repeat("a question ", 200)
	b.ReportAllocs()
	for b.Loop() {
		encodeChat(r)
	}
}

// BenchmarkBareTransport is BenchmarkComplete without the adapter.
func BenchmarkBareTransport(b *testing.B) {
	c := serve(b, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, sampleBody)
	})
	r := request(false)
	r.Turns[0].Blocks[0].Text = strings.Repeat("a question ", 100)
	body := encodeChat(r)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			req, err := http.NewRequest("POST", c.BaseURL+path, bytes.NewReader(body))
			if err != nil {
				b.Fatal(err)
			}
			resp, err := c.Transport.RoundTrip(req)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Fatal(err)
			}
			_ = resp.Body.Close()
		}
	})
}
