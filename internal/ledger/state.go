package ledger

import (
	"encoding/json"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// Apply carries out c on s at the time now, or returns an *apierr.Error and
// leaves s as it was. It is the whole of the money rules: no clock, no database,
// no HTTP.
func Apply(s *State, c Command, now time.Time) (Result, error) {
	return c.apply(s, now.UnixMicro())
}

// State is the rows that a batch touches, and what it changed.
type State struct {
	balances    map[string]*Balance
	connections map[string]*Connection
	live        map[pair]string  // the live connection of an app and account
	holds       map[Key]*HoldRow // nil = looked up, not there
	done        map[Key]doneRow  // keys that are in the ledger
	windows     map[string]*Counter
	originals   map[string]*original // rows to be reversed

	dirtyBalances    map[string]bool
	dirtyConnections map[string]bool
	deep             map[string]bool // connections of which more than the money has changed
	dirtyHolds       map[Key]bool
	dirtyWindows     map[string]bool
	rollups          map[rollupKey]*rollup
	entries          []Entry
	answers          []answerRow
	refusals         []Refusal
	events           []Event
	notices          []Notice
	deferred         []deferredRow
	raises           raises
	payments         payments
	resolved         []string // requests that are no longer deferred
	hard             bool     // more than open holds has changed: it must reach the disk before it is answered

	newID func(prefix string, now time.Time) string // replaced in tests, so that they read the same every time
}

type pair struct{ appID, accountID string }

type doneRow struct{ id, fingerprint string }

type original struct {
	Entry
	reversed bool
}

type answerRow struct {
	requestID string
	Answer
	createdUS int64
}

type deferredRow struct {
	Key
	requestID, provider, record string
	nowUS                       int64
}

type rollupKey struct{ connectionID, day, feature, model string }

type rollup struct {
	appID, accountID string
	calls            int64
	input, output    int64
	Amounts
}

// NewState returns an empty state.
func NewState() *State {
	return &State{
		balances: map[string]*Balance{}, connections: map[string]*Connection{}, live: map[pair]string{},
		holds: map[Key]*HoldRow{}, done: map[Key]doneRow{}, windows: map[string]*Counter{}, originals: map[string]*original{},
		dirtyBalances: map[string]bool{}, dirtyConnections: map[string]bool{}, deep: map[string]bool{}, dirtyHolds: map[Key]bool{}, dirtyWindows: map[string]bool{},
		rollups: map[rollupKey]*rollup{}, newID: id.New,
	}
}

// wants collects the rows that a batch needs before it can be applied.
type wants struct {
	accounts    map[string]bool
	opens       map[string]bool   // accounts that may have no balance yet → sandbox
	connections map[string]string // id → account, or "" when the command does not know it
	pairs       map[pair]bool
	keys        map[Key]bool
	windows     map[string]time.Duration // subject → width of its buckets
	entries     map[string]bool
	raises      raiseWants
	payments    paymentWants
}

func newWants() *wants {
	return &wants{map[string]bool{}, map[string]bool{}, map[string]string{}, map[pair]bool{}, map[Key]bool{}, map[string]time.Duration{}, map[string]bool{}, raiseWants{}, paymentWants{}}
}

// connection returns the connection, or the 404 that hides whether it exists.
func (s *State) connection(connectionID string) (*Connection, error) {
	if c := s.connections[connectionID]; c != nil {
		return c, nil
	}
	return nil, apierr.NotFound.Errorf("no such connection")
}

// spendable returns the connection if calls may be made on it (spec §3).
func (s *State) spendable(connectionID string) (*Connection, error) {
	c, err := s.connection(connectionID)
	if err != nil {
		return nil, err
	}
	switch c.Status {
	case Revoked:
		return nil, apierr.ConnectionRevoked.On(connectionID, "the user revoked this connection; ask for a new one")
	case Frozen:
		return nil, apierr.ConnectionFrozen.On(connectionID, "this connection is paused until its user resumes it")
	}
	return c, nil
}

// write appends e to its account's chain, and moves balance and connection by
// its deltas: nothing moves without a row.
func (s *State) write(e Entry, b *Balance, c *Connection) Entry {
	b.Seq++
	e.Seq = b.Seq
	e.Hash = chain(b.Head, &e)
	b.Head = e.Hash
	b.AvailableMC += e.Available
	b.ReservedMC += e.Reserved
	s.dirtyBalances[b.AccountID] = true
	if c != nil {
		c.AllocationMC += e.Allocation
		c.ConsumedMC += e.Consumed
		s.dirtyConnections[c.ID] = true
	}
	s.entries = append(s.entries, e)
	s.hard = true
	return e
}

// count adds a spend, or takes back a reversed one, in the day's totals.
func (s *State) count(e *Entry, calls, sign int64, u Usage) {
	k := rollupKey{e.ConnectionID, time.UnixMicro(e.CreatedUS).UTC().Format(time.DateOnly), e.Bucket, e.Model}
	r := s.rollups[k]
	if r == nil {
		r = &rollup{appID: e.AppID, accountID: e.AccountID}
		s.rollups[k] = r
	}
	r.calls += calls
	r.input += u.InputTokens
	r.output += u.OutputTokens
	r.ProviderCostMC += money.MC(sign) * e.ProviderCostMC
	r.SvcFeeMC += money.MC(sign) * e.SvcFeeMC
	r.DevMarginMC += money.MC(sign) * e.DevMarginMC
	r.UserChargeMC += money.MC(sign) * e.UserChargeMC
}

// tell appends an event about a connection to the outbox (spec §6).
func (s *State) tell(kind string, c *Connection, now int64) {
	c.EventSeq++ // before it is shown
	data, err := json.Marshal(map[string]any{"connection": c.Resource()})
	if err != nil {
		panic("ledger: a connection is always JSON: " + err.Error())
	}
	s.publish(kind, c, string(data), now)
}

// tellRequest appends the event about a call that was left pending. It is the
// request as its GET returns it.
func (s *State) tellRequest(c *Connection, receipt string, now int64) {
	c.EventSeq++
	s.publish("request.settled", c, `{"request":`+receipt+`}`, now)
}

func (s *State) publish(kind string, c *Connection, data string, now int64) {
	s.dirtyConnections[c.ID], s.deep[c.ID] = true, true
	s.events = append(s.events, Event{
		ID: s.newID(id.Event, time.UnixMicro(now)), Type: kind, AppID: c.AppID, ConnectionID: c.ID,
		Seq: c.EventSeq, Data: data, CreatedUS: now,
	})
	s.hard = true
}

// tellApp appends an event about an app as a whole: no connection orders it.
func (s *State) tellApp(kind, appID, data string, now int64) {
	s.events = append(s.events, Event{ID: s.newID(id.Event, time.UnixMicro(now)), Type: kind, AppID: appID, Data: data, CreatedUS: now})
	s.hard = true
}

// notify leaves word for a connection's user (spec §3). Who writes the
// mail leaves test accounts out.
func (s *State) notify(kind string, c *Connection, now int64) {
	data, err := json.Marshal(map[string]any{"connection": c.Resource()})
	if err != nil {
		panic("ledger: a connection is always JSON: " + err.Error())
	}
	s.notices = append(s.notices, Notice{
		ID: s.newID(id.Notice, time.UnixMicro(now)), Kind: kind, AccountID: c.AccountID, ConnectionID: c.ID, AppID: c.AppID, Data: string(data), CreatedUS: now,
	})
	s.hard = true
}
