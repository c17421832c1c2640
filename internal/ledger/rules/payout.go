package rules

import (
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
)

// The kinds of a MarginRecord.
const (
	marginBegun    = "begun"
	marginPaid     = "paid"
	marginFailed   = "failed"
	marginFound    = "found"
	marginDisputed = "disputed"
)

// MarginRecord is one thing that happened to the margin of an app besides its calls and their refunds: a payout, or the
// disputed payments of one of its users (decision 110).
type MarginRecord struct {
	AppID       string
	N           int64  // 1, 2, … per app
	Kind        string // begun, paid, failed, found or disputed
	Subject     string // the payout, or the account whose payments are disputed; of earlier versions: the payment
	DeveloperID string
	AmountMC    money.MC // what it takes from the margin; below zero: what it gives back
	TakenMC     money.MC // Σ AmountMC of the app, with this one
	MaturedDay  string   // begun: MaturedMC is the margin of the days before this one
	MaturedMC   money.MC
	ReturnedMC  money.MC // begun: margin that came back since that day, and what refunds had used
	KeptMC      money.MC // begun: what the developer owes besides, which the payout leaves to the app
	Detail      string   // paid, found: Stripe's id of the transfer; failed: why
	CreatedUS   int64
}

// IsDispute reports whether the record is of disputed payments, and not of a payout.
func (r *MarginRecord) IsDispute() bool { return r.Kind == marginDisputed }

// Payout is the fold of a payout's records. It is begun before Stripe is asked, so that no crash pays it twice.
type Payout struct {
	ID, AppID, DeveloperID string
	AmountMC               money.MC
	Status                 string // begun, paid or failed; a failed one gave its amount back
	TransferID, Reason     string
	CreatedUS, EndedUS     int64
}

// Fold applies the next record to the payout.
func (p *Payout) Fold(r MarginRecord) {
	p.Status = r.Kind
	switch r.Kind {
	case marginBegun:
		p.ID, p.AppID, p.DeveloperID, p.AmountMC = r.Subject, r.AppID, r.DeveloperID, r.AmountMC
		p.CreatedUS = r.CreatedUS
		return
	case marginFound:
		p.ID, p.AppID, p.DeveloperID, p.AmountMC = r.Subject, r.AppID, r.DeveloperID, r.AmountMC
		p.Status, p.TransferID, p.Reason = marginPaid, r.Detail, ""
		if p.CreatedUS == 0 {
			p.CreatedUS = r.CreatedUS
		}
	case marginPaid:
		p.TransferID = r.Detail
	case marginFailed:
		p.Reason = r.Detail
	}
	p.EndedUS = r.CreatedUS
}

// Begun, Paid and Failed say where a payout stands.
func (p *Payout) Begun() bool { return p.Status == marginBegun }

// Paid reports whether Stripe has the transfer.
func (p *Payout) Paid() bool { return p.Status == marginPaid }

// Failed reports whether the amount is the app's again.
func (p *Payout) Failed() bool { return p.Status == marginFailed }

// Margin is what is known of an app's margin in real money at one moment.
type Margin struct {
	// MaturedMC is the margin of the days before the dispute window began. The top-ups that paid for a call are older
	// than the call, so no new dispute of them is possible any more.
	MaturedMC money.MC
	// ReturnedMC is margin that came back since then, of whatever call, and what refunds of calls have used.
	ReturnedMC money.MC
	// TakenMC is what payouts took, and what disputes of payments take.
	TakenMC money.MC
	// KeptMC is kept of the balance until others are no longer below zero: the developer's other apps, and its own
	// balance.
	KeptMC money.MC
}

// Balance is what the app is owed. Below zero, the app was paid margin that came back later, and what matures next
// makes up for it first.
func (m Margin) Balance() money.MC { return m.MaturedMC - m.ReturnedMC - m.TakenMC }

// KeepFor keeps of an app's margin what its developer owes: together is the sum of the balances of all of its apps,
// with this one, and developer what is available to its own account, which counts while it is below zero.
func (m *Margin) KeepFor(together, developer money.MC) {
	m.KeptMC = max(m.Balance()-max(together+min(developer, 0), 0), 0)
}

// Payable is what a payout pays now: the balance without what is kept, in whole cents, since banks move no smaller
// amounts, or nothing while it is below the minimum. The rest stays in the balance.
func (m Margin) Payable(minimum money.MC) money.MC {
	balance := m.Balance() - m.KeptMC
	cents := balance - balance%money.Cent
	if cents <= 0 || cents < minimum {
		return 0
	}
	return cents
}

