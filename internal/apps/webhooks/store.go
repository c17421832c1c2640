package webhooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// The states of contract §3, Webhook delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Failed    = "failed"
)

// A Delivery is one event for one endpoint, with its attempts.
type Delivery struct {
	ID, EndpointID, EventID, EventType string
	Status                             string // Pending, Delivered or Failed
	Attempts                           int
	NextUS                             *int64 // nil = no further attempt
	LastError                          *string
	ResponseStatus                     *int64
	DeliveredUS                        *int64
	CreatedUS                          int64
	lease                              string
}

// Retention is how long deliveries with their attempts, and the event log of an app are kept.
type Retention struct{ Deliveries, Events time.Duration }

// DefaultRetention is the retention if the operator sets none.
var DefaultRetention = Retention{
	Deliveries: 30 * 24 * time.Hour,
	Events:     90 * 24 * time.Hour,
}

const (
	maxListedDeliveries = 50  // deliveries that are listed (contract §8)
	maxEvents           = 100 // events of one response
)

// A Store reads and writes endpoints and deliveries.
type Store struct {
	db    *db.DB
	box   *seal.Box
	now   func() time.Time
	rules Addresses
	links web.Links

	samples *web.Limiter // sample events, by developer
	again   *web.Limiter // deliveries that are queued again one by one, by developer

	Retention Retention // DefaultRetention unless it is set before the Store is used
}

// NewStore returns a Store on d that seals secrets with box.
func NewStore(d *db.DB, box *seal.Box, now func() time.Time, rules Addresses, links web.Links) *Store {
	return &Store{
		db:        d,
		box:       box,
		now:       now,
		rules:     rules,
		links:     links,
		samples:   web.NewLimiter(time.Minute/samplesPerMinute, samplesBurst, now),
		again:     web.NewLimiter(time.Second, againBurst, now),
		Retention: DefaultRetention,
	}
}

// Rates of what a developer may have sent again and again for nothing. Each sample is an event, and a delivery to each
// of up to 20 endpoints.
const (
	samplesPerMinute = 10
	samplesBurst     = 300
	againBurst       = 1000 // one a second over time

	tooManySamples = "your apps may send 10 sample events a minute over time; slow down"
	tooManyAgain   = "your apps may send one delivery a second again over time; slow down, or recover a whole endpoint"
)

// checkRate counts a request of an app for its developer, or refuses it.
func (s *Store) checkRate(ctx context.Context, l *web.Limiter, appID, message string) error {
	developerID, err := findOwner(ctx, s.db, appID)
	if err != nil {
		return err
	}
	return l.Check(developerID, message)
}

// Get returns an endpoint of an app. The error wraps sql.ErrNoRows if the app has no such endpoint.
func (s *Store) Get(ctx context.Context, appID, endpointID string) (Endpoint, error) {
	return s.getEndpoint(ctx, s.db, appID, endpointID, "")
}

func (s *Store) getEndpoint(ctx context.Context, q db.Queryer, appID, endpointID, lock string) (Endpoint, error) {
	e, err := getEndpoint(ctx, q, endpointID, lock)
	if err == nil && e.AppID != appID {
		err = sql.ErrNoRows
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("webhooks: get: %w", err)
	}
	return e, nil
}

// List returns a page of an app's endpoints, newest first, and whether there are
// more.
func (s *Store) List(ctx context.Context, appID string, p web.Page) ([]Endpoint, bool, error) {
	list, err := listEndpoints(ctx, s.db, appID, p.StartingAfter, p.Limit+1, "")
	if err != nil {
		return nil, false, fmt.Errorf("webhooks: list: %w", err)
	}
	if len(list) > p.Limit {
		return list[:p.Limit], true, nil
	}
	return list, false, nil
}

