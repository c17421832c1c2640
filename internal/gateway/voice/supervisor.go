package voice

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/callers"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/metrics"
)

// Options are what a Supervisor uses.
type Options struct {
	DB       *db.DB
	Ledger   *store.Writer
	NodeID   string // this process
	NodeURL  string // where other nodes reach it; "" = they cannot
	Apps     *apps.Store
	Policies *policies.Book
	Provider Provider
	Memory   Memory            // nil = it has no bound
	FreeRate *callers.FreeRate // of sessions and replies of the mock; nil = none
	Metrics  *metrics.Metrics
	Now      func() time.Time
	Log      *slog.Logger
}

// A Supervisor runs the voice sessions of this node: it starts them, takes over those of dead nodes,
// and stops them.
type Supervisor struct {
	*Store
	node *node

	adopting chan struct{} // has room while no session without a node is claimed; taken before mu
	mu       sync.Mutex
	runners  map[string]*runner         // by session id
	starting map[string]int             // starts by ticket that have not made their runner yet, by session id
	waiting  map[string]*controlChannel // of sessions that no node runs yet, by session id
	forwards map[*forward]bool          // control channels that are relayed to other nodes
	stopping bool

	foreignLeasesEnded atomic.Bool   // SQLite
	endTimeout         time.Duration // of a request to end; tests shorten it
}

// endTimeout bounds every wait for the database of a request to end a session (decision 050).
const endTimeout = 4 * time.Second

// NewSupervisor returns a Supervisor without sessions.
func NewSupervisor(o Options) *Supervisor {
	sessions := &Store{DB: o.DB, Ledger: o.Ledger, NodeID: o.NodeID, NodeURL: o.NodeURL, Now: o.Now}
	n := &node{
		store:    sessions,
		provider: &o.Provider,
		memory:   o.Memory,
		freeRate: o.FreeRate,
		log:      o.Log,
	}
	if n.memory == nil {
		n.memory = noMemory{}
	}
	n.abandoned, n.abandon = context.WithCancel(context.Background())
	n.biller = &biller{
		store:        sessions,
		ledger:       o.Ledger,
		apps:         o.Apps,
		policies:     o.Policies,
		metrics:      o.Metrics,
		developerKey: o.Provider.DeveloperKey,
		log:          o.Log,
		abandoned:    n.abandoned,
	}
	n.maxSilence.Store(int64(maxSilence))
	return &Supervisor{
		Store:      sessions,
		node:       n,
		adopting:   make(chan struct{}, 1),
		runners:    map[string]*runner{},
		starting:   map[string]int{},
		waiting:    map[string]*controlChannel{},
		forwards:   map[*forward]bool{},
		endTimeout: endTimeout,
	}
}

// startSession runs a session that this node owns.
func (s *Supervisor) startSession(saved savedSession) *runner {
	r := newRunner(s.node, saved)
	s.mu.Lock()
	if old := s.runners[r.id]; old != nil { // this node was suspended, and the session went elsewhere and came back
		old.stopSession()
	}
	s.runners[r.id] = r
	waiting := s.waiting[r.id]
	r.control = waiting // from here on another channel may replace it
	delete(s.waiting, r.id)
	stopping := s.stopping
	s.mu.Unlock()
	if waiting != nil {
		r.postEvent(session.ControlUp{}) // with what follows the first events: the queue has room
		for _, e := range waiting.early {
			r.postEvent(session.FromApp{AppEvent: e})
		}
	}
	if stopping { // Stop did not know of it
		r.postEvent(session.Shutdown{})
	}
	developerID := r.terms.OwnerID
	s.node.memory.CountMemory(developerID, sessionBytes)
	s.node.work.Go(func() {
		r.run()
		s.remove(r)
		r.close()
		s.node.memory.CountMemory(developerID, -sessionBytes)
	})
	return r
}

// remove forgets a runner that has stopped.
func (s *Supervisor) remove(r *runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runners[r.id] == r {
		delete(s.runners, r.id)
	}
}

// findRunner returns the runner of a session on this node, or nil.
func (s *Supervisor) findRunner(sessionID string) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[sessionID]
}

// checkAccepting returns 503 while the node stops.
func (s *Supervisor) checkAccepting() error {
	if !s.isStopping() {
		return nil
	}
	e := apierr.Unavailable.Errorf("this node is stopping; try again")
	e.RetryAfter = time.Second
	return e
}

func (s *Supervisor) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// startTimeout bounds what a claimed session needs until it runs here.
const startTimeout = 4 * time.Second

// detachStart returns the context of a claim and of what follows it until the session runs. It does not end with the
// caller's: a caller that leaves in between would leave a session that this node owns and does not run. What a failed
// database leaves so, Watch runs.
func detachStart(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
}

