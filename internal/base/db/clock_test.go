package db

import (
	"errors"
	"testing"
	"time"
)

// TestSlowSamplesDoNotCount reads the database's clock by three samples: the fastest counts, and none if one was slow.
func TestSlowSamplesDoNotCount(t *testing.T) {
	t.Parallel()
	fast, faster := clockSample{offset: 3, took: 2 * time.Millisecond}, clockSample{offset: 7, took: time.Millisecond}
	if offset, err := fastestOffset([]clockSample{fast, faster, fast}); offset != 7 || err != nil {
		t.Errorf("offset %d, %v", offset, err)
	}
	slow := clockSample{offset: 9, took: maxSampleTime + 1}
	for i := range 3 {
		samples := []clockSample{fast, faster, fast}
		samples[i] = slow
		if _, err := fastestOffset(samples); !errors.Is(err, errSlowSample) {
			t.Errorf("slow sample %d: %v", i, err)
		}
	}
}
