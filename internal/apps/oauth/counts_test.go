package oauth

import (
	"fmt"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestConsentCounts counts screens and decisions once per request, account and UTC day.
func TestConsentCounts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		path := authorizePath(w.live, "state=one")
		b.Get(path)
		b.Get(path)                                        // a reload
		b.Post(path, approval("not an amount"))            // a form with a problem
		w.approve(b, w.live, "5", "state", "one")          // shows nothing: its screen is another request
		b.Post(path, url.Values{"decision": {"deny"}})     // decides
		b.Post(path, url.Values{"decision": {"deny"}})     // a double click
		b.Get(authorizePath(w.live, "state=two"))          // another request
		w.browser().Get(authorizePath(w.live))             // must sign in first
		w.signedIn("tester@example.com").Get(path)         // may not connect
		b.Get(authorizePath(w.live, "redirect_uri=wrong")) // refused
		w.clock.pass(24 * time.Hour)
		b = w.signedIn("person@example.com")
		b.Get(path) // on the next day
		got, err := w.store.ConsentCounts(t.Context(), w.live.ID, "2026-11-21", "2026-11-22")
		want := []ConsentCount{{"2026-11-21", 2, 1, 1}, {"2026-11-22", 1, 0, 0}}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("counts %+v, %v, want %+v", got, err, want)
		}
		if got, err = w.store.ConsentCounts(t.Context(), w.live.ID, "2026-11-22", "2026-11-30"); len(got) != 1 {
			t.Errorf("from the second day: %+v, %v", got, err)
		}
		if got, err = w.store.ConsentCounts(t.Context(), w.sandbox.ID, "2026-01-01", "2026-12-31"); len(got) != 0 {
			t.Errorf("another app: %+v, %v", got, err)
		}
	})
}

// TestRecentSetIsBounded adds more keys than a set may keep.
func TestRecentSetIsBounded(t *testing.T) {
	t.Parallel()
	var s recentSet
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for i := range 10 * recentKeys {
		key := fmt.Sprint(i)
		if !s.add(key, now) || s.add(key, now) {
			t.Fatalf("key %d: not new, or new twice", i)
		}
	}
	if n := len(s.current) + len(s.previous); n > 2*recentKeys {
		t.Errorf("%d keys are kept", n)
	}
	if !s.add("1", now) {
		t.Error("a key is kept although many came after it")
	}
	if s.add("1", now.Add(recentPeriod)) || !s.add("1", now.Add(2*recentPeriod)) {
		t.Error("a key is forgotten too early, or never")
	}
}