// Create creates an endpoint and returns its secret, which is never shown again. An invalid member and a 21st endpoint
// are 400 invalid_request.
func (s *Store) Create(ctx context.Context, appID string, c Change) (e Endpoint, secret string, err error) {
	if !c.URL.Set {
		return e, "", apierr.InvalidRequest.Errorf("url: required")
	}
	if c.Status.Set {
		return e, "", apierr.InvalidRequest.Errorf(
			"status: not accepted here; a new endpoint is active")
	}
	now := s.now()
	e = Endpoint{
		ID:        id.New(id.Webhook, now),
		AppID:     appID,
		Status:    Active,
		CreatedUS: now.UnixMicro(),
	}
	if e, err = c.applyTo(e, s.rules); err != nil {
		return e, "", err
	}
	if secret, err = s.renewSecret(&e); err != nil {
		return e, "", err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := lockAndCount(ctx, tx, appID)
		if err != nil {
			return err
		}
		if n >= MaxPerApp {
			return apierr.InvalidRequest.Errorf("an app has at most %d webhook endpoints", MaxPerApp)
		}
		return insertEndpoint(ctx, tx, e)
	})
	if err != nil {
		return Endpoint{}, "", fmt.Errorf("webhooks: create: %w", err)
	}
	return e, secret, nil
}

// renewSecret seals a new secret into the endpoint and returns it unsealed.
func (s *Store) renewSecret(e *Endpoint) (secret string, err error) {
	secret = NewSecret()
	e.sealed, err = s.box.Seal([]byte(secret), secretPlace(e.ID))
	return secret, err
}

// openSecret returns the unsealed secret of an endpoint.
func (s *Store) openSecret(e Endpoint) (string, error) {
	plain, err := s.box.Open(e.sealed, secretPlace(e.ID))
	if err != nil {
		return "", fmt.Errorf("webhooks: secret of %s: %w", e.ID, err)
	}
	return string(plain), nil
}

// updateLocked locks an endpoint, applies f to it and stores the result.
func (s *Store) updateLocked(ctx context.Context, appID, endpointID string,
	f func(*Endpoint) error) (e Endpoint, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		if e, err = s.getEndpoint(ctx, tx, appID, endpointID, tx.Engine.ForUpdate()); err != nil {
			return err
		}
		if err := f(&e); err != nil {
			return err
		}
		return updateEndpoint(ctx, tx, e)
	})
	return e, err
}

// Patch changes an endpoint and returns it.
func (s *Store) Patch(ctx context.Context, appID, endpointID string, c Change) (Endpoint, error) {
	return s.updateLocked(ctx, appID, endpointID, func(e *Endpoint) (err error) {
		*e, err = c.applyTo(*e, s.rules)
		return err
	})
}

// RotateSecret replaces the secret of an endpoint and returns the new one. The old one is no longer used.
func (s *Store) RotateSecret(ctx context.Context, appID, endpointID string) (e Endpoint, secret string, err error) {
	e, err = s.updateLocked(ctx, appID, endpointID, func(e *Endpoint) (err error) {
		secret, err = s.renewSecret(e)
		return err
	})
	return e, secret, err
}

// Delete deletes an endpoint. Its deliveries are no longer sent or shown; Purge deletes their rows.
func (s *Store) Delete(ctx context.Context, appID, endpointID string) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := s.getEndpoint(ctx, tx, appID, endpointID, tx.Engine.ForUpdate()); err != nil {
			return err
		}
		return markDeleted(ctx, tx, s.now().UnixMicro(), "id", endpointID)
	})
}

// DeleteAppEndpoints deletes all endpoints of an app as Delete does, in the transaction that closes its owner's
// account.
func (s *Store) DeleteAppEndpoints(ctx context.Context, tx *db.Tx, appID string) error {
	if err := markDeleted(ctx, tx, s.now().UnixMicro(), "app_id", appID); err != nil {
		return fmt.Errorf("webhooks: erase: %w", err)
	}
	return nil
}

