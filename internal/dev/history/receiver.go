package history

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// A receiver is the app's webhook endpoint. It works until fails is set, and is gone after the history.
type receiver struct {
	*http.Server
	url   string
	fails atomic.Bool
}

func listenForWebhooks() (*receiver, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: fmt.Sprintf("http://%s/webhooks", l.Addr())}
	r.Server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			if r.fails.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		})}
	go func() { _ = r.Serve(l) }() // until Close
	return r, nil
}
