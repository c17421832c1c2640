package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// proxyTransport is the upstream client of the floor: enough idle connections
// that none is ever dialled twice, and no transparent compression.
func proxyTransport() *http.Transport {
	return &http.Transport{
		MaxIdleConns:        1024,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true,
	}
}

// runFloorRole is the role of a bare reverse proxy, the lower bound of every billing
// gateway on net/http. It reads the whole request body before it forwards it; otherwise a
// ReverseProxy truncates some streams, and its figures would not be of whole answers.
// ReverseProxy flushes text/event-stream immediately.
func runFloorRole(args []string) error {
	if len(args) != 1 {
		return errors.New("needs the upstream's URL")
	}
	target, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	return serveRole(newFloor(target))
}

func newFloor(target *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:  proxyTransport(),
		BufferPool: &buffers{sync.Pool{New: func() any { return make([]byte, 32<<10) }}},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	})
}

type buffers struct{ sync.Pool }

func (b *buffers) Get() []byte { return b.Pool.Get().([]byte) }

//lint:ignore SA6002 the proxy's interface is about slices
func (b *buffers) Put(p []byte) { b.Pool.Put(p) }