// GetPayload returns a delivery with its body. The error wraps sql.ErrNoRows if the endpoint has no such delivery.
func (s *Store) GetPayload(ctx context.Context, e Endpoint, deliveryID string) (Delivery, []byte, error) {
	d, err := getDelivery(ctx, s.db, e.ID, deliveryID, "")
	if err != nil {
		return d, nil, fmt.Errorf("webhooks: delivery: %w", err)
	}
	event, err := getEvent(ctx, s.db, d.EventID)
	if err != nil {
		return d, nil, fmt.Errorf("webhooks: event of %s: %w", d.ID, err)
	}
	m, err := event.makeMessage(s.links)
	if err != nil {
		return d, nil, err
	}
	body, err := json.Marshal(m)
	return d, body, err
}

// Redeliver queues a delivery again with all its attempts, and appends its event to the event log. The error wraps
// sql.ErrNoRows if there is no such delivery.
func (s *Store) Redeliver(ctx context.Context, e Endpoint, deliveryID string) (d Delivery, err error) {
	if err := s.checkRate(ctx, s.again, e.AppID, tooManyAgain); err != nil {
		return d, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := lockLog(ctx, tx) // before the delivery, in the order of queueEvents
		if err != nil {
			return err
		}
		if d, err = getDelivery(ctx, tx, e.ID, deliveryID, tx.Engine.ForUpdate()); err != nil {
			return err
		}
		if err := requeueDeliveries(ctx, tx, []Delivery{d}, s.now().UnixMicro(), maxKeptAttempts); err != nil {
			return err
		}
		if err := s.appendLog(ctx, tx, last, rules.Event{ID: d.EventID, AppID: e.AppID}); err != nil {
			return err
		}
		d, err = getDelivery(ctx, tx, e.ID, deliveryID, "")
		return err
	})
	return d, err
}

// SendTest queues a sample event for one endpoint. The endpoint need not subscribe to its type.
func (s *Store) SendTest(ctx context.Context, e Endpoint, kind string) (d Delivery, err error) {
	v, err := s.makeSampleEvent(e.AppID, kind)
	if err != nil {
		return d, err
	}
	if err := s.checkRate(ctx, s.samples, e.AppID, tooManySamples); err != nil {
		return d, err
	}
	now := time.UnixMicro(v.CreatedUS)
	d = Delivery{
		ID:         id.New(id.Delivery, now),
		EndpointID: e.ID,
		EventID:    v.ID,
		EventType:  v.Type,
		Status:     Pending,
		NextUS:     &v.CreatedUS,
		CreatedUS:  v.CreatedUS,
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := store.InsertTestEvent(ctx, tx, v, true); err != nil {
			return err
		}
		return insertDeliveries(ctx, tx, []Delivery{d})
	})
	return d, err
}

