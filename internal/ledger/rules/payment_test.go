package rules

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
)

// credited returns a state in which account A has a payment top_1 of 100 that is credited, and nothing else.
func credited(t *testing.T) *State {
	t.Helper()
	s := newFunded()
	s.Balances["A"].AvailableMC = 0
	must(t, s, OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: 100},
		MarkPaymentPaid{PaymentID: "top_1", PaymentIntent: "pi_1"}, SettlePayment{"top_1"})
	return s
}

// TestReversals says what is gone from a payment, again and again: each total is booked by its difference to the last
// one, no more than was paid. What comes back is of the newest reversals, each of which a row names.
func TestReversals(t *testing.T) {
	t.Parallel()
	s := credited(t)
	refused(t, s, ReversePayment{PaymentID: "top_1", TotalMC: 1}, apierr.InvalidRequest)
	for i, c := range []struct {
		reason           string
		total            money.MC
		moves            []money.MC // of the balance, by the rows of the command
		rest, reversedMC money.MC
	}{
		{"refunded", 30, []money.MC{-30}, 0, 30},
		{"refunded", 30, nil, 0, 30},
		{"refunded", 50, []money.MC{-20}, 0, 50},
		{ReasonDisputeLost, 10, []money.MC{-10}, 0, 60},
		{"refunded", 45, []money.MC{5}, 0, 55},             // a part of the 20
		{"refunded", 25, []money.MC{15, 5}, 0, 35},         // the rest of the 20, and a part of the 30
		{"refunded", 200, []money.MC{-65}, 110, 100},       // no more than was paid
		{"refunded", 0, []money.MC{65, 25}, 0, 10},         // all of it
		{ReasonDisputeLost, -5, []money.MC{10}, 0, 0},      // no less than nothing
		{ReasonDisputeLost, 101, []money.MC{-100}, 1, 100}, // of a payment that is whole again
		{"paid_elsewhere", 1, nil, 1, 100},                 // nothing is left
		{ReasonDisputeLost, 100, nil, 0, 100},              // it says no more than before
		{ReasonDisputeLost, 99, []money.MC{1}, 0, 99},
		{"paid_elsewhere", 2, []money.MC{-1}, 1, 100},
		{"paid_elsewhere", 0, []money.MC{1}, 0, 99},
		{ReasonDisputeLost, 0, []money.MC{99}, 0, 0},
		{"refunded", money.Max, []money.MC{-100}, money.Max - 100, 100},
	} {
		rows, before := len(s.Changes.Entries), s.Balances["A"].AvailableMC
		r := must(t, s, ReversePayment{PaymentID: "top_1", Reason: c.reason, TotalMC: c.total})
		var moved money.MC
		list := s.Changes.Entries[rows:]
		for j, e := range list {
			if moved += e.AvailableDeltaMC; j >= len(c.moves) || e.AvailableDeltaMC != c.moves[j] ||
				e.AmountMC != max(c.moves[j], -c.moves[j]) || e.Reason != c.reason || e.ReversalOf == "" {
				t.Errorf("step %d: row %+v, want %d", i, e, c.moves)
			}
		}
		if len(list) != len(c.moves) || r.RestMC != c.rest || r.Payment.ReversedMC != c.reversedMC ||
			(r.Outcome == Done) != (len(c.moves) == 0) || s.Balances["A"].AvailableMC != before+moved {
			t.Errorf("step %d: %d rows, %+v", i, len(list), r)
		}
	}
	for i, r := range s.payments.byID["top_1"].Records {
		if r.N != int64(i+1) || r.PaymentID != "top_1" || r.AccountID != "A" || r.CreatedUS != fitTime.UnixMicro() ||
			i < 3 && r.AmountMC != 100 {
			t.Errorf("record %d: %+v", i, r)
		}
	}
}

