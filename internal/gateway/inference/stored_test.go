package inference

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
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
	fill := func(app *apps.App) (mb int) {
		for {
			if _, ok := s.allow(app, 1_000_000); !ok {
				return mb
			}
			mb++
		}
	}
	one, other := &apps.App{ID: "app_1", OwnerID: "wac_1"}, &apps.App{ID: "app_2", OwnerID: "wac_1"}
	if n := fill(one); n != 99 {
		t.Errorf("at once: %d MB", n)
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
	if a, b := fill(one), fill(other); a != 9 || b != 0 {
		t.Errorf("mock: %d and %d MB", a, b)
	}
	now = now.Add(time.Hour * 24)
	if low = true; fill(one) != 0 {
		t.Error("the disk is nearly full, and a response is stored")
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
	b.expectOne(`SELECT 1 + COUNT(*) FROM answers`)
	b.audit()
}

// TestRateOfTheMock: a developer's calls of the mock have a rate, over all their apps; beyond it they are 429 with
// Retry-After, and leave nothing.
func TestRateOfTheMock(t *testing.T) {
	t.Parallel()
	c := Config{Bounds: Bounds{MockRate: 10, MockBurst: 3}, Now: time.Now}
	h := &Handler{Config: c, mockRate: newMockRate(&c)}
	app := func(owner string) *apps.App { return &apps.App{ProviderMode: apps.Mock, OwnerID: owner} }
	for i := range 4 {
		if err := h.checkMockRate(app("wac_1")); (err != nil) != (i == 3) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if err := h.checkMockRate(app("wac_2")); err != nil {
		t.Errorf("another developer: %v", err)
	}
	if err := h.checkMockRate(&apps.App{ProviderMode: "live", OwnerID: "wac_1"}); err != nil {
		t.Errorf("a live call: %v", err)
	}
}
