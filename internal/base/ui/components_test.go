package ui

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/purserhq/purser/internal/base/web"
)

// TestComponents: any origin may import the web components, and caches ask again by their tag.
func TestComponents(t *testing.T) {
	t.Parallel()
	rt := web.NewRouter(slog.New(slog.DiscardHandler), web.Links{})
	Mount(rt)
	get := func(tag string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", ComponentsPath, nil), httptest.NewRecorder()
		r.Header.Set("Origin", "https://app.example.com")
		r.Header.Set("If-None-Match", tag)
		rt.ServeHTTP(w, r)
		return w
	}
	w := get("")
	h := w.Header()
	if w.Code != http.StatusOK || h.Get("Content-Type") != "text/javascript; charset=utf-8" ||
		h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Cross-Origin-Resource-Policy") != "cross-origin" ||
		!bytes.Equal(w.Body.Bytes(), Components) {
		t.Errorf("%d %v", w.Code, h)
	}
	if again := get(h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("with its tag: %d, %d bytes", again.Code, again.Body.Len())
	}
}