// TestPaymentRows: each command of a payment that changes it names the payment, and returns the row that it has
// written.
func TestPaymentRows(t *testing.T) {
	t.Parallel()
	s := newFunded()
	for i, c := range []struct {
		command Command
		status  string // of the row; "" = none
	}{
		{OpenPayment{PaymentID: "top_1", AccountID: "A", AmountMC: 5}, "pending"},
		{FailPayment{PaymentID: "top_1", Reason: "declined"}, "reversed"},
		{ReopenPayment{"top_1"}, "pending"},
		{MarkPaymentPaid{PaymentID: "top_1", PaymentIntent: "pi_1"}, ""},
		{SettlePayment{"top_1"}, "settled"},
		{ReversePayment{PaymentID: "top_1", Reason: "refunded", TotalMC: 5}, "reversed"},
		{DisputePayment{PaymentID: "top_1", DisputeID: "du"}, ""},
		{EndDispute{PaymentID: "top_1", DisputeID: "du"}, ""},
	} {
		keys, rows := NewRowKeys(), len(s.Changes.Entries)
		keys.Add(c.command)
		r := must(t, s, c.command)
		written := s.Changes.Entries[rows:]
		if len(written) > 1 || (len(written) == 1) != (c.status != "") || len(keys.Payments) != 1 ||
			len(written) == 1 && (r.Entry.ID != written[0].ID || r.Entry.Status != c.status) {
			t.Errorf("step %d, %T: %+v, returned %+v", i, c.command, written, r.Entry)
		}
		stops := false
		switch c.command.(type) {
		case ReversePayment, DisputePayment, EndDispute:
			stops = true
		}
		if keys.FreezesAccount != stops {
			t.Errorf("%T: the connections of the account are loaded: %t", c.command, !stops)
		}
	}
}

// TestDisputesAreRecordedOnce: a dispute is known by its own record, whatever a reversal gives as its reason.
func TestDisputesAreRecordedOnce(t *testing.T) {
	t.Parallel()
	s := credited(t)
	must(t, s, ReversePayment{PaymentID: "top_1", Reason: "du_1", TotalMC: 1},
		DisputePayment{PaymentID: "top_1", DisputeID: "du_2", Lost: true})
	p := s.payments.byID["top_1"]
	if p.HasDispute("du_1") || !p.HasDispute("du_2") || len(s.disputes) != 0 || s.Connections["C"].FrozenBy == "du_2" {
		t.Errorf("%+v, open: %+v", p, s.disputes)
	}
	for i, want := range []Outcome{Applied, Done} {
		if r := must(t, s, DisputePayment{PaymentID: "top_1", DisputeID: "du_1"}); r.Outcome != want {
			t.Errorf("recorded %d times: %+v", i+1, r)
		}
	}
	refused(t, s, DisputePayment{PaymentID: "top_1"}, apierr.InvalidRequest)
}

// TestResumedAtZero: the end of a dispute resumes a connection unless the balance is below zero, which stops it then.
func TestResumedAtZero(t *testing.T) {
	t.Parallel()
	for available, want := range map[money.MC]FreezeCause{0: "", 1: "", -1: FrozenByPayment} {
		s := credited(t)
		must(t, s, DisputePayment{PaymentID: "top_1", DisputeID: "du"})
		s.Balances["A"].AvailableMC = available
		must(t, s, EndDispute{PaymentID: "top_1", DisputeID: "du"})
		if conn := s.Connections["C"]; conn.FrozenBy != want || (conn.Status == Active) != (want == "") ||
			want != "" && s.freezes["C"][0].Subject != BelowZero {
			t.Errorf("with %d: %+v, %+v", available, conn, s.freezes["C"])
		}
		if r := must(t, s, EndDispute{PaymentID: "top_1", DisputeID: "du"}); r.Outcome != Done {
			t.Errorf("with %d: ended again: %+v", available, r)
		}
	}
}

// TestRaisesInADispute: while a payment is disputed its user raises no cap, by whatever command, and may lower it, or
// leave it as it is.
func TestRaisesInADispute(t *testing.T) {
	t.Parallel()
	ask := RequestAllocation{RequestID: "r", ConnectionID: "C", AppID: "p", TargetMC: 1010, MaxMC: money.Max}
	approve := DecideAllocationRequest{RequestID: "r", AccountID: "A", Approve: true, MaxMC: money.Max}
	for name, c := range map[string]struct {
		command Command
		allowed bool
	}{
		"raised":           {ChangeCap{ConnectionID: "C", TargetMC: 1001}, false},
		"the same":         {ChangeCap{ConnectionID: "C", TargetMC: 1000}, true},
		"lowered":          {ChangeCap{ConnectionID: "C", TargetMC: 999}, true},
		"connected again":  {Connect{ConnectionID: "N", AppID: "p", AccountID: "A", RequestedMC: 1001}, false},
		"left as it is":    {Connect{ConnectionID: "N", AppID: "p", AccountID: "A", RequestedMC: 1000}, true},
		"a new connection": {Connect{ConnectionID: "N", AppID: "q", AccountID: "A"}, false},
		"approved":         {approve, false},
		"denied":           {DecideAllocationRequest{RequestID: "r", AccountID: "A"}, true},
	} {
		s := credited(t)
		must(t, s, ask)
		s.Balances["A"].AvailableMC = 500
		s.AddOpenDispute(OpenDispute{DisputeID: "du", PaymentID: "top_1", AccountID: "A"})
		keys := NewRowKeys()
		if keys.Add(c.command); !keys.Disputes {
			t.Errorf("%s: the open disputes are not loaded", name)
		}
		if !c.allowed {
			refused(t, s, c.command, apierr.ConnectionFrozen)
		} else if r := must(t, s, c.command); r.Connection.AllocationMC > 1000 {
			t.Errorf("%s: %+v", name, r.Connection)
		}
	}
}

