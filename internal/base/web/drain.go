package web

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Bounds of what is read of a request that is refused before its body was read.
const (
	maxDrainBytes = 128 << 20 // four times the largest body that a route takes: one that is too large hears so, too
	maxDrainTime  = 10 * time.Second
)

// keepReading lets the body be read after the response has begun. net/http otherwise drops 256 KiB of it first, and
// closes the connection if there is more.
func (rw *response) keepReading() {
	if rw.r.ContentLength == 0 || rw.r.Header.Get("Expect") != "" { // who waits for 100 Continue has sent no body
		return
	}
	rw.refused = true
	_ = http.NewResponseController(rw.w).EnableFullDuplex() // not every writer can
}

// drainBody sends the refusal, and reads and drops the rest of the request's body. Many clients read a response only
// after they have sent the whole request. If the connection is closed before that, they get a broken pipe and not the
// refusal: a client whose token has expired would never refresh it (F-108).
func (rw *response) drainBody() {
	if !rw.refused {
		return
	}
	c := http.NewResponseController(rw.w)
	if c.Flush() != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(maxDrainTime)) // not every writer has deadlines
	if _, err := io.CopyN(io.Discard, rw.r.Body, maxDrainBytes); errors.Is(err, io.EOF) {
		// What follows is the next request, for which net/http sets a deadline. After any other end the connection is
		// closed, and nothing more may wait for the client.
		_ = c.SetReadDeadline(time.Time{})
	}
}
