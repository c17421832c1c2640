package oauth

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
)

// A ConsentCount says how often the consent screen of an app was shown on a UTC day, and what users decided. The device
// flow counts too. A screen counts once per account and authorize request, so a reload, a form with a problem and a
// double click add nothing; only after two hours, a restart, or at another node does the same
// request count again. A user who must sign in first counts when the screen is shown.
type ConsentCount struct {
	Day                     string // as 2026-11-21
	Shown, Approved, Denied int64
}

// ConsentCounts returns the counts of an app from fromDay to toDay, both included and written as 2026-11-21, oldest
// first. A day without any has no element.
func (s *Store) ConsentCounts(ctx context.Context, appID, fromDay, toDay string) ([]ConsentCount, error) {
	list, err := listConsentCounts(ctx, s.DB, appID, fromDay, toDay)
	if err != nil {
		return nil, fmt.Errorf("oauth: consent counts: %w", err)
	}
	return list, nil
}

// The steps of a consent that are counted.
const (
	stepShown    = "shown"
	stepApproved = "approved"
	stepDenied   = "denied"
)

// countStep counts a step of a visit. A visit has one decision. A failure is only logged: the
// counts are statistics, and the user goes on.
func (h *Handler) countStep(ctx context.Context, v *visit, step string) {
	kind := step
	if step != stepShown {
		kind = "decided"
	}
	if !h.counted.add(id.Hash(kind+" "+v.account.ID+" "+v.action), h.Store.Now()) {
		return
	}
	day := h.Store.Now().UTC().Format(time.DateOnly)
	if err := addConsentCount(ctx, h.Store.DB, v.app.ID, day, step); err != nil {
		web.Log(ctx, slog.String("consent_count_error", err.Error()))
	}
}

// A recentSet remembers keys for one to two times recentPeriod, or fewer if more than recentKeys come
// meanwhile. Its zero value
// is empty.
type recentSet struct {
	mu       sync.Mutex
	turned   time.Time // when current began
	current  map[string]bool
	previous map[string]bool
}

// The bounds of a recentSet: of time, and of memory, which is about 200 bytes a key.
const (
	recentPeriod = time.Hour
	recentKeys   = 4096
)

// add reports whether a key is new, and remembers it.
func (s *recentSet) add(key string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) >= 2*recentPeriod {
		s.current = nil
	}
	if s.current == nil || len(s.current) >= recentKeys || now.Sub(s.turned) >= recentPeriod {
		s.previous, s.current, s.turned = s.current, map[string]bool{}, now
	}
	if s.current[key] || s.previous[key] {
		return false
	}
	s.current[key] = true
	return true
}
