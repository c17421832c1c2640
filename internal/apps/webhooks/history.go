package webhooks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Bounds of what is kept of attempts, and of what is listed (decision 087).
const (
	maxFailureExcerpt  = 1024 // bytes of the body of a failed attempt
	maxSuccessExcerpt  = 128  // bytes of the body of a successful attempt
	maxKeptAttempts    = 20   // attempts of a delivery that a redelivery keeps
	maxListedAttempts  = 50
	maxRecovered       = 1000 // deliveries that one recovery queues
	dayLayout          = "2006-01-02"
	maxReportedPerTurn = 100 // endpoints in one transaction of the job for the mail
)

// An Attempt is one try to deliver.
type Attempt struct {
	BegunUS        int64
	DurationMS     int64
	ResponseStatus *int64  // nil = no response
	Error          *string // nil = delivered
	Excerpt        string  // the beginning of the response's body
}

// A Day counts the attempts of an endpoint on one day (UTC).
type Day struct {
	Day               string // 2006-01-02
	Succeeded, Failed int64
}

// A Filter selects deliveries of an endpoint.
type Filter struct {
	Status string    // Pending, Delivered or Failed; "" = all
	Type   string    // one of Types; "" = all
	Before string    // id of a delivery: only older ones; "" = from the newest
	Since  time.Time // creation of the delivery; zero = any
	Until  time.Time // exclusive; zero = any
}

// IsStatus reports whether text is a state of a delivery.
func IsStatus(text string) bool { return text == Pending || text == Delivered || text == Failed }

// FilterDeliveries returns at most limit of an endpoint's deliveries, newest first, and whether there are older ones.
func (s *Store) FilterDeliveries(ctx context.Context, endpointID string, f Filter, limit int) ([]Delivery, bool,
	error) {
	if f.Status != "" && !IsStatus(f.Status) || f.Type != "" && !slices.Contains(Types, f.Type) {
		return nil, false, nil
	}
	list, err := filterDeliveries(ctx, s.db, endpointID, f, limit+1)
	if err != nil {
		return nil, false, fmt.Errorf("webhooks: deliveries: %w", err)
	}
	if len(list) > limit {
		return list[:limit], true, nil
	}
	return list, false, nil
}

// ListAttempts returns the latest attempts of a delivery, newest first.
func (s *Store) ListAttempts(ctx context.Context, deliveryID string) ([]Attempt, error) {
	list, err := listAttempts(ctx, s.db, deliveryID, maxListedAttempts)
	if err != nil {
		return nil, fmt.Errorf("webhooks: attempts: %w", err)
	}
	return list, nil
}

// ListDays returns the attempts by day of an app's endpoints, oldest day first, for the last n days with today. A day
// without attempts has zeros.
func (s *Store) ListDays(ctx context.Context, appID string, n int) (map[string][]Day, error) {
	today := s.now().UTC()
	found, err := listDays(ctx, s.db, appID, today.AddDate(0, 0, 1-n).Format(dayLayout))
	if err != nil {
		return nil, fmt.Errorf("webhooks: days: %w", err)
	}
	days := map[string][]Day{}
	for _, f := range found {
		list := days[f.endpointID]
		if list == nil {
			for i := range n {
				list = append(list, Day{Day: today.AddDate(0, 0, i+1-n).Format(dayLayout)})
			}
			days[f.endpointID] = list
		}
		if i := slices.IndexFunc(list, func(d Day) bool { return d.Day == f.Day.Day }); i >= 0 {
			list[i] = f.Day
		}
	}
	return days, nil
}

// Recover queues again, with all their attempts, the deliveries of an endpoint that were created from since on and have
// failed or wait for a retry, oldest first. It appends their events to the event log. It queues at most maxRecovered;
// more tells that there are others. A second call finds only what has failed again: a delivery that is delivered, or
// due now, stays as it is.
func (s *Store) Recover(ctx context.Context, e Endpoint, since time.Time) (queued int, more bool, err error) {
	now := s.now()
	if since.After(now) {
		return 0, false, apierr.InvalidRequest.Errorf("since: must not be in the future")
	}
	if oldest := now.Add(-s.Retention.Deliveries); since.Before(oldest) {
		since = oldest
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// Before the deliveries, in the order of queueEvents. Two calls follow one another.
		last, err := lockLog(ctx, tx)
		if err != nil {
			return err
		}
		list, err := listFailed(ctx, tx, e.ID, id.Floor(id.Delivery, since), now.UnixMicro(), maxRecovered+1)
		if err != nil {
			return err
		}
		if more = len(list) > maxRecovered; more {
			list = list[:maxRecovered]
		}
		if err := requeueDeliveries(ctx, tx, list, s.now().UnixMicro(), maxKeptAttempts); err != nil {
			return err
		}
		events := make([]rules.Event, len(list))
		for i, d := range list {
			events[i] = rules.Event{ID: d.EventID, AppID: e.AppID}
		}
		queued = len(list)
		return s.appendLog(ctx, tx, last, events...)
	})
	if err != nil {
		return 0, false, fmt.Errorf("webhooks: recover: %w", err)
	}
	return queued, more, nil
}

