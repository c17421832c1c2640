package webhooks

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/purserhq/purser/internal/ledger/rules"
)

// A Trace is an event with its deliveries, one for each endpoint that subscribes to it. Deliveries are kept as long as
// Retention says.
type Trace struct {
	EventID, Type, AppID string
	CreatedUS            int64
	Deliveries           []Delivery
}

// GetTrace returns an event with its deliveries. The error wraps sql.ErrNoRows if there is no such event.
func (s *Store) GetTrace(ctx context.Context, eventID string) (Trace, error) {
	e, err := getEvent(ctx, s.db, eventID)
	if err != nil {
		return Trace{}, fmt.Errorf("webhooks: event: %w", err)
	}
	return s.traceEvent(ctx, &e)
}

// ListCallTraces returns the events that a ledger row of a call caused: those of its connection from the transaction of
// the row, without those about other calls.
func (s *Store) ListCallTraces(ctx context.Context, row *rules.Entry) ([]Trace, error) {
	events, err := listCreatedEvents(ctx, s.db, row.AppID, row.ConnectionID, row.CreatedUS)
	if err != nil {
		return nil, fmt.Errorf("webhooks: events of %s: %w", row.ID, err)
	}
	var list []Trace
	for i := range events {
		e := &events[i]
		var data struct {
			Request *struct{ ID string }
		}
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil {
			return nil, fmt.Errorf("webhooks: data of %s: %w", e.ID, err)
		}
		if data.Request != nil && data.Request.ID != row.RequestID() {
			continue
		}
		t, err := s.traceEvent(ctx, e)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func (s *Store) traceEvent(ctx context.Context, e *storedEvent) (Trace, error) {
	list, err := listEventDeliveries(ctx, s.db, e.AppID, e.ID)
	if err != nil {
		return Trace{}, fmt.Errorf("webhooks: deliveries of %s: %w", e.ID, err)
	}
	return Trace{
		EventID:    e.ID,
		Type:       e.Type,
		AppID:      e.AppID,
		CreatedUS:  e.CreatedUS,
		Deliveries: list,
	}, nil
}

// FindDelivery returns a delivery and the app of its endpoint. The error wraps sql.ErrNoRows if there is none.
func (s *Store) FindDelivery(ctx context.Context, deliveryID string) (d Delivery, appID string, err error) {
	if d, err = findDelivery(ctx, s.db, deliveryID); err != nil {
		return d, "", fmt.Errorf("webhooks: delivery: %w", err)
	}
	e, err := getEndpoint(ctx, s.db, d.EndpointID, "")
	if err != nil {
		return d, "", fmt.Errorf("webhooks: endpoint of %s: %w", d.ID, err)
	}
	return d, e.AppID, nil
}
