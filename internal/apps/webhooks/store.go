package webhooks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
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

// A Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID, EndpointID, EventID, EventType string
	Status                             string // Pending, Delivered or Failed
	Attempts                           int
	NextUS                             *int64 // nil when there is no further attempt
	LastError                          *string
	ResponseStatus                     *int64
	DeliveredUS                        *int64
	CreatedUS                          int64
	lease                              string
}

// LogKept is how long an app can read what it was told.
const LogKept = 90 * 24 * time.Hour

const (
	maxListedDeliveries = 50                  // deliveries that are listed (contract §8)
	retention           = 30 * 24 * time.Hour // how long finished deliveries are kept
	maxEvents           = 100                 // events of one answer
)

// A Store reads and writes endpoints and deliveries.
type Store struct {
	db    *db.DB
	box   *seal.Box
	now   func() time.Time
	rules Addresses
	links web.Links
}

// NewStore returns a Store on d that seals secrets with box.
func NewStore(d *db.DB, box *seal.Box, now func() time.Time, rules Addresses, links web.Links) *Store {
	return &Store{d, box, now, rules, links}
}

// Get returns an endpoint of an app; the error wraps sql.ErrNoRows when it has no
// such one.
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

// Create adds the endpoint that c describes and returns its secret, which is never
// shown again. A wrong member and a 21st endpoint are 400 invalid_request.
func (s *Store) Create(ctx context.Context, appID string, c Change) (e Endpoint, secret string, err error) {
	if !c.URL.Set {
		return e, "", apierr.InvalidRequest.Errorf("url: required")
	}
	if c.Status.Set {
		return e, "", apierr.InvalidRequest.Errorf(
			"status: is not a member that this request takes; a new endpoint is active")
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

// renewSecret gives an endpoint a new secret and returns it in clear.
func (s *Store) renewSecret(e *Endpoint) (secret string, err error) {
	secret = NewSecret()
	e.sealed, err = s.box.Seal([]byte(secret), secretPlace(e.ID))
	return secret, err
}

// openSecret returns the secret of the moment in clear.
func (s *Store) openSecret(e Endpoint) (string, error) {
	plain, err := s.box.Open(e.sealed, secretPlace(e.ID))
	if err != nil {
		return "", fmt.Errorf("webhooks: secret of %s: %w", e.ID, err)
	}
	return string(plain), nil
}

// updateLocked runs f on an endpoint that nobody else changes meanwhile, and stores what
// f made of it.
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

// Patch changes an endpoint and returns the whole of it.
func (s *Store) Patch(ctx context.Context, appID, endpointID string, c Change) (Endpoint, error) {
	return s.updateLocked(ctx, appID, endpointID, func(e *Endpoint) (err error) {
		*e, err = c.applyTo(*e, s.rules)
		return err
	})
}

// RotateSecret gives an endpoint a new secret and returns it; the old one signs nothing
// from now on.
func (s *Store) RotateSecret(ctx context.Context, appID, endpointID string) (e Endpoint, secret string, err error) {
	e, err = s.updateLocked(ctx, appID, endpointID, func(e *Endpoint) (err error) {
		secret, err = s.renewSecret(e)
		return err
	})
	return e, secret, err
}

// Delete forgets an endpoint and drops what waits for it.
func (s *Store) Delete(ctx context.Context, appID, endpointID string) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := s.getEndpoint(ctx, tx, appID, endpointID, tx.Engine.ForUpdate()); err != nil {
			return err
		}
		return deleteEndpoint(ctx, tx, endpointID)
	})
}

// DeleteAppEndpoints forgets all endpoints of an app with what waits for them, in the
// transaction that closes its owner's account.
func (s *Store) DeleteAppEndpoints(ctx context.Context, tx *db.Tx, appID string) error {
	if err := deleteAppEndpoints(ctx, tx, appID); err != nil {
		return fmt.Errorf("webhooks: erase: %w", err)
	}
	return nil
}

// ListDeliveries returns the latest deliveries of an endpoint, newest first.
func (s *Store) ListDeliveries(ctx context.Context, endpointID string) ([]Delivery, error) {
	return listDeliveries(ctx, s.db, endpointID, maxListedDeliveries)
}

