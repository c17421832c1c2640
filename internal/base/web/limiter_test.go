package web_test

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/web"
)

func TestLimiterIsATokenBucketForEachKey(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := web.NewLimiter(100*time.Millisecond, 3, func() time.Time { return now })
	for range 3 {
		if _, ok := l.Allow("a"); !ok {
			t.Fatal("the burst is cut short")
		}
	}
	for range 5 { // refusals take nothing
		if wait, ok := l.Allow("a"); ok || wait != 100*time.Millisecond {
			t.Fatalf("wait %v, %v", wait, ok)
		}
	}
	if _, ok := l.Allow("b"); !ok {
		t.Error("one key is refused for another's calls")
	}
	now = now.Add(250 * time.Millisecond)
	for i := range 2 {
		if _, ok := l.Allow("a"); !ok {
			t.Errorf("call %d after 2.5 intervals is refused", i)
		}
	}
	if wait, ok := l.Allow("a"); ok || wait != 50*time.Millisecond {
		t.Errorf("wait %v, %v", wait, ok)
	}
}

// TestChargeTakesMoreThanThereIs: what was done is charged whatever is left, at most a burst, and can be given back.
func TestChargeTakesMoreThanThereIs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := web.NewLimiter(time.Second, 10, func() time.Time { return now })
	l.Charge("a", 5)
	l.Charge("a", 100)
	if wait, ok := l.Peek("a"); ok || wait != 6*time.Second {
		t.Errorf("wait %v, %t", wait, ok)
	}
	l.Charge("a", -7)
	if !l.AllowN("a", 2) || l.AllowN("a", 1) {
		t.Error("what was given back is not there")
	}
}

func TestPeekTakesNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	l := web.NewLimiter(6*time.Second, 1, func() time.Time { return now })
	for range 3 {
		if _, ok := l.Peek("a"); !ok {
			t.Fatal("peeking takes tokens")
		}
	}
	l.Allow("a")
	if wait, ok := l.Peek("a"); ok || wait != 6*time.Second {
		t.Errorf("wait %v, %v", wait, ok)
	}
	now = now.Add(6 * time.Second)
	if _, ok := l.Peek("a"); !ok {
		t.Error("the bucket does not refill")
	}
}
