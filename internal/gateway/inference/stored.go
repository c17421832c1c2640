package inference

import (
	"context"
	"sync"
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
	userStoringShare = 5  // each user has a fifth of what their app has, so that one leaves room for others
	storingBurst     = 7  // a seventh can be stored at once, which is a day's of a week
)

// responseRowBytes is what a stored response takes besides its body, rounded up.
const responseRowBytes = 200

// A responseStore decides which responses are stored. Its token buckets are in memory: after a restart they are full.
type responseStore struct {
	Storing
	live, mock storingLimits
	warnedAt   atomic.Int64 // Unix seconds
	promised   sync.Map     // request id → body, see keep
}

// promisedFor is how long a node keeps a response that a client was told to fetch, and that was not stored.
const promisedFor = time.Minute

// keep keeps the response of a request for a while. It calls ended when it is gone.
func (s *responseStore) keep(requestID string, body []byte, ended func()) {
	s.promised.Store(requestID, body)
	time.AfterFunc(promisedFor, func() {
		s.promised.Delete(requestID)
		ended()
	})
}

// findPromised returns a response that is kept; nil if there is none.
func (s *responseStore) findPromised(requestID string) []byte {
	body, _ := s.promised.Load(requestID)
	b, _ := body.([]byte)
	return b
}

// storingLimits are the token buckets of bytes of apps, and of their users; nil = no bound.
type storingLimits struct{ apps, users *web.Limiter }

func newResponseStore(s Storing, now func() time.Time) *responseStore {
	r := &responseStore{Storing: s}
	if s.AppBytes > 0 {
		limit := func(bytes int64) *web.Limiter {
			return web.NewLimiter(s.Kept/time.Duration(bytes), int(bytes/storingBurst), now)
		}
		limits := func(bytes int64) storingLimits {
			return storingLimits{apps: limit(bytes), users: limit(bytes / userStoringShare)}
		}
		r.live, r.mock = limits(s.AppBytes), limits(s.AppBytes/mockStoringShare)
	}
	return r
}

// limitsOf returns the limits of an app's responses, with the keys of the app and of a user.
func (s *responseStore) limitsOf(app *apps.App, accountID string) (l storingLimits, appKey, userKey string) {
	l, appKey = s.live, app.ID
	if app.ProviderMode == apps.Mock { // which costs nothing: all apps of its developer together
		l, appKey = s.mock, app.OwnerID
	}
	return l, appKey, appKey + "/" + accountID
}

// allow reports whether a response of so many bytes is stored of a user on an app, and otherwise why not.
func (s *responseStore) allow(app *apps.App, accountID string, bytes int) (why string, ok bool) {
	if s.IsDiskLow != nil && s.IsDiskLow() {
		return "the disk is nearly full", false
	}
	l, appKey, userKey := s.limitsOf(app, accountID)
	if l.apps == nil {
		return "", true
	}
	bytes += responseRowBytes
	if !l.users.AllowN(userKey, bytes) {
		return "the user has stored too much", false
	}
	if !l.apps.AllowN(appKey, bytes) {
		l.users.Charge(userKey, -bytes)
		return "the app has stored too much", false
	}
	return "", true
}

// giveBack takes back that a response was allowed, which was not stored.
func (s *responseStore) giveBack(app *apps.App, accountID string, response *rules.StoredResponse) {
	l, appKey, userKey := s.limitsOf(app, accountID)
	if l.apps != nil && response != nil {
		l.apps.Charge(appKey, -len(response.Body)-responseRowBytes)
		l.users.Charge(userKey, -len(response.Body)-responseRowBytes)
	}
}

// storeResponse is storeResponse of the handler. A response that is stored again, because the first time was not
// carried out or the call was left pending, counts once.
func (a *attempt) storeResponse(ctx context.Context, body []byte) *rules.StoredResponse {
	if !a.packed {
		a.packed, a.response = true, a.h.storeResponse(ctx, &a.who.App, a.held.AccountID, body)
	}
	return a.response
}

// dropResponse notes that the writer did not store the response, because that took too long.
func (a *attempt) dropResponse(ctx context.Context) {
	a.h.stored.giveBack(&a.who.App, a.held.AccountID, a.response)
	a.response = nil
	a.h.noteUnstored(ctx, a.who.App.ID, a.held.AccountID, "the database is too slow for large ones")
}

// storeResponse encodes a response of a user's call on an app for storage; nil if it is not stored.
func (h *Handler) storeResponse(
	ctx context.Context, app *apps.App, accountID string, body []byte,
) *rules.StoredResponse {
	packed := packResponse(body)
	if packed == nil {
		return nil
	}
	why, ok := h.stored.allow(app, accountID, len(packed.Body))
	if ok {
		return packed
	}
	h.noteUnstored(ctx, app.ID, accountID, why)
	return nil
}

// noteUnstored tells the operator, once a minute, that responses are not stored, and why not.
func (h *Handler) noteUnstored(ctx context.Context, appID, accountID, why string) {
	now := time.Now().Unix()
	if last := h.stored.warnedAt.Load(); now-last >= 60 && h.stored.warnedAt.CompareAndSwap(last, now) {
		h.Metrics.RaiseAlarm("responses are not stored", why)
		h.Log.WarnContext(ctx, "responses not stored", "app_id", appID, "account_id", accountID, "cause", why)
	}
}
