package webhooks_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// endpointOf returns an endpoint of mine as the store has it.
func (b *bundle) endpointOf(t *testing.T, endpointID string) webhooks.Endpoint {
	t.Helper()
	e, err := b.store.Get(t.Context(), b.mineID, endpointID)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (b *bundle) attempts(t *testing.T, deliveryID string) []webhooks.Attempt {
	t.Helper()
	list, err := b.store.ListAttempts(t.Context(), deliveryID)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (b *bundle) recover(t *testing.T, endpointID string, since time.Time) int {
	t.Helper()
	n, more, err := b.store.Recover(t.Context(), b.endpointOf(t, endpointID), since)
	if err != nil || more {
		t.Fatal(more, err)
	}
	return n
}

// Each attempt is kept with the beginning of what the endpoint answered, as text, and counted on its day.
func TestAttempts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		r := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				w.WriteHeader(500)
				_, _ = w.Write([]byte("no \x00\xff<b>" + strings.Repeat("ä", 4000)))
				return
			}
			_, _ = w.Write([]byte("thanks"))
		})
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		b.connect(t)
		b.work(t)
		b.clock.move(2 * time.Minute)
		b.work(t)
		list := b.deliveries(t, e.ID)
		tries := b.attempts(t, list[0].ID)
		if len(tries) != 2 {
			t.Fatalf("%d attempts", len(tries))
		}
		a := tries[0]
		if a.Error != nil || a.ResponseStatus == nil || *a.ResponseStatus != 200 || a.Excerpt != "thanks" {
			t.Errorf("the second attempt: %+v", a)
		}
		a = tries[1]
		if a.Error == nil || *a.ResponseStatus != 500 || !strings.HasPrefix(a.Excerpt, "no \ufffd\ufffd<b>ä") ||
			len(a.Excerpt) > 1024 || !utf8.ValidString(a.Excerpt) || a.DurationMS < 0 {
			t.Errorf("the first attempt: %+v", a)
		}
		days, err := b.store.ListDays(t.Context(), b.mineID, 3)
		if err != nil || len(days[e.ID]) != 3 ||
			days[e.ID][2] != (webhooks.Day{Day: "2026-11-21", Succeeded: 1, Failed: 1}) ||
			days[e.ID][0] != (webhooks.Day{Day: "2026-11-19"}) {
			t.Errorf("days %v, %v", days, err)
		}
		for range 30 { // the attempts of a delivery stay bounded
			if _, err := b.store.Redeliver(t.Context(), b.endpointOf(t, e.ID), list[0].ID); err != nil {
				t.Fatal(err)
			}
			b.clock.move(time.Second)
			b.work(t)
		}
		if n := len(b.attempts(t, list[0].ID)); n > 21 {
			t.Errorf("%d attempts are kept", n)
		}
	})
}

// Where the operator has opened a network of its own, developers do not see what its servers answer.
func TestBodiesOfPrivateNetworks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, webhooks.Addresses{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		r := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("secret")) })
		e := b.create(t, `{"url":"https://hooks.example.com/"}`)
		b.exec(t, `UPDATE webhooks SET url = $1`, strings.Replace(r.URL, "http:", "https:", 1))
		b.connect(t)
		b.work(t)
		for _, a := range b.attempts(t, b.deliveries(t, e.ID)[0].ID) {
			if a.Excerpt != "" {
				t.Errorf("shown: %q", a.Excerpt)
			}
		}
	})
}

