package web

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/shares"
)

const (
	// smallBody is what of every body is not counted, as usual ones have less.
	smallBody = 16 << 10
	// maxBodies bounds the bytes beyond it of all bodies of a Router that are read or handled. Clients share them by
	// their networks, because most of these bodies are read before it is known whose they are. Package inference
	// counts the bodies of calls itself, by developer (decision 131).
	maxBodies = 64 << 20
)

// bodies counts the bodies of a Router.
type bodies struct {
	mu  sync.Mutex
	use shares.Use // by network
}

func (b *bodies) take(network string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.use.Take(network, n, maxBodies); err != nil {
		e := apierr.Unavailable.Errorf("too many large requests are arriving from your network; try again in a moment")
		if errors.Is(err, shares.ErrFull) {
			e = apierr.Unavailable.Errorf("too many large requests are arriving; try again in a moment")
		}
		e.RetryAfter = time.Second
		return e
	}
	return nil
}

func (b *bodies) give(network string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.use.Add(network, -n)
}

// countBody counts n bytes of a body until its request has ended, or refuses them with 503. Outside of a Router it
// counts nothing.
func countBody(r *http.Request, n int64) error {
	x := exchangeOf(r.Context())
	if x == nil {
		return nil
	}
	if x.network == "" {
		x.network = ClientNetwork(r)
	}
	if err := x.ctx.rt.bodies.take(x.network, n); err != nil {
		return err
	}
	x.bodyBytes += n
	return nil
}

// readAll reads one byte more than maxBytes at most. Its buffer grows as bytes arrive, and is counted beyond smallBody,
// so that announcing much and sending little costs us little.
func readAll(r *http.Request, maxBytes int64) ([]byte, error) {
	most := maxBytes + 1
	if n := r.ContentLength; n >= 0 {
		most = min(most, n)
	}
	if r.Body == nil { // only in tests
		return nil, nil
	}
	data := make([]byte, 0, min(most+1, 4<<10)) // one more than there are, to see the end
	for int64(len(data)) < most+1 {
		if len(data) == cap(data) {
			size := min(2*int64(cap(data)), most+1)
			if more := size - max(int64(cap(data)), smallBody); more > 0 {
				if err := countBody(r, more); err != nil {
					return nil, err
				}
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := r.Body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case err == io.EOF && int64(len(data)) < min(most, r.ContentLength):
			return data, io.ErrUnexpectedEOF
		case err == io.EOF:
			return data, nil
		case err != nil:
			return data, err
		}
	}
	return data, nil
}
