package rules

import (
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// MaxRefundAge is how long after a call was billed its app can refund it.
const MaxRefundAge = 90 * 24 * time.Hour

// CallRefund is the refund of a call by its app's developer (decision 106). The user gets the whole charge back by
// the reversal. The developer pays it: from the margin that the app has earned, of which the margin of the call is a
// part, and what that does not cover from the balance.
type CallRefund struct {
	AppID        string
	N            int64 // 1, 2, … per app
	EntryID      string
	ReversalID   string
	DeveloperID  string
	Sandbox      bool // a call of a test account: nothing is paid
	MarginMC     money.MC
	BalanceMC    money.MC
	DebitID      string   // the ledger row that takes BalanceMC; "" = none
	MarginUsedMC money.MC // Σ (MarginMC − the call's own margin) of the app, with this one
	EarnedDay    string   // EarnedMC is the app's margin of the days before this one
	EarnedMC     money.MC
	Reason       string
	CreatedUS    int64
}

// AppMargin is the margin that an app has earned with real money, as it was read before a RefundCall.
type AppMargin struct {
	Refunds  int64    // how many refunds of the app there were
	Records  int64    // how many MarginRecords
	EarnedMC money.MC // margin of settled calls without that of reversed ones, up to now

	ClosedDay string // the days before this one are over
	ClosedMC  money.MC
}

// RefundCall refunds a call in the name of its app's developer, once, by the reversal of its row. If the app has
// refunded it already, the outcome is Done. If another refund or a payout has used margin since Margin was read, the
// outcome is Waiting: read it again. A refund that neither margin nor balance covers is 400 invalid_request.
type RefundCall struct {
	EntryID     string // of the original
	AccountID   string // its account
	AppID       string
	DeveloperID string
	Margin      AppMargin
	Reason      string
	Receipt     func(*Entry) (string, error) // the refunded request as its GET returns it, JSON
}

// callRefunds are the refunds of calls that a State knows. Its zero value is ready to use.
type callRefunds struct {
	byEntry map[string]*CallRefund
	last    map[string]*CallRefund // the newest of each app
}

// AddCallRefund adds the refund of a call that a command names, or the newest refund of its app.
func (s *State) AddCallRefund(r *CallRefund) {
	if s.callRefunds.byEntry == nil {
		s.callRefunds = callRefunds{map[string]*CallRefund{}, map[string]*CallRefund{}}
	}
	s.callRefunds.byEntry[r.EntryID] = r
	if last := s.callRefunds.last[r.AppID]; last == nil || last.N < r.N {
		s.callRefunds.last[r.AppID] = r
	}
}

func (c RefundCall) addKeys(w *RowKeys) {
	c.reversal().addKeys(w)
	w.Accounts[c.DeveloperID] = true
	w.NewBalances[c.DeveloperID] = false
	w.CallRefunds[c.EntryID] = c.AppID
	w.Margins = append(w.Margins, MarginKeys{AppID: c.AppID})
}

func (c RefundCall) reversal() Reverse {
	return Reverse{EntryID: c.EntryID, AccountID: c.AccountID, Reason: c.Reason, Receipt: c.Receipt}
}

func (c RefundCall) apply(s *State, nowUS int64) (Result, error) {
	if r := s.callRefunds.byEntry[c.EntryID]; r != nil && r.AppID == c.AppID {
		return Result{Outcome: Done, CallRefund: *r}, nil
	}
	o, last := s.originals[c.EntryID], CallRefund{}
	if r := s.callRefunds.last[c.AppID]; r != nil {
		last = *r
	}
	switch {
	case o == nil || o.AppID != c.AppID || o.AccountID != c.AccountID || o.Type != EntrySpend || o.Status != "settled":
		return Result{}, apierr.NotFound.Errorf("no such request")
	case o.reversed:
		return Result{}, apierr.InvalidRequest.Errorf("this call was refunded by the service already")
	case nowUS-o.CreatedUS > MaxRefundAge.Microseconds():
		return Result{}, apierr.InvalidRequest.Errorf("this call is older than %d days, and can no longer be refunded",
			MaxRefundAge/(24*time.Hour))
	case last.N != c.Margin.Refunds || s.lastMargin(c.AppID).N != c.Margin.Records:
		return Result{Outcome: Waiting}, nil
	}
	refund, err := c.divide(s, &o.Entry, last)
	if err != nil {
		return Result{}, err
	}
	r, err := c.reversal().apply(s, nowUS)
	if err != nil {
		return Result{}, err
	}
	// Nothing fails from here on.
	refund.ReversalID, refund.CreatedUS = r.Entry.ID, nowUS
	if refund.BalanceMC > 0 {
		refund.DebitID = s.appendEntry(Entry{
			ID:               id.New(id.Ledger, time.UnixMicro(nowUS)),
			AccountID:        c.DeveloperID,
			Type:             EntryTopUp,
			Status:           "settled",
			Reason:           "Refund of " + o.RequestID(),
			AmountMC:         -refund.BalanceMC,
			AvailableDeltaMC: -refund.BalanceMC,
			CreatedUS:        nowUS,
		}, s.Balances[c.DeveloperID], nil).ID
	}
	s.AddCallRefund(&refund)
	s.Changes.CallRefunds = append(s.Changes.CallRefunds, refund)
	r.CallRefund = refund
	return r, nil
}

// divide says who pays for the refund of a call. The reversal itself takes the margin of the call from the app's; the
// rest of what margin pays is what the app's refunds have used.
func (c RefundCall) divide(s *State, o *Entry, last CallRefund) (CallRefund, error) {
	refund := CallRefund{
		AppID:        c.AppID,
		N:            last.N + 1,
		EntryID:      o.ID,
		DeveloperID:  c.DeveloperID,
		Sandbox:      s.Balances[o.AccountID].Sandbox,
		MarginUsedMC: last.MarginUsedMC,
		EarnedDay:    c.Margin.ClosedDay,
		EarnedMC:     c.Margin.ClosedMC,
		Reason:       c.Reason,
	}
	if refund.Sandbox {
		return refund, nil
	}
	left := max(c.Margin.EarnedMC-last.MarginUsedMC-s.lastMargin(c.AppID).TakenMC, 0)
	refund.MarginMC = min(o.UserChargeMC, left)
	refund.MarginUsedMC += refund.MarginMC - o.DevMarginMC
	refund.BalanceMC = o.UserChargeMC - refund.MarginMC
	developer := s.Balances[c.DeveloperID]
	if developer == nil {
		developer = &Balance{}
	}
	if refund.BalanceMC > 0 && (refund.BalanceMC > developer.AvailableMC || developer.Sandbox) {
		return refund, apierr.InvalidRequest.Errorf("this refund costs %s; the app has %s of margin left and your "+
			"balance has %s available: top up your balance, then refund the call again",
			o.UserChargeMC.Display(), left.Display(), max(developer.AvailableMC, 0).Display())
	}
	return refund, nil
}