func (b *bundle) exec(t *testing.T, text string, args ...any) {
	t.Helper()
	if _, err := b.db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// A recovery sends again what has failed or waits for a retry since then, once, whoever presses the button and how
// often. What is delivered stays delivered.
func TestRecover(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		var mu sync.Mutex
		status := 200
		answer := func(s int) { mu.Lock(); defer mu.Unlock(); status = s }
		r := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			w.WriteHeader(status)
		})
		e := b.create(t, `{"url":"`+r.URL+`"}`)
		send := func(status int) {
			t.Helper()
			b.clock.move(30 * time.Second) // before the first retry
			answer(status)
			if _, err := b.store.SendTest(t.Context(), b.endpointOf(t, e.ID), "connection.frozen"); err != nil {
				t.Fatal(err)
			}
			b.work(t)
		}
		fail := func() {
			b.exec(t, `UPDATE deliveries SET status = 'failed', next_us = NULL WHERE status = 'pending'`)
		}
		send(500) // before since
		fail()
		b.clock.move(time.Minute)
		since := b.clock.now()
		send(200)
		send(500)
		fail()
		send(200)
		send(500) // waits for its retry
		before := len(r.got())
		var wait sync.WaitGroup
		var queued [4]int
		for i := range queued {
			wait.Go(func() {
				queued[i], _, _ = b.store.Recover(context.WithoutCancel(t.Context()), b.endpointOf(t, e.ID), since)
			})
		}
		wait.Wait()
		if n := queued[0] + queued[1] + queued[2] + queued[3]; n != 2 {
			t.Errorf("%d deliveries were queued by four presses: %v", n, queued)
		}
		answer(200)
		b.work(t)
		if n := len(r.got()) - before; n != 2 {
			t.Errorf("%d requests after the recovery, want 2", n)
		}
		if n := b.recover(t, e.ID, since); n != 0 {
			t.Errorf("%d deliveries were queued once more", n)
		}
		failed, _, err := b.store.FilterDeliveries(t.Context(), e.ID, webhooks.Filter{Status: webhooks.Failed}, 50)
		if err != nil || len(failed) != 1 || failed[0].CreatedUS >= since.UnixMicro() {
			t.Errorf("failed: %v, %v", failed, err)
		}
		if n := b.recover(t, e.ID, since.Add(-365*24*time.Hour)); n != 1 {
			t.Errorf("%d older ones were queued", n)
		}
		if _, _, err := b.store.Recover(t.Context(), b.endpointOf(t, e.ID), b.clock.now().Add(time.Hour)); err == nil {
			t.Error("a time to come was taken")
		}
	})
}

// The filters of the console's list, and its pages.
func TestFilterDeliveries(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		e := b.endpointOf(t, b.create(t, `{"url":"http://127.0.0.1:1/"}`).ID)
		other := b.endpointOf(t, b.create(t, `{"url":"http://127.0.0.1:1/"}`).ID)
		for i := range 60 {
			kind := webhooks.Types[i%2]
			if _, err := b.store.SendTest(t.Context(), e, kind); err != nil {
				t.Fatal(err)
			}
			b.clock.move(time.Second)
		}
		if _, err := b.store.SendTest(t.Context(), other, webhooks.Types[0]); err != nil {
			t.Fatal(err)
		}
		b.exec(t, `UPDATE deliveries SET status = 'failed' WHERE event_type = $1`, webhooks.Types[1])
		for _, c := range []struct {
			f    webhooks.Filter
			want int
			more bool
		}{
			{webhooks.Filter{}, 50, true},
			{webhooks.Filter{Status: "failed"}, 30, false},
			{webhooks.Filter{Status: "pending"}, 30, false},
			{webhooks.Filter{Status: "delivered"}, 0, false},
			{webhooks.Filter{Type: webhooks.Types[0]}, 30, false},
			{webhooks.Filter{Type: webhooks.Types[0], Status: "failed"}, 0, false},
			{webhooks.Filter{Status: "failed' OR '1'='1"}, 0, false},
			{webhooks.Filter{Type: "none"}, 0, false},
			{webhooks.Filter{Since: b.clock.now().Add(-10500 * time.Millisecond)}, 10, false},
			{webhooks.Filter{Until: b.clock.now().Add(-10500 * time.Millisecond)}, 50, false},
			{webhooks.Filter{
				Since:  b.clock.now().Add(-20500 * time.Millisecond),
				Until:  b.clock.now().Add(-10500 * time.Millisecond),
				Status: "failed",
				Type:   webhooks.Types[1],
			}, 5, false},
		} {
			list, more, err := b.store.FilterDeliveries(t.Context(), e.ID, c.f, 50)
			if err != nil || len(list) != c.want || more != c.more {
				t.Errorf("%+v: %d deliveries, more %v, %v", c.f, len(list), more, err)
			}
			for _, x := range list {
				if x.EndpointID != e.ID {
					t.Errorf("%+v: a delivery of another endpoint", c.f)
				}
			}
		}
		first, _, _ := b.store.FilterDeliveries(t.Context(), e.ID, webhooks.Filter{}, 50)
		rest, more, err := b.store.FilterDeliveries(t.Context(), e.ID, webhooks.Filter{Before: first[49].ID}, 50)
		if err != nil || len(rest) != 10 || more || rest[0].ID >= first[49].ID {
			t.Errorf("the second page: %d, %v, %v", len(rest), more, err)
		}
	})
}