// TriggerSample sends a sample event to the subscribed endpoints and the event log of an app, like a real event.
func (s *Store) TriggerSample(ctx context.Context, appID, kind string) (any, error) {
	v, err := s.makeSampleEvent(appID, kind)
	if err != nil {
		return nil, err
	}
	if err := s.checkRate(ctx, s.samples, appID, tooManySamples); err != nil {
		return nil, err
	}
	var e storedEvent
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := store.InsertTestEvent(ctx, tx, v, false); err != nil {
			return err
		}
		e, err = getEvent(ctx, tx, v.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e.makeMessage(s.links)
}

func (s *Store) makeSampleEvent(appID, kind string) (rules.Event, error) {
	if !slices.Contains(Types, kind) {
		return rules.Event{}, apierr.InvalidRequest.Errorf("type: must be one of %s", strings.Join(Types, ", "))
	}
	now := s.now()
	data, err := makeSample(kind, appID, now)
	return rules.Event{
		ID:        id.New(id.Event, now),
		Type:      kind,
		AppID:     appID,
		Data:      data,
		CreatedUS: now.UnixMicro(),
	}, err
}

// An EventList is a part of an app's log of events.
type EventList struct {
	Events []any  // as they are delivered
	More   bool   // there are others behind Last
	Last   string // the cursor of the last of Events; "" = there are none
	After  string // the cursor of the newest that was read, from which later ones follow; "" = there is none
}

// ListEvents returns the events of an app behind a cursor, oldest first, or those before another cursor, newest first.
// With "" for both these are the newest.
func (s *Store) ListEvents(ctx context.Context, appID, after, before string, limit int) (l EventList, err error) {
	oldest := s.oldestLogged()
	var found []loggedEvent
	if after != "" {
		var place int64
		if place, err = s.resolveCursor(ctx, appID, "after", after, oldest); err == nil {
			found, err = listLoggedAfter(ctx, s.db, appID, oldest, place, limit+1)
		}
		l.More = len(found) > limit
		found = found[:min(len(found), limit)]
		if len(found) > 0 {
			l.After = found[len(found)-1].cursor
		} else if after != beginning {
			l.After = after
		}
	} else {
		place := int64(math.MaxInt64)
		if before != "" {
			place, err = s.resolveCursor(ctx, appID, "starting_after", before, oldest)
		}
		if err == nil {
			found, err = listLoggedBefore(ctx, s.db, appID, place, limit+1)
		}
		if len(found) > 0 && before == "" {
			l.After = found[0].cursor // also of an event that is no longer listed
		}
		found = slices.DeleteFunc(found, func(e loggedEvent) bool { return e.ID < oldest })
		l.More = len(found) > limit
		found = found[:min(len(found), limit)]
	}
	if err != nil {
		return EventList{}, err
	}
	l.Events = make([]any, len(found))
	for i := range found {
		if l.Events[i], err = found[i].makeMessage(s.links); err != nil {
			return EventList{}, err
		}
		l.Last = found[i].cursor
	}
	return l, nil
}

// oldestLogged is a lower bound of the ids of events that the log keeps.
func (s *Store) oldestLogged() string { return id.Floor(id.Event, s.now().Add(-s.Retention.Events)) }

// beginning is the cursor before the first event that the log keeps.
const beginning = "0"

// resolveCursor returns the place in the log of a cursor or an event. One that the log has not is 400 invalid_request,
// and so is one after which events have been deleted: the caller has missed some, or the database was restored to an
// earlier moment. Places themselves are no cursors, because a restored database has other events at them. Earlier
// versions gave them out, and marked no entry: of such entries they are taken.
func (s *Store) resolveCursor(ctx context.Context, appID, parameter, after, oldest string) (place int64, err error) {
	if after == beginning {
		return 0, nil
	}
	condition, value := `event_id = $2 AND app_id = $1`, any(after)
	if strings.HasPrefix(after, id.LogEntry) {
		condition = `entry_id = $2 AND app_id = $1`
	} else if n, err := strconv.ParseInt(after, 10, 64); err == nil {
		condition, value = `place = $2 AND app_id = $1 AND entry_id IS NULL`, n
	}
	place, err = findPlace(ctx, s.db, condition, appID, value, oldest)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, apierr.InvalidRequest.Errorf("%s: not a place in the events of this app that is still kept; "+
			"read your connections again, and go on with the newest event", parameter)
	}
	return place, err
}

// CountWaiting returns how many deliveries to enabled endpoints wait to be sent.
func (s *Store) CountWaiting(ctx context.Context) (int64, error) { return countWaiting(ctx, s.db) }

// Purge deletes deleted endpoints, old deliveries with their attempts, old counts of attempts, old entries of the event
// log and the test events that only they had.
func (s *Store) Purge(ctx context.Context) error {
	now := s.now()
	return errors.Join(purgeDeleted(ctx, s.db),
		deleteOldDeliveries(ctx, s.db, id.Floor(id.Delivery, now.Add(-s.Retention.Deliveries))),
		deleteOldDays(ctx, s.db, now.UTC().Add(-s.Retention.Deliveries).Format(dayLayout)),
		deleteOldLog(ctx, s.db, s.oldestLogged()),
		store.DeleteTestEvents(ctx, s.db, notSent,
			id.Floor(id.Event, now.Add(-max(s.Retention.Deliveries, s.Retention.Events)))))
}

// SealedColumn is the column of endpoints' secrets, for a change of the envelope key.
func (s *Store) SealedColumn() seal.Column {
	return seal.TableColumn(s.db, "webhooks.sealed", listSealed, replaceSealed, secretPlace)
}