// MaturedMargin is the margin of an app as it was read before a BeginPayout.
type MaturedMargin struct {
	Refunds    int64    // how many refunds of its calls the app had
	Records    int64    // how many MarginRecords
	Day        string   // MaturedMC is the margin of the days before this one
	MaturedMC  money.MC // without that of calls reversed in those days
	ReversedMC money.MC // margin of calls that were reversed since
}

// BeginPayout takes what can be paid of an app's margin for a payout. Others are the margins of all other apps of the
// developer: what is below zero there is kept. If the payout is there already, the outcome is Done. If a margin has
// changed since it was read, the outcome is Waiting: read it again. Nothing that can be paid is 400 invalid_request.
type BeginPayout struct {
	PayoutID, AppID, DeveloperID string
	Margin                       MaturedMargin
	Others                       map[string]MaturedMargin // by app
	MinimumMC                    money.MC
}

// EndPayout records that Stripe has a payout's transfer, or that there is none: then Failure says why, and the amount
// is the app's again. With both, the transfer was reversed: only that ends a payout that was paid. It may be repeated.
type EndPayout struct {
	PayoutID, AppID, DeveloperID string
	TransferID, Failure          string
}

// RecordPayout records a transfer that Stripe has for a payout which the books do not have, or have given back: those
// of a database that was restored (decision 127). What it took is the app's debt, if the margin is not there. It may be
// repeated. If the payout is open, the outcome is Waiting: EndPayout ends it.
type RecordPayout struct {
	PayoutID, AppID, DeveloperID string
	TransferID                   string
	AmountMC                     money.MC
}

// MarginKeys name the newest MarginRecord of an app, and the records of a subject of it; "" = of none.
type MarginKeys struct{ AppID, Subject string }

// margins are the MarginRecords that a State knows. Its zero value is ready to use.
type margins struct {
	last      map[string]*MarginRecord  // the newest of each app
	bySubject map[string][]MarginRecord // in their order
}

// AddMarginRecord adds a record of a subject that a command names, or the newest of its app. Those of a subject are
// added in their order.
func (s *State) AddMarginRecord(r *MarginRecord) {
	if s.margins.last == nil {
		s.margins = margins{map[string]*MarginRecord{}, map[string][]MarginRecord{}}
	}
	if last := s.margins.last[r.AppID]; last == nil || last.N < r.N {
		s.margins.last[r.AppID] = r
	}
	subject := r.AppID + "/" + r.Subject
	for _, known := range s.margins.bySubject[subject] {
		if known.N == r.N {
			return
		}
	}
	s.margins.bySubject[subject] = append(s.margins.bySubject[subject], *r)
}

// lastMargin returns the newest MarginRecord of an app, or the zero value.
func (s *State) lastMargin(appID string) MarginRecord {
	if r := s.margins.last[appID]; r != nil {
		return *r
	}
	return MarginRecord{}
}

// margin is the margin of an app, and whether what was read of it is still so.
func (s *State) margin(appID string, read MaturedMargin) (m Margin, isCurrent bool) {
	refunds, last := CallRefund{}, s.lastMargin(appID)
	if r := s.callRefunds.last[appID]; r != nil {
		refunds = *r
	}
	return Margin{
		MaturedMC:  read.MaturedMC,
		ReturnedMC: read.ReversedMC + refunds.MarginUsedMC,
		TakenMC:    last.TakenMC,
	}, refunds.N == read.Refunds && last.N == read.Records
}

// payout folds the records of a payout; its id is "" if there are none.
func (s *State) payout(appID, payoutID string) (p Payout) {
	for _, r := range s.margins.bySubject[appID+"/"+payoutID] {
		p.Fold(r)
	}
	return p
}

// appendMarginRecord appends r to the records of its app.
func (s *State) appendMarginRecord(r MarginRecord, nowUS int64) {
	last := s.lastMargin(r.AppID)
	r.N, r.TakenMC, r.CreatedUS = last.N+1, last.TakenMC+r.AmountMC, nowUS
	s.AddMarginRecord(&r)
	s.Changes.MarginRecords = append(s.Changes.MarginRecords, r)
	s.Changes.MustSync = true
}

func (w *RowKeys) addMargin(appID, subject, developerID string) {
	w.Accounts[developerID] = true
	w.NewBalances[developerID] = false
	w.Margins = append(w.Margins, MarginKeys{appID, subject})
}

