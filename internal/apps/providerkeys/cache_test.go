package providerkeys_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// still is a clock that only the test moves.
type still struct {
	mu sync.Mutex
	at time.Time
}

func (c *still) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *still) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// What another node changes is seen after two seconds, what this one changes at
// once; that there is no key is remembered like a key.
func TestRecentKeysAreTwoSecondsOldAtMost(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		clock := &still{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
		box, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
		if err != nil {
			t.Fatal(err)
		}
		at := providers(t)
		here, there := providerkeys.NewStore(d, box, clock.now, at), providerkeys.NewStore(d, box, clock.now, at)
		addDeveloper(t, d, "wac_dev")
		addDeveloper(t, d, "wac_other")
		want := func(when, key string) {
			t.Helper()
			got, found, err := here.GetCached(t.Context(), "wac_dev", "openai")
			if err != nil || found != (key != "") || got.Reveal() != key {
				t.Errorf("%s: %q, %t, %v, want %q", when, got.Reveal(), found, err, key)
			}
		}
		want("before there was one", "")
		put(t, there, "wac_dev", "openai", goodKey)
		clock.pass(2*time.Second - time.Microsecond)
		want("just before two seconds", "")
		clock.pass(time.Microsecond)
		want("after two seconds", goodKey)
		put(t, here, "wac_dev", "openai", otherKey)
		want("replaced here", otherKey)
		if err := there.Delete(t.Context(), "wac_dev", "openai"); err != nil {
			t.Fatal(err)
		}
		want("deleted there, just now", otherKey)
		clock.pass(2 * time.Second)
		want("deleted there", "")
		put(t, here, "wac_dev", "openai", goodKey)
		if err := here.Delete(t.Context(), "wac_dev", "openai"); err != nil {
			t.Fatal(err)
		}
		want("deleted here", "")
		put(t, here, "wac_dev", "openai", goodKey)
		for _, o := range [][2]string{{"wac_other", "openai"}, {"wac_dev", "google"}} {
			if _, found, err := here.GetCached(t.Context(), o[0], o[1]); found || err != nil {
				t.Errorf("%v: found %t, %v", o, found, err)
			}
		}
	})
}

// A look that began before a change here is not remembered after it.
func TestRecentKeysDoNotOutliveAChangeHere(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	clock := &still{at: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	box, err := seal.New(bytes.Repeat([]byte{1}, seal.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	s := providerkeys.NewStore(d, box, clock.now, providers(t))
	addDeveloper(t, d, "wac_dev")
	for range 30 {
		clock.pass(time.Minute) // the bucket of tests fills again
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				for range 20 {
					if _, _, err := s.GetCached(t.Context(), "wac_dev", "openai"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		put(t, s, "wac_dev", "openai", goodKey)
		if got, found, err := s.GetCached(t.Context(), "wac_dev", "openai"); !found || err != nil ||
			got.Reveal() != goodKey {
			t.Errorf("after a put: %t, %v", found, err)
		}
		readers.Wait()
		if err := s.Delete(t.Context(), "wac_dev", "openai"); err != nil {
			t.Fatal(err)
		}
		if _, found, err := s.GetCached(t.Context(), "wac_dev", "openai"); found || err != nil {
			t.Errorf("after a delete: %t, %v", found, err)
		}
	}
}
