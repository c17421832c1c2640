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
	"github.com/purserhq/purser/internal/base/shares"
	"github.com/purserhq/purser/internal/base/ticks"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// retryDelays are the waits before each retry of a failed delivery, from the failure before it (contract §6).
var retryDelays = []time.Duration{time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 6 * time.Hour,
	15 * time.Hour}

const (
	maxConcurrent = 16 // concurrent attempts of an endpoint
	// maxAttempts bounds the concurrent attempts of a node. Developers share them (decision 100): one who has many
	// endpoints that answer slowly takes neither the sockets of the node nor the attempts of others.
	maxAttempts = 512
	// maxPerSecond bounds the attempts that a node starts for an endpoint. It also bounds the loop of an endpoint whose
	// handler causes new events (F-78).
	maxPerSecond    = 100
	suspectFailures = 3   // failures in a row after which an endpoint gets one attempt at a time
	maxQueueBatch   = 200 // events that become deliveries in one transaction
	claimedPerTx    = 50  // endpoints whose deliveries one transaction claims
	pollInterval    = 500 * time.Millisecond
	drainTimeout    = 5 * time.Second    // for running attempts when the node stops
	storeTimeout    = 10 * time.Second   // for the transaction that records an attempt
	leaseTTL        = 2 * attemptTimeout // an attempt has ended before its lease expires and another node retries it
	failureMemory   = 24 * time.Hour     // how long the failures of an endpoint count
	jitterPermille  = 30                 // spread of retries in both directions, within the ±5 % of decision 040
)

// A Dispatcher sends deliveries on one node. Several dispatchers may share a database: each leases the deliveries that
// it sends, and after the lease expires another one retries them. So each delivery is sent at least once.
type Dispatcher struct {
	store  *Store
	client *http.Client
	log    *slog.Logger
	ticks  ticks.Source
	wake   chan struct{} // requests a round: an attempt has ended, or more events wait

	batch int // events of the next transaction; of the one goroutine that runs rounds

	mu      sync.Mutex
	loads   map[string]*endpointLoad // by endpoint
	running shares.Use               // attempts, by developer
	tasks   sync.WaitGroup
}

// endpointLoad counts the attempts of this node for an endpoint.
type endpointLoad struct {
	running  int
	ownerID  string // the developer for whom they count
	failures int    // consecutive
	second   int64  // Unix time of the last attempt
	begun    int    // attempts in that second
}

// Options configure a Dispatcher. The zero value is for production.
type Options struct {
	Resolver *net.Resolver // nil = the system's
	TLS      *tls.Config   // nil = the system's roots
	Ticks    ticks.Source  // when Run looks for what is due
}

// NewDispatcher returns a Dispatcher of the deliveries in s.
func NewDispatcher(s *Store, log *slog.Logger, o Options) *Dispatcher {
	return &Dispatcher{
		store:  s,
		client: newClient(s.rules, o.Resolver, o.TLS),
		log:    log,
		ticks:  o.Ticks,
		wake:   make(chan struct{}, 1),
		batch:  maxQueueBatch,
		loads:  map[string]*endpointLoad{},
	}
}

// Run sends deliveries until ctx ends. Running attempts then have drainTimeout to finish; unfinished ones are released
// for another node.
func (d *Dispatcher) Run(ctx context.Context) error {
	attempts, cancelAttempts := context.WithCancel(context.WithoutCancel(ctx))
	defer cancelAttempts()
	tick, stop := d.ticks.Every(pollInterval)
	defer stop()
	for {
		if err := d.runRound(ctx, attempts); err != nil && ctx.Err() == nil {
			d.log.Error("webhook round failed", "error", err)
		}
		select {
		case <-tick:
		case <-d.wake:
		case <-ctx.Done():
			timer := time.AfterFunc(drainTimeout, cancelAttempts)
			defer timer.Stop()
			d.tasks.Wait()
			return nil
		}
	}
}

// RunDue makes the deliveries of all new events and every attempt that is due, and returns when the
// attempts have ended. It is for a process that does not call Run.
func (d *Dispatcher) RunDue(ctx context.Context) error {
	for {
		select {
		case <-d.wake: // requested by the round before
		default:
		}
		if err := d.runRound(ctx, ctx); err != nil {
			return err
		}
		d.tasks.Wait()
		if len(d.wake) == 0 {
			return nil
		}
	}
}

