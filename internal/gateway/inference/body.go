package inference

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
)

// A body that stalls ends: of one that has not ended, bodyPace bytes arrive within each bodyWait. So it holds memory
// for nobody who has left. All of it arrives within bodyTimeout.
const (
	bodyPace    = 64 << 10
	bodyWait    = 15 * time.Second
	bodyTimeout = 2 * time.Minute
)

// firstBody is what is allocated for a body of any length before its bytes have come.
const firstBody = 32 << 10

// readBody reads the whole body. Upstream requests begin only after that: a body that is read in part while the
// response is written truncates streams. Its bytes are counted as they arrive: one that is announced takes nothing, but
// is refused at once if there is no memory for it now.
func readBody(w http.ResponseWriter, r *http.Request, s *seat) ([]byte, error) {
	if err := web.CheckJSON(r); err != nil {
		return nil, err
	}
	if r.ContentLength > plan.MaxBody {
		return nil, apierr.InvalidRequest.Errorf("body: at most %d bytes", plan.MaxBody)
	}
	if err := s.fits(bodyFactor * r.ContentLength); err != nil {
		return nil, err
	}
	body := pacedBody{
		from:    http.MaxBytesReader(w, r.Body, plan.MaxBody),
		control: http.NewResponseController(w),
		wait:    bodyWait,
		ends:    time.Now().Add(bodyTimeout),
	}
	data := make([]byte, 0, min(max(r.ContentLength, 512), firstBody)+1)
	for {
		if len(data) == cap(data) {
			size := min(2*int64(cap(data)), plan.MaxBody+1)
			if r.ContentLength > 0 {
				size = min(size, r.ContentLength+1) // room to see the end
			}
			if err := s.reserve(bodyFactor*size, 0); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		} else if err != nil {
			return nil, explainBody(err)
		}
	}
}

func explainBody(err error) error {
	switch _, tooLarge := errors.AsType[*http.MaxBytesError](err); {
	case tooLarge:
		return apierr.InvalidRequest.Errorf("body: at most %d bytes", plan.MaxBody)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return apierr.InvalidRequest.Errorf("body: did not arrive in time").WithCause(err)
	}
	return apierr.InvalidRequest.Errorf("body: it did not arrive whole").WithCause(err)
}

// A pacedBody reads a body with a deadline for each bodyPace bytes. After the end, net/http lifts the last one.
type pacedBody struct {
	from    io.Reader
	control *http.ResponseController
	wait    time.Duration
	ends    time.Time // for the last deadline
	left    int       // bytes that may come within the current deadline
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		until := time.Now().Add(b.wait)
		if until.After(b.ends) {
			until = b.ends
		}
		_ = b.control.SetReadDeadline(until) // not every writer has deadlines
		b.left = bodyPace
	}
	n, err := b.from.Read(p)
	b.left -= n
	return n, err
}
