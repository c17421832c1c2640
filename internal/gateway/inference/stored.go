package inference

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Storing bounds the responses that are stored for replays (decision 132). What is beyond it is answered as ever, and a
// repeat of its key is 409.
type Storing struct {
	AppBytes int64         // of an app within Kept; 0 = no bound
	Kept     time.Duration // how long responses are stored

	// IsDiskLow reports whether the rest of the disk is for what is money. Nil: the disk is not ours.
	IsDiskLow func() bool
}

// Shares of Storing.AppBytes.
const (
	mockStoringShare = 10 // all apps of a developer that call the mock, which costs nothing, have a tenth of an app's
	storingBurst     = 7  // a seventh can be stored at once, which is a day's of a week
)

// responseRowBytes is what a stored response takes besides its body, rounded up.
const responseRowBytes = 200

// A responseStore decides which responses are stored. Its token buckets are in memory: after a restart they are full.
type responseStore struct {
	Storing
	live, mock *web.Limiter // of bytes: by app, and by developer; nil = no bound
	warnedAt   atomic.Int64 // Unix seconds
}

func newResponseStore(s Storing, now func() time.Time) *responseStore {
	r := &responseStore{Storing: s}
	if s.AppBytes > 0 {
		limit := func(bytes int64) *web.Limiter {
			return web.NewLimiter(s.Kept/time.Duration(bytes), int(bytes/storingBurst), now)
		}
		r.live, r.mock = limit(s.AppBytes), limit(s.AppBytes/mockStoringShare)
	}
	return r
}

// allow reports whether a response of so many bytes of an app is stored, and otherwise why not.
func (s *responseStore) allow(app *apps.App, bytes int) (why string, ok bool) {
	if s.IsDiskLow != nil && s.IsDiskLow() {
		return "the disk is nearly full", false
	}
	limit, key := s.live, app.ID
	if app.ProviderMode == apps.Mock {
		limit, key = s.mock, app.OwnerID
	}
	if limit != nil && !limit.AllowN(key, bytes+responseRowBytes) {
		return "the app has stored too much", false
	}
	return "", true
}

// storeResponse encodes a response of an app for storage; nil if it is not stored.
func (h *Handler) storeResponse(ctx context.Context, app *apps.App, body []byte) *rules.StoredResponse {
	packed := packResponse(body)
	if packed == nil {
		return nil
	}
	why, ok := h.stored.allow(app, len(packed.Body))
	if ok {
		return packed
	}
	now := time.Now().Unix()
	if last := h.stored.warnedAt.Load(); now-last >= 60 && h.stored.warnedAt.CompareAndSwap(last, now) {
		h.Metrics.RaiseAlarm("responses are not stored", why)
		h.Log.WarnContext(ctx, "responses not stored", "app_id", app.ID, "cause", why)
	}
	return nil
}
