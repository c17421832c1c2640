package rules

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

// State is the rows that a batch has loaded, and what its commands have changed.
// A store loads the rows and saves the changes.
type State struct {
	Balances    map[string]*Balance
	Connections map[string]*Connection
	Holds       map[Key]*HoldRow  // nil = looked up, not there
	Billed      map[Key]BilledKey // keys that are in the ledger
	Counters    map[string]*Counter
	Changes     Changes

	live      map[AppAccount]string // the live connection of an app and account
	originals map[string]*original  // rows to be reversed
	requests  allocationRequests
	payments  payments
	goodwill  map[string]*Goodwill

	callRefunds callRefunds
	margins     margins
	children    map[string]*Child
	freezes     map[string][]FreezeRow // by connection
	disputes    []OpenDispute
}

// Changes is what the commands of a batch have changed. A set names rows of the
// State that are to be written; a list holds rows that are new.
type Changes struct {
	Balances           map[string]bool
	Connections        map[string]bool
	Settings           map[string]bool // connections of which more than the money has changed, or that are new
	Delegated          map[string]bool // of Connections: those of which DelegatedMC or ChildHeldMC has changed
	Holds              map[Key]bool
	Counters           map[string]bool
	DailyTotals        map[DailyTotalsKey]*DailyTotalsDelta
	Entries            []Entry
	Responses          []ResponseRow
	Refusals           []Refusal
	Events             []Event
	Notices            []Notice
	Deferrals          []Deferral
	EndedDeferrals     []string // requests that are no longer deferred
	Unbilled           []UnbilledAttempt
	AllocationRequests []*AllocationRequest // in the order of their changes
	PaymentRecords     []PaymentRecord
	GoodwillRecords    []GoodwillRecord
	CallRefunds        []CallRefund
	MarginRecords      []MarginRecord
	Losses             []Loss
	Children           []*Child // in the order of their changes
	Stops              []Stop
	EndedFreezes       []FreezeRow // come before Freezes; without a cause: all of the connection
	Freezes            []FreezeRow // a row that is there already stays as it is
	OpenedDisputes     []OpenDispute
	EndedDisputes      []OpenDispute
	MustSync           bool // more than open holds has changed: it must reach the disk before it is answered
}

// AppAccount names the pair that has at most one live connection.
type AppAccount struct{ AppID, AccountID string }

// BilledKey is the ledger row that a key was billed by.
type BilledKey struct{ EntryID, Fingerprint string }

type original struct {
	Entry
	reversed bool
}

// ResponseRow is one row of answers.
type ResponseRow struct {
	RequestID string
	StoredResponse
	CreatedUS int64
}

// Deferral is one row of deferred: where the charge of a pending hold will come from.
type Deferral struct {
	Key
	RequestID, Provider, RecordID string
	Delivery                      Delivery
	SinceUS                       int64
	DeliveredTokens               int64
}

// DailyTotalsKey names one row of daily_totals.
type DailyTotalsKey struct{ ConnectionID, Day, FeatureLabel, Model string }

// DailyTotalsDelta is what a batch adds to one row of daily_totals.
type DailyTotalsDelta struct {
	AppID, AccountID          string
	Calls                     int64
	InputTokens, OutputTokens int64
	CachedTokens              int64 // of InputTokens
	Amounts
	CacheSavedMC money.MC
}

// NewState returns an empty state.
func NewState() *State {
	return &State{
		Balances:    map[string]*Balance{},
		Connections: map[string]*Connection{},
		Holds:       map[Key]*HoldRow{},
		Billed:      map[Key]BilledKey{},
		Counters:    map[string]*Counter{},
		Changes: Changes{
			Balances:    map[string]bool{},
			Connections: map[string]bool{},
			Settings:    map[string]bool{},
			Delegated:   map[string]bool{},
			Holds:       map[Key]bool{},
			Counters:    map[string]bool{},
			DailyTotals: map[DailyTotalsKey]*DailyTotalsDelta{},
		},
		live:      map[AppAccount]string{},
		originals: map[string]*original{},
		freezes:   map[string][]FreezeRow{},
	}
}