func (c BeginPayout) addKeys(w *RowKeys) {
	w.addMargin(c.AppID, c.PayoutID, c.DeveloperID)
	for appID := range c.Others {
		w.addMargin(appID, c.PayoutID, c.DeveloperID)
	}
}

func (c BeginPayout) apply(s *State, nowUS int64) (Result, error) {
	if p := s.payout(c.AppID, c.PayoutID); p.ID != "" {
		return Result{Outcome: Done, Payout: p}, nil
	}
	margin, isCurrent := s.margin(c.AppID, c.Margin)
	together := margin.Balance()
	for appID, read := range c.Others {
		other, isOtherCurrent := s.margin(appID, read)
		together, isCurrent = together+other.Balance(), isCurrent && isOtherCurrent
	}
	own := money.MC(0)
	if b := s.Balances[c.DeveloperID]; b != nil {
		own = b.AvailableMC
	}
	margin.KeepFor(together, own)
	amount := margin.Payable(c.MinimumMC)
	switch {
	case c.PayoutID == "":
		return Result{}, apierr.InvalidRequest.Errorf("payout: required")
	case !isCurrent:
		return Result{Outcome: Waiting}, nil
	case amount == 0:
		return Result{}, apierr.InvalidRequest.Errorf("nothing of this app's margin can be paid out now")
	}
	s.appendMarginRecord(MarginRecord{
		AppID:       c.AppID,
		Kind:        marginBegun,
		Subject:     c.PayoutID,
		DeveloperID: c.DeveloperID,
		AmountMC:    amount,
		MaturedDay:  c.Margin.Day,
		MaturedMC:   margin.MaturedMC,
		ReturnedMC:  margin.ReturnedMC,
		KeptMC:      margin.KeptMC,
	}, nowUS)
	return Result{Payout: s.payout(c.AppID, c.PayoutID)}, nil
}

func (c EndPayout) addKeys(w *RowKeys) { w.addMargin(c.AppID, c.PayoutID, c.DeveloperID) }

func (c EndPayout) apply(s *State, nowUS int64) (Result, error) {
	p := s.payout(c.AppID, c.PayoutID)
	r := MarginRecord{AppID: c.AppID, Kind: marginPaid, Subject: c.PayoutID, DeveloperID: p.DeveloperID,
		Detail: c.TransferID}
	switch {
	case p.ID == "":
		return Result{}, apierr.NotFound.Errorf("no such payout")
	case c.TransferID == "" && c.Failure == "":
		return Result{}, apierr.InvalidRequest.Errorf("transfer: required")
	case p.Failed(), p.Paid() && (c.Failure == "" || c.TransferID == ""):
		return Result{Outcome: Done, Payout: p}, nil
	case c.Failure != "":
		r.Kind, r.AmountMC, r.Detail = marginFailed, -p.AmountMC, c.Failure
	}
	s.appendMarginRecord(r, nowUS)
	return Result{Payout: s.payout(c.AppID, c.PayoutID)}, nil
}

func (c RecordPayout) addKeys(w *RowKeys) { w.addMargin(c.AppID, c.PayoutID, c.DeveloperID) }

func (c RecordPayout) apply(s *State, nowUS int64) (Result, error) {
	p := s.payout(c.AppID, c.PayoutID)
	switch {
	case c.PayoutID == "" || c.TransferID == "":
		return Result{}, apierr.InvalidRequest.Errorf("transfer: required")
	case c.AmountMC <= 0 || c.AmountMC%money.Cent != 0:
		return Result{}, apierr.InvalidRequest.Errorf("amount: whole cents above zero")
	case p.Begun():
		return Result{Outcome: Waiting, Payout: p}, nil
	case p.Paid(), p.Failed() && p.TransferID == c.TransferID: // that transfer was reversed
		return Result{Outcome: Done, Payout: p}, nil
	}
	s.appendMarginRecord(MarginRecord{
		AppID:       c.AppID,
		Kind:        marginFound,
		Subject:     c.PayoutID,
		DeveloperID: c.DeveloperID,
		AmountMC:    c.AmountMC,
		Detail:      c.TransferID,
	}, nowUS)
	return Result{Payout: s.payout(c.AppID, c.PayoutID)}, nil
}

// takenOf is what a subject takes of an app's margin.
func (s *State) takenOf(appID, subject string) (taken money.MC) {
	for _, r := range s.margins.bySubject[appID+"/"+subject] {
		taken += r.AmountMC
	}
	return taken
}
