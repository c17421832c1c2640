package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestStoredResponsesAreBounded: an app has a day's part of its bytes at once, and all of them within the time for
// which they are kept; the apps of a developer that call the mock have a tenth together; on a full disk nothing is
// stored.
func TestStoredResponsesAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	low := false
	s := newResponseStore(Storing{
		AppBytes:  700_000_000,
		Kept:      7 * 24 * time.Hour,
		IsDiskLow: func() bool { return low },
	}, func() time.Time { return now })
	fillOf := func(app *apps.App, user string) (mb int) {
		for {
			if _, ok := s.allow(app, user, 1_000_000); !ok {
				return mb
			}
			mb++
		}
	}
	fill := func(app *apps.App) (mb int) { // by all users
		for user := range 10 {
			mb += fillOf(app, fmt.Sprint(user))
		}
		return mb
	}
	one, other := &apps.App{ID: "app_1", OwnerID: "wac_1"}, &apps.App{ID: "app_2", OwnerID: "wac_1"}
	if n := fillOf(one, "greedy"); n != 19 {
		t.Errorf("one user at once: %d MB", n)
	}
	if n := fill(one); n < 78 || n > 80 {
		t.Errorf("the other users: %d MB", n)
	}
	if n := fill(other); n != 99 {
		t.Errorf("another app: %d MB", n)
	}
	sum := 0
	for range 14 {
		now = now.Add(12 * time.Hour)
		sum += fill(one)
	}
	if sum < 690 || sum > 700 {
		t.Errorf("in a week: %d MB", sum)
	}
	one.ProviderMode, other.ProviderMode = apps.Mock, apps.Mock
	if a, b, c := fillOf(one, "greedy"), fill(one), fill(other); a != 1 || b != 8 || c != 0 {
		t.Errorf("mock: %d, %d and %d MB", a, b, c)
	}
	now = now.Add(time.Hour * 24)
	if low = true; fill(one) != 0 {
		t.Error("the disk is nearly full, and a response is stored")
	}
}

// TestStoredOnce: a response that is packed again for a repeated settlement counts once, and one that was not stored
// after all is given back.
func TestStoredOnce(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{silent: make(chan error)}
	b := newBundle(t, db.SQLite, f)
	b.Storing = Storing{AppBytes: 7 * 10_000, Kept: 7 * 24 * time.Hour}
	b.stored = newResponseStore(b.Storing, b.clock)
	body := []byte(strings.Repeat("{}", 500))
	a := &attempt{h: b.Handler, who: b.who}
	a.held.AccountID = b.who.AccountID
	size := responseRowBytes
	for range 5 {
		stored := a.storeResponse(t.Context(), body)
		if stored == nil {
			t.Fatal("not stored")
		}
		size = responseRowBytes + len(stored.Body)
	}
	left := func() (bytes int) {
		for ; b.stored.live.users.AllowN(b.who.App.ID+"/"+b.who.AccountID, 1); bytes++ {
		}
		return bytes
	}
	if n := left(); n != 2000-size {
		t.Errorf("%d bytes are left of 2000, less %d", n, size)
	}
	b.pass(7 * 24 * time.Hour)
	b.orphans.silentTimeout = time.Millisecond
	b.leave(id.NewUUID()) // is not charged: nothing is stored
	if n := left(); n != 2000 {
		t.Errorf("%d bytes are left after a call that stores nothing", n)
	}
}

// TestImageRate: remote images that no call pays for have a rate for each user on an app; those of calls that are held
// are given back, and data: URLs do not count.
func TestImageRate(t *testing.T) {
	t.Parallel()
	h := &Handler{imageRate: web.NewLimiter(imageInterval, imageBurst, time.Now)}
	request := func(n int, url string) *provider.Request {
		r := &provider.Request{Turns: []conversation.Turn{{}}}
		for range n {
			r.Turns[0].Blocks = append(r.Turns[0].Blocks,
				conversation.Block{Kind: conversation.ImageBlock, Picture: &conversation.Picture{URL: url}})
		}
		return r
	}
	who := &callers.Caller{AccountID: "wac_1", App: apps.App{ID: "app_1"}}
	const remote = "https://example.com/a.png"
	for range 50 {
		c := &call{who: who}
		if err := h.checkImageRate(c, request(20, remote)); err != nil {
			t.Fatal(err)
		}
		h.chargeImages(c, -c.remoteImages)
	}
	for i := range 6 {
		err := h.checkImageRate(&call{who: who}, request(20, remote))
		if e, ok := errors.AsType[*apierr.Error](err); ok != (i == 5) || ok && e.Code != apierr.RateLimited {
			t.Errorf("request %d: %v", i, err)
		}
	}
	for _, c := range []*call{{who: who}, {who: &callers.Caller{AccountID: "wac_2", App: who.App}}} {
		url := remote
		if c.who == who {
			url = "data:image/png;base64,AAAA"
		}
		if err := h.checkImageRate(c, request(20, url)); err != nil {
			t.Error(err)
		}
	}
}

// TestRateOfTheMockComesFirst: a call beyond the rate reads no images and no database.
func TestRateOfTheMockComesFirst(t *testing.T) {
	t.Parallel()
	h := &Handler{Config: Config{FreeRate: callers.NewFreeRate(10, 1, time.Now)}}
	who := &callers.Caller{App: apps.App{ProviderMode: apps.Mock, OwnerID: "wac_1"}}
	if err := h.checkFreeRate(&who.App); err != nil {
		t.Fatal(err)
	}
	err := h.leadCall(t.Context(), nil, &call{who: who, plan: &plan.Plan{Images: 1}}, nil)
	if e, ok := errors.AsType[*apierr.Error](err); !ok || e.Code != apierr.RateLimited {
		t.Error(err)
	}
}