// AddOriginal adds a ledger row that a command may reverse.
func (s *State) AddOriginal(e Entry, reversed bool) {
	s.originals[e.ID] = &original{Entry: e, reversed: reversed}
}

// AddAllocationRequest adds an allocation request that a command may change.
func (s *State) AddAllocationRequest(r *AllocationRequest) { s.requests.add(r) }

// AddPayment adds a payment that a command may change.
func (s *State) AddPayment(p *Payment) { s.payments.add(p) }

// FindLive finds the live connection of each of the pairs among the connections.
func (s *State) FindLive(pairs map[AppAccount]bool) {
	for _, c := range s.Connections {
		if p := (AppAccount{c.AppID, c.AccountID}); pairs[p] && c.Status != Revoked {
			s.live[p] = c.ID
		}
	}
}

// RowKeys names the rows that a batch needs before it can be applied.
type RowKeys struct {
	Accounts           map[string]bool
	NewBalances        map[string]bool   // accounts that may have no balance yet → sandbox
	Connections        map[string]string // id → account, or "" when the command does not know it
	AppAccounts        map[AppAccount]bool
	Keys               map[Key]bool
	Counters           map[string]time.Duration // subject → width of its buckets
	Entries            map[string]bool
	AllocationRequests []string
	PendingRequestsOf  []string // connections whose pending allocation request is needed
	Payments           []string
	PaymentIntents     []string // whose payments are needed, if they paid for any
	Reversals          []ReversePayment
	Goodwill           []string          // goodwill credits
	CallRefunds        map[string]string // spend row → app: its refund, and the newest of the app, are needed
	Margins            []MarginKeys
	Children           []ChildKeys
	FreezesAccount     bool // all connections of the payments' accounts are needed, without revoked ones
	Freezes            bool // why the connections are stopped is needed
	Disputes           bool // the open disputes of the accounts are needed

	ConnectionsOf string // the account whose connections are all needed, without revoked ones; "" = none
}

// NewRowKeys returns an empty set.
func NewRowKeys() *RowKeys {
	return &RowKeys{
		Accounts:    map[string]bool{},
		NewBalances: map[string]bool{},
		Connections: map[string]string{},
		AppAccounts: map[AppAccount]bool{},
		Keys:        map[Key]bool{},
		Counters:    map[string]time.Duration{},
		Entries:     map[string]bool{},
		CallRefunds: map[string]string{},
	}
}

// Add adds the rows that c reads or changes.
func (k *RowKeys) Add(c Command) { c.addKeys(k) }

// connection returns the connection, or the 404 that hides whether it exists.
func (s *State) connection(connectionID string) (*Connection, error) {
	if c := s.Connections[connectionID]; c != nil {
		return c, nil
	}
	return nil, apierr.NotFound.Errorf("no such connection")
}

// spendableConnection returns the connection if calls are allowed on it (contract §3).
func (s *State) spendableConnection(connectionID string) (*Connection, error) {
	c, err := s.connection(connectionID)
	if err != nil {
		return nil, err
	}
	switch c.Status {
	case Revoked:
		return nil, apierr.ConnectionRevoked.On(connectionID,
			"this connection was revoked; ask the user to connect again")
	case Frozen:
		return nil, apierr.ConnectionFrozen.On(connectionID, "%s", frozenText[c.FrozenBy])
	}
	return c, nil
}

// appendEntry appends e to its account's chain, and changes balance and connection by
// its deltas. No amount changes without a row.
func (s *State) appendEntry(e Entry, b *Balance, c *Connection) Entry {
	b.Seq++
	e.Seq = b.Seq
	e.Hash = chainHash(b.Head, &e)
	b.Head = e.Hash
	b.AvailableMC += e.AvailableDeltaMC
	b.ReservedMC += e.ReservedDeltaMC
	s.Changes.Balances[b.AccountID] = true
	if c != nil {
		c.AllocationMC += e.AllocationDeltaMC
		c.ConsumedMC += e.ConsumedDeltaMC
		s.Changes.Connections[c.ID] = true
	}
	s.Changes.Entries = append(s.Changes.Entries, e)
	s.Changes.MustSync = true
	return e
}

