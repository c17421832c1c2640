package webhooks

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// retryDelays is when a failed delivery is tried again, each time from the failure
// before (contract §6).
var retryDelays = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,
	15 * time.Hour}

const (
	maxConcurrent = 16 // attempts that run at a time for an endpoint
	// attempts that a node begins for an endpoint: one whose handler makes events is no loop without a bound (F-78)
	maxPerSecond    = 100
	suspectFailures = 3   // failures in a row after which an endpoint gets one attempt at a time
	queueBatch      = 200 // events that are passed on in one transaction
	pollEvery       = 500 * time.Millisecond
	drainTimeout    = 5 * time.Second // what attempts under way get to finish when the node stops
	storeFor        = 10 * time.Second
	leaseTTL        = 2 * attemptTimeout // lease of an attempt: what is late is over, and only then made again
	failureMemory   = 24 * time.Hour     // how long an endpoint's failures are remembered
	jitterPermille  = 30                 // of 1000: how far retries spread either way, within the ±5 % of decision 040
)

// A Dispatcher is one node's share of the work. Any number of them may work on one
// database: what one has claimed, the others leave alone until the lease is over,
// and then one of them tries again, so that every delivery is made at least once.
type Dispatcher struct {
	store  *Store
	client *http.Client
	log    *slog.Logger
	wake   chan struct{} // there may be more to do: an attempt has ended, or events wait

	mu    sync.Mutex
	loads map[string]*endpointLoad // by endpoint
	tasks sync.WaitGroup
}

// endpointLoad is what this node does for an endpoint just now.
type endpointLoad struct {
	running  int
	failures int   // in a row
	second   int64 // in which it got its last attempt,
	begun    int   // and how many it got there
}

// Options are what a Dispatcher may be given; the zero value is production.
type Options struct {
	Resolver *net.Resolver // nil = the system's
	TLS      *tls.Config   // nil = the system's roots
}

// NewDispatcher returns a Dispatcher of the deliveries in s.
func NewDispatcher(s *Store, log *slog.Logger, o Options) *Dispatcher {
	return &Dispatcher{
		store:  s,
		client: newClient(s.rules, o.Resolver, o.TLS),
		log:    log,
		wake:   make(chan struct{}, 1),
		loads:  map[string]*endpointLoad{},
	}
}

// Run works until ctx ends. Attempts under way may then finish for a moment; the
// others are given back, and another node makes them.
func (d *Dispatcher) Run(ctx context.Context) error {
	attempts, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := d.runRound(ctx, attempts); err != nil && ctx.Err() == nil {
			d.log.Error("webhooks: a round failed", "error", err)
		}
		select {
		case <-tick.C:
		case <-d.wake:
		case <-ctx.Done():
			late := time.AfterFunc(drainTimeout, cut)
			defer late.Stop()
			d.tasks.Wait()
			return nil
		}
	}
}

// runRound passes some new events on, and begins as many due attempts as there is
// room for: a flood of events does not hold up what is due.
func (d *Dispatcher) runRound(ctx, attempts context.Context) error {
	if err := d.queueEvents(ctx); err != nil {
		return err
	}
	claimed, err := d.claimDue(ctx)
	for _, v := range claimed {
		d.tasks.Go(func() {
			d.runAttempt(attempts, v)
			d.requestRound()
		})
	}
	return err
}

// requestRound asks for another round soon.
func (d *Dispatcher) requestRound() {
	select {
	case d.wake <- struct{}{}:
	default: // somebody else has said it
	}
}

// queueEvents turns new events into deliveries: in one transaction they are marked,
// written to the log, and queued for every endpoint that wants them.
func (d *Dispatcher) queueEvents(ctx context.Context) error {
	s := d.store
	if some, err := store.HasUnclaimedEvents(ctx, s.db); err != nil || !some {
		return err
	}
	var events []rules.Event
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := lockLog(ctx, tx)
		if err != nil {
			return err
		}
		if events, err = store.ClaimEvents(ctx, tx, queueBatch); err != nil {
			return err
		}
		if err := appendLog(ctx, tx, last, events...); err != nil {
			return err
		}
		return s.queueDeliveries(ctx, tx, events)
	})
	if err != nil {
		return fmt.Errorf("pass on events: %w", err)
	}
	if len(events) == queueBatch {
		d.requestRound()
	}
	return nil
}

