package web_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/web"
)

// TestBodiesShareMemory: bodies that do not end hold at most their bytes, whatever they announce. One network has its
// share of them, so that large bodies of others and small ones of its own are served. When they end, there is room.
func TestBodiesShareMemory(t *testing.T) {
	t.Parallel()
	router := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	const most = 1 << 20
	router.Handle("POST /things", func(w http.ResponseWriter, r *http.Request) error {
		_, err := web.ReadBody(r, "application/json", most)
		return err
	})
	type exchange struct {
		to   *io.PipeWriter
		done chan *httptest.ResponseRecorder
	}
	begin := func(network string) exchange {
		from, to := io.Pipe()
		r := httptest.NewRequest("POST", "/things", from)
		r.RemoteAddr, r.ContentLength = network+":1000", most
		r.Header.Set("Content-Type", "application/json")
		x := exchange{to, make(chan *httptest.ResponseRecorder, 1)}
		go func() {
			w := httptest.NewRecorder()
			router.ServeHTTP(struct{ http.ResponseWriter }{w}, r) // a refusal is not flushed, and the body not drained
			_ = from.Close()                                      // a refused body is not read on
			x.done <- w
		}()
		return x
	}
	fill := make([]byte, most-1)
	// stall sends all but the last byte of a body, and reports whether that was refused.
	stall := func(network string) (x exchange, refused *httptest.ResponseRecorder) {
		x = begin(network)
		if _, err := x.to.Write(fill); err != nil {
			return x, <-x.done
		}
		return x, nil
	}
	var open []exchange
	for range 200 {
		open = append(open, begin("192.0.2.1")) // only announced
	}
	stalled := 0
	for {
		x, refused := stall("192.0.2.1")
		if refused != nil {
			if refused.Code != http.StatusServiceUnavailable || refused.Header().Get("Retry-After") != "1" {
				t.Errorf("beyond the share: %d %v", refused.Code, refused.Header())
			}
			break
		}
		open = append(open, x)
		if stalled++; stalled > 64 {
			t.Fatal("no bound")
		}
	}
	if stalled < 50 {
		t.Errorf("%d bodies of one network", stalled)
	}
	other, refused := stall("192.0.2.2")
	if refused != nil {
		t.Fatalf("another network: %d %s", refused.Code, refused.Body)
	}
	open = append(open, other)
	small := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/things", strings.NewReader(`{"a":"`+strings.Repeat("x", 10<<10)+`"}`))
	r.RemoteAddr = "192.0.2.1:1000"
	r.Header.Set("Content-Type", "application/json")
	if router.ServeHTTP(small, r); small.Code != http.StatusOK {
		t.Errorf("a small body: %d %s", small.Code, small.Body)
	}
	for _, x := range open {
		_ = x.to.Close()
	}
	for _, x := range open {
		<-x.done
	}
	again, refused := stall("192.0.2.1")
	if refused != nil {
		t.Fatalf("when all have ended: %d", refused.Code)
	}
	if _, err := again.to.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = again.to.Close()
	select {
	case w := <-again.done:
		if w.Code != http.StatusOK {
			t.Errorf("a whole body: %d %s", w.Code, w.Body)
		}
	case <-time.After(time.Minute):
		t.Error("a whole body does not end")
	}
}

// TestManyParametersAreRefused: each parameter takes more than its bytes.
func TestManyParametersAreRefused(t *testing.T) {
	t.Parallel()
	form := func(n int) error {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "&a%x=", i)
		}
		_, err := web.ReadForm(post("application/x-www-form-urlencoded", b.String()[1:]))
		return err
	}
	if err := form(1000); err != nil {
		t.Error(err)
	}
	if err := form(1001); err == nil || !strings.Contains(err.Error(), "at most 1000 parameters") {
		t.Errorf("1001 parameters: %v", err)
	}
}
