package callers

import (
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/web"
)

// A FreeRate bounds what the sandbox apps of a developer leave behind for nothing: each call of the mock, hold of own
// work, reply of the mock voice and child leaves rows, and some of them are never deleted (decision 152). Nil bounds
// nothing.
type FreeRate struct {
	limiter *web.Limiter // by developer
	refusal string
}

// NewFreeRate returns a rate over time, of which so many may come at once.
func NewFreeRate(perSecond, burst int, now func() time.Time) *FreeRate {
	return &FreeRate{
		limiter: web.NewLimiter(time.Second/time.Duration(perSecond), burst, now),
		refusal: fmt.Sprintf("your sandbox apps may ask for free work %d times a second; slow down", perSecond),
	}
}

// Check counts one for a developer, or refuses it.
func (f *FreeRate) Check(developerID string) error {
	if f == nil {
		return nil
	}
	return f.limiter.Check(developerID, f.refusal)
}