// recordAttempt records an attempt and its delivery in one transaction. It does nothing if the lease of the delivery
// now belongs to another node.
func (s *Store) recordAttempt(ctx context.Context, v Delivery, dueUS int64, o attemptOutcome) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		ours, err := updateDelivery(ctx, tx, v, dueUS)
		if err != nil || !ours {
			return err
		}
		if err := insertAttempt(ctx, tx, v.ID, o); err != nil {
			return err
		}
		day := s.now().UTC().Format(dayLayout)
		return countAttempt(ctx, tx, v.EndpointID, day, o.failed == "", v.Status == Failed)
	})
}

// FailedDay is a day on which each attempt to an active endpoint failed.
type FailedDay struct {
	Endpoint Endpoint
	Day      time.Time // its beginning (UTC)
	Failed   int64     // attempts
}

// ClaimFailedDays marks the past days that it has not looked at before as reported, and returns those on which an
// active endpoint only failed, if that was yesterday. Each day is returned to one caller. The caller calls again
// until done.
func (s *Store) ClaimFailedDays(ctx context.Context, tx *db.Tx) (list []FailedDay, done bool, err error) {
	today := s.now().UTC()
	days, err := claimDays(ctx, tx, today.Format(dayLayout), maxReportedPerTurn)
	if err != nil {
		return nil, false, fmt.Errorf("webhooks: failed days: %w", err)
	}
	midnight := time.Date(today.Year(), today.Month(), today.Day(), 0, 0, 0, 0, time.UTC)
	yesterday := midnight.AddDate(0, 0, -1)
	for _, d := range days {
		if d.Day.Day != yesterday.Format(dayLayout) || d.Succeeded > 0 || d.Failed == 0 {
			continue // older ones are of a time in which no node ran: old news
		}
		e, err := getEndpoint(ctx, tx, d.endpointID, "")
		if errors.Is(err, sql.ErrNoRows) || err == nil && e.Status != Active {
			continue
		} else if err != nil {
			return nil, false, fmt.Errorf("webhooks: failed days: %w", err)
		}
		list = append(list, FailedDay{e, yesterday, d.Failed})
	}
	return list, len(days) < maxReportedPerTurn, nil
}

// LostDay is a day on which deliveries to an active endpoint have failed for good.
type LostDay struct {
	Endpoint  Endpoint
	Lost      int64  // deliveries so far
	EventType string // of the newest one
}

// ClaimLostDays marks days on which deliveries have failed for good as reported, and returns those of active endpoints
// since yesterday. Each day is returned to one caller. The caller calls again until done.
func (s *Store) ClaimLostDays(ctx context.Context, tx *db.Tx) (list []LostDay, done bool, err error) {
	days, err := claimLostDays(ctx, tx, maxReportedPerTurn)
	if err != nil {
		return nil, false, fmt.Errorf("webhooks: lost deliveries: %w", err)
	}
	yesterday := s.now().UTC().AddDate(0, 0, -1).Format(dayLayout)
	for _, d := range days {
		e, err := getEndpoint(ctx, tx, d.endpointID, "")
		if errors.Is(err, sql.ErrNoRows) || err == nil && (e.Status != Active || d.Day.Day < yesterday) {
			continue // of an older day: of a time in which no node ran
		} else if err != nil {
			return nil, false, fmt.Errorf("webhooks: lost deliveries: %w", err)
		}
		newest, err := filterDeliveries(ctx, tx, e.ID, Filter{Status: Failed}, 1)
		if err != nil {
			return nil, false, fmt.Errorf("webhooks: lost deliveries: %w", err)
		}
		if len(newest) > 0 { // else it was sent again since
			list = append(list, LostDay{e, d.Failed, newest[0].EventType})
		}
	}
	return list, len(days) < maxReportedPerTurn, nil
}

// makeExcerpt returns the beginning of a response's body as text of at most size bytes. Bytes that are no text are
// replaced, so that every database and page can hold it.
func makeExcerpt(body []byte, size int) string {
	text := strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || unicode.IsPrint(c) {
			return c
		}
		return utf8.RuneError
	}, strings.ToValidUTF8(string(body[:min(len(body), size)]), string(utf8.RuneError)))
	for len(text) > size {
		_, n := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-n]
	}
	return text
}