// runRound makes deliveries of one batch of new events, and starts as many due attempts as the limits allow. The batch
// bounds how long many new events delay due attempts.
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

// requestRound makes Run start another round.
func (d *Dispatcher) requestRound() {
	select {
	case d.wake <- struct{}{}:
	default: // a round is already requested
	}
}

// queueEvents claims new events, appends them to the event log and queues their deliveries, in one transaction. After
// one that the database did not carry out in time the next has half as many: no events wait for good because they are
// many.
func (d *Dispatcher) queueEvents(ctx context.Context) error {
	if some, err := store.HasUnclaimedEvents(ctx, d.store.db); err != nil || !some {
		return err
	}
	return d.queueBatch(ctx)
}

func (d *Dispatcher) queueBatch(ctx context.Context) error {
	s, more := d.store, false
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := lockLog(ctx, tx)
		if err != nil {
			return err
		}
		var events []rules.Event
		if events, more, err = store.ClaimEvents(ctx, tx, d.batch); err != nil {
			return err
		}
		if err := s.appendLog(ctx, tx, last, events...); err != nil {
			return err
		}
		return s.queueDeliveries(ctx, tx, events)
	})
	if err != nil {
		d.batch = max(d.batch/2, 1)
		return fmt.Errorf("queue events: %w", err)
	}
	d.batch = min(2*d.batch, maxQueueBatch)
	if more {
		d.requestRound()
	}
	return nil
}

// queueDeliveries inserts the deliveries of events. Deliveries to a disabled endpoint wait until it is active. It locks
// the endpoints, so that none is deleted before the transaction ends.
func (s *Store) queueDeliveries(ctx context.Context, tx *db.Tx, events []rules.Event) (err error) {
	endpoints := map[string][]Endpoint{} // by app
	var deliveries []Delivery
	now := s.now()
	for _, e := range events {
		list, ok := endpoints[e.AppID]
		if !ok {
			if list, err = listEndpoints(ctx, tx, e.AppID, "", MaxPerApp, tx.Engine.ForUpdate()); err != nil {
				return err
			}
			endpoints[e.AppID] = list
		}
		for _, to := range list {
			if !to.wants(e.Type) {
				continue
			}
			deliveries = append(deliveries, Delivery{
				ID:         id.New(id.Delivery, now),
				EndpointID: to.ID,
				EventID:    e.ID,
				EventType:  e.Type,
				CreatedUS:  now.UnixMicro(),
			})
		}
	}
	return insertDeliveries(ctx, tx, deliveries)
}