// queueDeliveries makes the deliveries of events. A disabled endpoint gets them too: they
// wait. The endpoints are locked, so that none is deleted meanwhile.
func (s *Store) queueDeliveries(ctx context.Context, tx *db.Tx, events []rules.Event) (err error) {
	known := map[string][]Endpoint{} // by app
	for _, e := range events {
		list, ok := known[e.AppID]
		if !ok {
			if list, err = listEndpoints(ctx, tx, e.AppID, "", MaxPerApp, tx.Engine.ForUpdate()); err != nil {
				return err
			}
			known[e.AppID] = list
		}
		for _, to := range list {
			if !to.wants(e.Type) {
				continue
			}
			now := s.now()
			if err := insertDelivery(ctx, tx, Delivery{
				ID:         id.New(id.Delivery, now),
				EndpointID: to.ID,
				EventID:    e.ID,
				EventType:  e.Type,
				CreatedUS:  now.UnixMicro(),
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimDue leases due deliveries for this node, for each endpoint what it has room
// for: one that is slow or dead fills its own room, and nobody else's (F-76).
func (d *Dispatcher) claimDue(ctx context.Context) (claimed []Delivery, err error) {
	s := d.store
	waiting, err := listReadyEndpoints(ctx, s.db, s.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	room := d.computeCapacities(waiting)
	if len(room) == 0 {
		return nil, nil
	}
	lease := id.NewUUID()
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		claimed = nil // what a try that lost a conflict had claimed
		now := s.now()
		for _, endpointID := range slices.Sorted(maps.Keys(room)) {
			list, err := claimDeliveries(ctx, tx, endpointID, lease, now.UnixMicro(), now.Add(leaseTTL).UnixMicro(),
				room[endpointID])
			if err != nil {
				return err
			}
			claimed = append(claimed, list...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	slices.SortFunc(claimed, func(a, b Delivery) int { return cmp.Compare(a.ID, b.ID) })
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range claimed {
		l := d.getLoad(v.EndpointID)
		l.running++
		l.begun++
	}
	return claimed, nil
}

// getLoad returns what is done for an endpoint. d.mu is held.
func (d *Dispatcher) getLoad(endpointID string) *endpointLoad {
	l := d.loads[endpointID]
	if l == nil {
		l = &endpointLoad{}
		d.loads[endpointID] = l
	}
	return l
}

// computeCapacities is how many more attempts each of these endpoints may have just now. What
// is long over is forgotten.
func (d *Dispatcher) computeCapacities(endpoints []string) map[string]int {
	now := d.store.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.loads, func(_ string, l *endpointLoad) bool {
		return l.running == 0 && l.second != now.Unix() && (l.failures == 0 ||
			now.Sub(time.Unix(l.second, 0)) > failureMemory)
	})
	room := map[string]int{}
	for _, endpointID := range endpoints {
		if n := d.getLoad(endpointID).computeCapacity(now); n > 0 {
			room[endpointID] = n
		}
	}
	return room
}

// computeCapacity is how many more attempts the endpoint may have.
func (l *endpointLoad) computeCapacity(now time.Time) int {
	if l.second != now.Unix() {
		l.second, l.begun = now.Unix(), 0
	}
	most := maxConcurrent
	if l.failures >= suspectFailures {
		most = 1
	}
	return min(most-l.running, maxPerSecond-l.begun)
}

// recordEnd takes an attempt off the load. Only what an endpoint answered says how it is.
func (d *Dispatcher) recordEnd(endpointID string, tried, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.getLoad(endpointID)
	l.running--
	if failed {
		l.failures++
	} else if tried {
		l.failures = 0
	}
}

// runAttempt makes one attempt of a claimed delivery and writes down what came of it.
func (d *Dispatcher) runAttempt(ctx context.Context, v Delivery) {
	o, tried, err := d.sendDelivery(ctx, v)
	d.recordEnd(v.EndpointID, tried, tried && o.failed != "")
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeFor)
	defer cancel()
	now := d.store.now()
	switch {
	case err != nil:
		// The lease runs out, and then the delivery is tried again.
		d.log.Error("webhooks: an attempt could not be made", "delivery", v.ID, "endpoint", v.EndpointID, "error", err)
		return
	case !tried:
		err = releaseDelivery(storing, d.store.db, v, now.UnixMicro())
	default:
		v.applyOutcome(o, now)
		due := now.UnixMicro()
		if v.NextUS != nil {
			due = *v.NextUS
		}
		err = updateDelivery(storing, d.store.db, v, due)
	}
	if err != nil { // as above
		d.log.Error("webhooks: an attempt could not be recorded", "delivery", v.ID, "endpoint", v.EndpointID,
			"error", err)
	}
}

// applyOutcome enters an attempt (contract §3, Webhook delivery).
func (v *Delivery) applyOutcome(o attemptOutcome, now time.Time) {
	v.Attempts++
	v.NextUS, v.LastError, v.ResponseStatus = nil, nil, nil
	if o.status != 0 {
		status := int64(o.status)
		v.ResponseStatus = &status
	}
	us := now.UnixMicro()
	switch {
	case o.failed == "":
		v.Status, v.DeliveredUS = Delivered, &us
		return
	case v.Attempts > len(retryDelays):
		v.Status = Failed
	default:
		wait := retryDelays[v.Attempts-1]
		wait += wait / 1000 * time.Duration(rand.IntN(2*jitterPermille+1)-jitterPermille) // not all at once
		us += wait.Microseconds()
		v.NextUS = &us
	}
	v.LastError = &o.failed
}

// sendDelivery sends a delivery as its endpoint is at this moment: disabled means not now,
// deleted means never, and the secret is the one that holds now (F-80).
func (d *Dispatcher) sendDelivery(ctx context.Context, v Delivery) (o attemptOutcome, tried bool, err error) {
	s := d.store
	to, err := getEndpoint(ctx, s.db, v.EndpointID, "")
	if errors.Is(err, sql.ErrNoRows) || err == nil && to.Status != Active {
		return o, false, nil
	} else if err != nil {
		return o, false, err
	}
	secret, err := s.openSecret(to)
	if err != nil {
		return o, false, err
	}
	e, err := getEvent(ctx, s.db, v.EventID)
	if err != nil {
		return o, false, err
	}
	m, err := e.makeMessage(s.links)
	if err != nil {
		return o, false, err
	}
	body, err := json.Marshal(m)
	if err != nil {
		return o, false, err
	}
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {"Purser-Webhooks"}}
	if err := Sign(header, secret, e.ID, body, s.now()); err != nil {
		return o, false, err
	}
	if rule := s.rules.findProblem(to.URL); rule != "" { // the rules may have changed since
		return attemptOutcome{failed: "the URL " + rule}, true, nil
	}
	o = postDelivery(ctx, d.client, to.URL, header, body)
	return o, o.failed == "" || ctx.Err() == nil, nil // cut by our stop is no attempt
}