// addToDailyTotals adds a spend to the totals of its day; sign -1 subtracts a reversed
// one.
func (s *State) addToDailyTotals(e *Entry, calls, sign int64, u Usage) {
	k := DailyTotalsKey{e.ConnectionID, time.UnixMicro(e.CreatedUS).UTC().Format(time.DateOnly), e.FeatureLabel,
		e.Model}
	r := s.Changes.DailyTotals[k]
	if r == nil {
		r = &DailyTotalsDelta{AppID: e.AppID, AccountID: e.AccountID}
		s.Changes.DailyTotals[k] = r
	}
	r.Calls += calls
	r.InputTokens += u.InputTokens
	r.OutputTokens += u.OutputTokens
	r.CachedTokens += u.CachedTokens
	r.ProviderCostMC += money.MC(sign) * e.ProviderCostMC
	r.SvcFeeMC += money.MC(sign) * e.SvcFeeMC
	r.DevMarginMC += money.MC(sign) * e.DevMarginMC
	r.UserChargeMC += money.MC(sign) * e.UserChargeMC
	r.CacheSavedMC += money.MC(sign) * u.CacheSavedMC
}

// emitConnectionEvent appends an event about a connection to the outbox (contract §6).
func (s *State) emitConnectionEvent(kind string, c *Connection, now int64) {
	c.EventSeq++ // before it is shown
	data, err := json.Marshal(map[string]any{"connection": c.Resource()})
	if err != nil {
		panic("ledger: a connection is always JSON: " + err.Error())
	}
	s.appendEvent(kind, c, string(data), now)
}

// emitRequestEvent appends an event about a call. receipt is the request as its GET returns
// it.
func (s *State) emitRequestEvent(kind string, c *Connection, receipt string, now int64) {
	c.EventSeq++
	s.appendEvent(kind, c, `{"request":`+receipt+`}`, now)
}

// emitChildEvent appends the event of a child that has ended.
func (s *State) emitChildEvent(c *Connection, child EndedChild, now int64) {
	c.EventSeq++
	data, err := json.Marshal(map[string]any{"child": child})
	if err != nil {
		panic("ledger: a child is always JSON: " + err.Error())
	}
	s.appendEvent("connection.child_ended", c, string(data), now)
}

func (s *State) appendEvent(kind string, c *Connection, data string, now int64) {
	s.Changes.Connections[c.ID], s.Changes.Settings[c.ID] = true, true
	s.Changes.Events = append(s.Changes.Events, Event{
		ID: id.New(id.Event, time.UnixMicro(now)), Type: kind, AppID: c.AppID, ConnectionID: c.ID,
		Seq: c.EventSeq, Data: data, CreatedUS: now,
	})
	s.Changes.MustSync = true
}

// emitAppEvent appends an event about an app as a whole. It belongs to no connection,
// so it has no sequence number.
func (s *State) emitAppEvent(kind, appID, data string, now int64) {
	s.Changes.Events = append(s.Changes.Events, Event{
		ID:        id.New(id.Event, time.UnixMicro(now)),
		Type:      kind,
		AppID:     appID,
		Data:      data,
		CreatedUS: now,
	})
	s.Changes.MustSync = true
}

// notifyUser queues a notice to the connection's user (contract §3). Package notices
// leaves test accounts out.
func (s *State) notifyUser(kind string, c *Connection, now int64) {
	data, err := json.Marshal(map[string]any{"connection": c.Resource()})
	if err != nil {
		panic("ledger: a connection is always JSON: " + err.Error())
	}
	s.Changes.Notices = append(s.Changes.Notices, Notice{
		ID:           id.New(id.Notice, time.UnixMicro(now)),
		Kind:         kind,
		AccountID:    c.AccountID,
		ConnectionID: c.ID,
		AppID:        c.AppID,
		Data:         string(data),
		CreatedUS:    now,
	})
	s.Changes.MustSync = true
}
