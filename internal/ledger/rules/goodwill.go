package rules

import (
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// The kinds of a GoodwillRecord.
const (
	goodwillGiven     = "given"
	goodwillWithdrawn = "withdrawn"
)

// Goodwill is money that the operator has given an account without a payment (decision 095): the fold of its records.
type Goodwill struct {
	ID, AccountID string
	AmountMC      money.MC
	WithdrawnMC   money.MC // what was taken back of it
	Reason        string
	EntryID       string // the ledger row that gave it
	Records       []GoodwillRecord
}

// RestMC is the part that was not withdrawn.
func (g *Goodwill) RestMC() money.MC { return g.AmountMC - g.WithdrawnMC }

// GoodwillRecord is one thing that happened to a goodwill credit. Each has its ledger row.
type GoodwillRecord struct {
	GoodwillID string
	N          int64
	Kind       string // given or withdrawn
	AccountID  string
	AmountMC   money.MC
	EntryID    string
	Reason     string
	CreatedUS  int64
}

// Fold applies the next record to the goodwill credit.
func (g *Goodwill) Fold(r GoodwillRecord) {
	switch r.Kind {
	case goodwillGiven:
		g.ID, g.AccountID, g.AmountMC, g.Reason, g.EntryID = r.GoodwillID, r.AccountID, r.AmountMC, r.Reason, r.EntryID
	case goodwillWithdrawn:
		g.WithdrawnMC += r.AmountMC
	}
	g.Records = append(g.Records, r)
}

// GiveGoodwill credits a user's account without a payment. If there is this goodwill credit already, the outcome is
// Done, so that the command may be repeated.
type GiveGoodwill struct {
	GoodwillID, AccountID string
	AmountMC              money.MC
	Reason                string
}

// WithdrawGoodwill takes back what is left of a goodwill credit, as far as the account has it available. It never makes
// a balance negative. If all of it was withdrawn, the outcome is Done.
type WithdrawGoodwill struct {
	GoodwillID string
	Reason     string
}

// AddGoodwill adds a goodwill credit that a command may change.
func (s *State) AddGoodwill(g *Goodwill) {
	if s.goodwill == nil {
		s.goodwill = map[string]*Goodwill{}
	}
	s.goodwill[g.ID] = g
}

func (c GiveGoodwill) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.NewBalances[c.AccountID] = false
	w.Goodwill = append(w.Goodwill, c.GoodwillID)
}

func (c GiveGoodwill) apply(s *State, nowUS int64) (Result, error) {
	if g := s.goodwill[c.GoodwillID]; g != nil {
		if g.AccountID != c.AccountID || g.AmountMC != c.AmountMC || g.Reason != c.Reason {
			return Result{}, apierr.InvalidRequest.Errorf("id: another goodwill credit has it")
		}
		return Result{Outcome: Done, Goodwill: *g}, nil
	}
	b := s.Balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID}
	}
	switch {
	case c.GoodwillID == "":
		return Result{}, apierr.InvalidRequest.Errorf("id: required")
	case b.Sandbox:
		return Result{}, apierr.InvalidRequest.Errorf("a test account's money is not real; it gets no goodwill credit")
	case c.AmountMC <= 0 || c.AmountMC > money.Max:
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: must be between 1 and %d", money.Max)
	case b.AvailableMC > money.Max*1000:
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: the balance is already too large")
	case c.Reason == "":
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	}
	// Nothing fails from here on.
	s.Balances[c.AccountID] = b
	e := s.appendEntry(Entry{
		ID:               id.New(id.Ledger, time.UnixMicro(nowUS)),
		AccountID:        c.AccountID,
		Type:             EntryTopUp,
		Status:           "settled",
		Reason:           c.Reason,
		AmountMC:         c.AmountMC,
		AvailableDeltaMC: c.AmountMC,
		CreatedUS:        nowUS,
	}, b, nil)
	return s.appendGoodwillRecord(&Goodwill{}, GoodwillRecord{GoodwillID: c.GoodwillID, Kind: goodwillGiven}, e), nil
}

func (c WithdrawGoodwill) addKeys(w *RowKeys) { w.Goodwill = append(w.Goodwill, c.GoodwillID) }

func (c WithdrawGoodwill) apply(s *State, nowUS int64) (Result, error) {
	g := s.goodwill[c.GoodwillID]
	if g == nil {
		return Result{}, apierr.NotFound.Errorf("no such goodwill credit")
	}
	b := s.Balances[g.AccountID]
	back := min(g.RestMC(), b.AvailableMC)
	switch {
	case g.RestMC() == 0:
		return Result{Outcome: Done, Goodwill: *g}, nil
	case c.Reason == "":
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	case back <= 0:
		return Result{}, apierr.InvalidRequest.Errorf("nothing of it is available: it is spent or allocated to apps")
	}
	// Nothing fails from here on.
	e := s.appendEntry(Entry{
		ID:               id.New(id.Ledger, time.UnixMicro(nowUS)),
		AccountID:        g.AccountID,
		Type:             EntryTopUp,
		Status:           "reversed",
		ReversalOf:       g.EntryID,
		Reason:           c.Reason,
		AmountMC:         back,
		AvailableDeltaMC: -back,
		CreatedUS:        nowUS,
	}, b, nil)
	return s.appendGoodwillRecord(g, GoodwillRecord{GoodwillID: g.ID, Kind: goodwillWithdrawn}, e), nil
}

// appendGoodwillRecord appends r to g, with what its ledger row says.
func (s *State) appendGoodwillRecord(g *Goodwill, r GoodwillRecord, e Entry) Result {
	r.N, r.AccountID, r.AmountMC = int64(len(g.Records)+1), e.AccountID, e.AmountMC
	r.EntryID, r.Reason, r.CreatedUS = e.ID, e.Reason, e.CreatedUS
	g.Fold(r)
	s.AddGoodwill(g)
	s.Changes.GoodwillRecords = append(s.Changes.GoodwillRecords, r)
	return Result{Goodwill: *g, Entry: e}
}