// TestResponseThatIsNotStored: the call is answered and charged as ever, and a repeat of its key is 409 and no second
// call.
func TestResponseThatIsNotStored(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{
		chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 5}}},
		ended:  io.EOF,
	})
	b.stored.IsDiskLow = func() bool { return true }
	key := id.NewUUID()
	first := b.open(t.Context(), key)
	if body := readRest(t, first.Body); first.StatusCode != 200 || !strings.Contains(body, `"settlement":"settled"`) {
		t.Errorf("%d %s", first.StatusCode, body)
	}
	again := b.open(t.Context(), key)
	if body := readRest(t, again.Body); again.StatusCode != 409 || !strings.Contains(body, "no longer stored") {
		t.Errorf("again: %d %s", again.StatusCode, body)
	}
	b.expectOne(`SELECT COUNT(*) FROM ledger WHERE type = 'spend'`)
	b.expectOne(`SELECT 1 + COUNT(*) FROM stored_responses`)
	b.audit()
}

// TestPromisedResponse: a client that was told to fetch its response with the same key gets it, though it was settled
// late and not stored.
func TestPromisedResponse(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{
		chunks: []provider.Chunk{{Frames: []byte(delta("Hello")), Usage: &provider.Usage{Input: 9, Output: 5}}},
		ended:  io.EOF,
	})
	b.stored.IsDiskLow = func() bool { return true }
	key := id.NewUUID()
	first := b.open(t.Context(), key)
	_ = readRest(t, first.Body)
	requestID := first.Header.Get("X-Request-Id")
	a := &attempt{h: b.Handler, who: b.who, running: &runningCall{}}
	a.held.RequestID = requestID
	var isGone atomic.Bool // a minute later, when the test may have ended
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a.settleInBackground(ctx, func(context.Context) (result, error) {
		return result{body: []byte("data: the answer\n\n")}, nil
	}, func() { isGone.Store(true) })
	again := b.open(t.Context(), key)
	if body := readRest(t, again.Body); again.StatusCode != 200 || !strings.Contains(body, "the answer") {
		t.Errorf("again: %d %s", again.StatusCode, body)
	} else if isGone.Load() {
		t.Error("its bytes are given back before it is gone")
	}
}

// TestRateOfTheMock: calls of the mock count in the rate of what is free, and live ones do not.
func TestRateOfTheMock(t *testing.T) {
	t.Parallel()
	h := &Handler{Config: Config{FreeRate: callers.NewFreeRate(10, 1, time.Now)}}
	for i, mode := range []string{apps.Mock, apps.Live, apps.Mock} {
		err := h.checkFreeRate(&apps.App{ProviderMode: mode, OwnerID: "wac_1"})
		if (err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// TestStoredRefusalsAreBounded: refusals cost nothing, so only so many of a caller are stored, and none while the disk
// is nearly full. Each is answered.
func TestStoredRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBundle(t, db.SQLite, &fakeProvider{})
	low := true
	b.Storing.IsDiskLow = func() bool { return low }
	b.refusals = web.NewLimiter(time.Hour, 3, b.clock)
	refuse := func() {
		r := httptest.NewRequest("POST", "/", nil)
		b.storeRefusal(r, &call{who: b.who, claim: id.New(id.Request, b.clock())}, apierr.InvalidRequest.Errorf("no"))
	}
	count := func() int { return b.count(`SELECT COUNT(*) FROM refusals`) }
	refuse()
	if n := count(); n != 0 {
		t.Errorf("%d refusals are stored on a full disk", n)
	}
	low = false
	for range 5 {
		refuse()
	}
	if n := count(); n != 3 {
		t.Errorf("%d refusals are stored", n)
	}
}

// TestRefusalsWithNUL: a refusal may quote what was said, with a character that PostgreSQL does not store.
func TestRefusalsWithNUL(t *testing.T) {
	t.Parallel()
	for _, engine := range []db.Engine{db.SQLite, db.Postgres} {
		b := newBundle(t, engine, &fakeProvider{})
		c := &call{who: b.who, claim: id.New(id.Request, b.clock())}
		b.storeRefusal(httptest.NewRequest("POST", "/", nil), c, apierr.InvalidRequest.Errorf("a\x00b"))
		r, err := store.GetRefusal(t.Context(), b.DB, c.claim)
		if err != nil || r.Message != "a\uFFFDb" {
			t.Errorf("%v: %q, %v", engine, r.Message, err)
		}
	}
}

// TestCallersOfRefusals: the sandbox apps of a developer are one caller, and each user of a live app is one.
func TestCallersOfRefusals(t *testing.T) {
	t.Parallel()
	h := &Handler{refusals: web.NewLimiter(time.Hour, 1, time.Now)}
	for _, c := range []struct {
		app, account, tier string
		want               bool
	}{
		{"app_1", "wac_1", apps.Sandbox, true},
		{"app_2", "wac_2", apps.Sandbox, false},
		{"app_3", "wac_1", "full_live", true},
		{"app_3", "wac_1", "full_live", false},
		{"app_3", "wac_2", "full_live", true},
		{"app_4", "wac_1", "full_live", true},
	} {
		who := &callers.Caller{AccountID: c.account, App: apps.App{ID: c.app, OwnerID: "wac_dev", Tier: c.tier}}
		if got := h.mayStoreRefusal(who); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