// GetPayload returns a delivery with the body that it sends; the error wraps
// sql.ErrNoRows when the endpoint has no such delivery.
func (s *Store) GetPayload(ctx context.Context, e Endpoint, deliveryID string) (Delivery, []byte, error) {
	d, err := getDelivery(ctx, s.db, e.ID, deliveryID, "")
	if err != nil {
		return d, nil, fmt.Errorf("webhooks: delivery: %w", err)
	}
	told, err := getEvent(ctx, s.db, d.EventID)
	if err != nil {
		return d, nil, fmt.Errorf("webhooks: event of %s: %w", d.ID, err)
	}
	m, err := told.makeMessage(s.links)
	if err != nil {
		return d, nil, err
	}
	body, err := json.Marshal(m)
	return d, body, err
}

// Redeliver sends an event again, with a whole new round of tries, and tells
// whoever reads the log. The error wraps sql.ErrNoRows when there is no such
// delivery.
func (s *Store) Redeliver(ctx context.Context, e Endpoint, deliveryID string) (d Delivery, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := lockLog(ctx, tx) // first, as in PassOn
		if err != nil {
			return err
		}
		if d, err = getDelivery(ctx, tx, e.ID, deliveryID, tx.Engine.ForUpdate()); err != nil {
			return err
		}
		if err := requeueDelivery(ctx, tx, d.ID, s.now().UnixMicro()); err != nil {
			return err
		}
		if err := appendLog(ctx, tx, last, rules.Event{ID: d.EventID, AppID: e.AppID}); err != nil {
			return err
		}
		d, err = getDelivery(ctx, tx, e.ID, deliveryID, "")
		return err
	})
	return d, err
}

// SendTest queues a sample event for one endpoint, whatever it subscribes to.
func (s *Store) SendTest(ctx context.Context, e Endpoint, kind string) (d Delivery, err error) {
	v, err := s.makeSampleEvent(e.AppID, kind)
	if err != nil {
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
		return insertDelivery(ctx, tx, d)
	})
	return d, err
}

// Trigger tells an app a sample event, as if it had happened: its endpoints and its
// log get it.
func (s *Store) Trigger(ctx context.Context, appID, kind string) (any, error) {
	v, err := s.makeSampleEvent(appID, kind)
	if err != nil {
		return nil, err
	}
	var told storedEvent
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := store.InsertTestEvent(ctx, tx, v, false); err != nil {
			return err
		}
		told, err = getEvent(ctx, tx, v.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return told.makeMessage(s.links)
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

// ListEvents returns what an app was told after an event or a place, oldest first; or,
// without either, the last of it, newest first. The place is where to go on.
func (s *Store) ListEvents(ctx context.Context, appID, after string, limit int) (list []any, at int64, err error) {
	var found []loggedEvent
	if after == "" {
		found, err = listNewestLogged(ctx, s.db, appID, limit)
	} else if at, err = s.resolveCursor(ctx, appID, after); err == nil {
		found, err = listLoggedAfter(ctx, s.db, appID, at, limit)
	}
	if err != nil {
		return nil, 0, err
	}
	list = make([]any, len(found))
	for i := range found {
		if list[i], err = found[i].makeMessage(s.links); err != nil {
			return nil, 0, err
		}
		at = max(at, found[i].place)
	}
	return list, at, nil
}

func (s *Store) resolveCursor(ctx context.Context, appID, after string) (int64, error) {
	if n, err := strconv.ParseUint(after, 10, 63); err == nil {
		return int64(n), nil
	}
	at, err := getCursor(ctx, s.db, appID, after)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, apierr.InvalidRequest.Errorf(
			"after: must be the id of an event of this app, or what the header Link of an earlier answer has")
	}
	return at, err
}

// Purge forgets old deliveries, and what apps were told long ago.
func (s *Store) Purge(ctx context.Context) error {
	now := s.now()
	return errors.Join(deleteOldDeliveries(ctx, s.db, id.Floor(id.Delivery, now.Add(-retention))),
		deleteOldLog(ctx, s.db, id.Floor(id.Event, now.Add(-LogKept))))
}