// claimDue leases due deliveries for this node, for each endpoint up to its capacity. A slow or dead endpoint uses up
// only its own capacity (F-76).
func (d *Dispatcher) claimDue(ctx context.Context) (claimed []Delivery, err error) {
	s := d.store
	waiting, err := listReadyEndpoints(ctx, s.db, s.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	capacities, some := d.reserveAttempts(waiting)
	if len(capacities) == 0 {
		return nil, nil
	}
	defer func() {
		if left := d.beginAttempts(capacities, claimed); left && some && len(claimed) > 0 {
			d.requestRound() // for the endpoints that had no room
		}
	}()
	for endpoints := range slices.Chunk(slices.Sorted(maps.Keys(capacities)), claimedPerTx) {
		list, claimErr := d.claimOf(ctx, endpoints, capacities)
		if err = claimErr; err != nil {
			break // what is claimed is sent all the same
		}
		claimed = append(claimed, list...)
	}
	slices.SortFunc(claimed, func(a, b Delivery) int { return cmp.Compare(a.ID, b.ID) })
	return claimed, err
}

// claimOf leases due deliveries of some endpoints in one transaction.
func (d *Dispatcher) claimOf(ctx context.Context, endpoints []string, capacities map[string]int) (claimed []Delivery,
	err error) {
	lease := id.NewUUID()
	err = d.store.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		claimed = nil // of a transaction that was retried
		now := d.store.now()
		for _, endpointID := range endpoints {
			list, err := claimDeliveries(ctx, tx, endpointID, lease, now.UnixMicro(), now.Add(leaseTTL).UnixMicro(),
				capacities[endpointID])
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
	return claimed, nil
}

// getLoad returns the load of an endpoint. d.mu is held.
func (d *Dispatcher) getLoad(endpointID string) *endpointLoad {
	l := d.loads[endpointID]
	if l == nil {
		l = &endpointLoad{}
		d.loads[endpointID] = l
	}
	return l
}

// reserveAttempts returns how many more attempts may start now, by endpoint, without endpoints that have none. Those
// count as running until beginAttempts says how many there are. Endpoints come in random order, so that none is always
// the last when their developer has no more attempts; some tells that there were such endpoints. It deletes old loads.
func (d *Dispatcher) reserveAttempts(endpoints []readyEndpoint) (capacities map[string]int, some bool) {
	now := d.store.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.loads, func(_ string, l *endpointLoad) bool {
		return l.running == 0 && l.second != now.Unix() && (l.failures == 0 ||
			now.Sub(time.Unix(l.second, 0)) > failureMemory)
	})
	capacities = map[string]int{}
	rand.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
	for _, e := range endpoints {
		l := d.getLoad(e.id)
		if l.running == 0 {
			l.ownerID = e.ownerID
		}
		n, most := 0, l.computeCapacity(now)
		for n < most && d.running.Take(l.ownerID, 1, maxAttempts) == nil {
			n++
		}
		some = some || n < most
		if n > 0 {
			l.running += n
			capacities[e.id] = n
		}
	}
	return capacities, some
}

// beginAttempts gives back what was reserved and not claimed, and counts what was. left tells that something was given
// back.
func (d *Dispatcher) beginAttempts(reserved map[string]int, claimed []Delivery) (left bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begun := map[string]int{}
	for _, v := range claimed {
		begun[v.EndpointID]++
	}
	for endpointID, n := range reserved {
		l := d.getLoad(endpointID)
		l.begun += begun[endpointID]
		l.running -= n - begun[endpointID]
		d.running.Add(l.ownerID, int64(begun[endpointID]-n))
		left = left || begun[endpointID] < n
	}
	return left
}

// computeCapacity returns how many more attempts of the endpoint may start now.
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

// recordEnd removes an attempt from the load. An attempt that was not made does not change the count of failures.
func (d *Dispatcher) recordEnd(endpointID string, tried, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.getLoad(endpointID)
	l.running--
	d.running.Add(l.ownerID, -1)
	if failed {
		l.failures++
	} else if tried {
		l.failures = 0
	}
}

// runAttempt makes one attempt of a claimed delivery and records its outcome.
func (d *Dispatcher) runAttempt(ctx context.Context, v Delivery) {
	o, tried, err := d.sendDelivery(ctx, v)
	d.recordEnd(v.EndpointID, tried, tried && o.failed != "")
	storing, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	now := d.store.now()
	switch {
	case err != nil:
		// The delivery is retried after its lease expires.
		d.log.Error("webhook attempt not made", "delivery_id", v.ID, "endpoint_id", v.EndpointID, "error", err)
		return
	case !tried:
		err = releaseDelivery(storing, d.store.db, v, now.UnixMicro())
	default:
		v.applyOutcome(o, now)
		due := now.UnixMicro()
		if v.NextUS != nil {
			due = *v.NextUS
		}
		err = d.store.recordAttempt(storing, v, due, o)
	}
	if err != nil { // as above
		d.log.Error("webhook attempt not recorded", "delivery_id", v.ID, "endpoint_id", v.EndpointID, "error", err)
	}
}

// applyOutcome updates the delivery after an attempt (contract §3, Webhook delivery).
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
		wait += wait / 1000 * time.Duration(rand.IntN(2*jitterPermille+1)-jitterPermille) // spread retries
		us += wait.Microseconds()
		v.NextUS = &us
	}
	v.LastError = &o.failed
}

// sendDelivery sends a delivery with the present URL and secret of its endpoint (F-80). It returns tried = false if the
// endpoint is disabled or deleted, or if the node stopped during the attempt.
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
	if err := Sign(header, secret, e.ID, body, s.db.RealNow()); err != nil { // receivers compare it with their clock
		return o, false, err
	}
	if rule := s.rules.findProblem(to.URL); rule != "" { // the rules may have changed since
		return attemptOutcome{begun: s.now(), failed: "the URL " + rule}, true, nil
	}
	begun, watch := s.now(), time.Now()
	o = postDelivery(ctx, d.client, to.URL, header, body)
	o.begun, o.took = begun, time.Since(watch)
	if !s.rules.mayShowBodies() {
		o.excerpt = ""
	}
	return o, o.failed == "" || ctx.Err() == nil, nil // an attempt that our stop canceled does not count
}