// startByTicket spends a ticket and runs its session here.
func (s *Supervisor) startByTicket(ctx context.Context, sessionID, ticket string) (*runner, error) {
	if err := s.checkAccepting(); err != nil {
		return nil, err
	}
	ctx, cancel := detachStart(ctx)
	defer cancel()
	s.countStarting(sessionID, 1)
	defer s.countStarting(sessionID, -1)
	saved, err := s.loadSession(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	memory, err := s.node.openSocketMemory(saved.Terms.OwnerID) // until the session counts its own
	if err != nil {
		return nil, err
	}
	defer memory.close()
	ok, err := s.useTicket(ctx, sessionID, id.Hash(ticket))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, invalidTicket()
	}
	saved, err = s.loadSession(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	r := s.startSession(saved)
	r.postEvent(session.TicketUsed{})
	return r, nil
}

// countStarting notes that one start by ticket more, or one less, is between the claim and the runner.
func (s *Supervisor) countStarting(sessionID string, more int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting[sessionID] += more; s.starting[sessionID] == 0 {
		delete(s.starting, sessionID)
	}
}

// hasRunner reports whether a session runs here, or is about to.
func (s *Supervisor) hasRunner(sessionID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runners[sessionID] != nil || s.starting[sessionID] > 0
}

func invalidTicket() *apierr.Error {
	e := apierr.InvalidTicket.Errorf("the ticket is wrong, expired or used; create a new session")
	e.Challenge = `Bearer realm="purser", error="invalid_token"`
	return e
}

// lockAdopting keeps other goroutines from claiming sessions, until unlock is called. It fails when
// ctx ends: the one that has the lock may wait for the database.
func (s *Supervisor) lockAdopting(ctx context.Context) (unlock func(), err error) {
	select {
	case s.adopting <- struct{}{}:
		return func() { <-s.adopting }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// adopt runs a session that no node owns. It returns nil if another node claimed it first. The caller has called
// lockAdopting.
func (s *Supervisor) adopt(ctx context.Context, sessionID string) (*runner, error) {
	return s.claimAndRun(ctx, sessionID, false)
}

// knownUS returns the clock of leases by the last renewal, for claim and listUnowned.
func (s *Supervisor) knownUS() int64 {
	return cmp.Or(s.node.lease.clockUS(s.passing()), s.Now().UnixMicro()) // none was renewed yet
}

// claimAndRun runs a session that no node owns, or one that this node owns without a runner (isOwn).
func (s *Supervisor) claimAndRun(ctx context.Context, sessionID string, isOwn bool) (*runner, error) {
	ctx, cancel := detachStart(ctx)
	defer cancel()
	before, err := getRow(ctx, s.DB, sessionID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if ok, err := s.claim(ctx, sessionID, isOwn, s.knownUS()); err != nil || !ok {
		return nil, err
	}
	saved, err := s.loadSession(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	row, err := getRow(ctx, s.DB, sessionID)
	if err != nil {
		return nil, err
	}
	if saved.State.CallID == "" {
		saved.State.CallID = row.CallID // its node may have died before the state had it
	}
	saved.State.TicketUsed = saved.State.TicketUsed || row.TicketUsed
	holdRequested := saved.State.Hold == session.Requested // its creator may have died before the state knew more
	r := s.startSession(saved)
	if before.NodeID != "" {
		s.node.log.WarnContext(ctx, "voice session without a runner adopted",
			"session_id", sessionID, "node_id", before.NodeID)
	}
	if before.NodeID != "" || holdRequested {
		event := session.Adopted{}
		if before.NodeID != "" && before.LeaseUS > 0 {
			event.SinceUS = before.LeaseUS - leaseTTL.Microseconds()
		}
		r.postEvent(event)
	}
	if row.EndRequested != "" {
		r.postEvent(session.EndRequested{Immediate: row.EndRequested == session.Immediate})
	}
	return r, nil
}

// End requests the end of a session of a holder, AfterHeard or Immediate. A session that runs here
// is told first, and the database after it, which may not answer: the call ends in any case. Otherwise
// the node that runs the session carries out what the database says. A pending session has ended when
// End returns.
func (s *Supervisor) End(ctx context.Context, h Holder, sessionID, when string) error {
	ctx, cancel := context.WithTimeout(ctx, s.endTimeout)
	defer cancel()
	if r := s.findRunner(sessionID); r != nil && h.owns(r.terms.ConnectionID, r.terms.ChildID) &&
		r.postEvent(session.EndRequested{Immediate: when == session.Immediate}) {
		if err := s.requestEnd(ctx, sessionID, when); err != nil { // the session itself saves that it ends
			s.node.log.WarnContext(ctx, "voice end request not saved", "session_id", sessionID, "error", err)
		}
		return nil
	}
	if _, err := s.Get(ctx, h, sessionID); err != nil {
		return err
	}
	r, adopted, err := s.requestEndHere(ctx, sessionID, when)
	if err != nil || r == nil {
		return err
	}
	if !adopted {
		r.postEvent(session.EndRequested{Immediate: when == session.Immediate})
		return nil
	}
	select {
	case <-r.stopped:
	case <-ctx.Done():
	}
	return nil
}

// StopSession ends a session of a connection immediately, because its user stops it: on this node at once, on another
// one within two seconds. A session that has ended stays as it is. The error is the database's; it
// is nil if the session runs here.
func (s *Supervisor) StopSession(ctx context.Context, connectionID, sessionID string) error {
	ctx, cancel := context.WithTimeout(ctx, s.endTimeout)
	defer cancel()
	r := s.findRunner(sessionID)
	here := r != nil && r.terms.ConnectionID == connectionID && r.postEvent(session.Halt{Reason: session.UserStopped})
	err := store.InsertStop(ctx, s.DB, connectionID, sessionID, s.Now())
	if err != nil && here {
		s.node.log.WarnContext(ctx, "voice stop not saved", "session_id", sessionID, "error", err)
		return nil
	}
	return err
}

// requestEndHere saves the request, and returns the session's runner if this node runs it. Adopted
// says that no node did before. The lock keeps the watch from adopting the session between the two. The adoption
// outlives its caller.
func (s *Supervisor) requestEndHere(ctx context.Context, sessionID, when string) (r *runner, adopted bool, err error) {
	unlock, err := s.lockAdopting(ctx)
	if err != nil {
		return nil, false, err
	}
	if err = s.requestEnd(ctx, sessionID, when); err == nil {
		r = s.findRunner(sessionID)
	}
	if err != nil || r != nil {
		unlock()
		return r, false, err
	}
	type adoption struct {
		r   *runner
		err error
	}
	done := make(chan adoption, 1)
	s.node.work.Go(func() {
		defer unlock()
		r, err := s.adopt(ctx, sessionID)
		done <- adoption{r, err}
	})
	select {
	case a := <-done:
		return a.r, true, a.err
	case <-ctx.Done(): // the request is saved: the session ends without its caller
		return nil, true, nil
	}
}

// renewTimeout bounds one renewal: the next one has fresh connections.
const renewTimeout = 2 * time.Second

// Renew renews the leases of this node's sessions, and stops those that another node owns. Call it once
// a second from a job that does nothing else: another node takes over after four missed calls.
func (s *Supervisor) Renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	running := s.listRunners() // before the leases are read: a session that starts later is not missed there
	began := s.passing()
	s.node.lease.begin()
	owned, endUS, err := s.renewLeases(ctx)
	if err != nil {
		return err
	}
	s.node.lease.renewed(began, endUS)
	for _, r := range running {
		if !slices.Contains(owned, r.id) && !r.saver.isClosed() {
			r.loseSession()
		}
	}
	return nil
}

func (s *Supervisor) listRunners() (runners []*runner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		runners = append(runners, r)
	}
	return runners
}

// attachControl makes c the control channel of a session: now if it runs here, else when it comes to
// this node.
func (s *Supervisor) attachControl(sessionID string, c *controlChannel) {
	s.mu.Lock()
	r := s.runners[sessionID]
	if r == nil {
		if old := s.waiting[sessionID]; old != nil {
			old.refuseEarly()
			old.closeReplaced()
		}
		s.waiting[sessionID] = c
	}
	s.mu.Unlock()
	if r != nil {
		r.replaceControl(c)
	}
}

// detachControl notes that c is closed.
func (s *Supervisor) detachControl(sessionID string, c *controlChannel) {
	s.mu.Lock()
	if s.waiting[sessionID] == c {
		delete(s.waiting, sessionID)
	}
	r := s.runners[sessionID]
	s.mu.Unlock()
	if r != nil {
		r.removeControl(c)
	}
}

// Stop ends this node's sessions, each after the user has heard the current reply, and waits for them
// until ctx ends. Another node takes over what is left then.
func (s *Supervisor) Stop(ctx context.Context) {
	s.mu.Lock()
	s.stopping = true
	var runners []*runner
	for _, r := range s.runners {
		runners = append(runners, r)
	}
	for _, c := range s.waiting {
		c.refuseEarly()
		c.closeAfter(false)
	}
	s.mu.Unlock()
	for _, r := range runners {
		r.postEvent(session.Shutdown{})
	}
	done := make(chan struct{})
	go func() {
		s.node.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.node.abandon()
}