// TestRefundsOfCalls: the app's margin pays a refund first, then its developer's balance, and nobody if these do not
// reach. A call is refunded once, and for 90 days.
func TestRefundsOfCalls(t *testing.T) {
	t.Parallel()
	type outcome struct{ margin, balance, used money.MC }
	for name, c := range map[string]struct {
		earned, used, taken, available money.MC
		sandbox                        bool // the call is of a test account
		fakeMoney                      bool // the developer has only that
		nothing                        bool // the developer has no balance
		want                           *outcome
	}{
		"by margin":             {earned: 100, want: &outcome{80, 0, 70}},
		"by all of the margin":  {earned: 80, want: &outcome{80, 0, 70}},
		"by both":               {earned: 79, available: 1, want: &outcome{79, 1, 69}},
		"by the balance":        {available: 80, want: &outcome{0, 80, -10}},
		"after other refunds":   {earned: 100, used: 30, available: 10, want: &outcome{70, 10, 90}},
		"after payouts":         {earned: 100, taken: 100, available: 80, want: &outcome{0, 80, -10}},
		"after more than all":   {earned: 10, taken: 100, available: 80, want: &outcome{0, 80, -10}},
		"one short":             {earned: 50, available: 29},
		"by what is below zero": {earned: 79, available: -1},
		"by fake money":         {earned: 79, available: 1000, fakeMoney: true},
		"by no balance":         {earned: 79, nothing: true},
		"without a balance":     {earned: 80, nothing: true, want: &outcome{80, 0, 70}},
		"of a test account":     {sandbox: true, want: &outcome{0, 0, 0}},
	} {
		s := newFunded()
		s.Balances["A"].Sandbox = c.sandbox
		s.Balances["D"] = &Balance{AccountID: "D", AvailableMC: c.available, Sandbox: c.fakeMoney}
		if c.nothing {
			delete(s.Balances, "D")
		}
		call := callOf("k", 80)
		must(t, s, Hold{Call: call})
		row := must(t, s, Settle{
			Call: call, Attempt: 1, Settlement: Settled,
			Charge: Amounts{ProviderCostMC: 60, SvcFeeMC: 10, DevMarginMC: 10, UserChargeMC: 80},
		}).Entry
		s.AddOriginal(row, false)
		refund := RefundCall{
			EntryID: row.ID, AccountID: "A", AppID: "p", DeveloperID: "D", Reason: "late",
			Margin: AppMargin{EarnedMC: c.earned},
		}
		if c.used != 0 {
			s.AddCallRefund(&CallRefund{AppID: "p", N: 4, EntryID: "led_other", MarginUsedMC: c.used})
			refund.Margin.Refunds = 4
		}
		if c.taken != 0 {
			s.AddMarginRecord(&MarginRecord{AppID: "p", N: 7, Subject: "po", TakenMC: c.taken})
			refund.Margin.Records = 7
		}
		if c.want == nil {
			refused(t, s, refund, apierr.InvalidRequest)
			continue
		}
		stale := refund
		stale.Margin.Records--
		if r := must(t, s, stale); r.Outcome != Waiting {
			t.Errorf("%s: read before a payout: %+v", name, r)
		}
		r := must(t, s, refund)
		if got := (outcome{r.CallRefund.MarginMC, r.CallRefund.BalanceMC, r.CallRefund.MarginUsedMC}); got != *c.want ||
			(r.CallRefund.DebitID != "") != (got.balance > 0) || r.CallRefund.N != refund.Margin.Refunds+1 ||
			!c.nothing && s.Balances["D"].AvailableMC != c.available-got.balance || r.Entry.ReservedDeltaMC != 80 ||
			s.Connections["C"].ConsumedMC != 0 {
			t.Errorf("%s: %+v, want %+v; %+v", name, r.CallRefund, *c.want, s.Balances["D"])
		}
		entries := len(s.Changes.Entries)
		if again := must(t, s, refund); again.Outcome != Done || again.CallRefund != r.CallRefund ||
			len(s.Changes.Entries) != entries {
			t.Errorf("%s, again: %+v", name, again)
		}
		refund.AppID = "q"
		refused(t, s, refund, apierr.NotFound)
	}
	s, call := newFunded(), callOf("k", 80)
	must(t, s, Hold{Call: call})
	row := must(t, s, Settle{Call: call, Attempt: 1, Settlement: Settled, Charge: Amounts{UserChargeMC: 1}}).Entry
	s.AddOriginal(row, false)
	must(t, s, Reverse{EntryID: row.ID, AccountID: "A", Reason: "outage"})
	refused(t, s, RefundCall{EntryID: row.ID, AccountID: "A", AppID: "p", DeveloperID: "D"}, apierr.InvalidRequest)
	s.AddOriginal(row, false) // as if it were not refunded
	late := RefundCall{EntryID: row.ID, AccountID: "A", AppID: "p", DeveloperID: "D", Margin: AppMargin{EarnedMC: 9}}
	if _, err := Apply(s, late, fitTime.Add(MaxRefundAge+time.Microsecond)); err == nil {
		t.Error("refunded after 90 days")
	}
	late.Reason = "late"
	if _, err := Apply(s, late, fitTime.Add(MaxRefundAge)); err != nil {
		t.Error(err)
	}
}

