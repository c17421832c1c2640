package rules

import (
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// PaymentStatus is where a payment stands: the fold of its records.
type PaymentStatus string

// A payment is pending until it is paid and cleared, or has failed; one that has failed may be reopened. What went
// back afterwards, less what came back of that, is in ReversedMC (contract §3, Ledger entry status).
const (
	PaymentPending PaymentStatus = "pending"
	PaymentSettled PaymentStatus = "settled"
	PaymentFailed  PaymentStatus = "failed"
)

// Payment is one top-up by a payment processor (contract §2, Ledger entry; semantics 8).
type Payment struct {
	ID, AccountID string
	AmountMC      money.MC
	Status        PaymentStatus
	Reason        string // why it failed
	PaymentIntent string // stripe_payment_intent; "" until it is paid
	HoldUntilUS   int64  // hold_until; 0 until it is paid
	ReversedMC    money.MC
	OpenedUS      int64
	PendingEntry  string // the ledger rows
	SettledEntry  string
	Records       []PaymentRecord
}

// PaymentRecord is one thing that happened to a payment.
type PaymentRecord struct {
	PaymentID     string
	N             int64
	Kind          string // opened, reopened, paid, settled, failed, reversed, restored or disputed
	AccountID     string
	AmountMC      money.MC
	EntryID       string
	PaymentIntent string
	HoldUntilUS   int64
	Reason        string
	CreatedUS     int64
}

// Paid says whether the money has reached the processor.
func (p *Payment) Paid() bool { return p.PaymentIntent != "" }

// ReversedFor is the sum that is reversed for one reason, without what was restored of it.
func (p *Payment) ReversedFor(reason string) (sum money.MC) {
	for _, r := range p.Records {
		if r.Reason != reason {
			continue
		}
		switch r.Kind {
		case "reversed":
			sum += r.AmountMC
		case "restored":
			sum -= r.AmountMC
		}
	}
	return sum
}

// Difference is what c books of a payment that was credited: the difference between its total and what is reversed for
// its reason, below zero if that is less. No more is reversed than was paid; rest is what that leaves out.
func (p *Payment) Difference(c ReversePayment) (mc, rest money.MC) {
	if p.Status != PaymentSettled {
		return 0, 0
	}
	mc = max(c.TotalMC, 0) - p.ReversedFor(c.Reason)
	if left := p.AmountMC - p.ReversedMC; mc > left {
		return left, mc - left
	}
	return mc, 0
}

// HasDispute reports whether the dispute is recorded.
func (p *Payment) HasDispute(dispute string) bool {
	return slices.ContainsFunc(p.Records, func(r PaymentRecord) bool {
		return r.Kind == "disputed" && r.Reason == dispute
	})
}

// Fold applies the next record to the payment.
func (p *Payment) Fold(r PaymentRecord) {
	switch r.Kind {
	case "opened":
		p.ID, p.AccountID, p.AmountMC, p.Status, p.PendingEntry, p.OpenedUS = r.PaymentID, r.AccountID, r.AmountMC,
			PaymentPending, r.EntryID, r.CreatedUS
	case "reopened":
		p.Status, p.Reason, p.PendingEntry = PaymentPending, "", r.EntryID
	case "paid":
		p.PaymentIntent, p.HoldUntilUS = r.PaymentIntent, r.HoldUntilUS
	case "settled":
		p.Status, p.SettledEntry = PaymentSettled, r.EntryID
	case "failed":
		p.Status, p.Reason = PaymentFailed, r.Reason
	case "reversed":
		p.ReversedMC += r.AmountMC
	case "restored":
		p.ReversedMC -= r.AmountMC
	}
	p.Records = append(p.Records, r)
}

// OpenPayment writes a top-up's pending row, which moves nothing yet. Of a payment
// that is there the outcome is Done, as with every command of a payment that finds
// its work done: each may be repeated, and come in any order.
type OpenPayment struct {
	PaymentID, AccountID string
	AmountMC             money.MC
}

// MarkPaymentPaid records that the processor has the money, and when it will be
// cleared.
type MarkPaymentPaid struct {
	PaymentID, PaymentIntent string
	HoldUntilUS              int64
}

// SettlePayment credits a payment that is paid and cleared. Of one that is not the
// outcome is Waiting.
type SettlePayment struct{ PaymentID string }

// FailPayment ends a payment that has not settled: nothing was credited, nothing is.
type FailPayment struct{ PaymentID, Reason string }

// ReopenPayment makes a payment pending again that had failed, because the processor has its money after all: it was
// paid late, or what was returned before it was credited came back.
type ReopenPayment struct{ PaymentID string }

// ReversePayment books what is gone from a payment: TotalMC is all of it now, for that reason. More than is booked is
// taken from the balance, which may fall below zero by it, and by nothing else; then the account's active connections
// are frozen. Less than is booked comes back to the balance. No more is booked than was paid: Result.RestMC is what
// that left out.
type ReversePayment struct {
	PaymentID, Reason string
	TotalMC           money.MC
}

// DisputePayment records a dispute of a payment, once. While it is open, it stops the account's connections, and its
// user can neither resume nor connect nor raise a spend cap.
type DisputePayment struct {
	PaymentID, DisputeID string
	Lost                 bool // it is decided already: nothing stops
}

// EndDispute ends what an open dispute has stopped: it was won, lost or withdrawn. Without an open one the outcome is
// Done.
type EndDispute struct{ PaymentID, DisputeID string }

// payments are the payments of a State. Its zero value is ready to use.
type payments struct {
	byID     map[string]*Payment
	byIntent map[string]*Payment
}

func (s *payments) add(p *Payment) {
	if s.byID == nil {
		s.byID, s.byIntent = map[string]*Payment{}, map[string]*Payment{}
	}
	s.byID[p.ID] = p
	if p.PaymentIntent != "" {
		s.byIntent[p.PaymentIntent] = p
	}
}

// appendPaymentRecord appends r to p.
func (s *State) appendPaymentRecord(p *Payment, r PaymentRecord, nowUS int64) Result {
	r.N, r.CreatedUS = int64(len(p.Records)+1), nowUS
	if r.AmountMC == 0 {
		r.AmountMC = p.AmountMC
	}
	if p.ID != "" {
		r.PaymentID, r.AccountID = p.ID, p.AccountID
	}
	p.Fold(r)
	s.payments.add(p)
	s.Changes.PaymentRecords = append(s.Changes.PaymentRecords, r)
	s.Changes.MustSync = true
	return Result{Payment: *p}
}

// payment returns the payment, with the balance that it is for.
func (s *State) payment(paymentID string) (*Payment, *Balance, error) {
	if p := s.payments.byID[paymentID]; p != nil {
		return p, s.Balances[p.AccountID], nil
	}
	return nil, nil, apierr.NotFound.Errorf("no such payment")
}

func (c OpenPayment) addKeys(w *RowKeys) {
	w.Accounts[c.AccountID] = true
	w.NewBalances[c.AccountID] = false
	w.Payments = append(w.Payments, c.PaymentID)
}

func (c OpenPayment) apply(s *State, nowUS int64) (Result, error) {
	if p := s.payments.byID[c.PaymentID]; p != nil {
		if p.AccountID != c.AccountID || p.AmountMC != c.AmountMC {
			return Result{}, apierr.InvalidRequest.Errorf("this payment is another one")
		}
		return Result{Outcome: Done, Payment: *p}, nil
	}
	b := s.Balances[c.AccountID]
	if b == nil {
		b = &Balance{AccountID: c.AccountID}
	}
	switch {
	case b.Sandbox:
		return Result{}, apierr.InvalidRequest.Errorf("a test account's money is not real; it cannot be topped up")
	case c.AmountMC <= 0 || c.AmountMC > money.Max:
		return Result{}, apierr.InvalidRequest.Errorf("amount_mc: must be between 1 and %d", money.Max)
	}
	s.Balances[c.AccountID] = b
	e := s.appendEntry(Entry{
		ID:        id.New(id.Ledger, time.UnixMicro(nowUS)),
		AccountID: c.AccountID,
		Type:      EntryTopUp,
		Status:    "pending",
		AmountMC:  c.AmountMC,
		CreatedUS: nowUS,
	}, b, nil)
	r := s.appendPaymentRecord(&Payment{}, PaymentRecord{
		PaymentID: c.PaymentID,
		AccountID: c.AccountID,
		Kind:      "opened",
		AmountMC:  c.AmountMC,
		EntryID:   e.ID,
	}, nowUS)
	r.Entry = e
	return r, nil
}

func (c ReopenPayment) addKeys(w *RowKeys) { w.Payments = append(w.Payments, c.PaymentID) }

func (c ReopenPayment) apply(s *State, nowUS int64) (Result, error) {
	p, b, err := s.payment(c.PaymentID)
	switch {
	case err != nil:
		return Result{}, err
	case p.Status != PaymentFailed:
		return Result{Outcome: Done, Payment: *p}, nil
	}
	e := s.appendEntry(Entry{
		ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: p.AccountID, Type: EntryTopUp, Status: "pending",
		AmountMC: p.AmountMC, CreatedUS: nowUS,
	}, b, nil)
	r := s.appendPaymentRecord(p, PaymentRecord{Kind: "reopened", EntryID: e.ID}, nowUS)
	r.Entry = e
	return r, nil
}

func (c MarkPaymentPaid) addKeys(w *RowKeys) {
	w.Payments = append(w.Payments, c.PaymentID)
	w.PaymentIntents = append(w.PaymentIntents, c.PaymentIntent)
}

func (c MarkPaymentPaid) apply(s *State, nowUS int64) (Result, error) {
	p, _, err := s.payment(c.PaymentID)
	if err != nil {
		return Result{}, err
	}
	other := s.payments.byIntent[c.PaymentIntent]
	switch {
	case other != nil && other.ID != p.ID:
		return Result{}, apierr.InvalidRequest.Errorf("stripe_payment_intent: it paid for another top-up")
	case p.Paid() && p.PaymentIntent != c.PaymentIntent:
		return Result{}, apierr.InvalidRequest.Errorf("stripe_payment_intent: another one paid for this top-up")
	case p.Paid():
		return Result{Outcome: Done, Payment: *p}, nil
	case p.Status == PaymentFailed:
		return Result{}, apierr.InvalidRequest.Errorf("this payment has failed: %s", p.Reason)
	case c.PaymentIntent == "":
		return Result{}, apierr.InvalidRequest.Errorf("stripe_payment_intent: required")
	}
	return s.appendPaymentRecord(p, PaymentRecord{
		Kind:          "paid",
		PaymentIntent: c.PaymentIntent,
		HoldUntilUS:   max(c.HoldUntilUS, nowUS),
	}, nowUS), nil
}

func (c SettlePayment) addKeys(w *RowKeys) { w.Payments = append(w.Payments, c.PaymentID) }

func (c SettlePayment) apply(s *State, nowUS int64) (Result, error) {
	p, b, err := s.payment(c.PaymentID)
	switch {
	case err != nil:
		return Result{}, err
	case p.Status != PaymentPending:
		return Result{Outcome: Done, Payment: *p}, nil
	case !p.Paid() || p.HoldUntilUS > nowUS:
		return Result{Outcome: Waiting, Payment: *p}, nil
	}
	e := s.appendEntry(Entry{
		ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: p.AccountID, Type: EntryTopUp, Status: "settled",
		AmountMC: p.AmountMC, AvailableDeltaMC: p.AmountMC, CreatedUS: nowUS,
	}, b, nil)
	r := s.appendPaymentRecord(p, PaymentRecord{Kind: "settled", EntryID: e.ID}, nowUS)
	r.Entry = e
	return r, nil
}

func (c FailPayment) addKeys(w *RowKeys) { w.Payments = append(w.Payments, c.PaymentID) }

func (c FailPayment) apply(s *State, nowUS int64) (Result, error) {
	p, b, err := s.payment(c.PaymentID)
	switch {
	case err != nil:
		return Result{}, err
	case p.Status != PaymentPending:
		return Result{Outcome: Done, Payment: *p}, nil
	case c.Reason == "":
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	}
	e := s.appendEntry(Entry{
		ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: p.AccountID, Type: EntryTopUp, Status: "reversed",
		ReversalOf: p.PendingEntry, Reason: c.Reason, AmountMC: p.AmountMC, CreatedUS: nowUS,
	}, b, nil)
	r := s.appendPaymentRecord(p, PaymentRecord{Kind: "failed", EntryID: e.ID, Reason: c.Reason}, nowUS)
	r.Entry = e
	return r, nil
}

func (c ReversePayment) addKeys(w *RowKeys) {
	w.Payments = append(w.Payments, c.PaymentID)
	w.FreezesAccount = true
	w.Reversals = append(w.Reversals, c)
}

func (c ReversePayment) apply(s *State, nowUS int64) (Result, error) {
	p, b, err := s.payment(c.PaymentID)
	if err != nil {
		return Result{}, err
	}
	back, rest := p.Difference(c)
	switch {
	case p.Status == PaymentPending:
		return Result{Outcome: Waiting, Payment: *p}, nil
	case back == 0:
		return Result{Outcome: Done, Payment: *p, RestMC: rest}, nil
	case c.Reason == "":
		return Result{}, apierr.InvalidRequest.Errorf("reason: required")
	}
	move := func(kind, of string, amount money.MC) (r Result) {
		e := s.appendEntry(Entry{
			ID: id.New(id.Ledger, time.UnixMicro(nowUS)), AccountID: p.AccountID, Type: EntryTopUp, Status: "reversed",
			ReversalOf: of, Reason: c.Reason, AmountMC: max(amount, -amount), AvailableDeltaMC: amount, CreatedUS: nowUS,
		}, b, nil)
		r = s.appendPaymentRecord(p, PaymentRecord{
			Kind: kind, EntryID: e.ID, Reason: c.Reason, AmountMC: e.AmountMC,
		}, nowUS)
		r.Entry, r.RestMC = e, rest
		return r
	}
	var r Result
	if back > 0 {
		r = move("reversed", p.SettledEntry, -back)
	}
	for gone := p.reversals(c.Reason); back < 0; gone = gone[:len(gone)-1] { // the newest first
		last := gone[len(gone)-1]
		last.AmountMC = min(last.AmountMC, -back)
		r = move("restored", last.EntryID, last.AmountMC)
		back += last.AmountMC
	}
	if b.AvailableMC < 0 {
		s.freezeConnections(p.AccountID, nowUS)
	}
	return r, nil
}

// reversals returns the records of what is reversed for a reason, each with what was not restored of it.
func (p *Payment) reversals(reason string) (list []PaymentRecord) {
	for _, r := range p.Records {
		switch {
		case r.Reason != reason:
		case r.Kind == "reversed":
			list = append(list, r)
		case r.Kind == "restored": // of the newest, and of no other
			last := &list[len(list)-1]
			if last.AmountMC -= r.AmountMC; last.AmountMC == 0 {
				list = list[:len(list)-1]
			}
		}
	}
	return list
}

func (c DisputePayment) addKeys(w *RowKeys) {
	w.Payments = append(w.Payments, c.PaymentID)
	w.FreezesAccount = true
}

func (c DisputePayment) apply(s *State, nowUS int64) (Result, error) {
	p, _, err := s.payment(c.PaymentID)
	switch {
	case err != nil:
		return Result{}, err
	case p.HasDispute(c.DisputeID):
		return Result{Outcome: Done, Payment: *p}, nil
	case c.DisputeID == "":
		return Result{}, apierr.InvalidRequest.Errorf("dispute: required")
	}
	r := s.appendPaymentRecord(p, PaymentRecord{Kind: "disputed", Reason: c.DisputeID}, nowUS)
	if !c.Lost {
		s.openDispute(OpenDispute{DisputeID: c.DisputeID, PaymentID: p.ID, AccountID: p.AccountID, SinceUS: nowUS})
		s.freezeForPayment(p.AccountID, c.DisputeID, p.ID, nowUS)
	}
	return r, nil
}

func (c EndDispute) addKeys(w *RowKeys) {
	w.Payments = append(w.Payments, c.PaymentID)
	w.FreezesAccount, w.Freezes, w.Disputes = true, true, true
}

func (c EndDispute) apply(s *State, nowUS int64) (Result, error) {
	p, _, err := s.payment(c.PaymentID)
	if err != nil {
		return Result{}, err
	}
	if !s.endDispute(p.ID, c.DisputeID) {
		return Result{Outcome: Done, Payment: *p}, nil
	}
	for _, conn := range s.connectionsOf(p.AccountID) {
		s.endFreezes(conn, func(f *FreezeRow) bool {
			return f.Cause == FrozenByPayment && f.Subject == c.DisputeID
		}, nowUS)
	}
	return Result{Payment: *p}, nil
}

// freezeConnections stops all connections of an account whose balance is below zero.
func (s *State) freezeConnections(accountID string, nowUS int64) {
	s.freezeForPayment(accountID, BelowZero, "", nowUS)
}

// freezeForPayment stops all connections of an account, and notifies the apps and the user.
func (s *State) freezeForPayment(accountID, subject, paymentID string, nowUS int64) {
	for _, conn := range s.connectionsOf(accountID) {
		s.addFreeze(conn, FreezeRow{Cause: FrozenByPayment, Subject: subject, Actor: paymentID}, nowUS)
	}
}