// A day on which an active endpoint only failed is returned once, to one of several nodes, on the day after.
func TestFailedDays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		bad := newReceiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) })
		good := newReceiver(t, nil)
		mixed := newReceiver(t, func(n int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200 + 300*(n%2)) })
		e := b.create(t, `{"url":"`+bad.URL+`"}`)
		b.create(t, `{"url":"`+good.URL+`"}`)
		b.create(t, `{"url":"`+mixed.URL+`"}`)
		off := b.create(t, `{"url":"`+bad.URL+`/off"}`)
		b.connect(t)
		b.pause(t)
		b.work(t)
		b.exec(t, `UPDATE webhooks SET status = 'disabled' WHERE id = $1`, off.ID)
		claim := func() (list []webhooks.FailedDay) {
			t.Helper()
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
				list, _, err = b.store.ClaimFailedDays(ctx, tx)
				return err
			}); err != nil {
				t.Error(err)
			}
			return list
		}
		if list := claim(); len(list) != 0 {
			t.Errorf("the day is not over: %v", list)
		}
		b.clock.move(20 * time.Hour)
		var wait sync.WaitGroup
		var found [3][]webhooks.FailedDay
		for i := range found {
			wait.Go(func() { found[i] = claim() })
		}
		wait.Wait()
		all := append(append(found[0], found[1]...), found[2]...)
		if len(all) != 1 || all[0].Endpoint.ID != e.ID || all[0].Failed != 3 {
			t.Errorf("found %+v", all)
		}
	})
}

// Each type of event has its description and a sample with one object.
func TestDescribe(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		for _, kind := range webhooks.Types {
			c, err := b.store.Describe(b.mineID, kind)
			if err != nil || c.Description == "" || c.Object == "" ||
				!strings.Contains(string(c.Sample), `"type":"`+kind+`"`) {
				t.Errorf("%s: %+v, %v", kind, c, err)
			}
		}
		if _, err := b.store.Describe(b.mineID, "none"); err == nil {
			t.Error("an unknown type has a description")
		}
	})
}

// TestSampleEventsAreBounded: a developer's apps together have a rate of sample events, and of deliveries that are sent
// again. Test events go with the last of their deliveries and of their entries in the log.
func TestSampleEventsAreBounded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBundle(t, d, loopback)
		e := b.endpointOf(t, b.create(t, `{"url":"http://127.0.0.1:1/"}`).ID)
		sent := 0
		var refused error
		for refused == nil {
			if sent%2 == 0 {
				_, refused = b.store.SendTest(t.Context(), e, "connection.frozen")
			} else {
				_, refused = b.store.TriggerSample(t.Context(), b.otherID, "connection.frozen")
			}
			if sent++; sent > 1000 {
				t.Fatal("any number of sample events is sent")
			}
		}
		if limited, ok := errors.AsType[*apierr.Error](refused); !ok || limited.Code != apierr.RateLimited ||
			limited.RetryAfter == 0 {
			t.Errorf("%v", refused)
		}
		list, _, err := b.store.FilterDeliveries(t.Context(), e.ID, webhooks.Filter{}, 1)
		if err != nil {
			t.Fatal(err)
		}
		for again := 0; ; again++ {
			if _, err := b.store.Redeliver(t.Context(), e, list[0].ID); err != nil {
				break
			}
			if again > 2000 {
				t.Fatal("a delivery is sent again any number of times")
			}
		}
		b.exec(t, `UPDATE events SET passed = 1`)
		b.exec(t, `UPDATE deliveries SET status = 'delivered', next_us = NULL`)
		purge := func(want bool) {
			t.Helper()
			if err := b.store.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
			var n int
			err := d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM events WHERE test = 1`).Scan(&n)
			if err != nil || (n > 1) != want {
				t.Errorf("%d events, %v", n, err)
			}
		}
		purge(true)
		b.clock.move(100 * 24 * time.Hour)
		purge(false) // the newest entry of an app's log stays, for the readers behind it
	})
}