// TestMarginRecordsOnce: a record that a command and its app both name counts once.
func TestMarginRecordsOnce(t *testing.T) {
	t.Parallel()
	s := newFunded()
	for range 2 {
		s.AddMarginRecord(&MarginRecord{AppID: "p", N: 1, Kind: marginDisputed, Subject: "A", AmountMC: 2, TakenMC: 2})
	}
	if taken := s.takenOf("p", "A"); taken != 2 {
		t.Errorf("%d are taken", taken)
	}
	for _, c := range []Command{
		BeginPayout{PayoutID: "po", AppID: "p", DeveloperID: "D", Others: map[string]MaturedMargin{"q": {}}},
		EndPayout{PayoutID: "po", AppID: "p", DeveloperID: "D"},
		RecordPayout{PayoutID: "po", AppID: "p", DeveloperID: "D"},
	} {
		keys := NewRowKeys()
		if keys.Add(c); keys.Margins[0] != (MarginKeys{"p", "po"}) || !keys.Accounts["D"] {
			t.Errorf("%T: %+v", c, keys.Margins)
		}
	}
}

// TestEndsOfPayouts: a payout is paid once, or gives its amount back once; the return of a transfer names it.
func TestEndsOfPayouts(t *testing.T) {
	t.Parallel()
	const amount = 3 * money.Cent
	end := func(transfer, failure string) EndPayout {
		return EndPayout{PayoutID: "po", AppID: "p", DeveloperID: "D", TransferID: transfer, Failure: failure}
	}
	for name, c := range map[string]struct {
		ends   []EndPayout
		want   Outcome // of the last one
		status string
		taken  money.MC
	}{
		"paid":                  {[]EndPayout{end("tr", "")}, Applied, marginPaid, amount},
		"paid again":            {[]EndPayout{end("tr", ""), end("tr", "")}, Done, marginPaid, amount},
		"refused":               {[]EndPayout{end("", "no")}, Applied, marginFailed, 0},
		"refused again":         {[]EndPayout{end("", "no"), end("", "no")}, Done, marginFailed, 0},
		"paid after it failed":  {[]EndPayout{end("", "no"), end("tr", "")}, Done, marginFailed, 0},
		"refused after paid":    {[]EndPayout{end("tr", ""), end("", "no")}, Done, marginPaid, amount},
		"returned":              {[]EndPayout{end("tr", ""), end("tr", "back")}, Applied, marginFailed, 0},
		"returned before known": {[]EndPayout{end("tr", "back")}, Applied, marginFailed, 0},
	} {
		s := newFunded()
		must(t, s, BeginPayout{
			PayoutID: "po", AppID: "p", DeveloperID: "D", Margin: MaturedMargin{MaturedMC: amount + 1},
		})
		var r Result
		for _, e := range c.ends {
			r = must(t, s, e)
		}
		if r.Outcome != c.want || r.Payout.Status != c.status || r.Payout.AmountMC != amount ||
			s.lastMargin("p").TakenMC != c.taken {
			t.Errorf("%s: %+v, taken %d", name, r, s.lastMargin("p").TakenMC)
		}
		refused(t, s, end("", ""), apierr.InvalidRequest)
	}
}
