package rules

import (
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
)

// ReasonDisputeLost is the reason of a ReversePayment that a lost dispute makes.
const ReasonDisputeLost = "dispute_lost"

// A DisputedPayment is a payment of which disputes are open or lost.
type DisputedPayment struct {
	DisputedMC money.MC // of its amount; what went back for another reason cannot be lost again
	OpenMC     money.MC // of DisputedMC: in open disputes, which are not taken from the balance yet

	SettledSeq int64        // of the ledger row that credited it; 0 = it is gone, with its year
	Since      []AppCharges // what the account's calls since that row have cost
}

// AppCharges is what calls of an account to an app cost, and what margin they brought the app.
type AppCharges struct {
	AppID               string
	ChargedMC, MarginMC money.MC
}

// Disputed says how much of a payment is disputed, if so much is in disputes of it that are open or lost.
func (p *Payment) Disputed(contested money.MC) (d DisputedPayment) {
	if p.Status != PaymentSettled { // it was not credited, so it can take nothing back
		return d
	}
	lost := p.ReversedFor(ReasonDisputeLost)
	d.DisputedMC = max(min(contested, p.AmountMC-(p.ReversedMC-lost)), lost)
	d.OpenMC = d.DisputedMC - lost
	return d
}

// AssessLoss says what the operator has lost by an account, or would lose if all of its open disputes were lost, and
// what each app owes of the margin of the account's calls for it. balance is all that the account has, allocated or
// not; payments are in the order in which they settled.
//
// A loss is what the balance cannot bear of all that is disputed. Each app's margin bears it as the charges do:
//
//	share = margin × loss ÷ charges, rounded down, of the calls that the lost money may have paid for
//
// These calls are those since the newest payment from which on both what is disputed and what was charged reach the
// loss, so that calls which older payments had paid for are left alone; if there is no such payment, those since the
// oldest one. The shares together are at most the loss, and each is at most the margin of the calls. ok is false if the
// ledger does not have these calls any more: then the shares are not known.
func AssessLoss(balance money.MC, payments []DisputedPayment) (loss money.MC, shares map[string]money.MC, ok bool) {
	var disputed, open money.MC
	for _, p := range payments {
		disputed, open = disputed+p.DisputedMC, open+p.OpenMC
	}
	shares = map[string]money.MC{}
	if loss = min(max(open-balance, 0), disputed); loss == 0 {
		return 0, shares, true
	}
	var calls []AppCharges
	var charged, reached money.MC
	for i := len(payments) - 1; i >= 0 && (reached < loss || charged < loss); i-- {
		p := payments[i]
		if p.DisputedMC == 0 {
			continue
		} else if p.SettledSeq == 0 {
			return loss, nil, false
		}
		reached, charged, calls = reached+p.DisputedMC, 0, p.Since
		for _, c := range calls {
			charged += c.ChargedMC
		}
	}
	for _, c := range calls {
		if share := shareOfLoss(c, min(loss, charged), charged); share > 0 {
			shares[c.AppID] = share
		}
	}
	return loss, shares, true
}

// shareOfLoss is an app's share of a loss that calls with a sum of charges bear. Of a call that cost the user less than
// its margin, the operator has paid the rest, which no dispute takes back.
func shareOfLoss(c AppCharges, loss, charged money.MC) money.MC {
	margin := min(c.MarginMC, c.ChargedMC)
	if margin <= 0 || loss <= 0 {
		return 0
	}
	share, err := money.MulDiv(int64(margin), int64(loss), int64(charged), money.Down)
	if err != nil { // loss ≤ charged, so the quotient is at most margin
		return margin
	}
	return money.MC(share)
}

// Loss is what was lost by an account's disputed payments, and from what it was computed, so that the audit can compute
// the shares again.
type Loss struct {
	AccountID     string
	Seq           int64 // of the account's newest ledger row
	DisputedCents int64 // in disputes that are open or lost
	ChangedUS     int64 // when the newest change of a dispute was stored
	LossMC        money.MC
}

// DisputedShare is what an account's disputed payments take of an app's margin: TotalMC is all of it up to now.
type DisputedShare struct {
	AppID, DeveloperID string
	TotalMC            money.MC
}

// TakeDisputedMargin takes of apps' margins what an account's disputed payments have lost, and gives back what they
// took before and have not lost. Shares are those of AssessLoss, and zero for the other apps of which the account's
// payments have taken before. If the account has another newest row than Loss says, the outcome is Waiting: read it
// again. It may be repeated.
type TakeDisputedMargin struct {
	Loss   Loss
	Shares []DisputedShare
	// Payments of the account have MarginRecords of their own, made by an earlier version. What they took counts.
	Payments []string
}

func (c TakeDisputedMargin) addKeys(w *RowKeys) {
	w.Accounts[c.Loss.AccountID] = true
	for _, share := range c.Shares {
		w.addMargin(share.AppID, c.Loss.AccountID, share.DeveloperID)
		for _, payment := range c.Payments {
			w.addMargin(share.AppID, payment, share.DeveloperID)
		}
	}
}

func (c TakeDisputedMargin) apply(s *State, nowUS int64) (Result, error) {
	var sum money.MC
	for _, share := range c.Shares {
		if share.TotalMC < 0 || share.TotalMC > c.Loss.LossMC-sum {
			return Result{}, apierr.InvalidRequest.Errorf("shares: together they must be between 0 and the loss of %d",
				c.Loss.LossMC)
		}
		sum += share.TotalMC
	}
	switch b := s.Balances[c.Loss.AccountID]; {
	case b == nil:
		return Result{}, apierr.NotFound.Errorf("no such account")
	case b.Seq != c.Loss.Seq:
		return Result{Outcome: Waiting}, nil
	}
	for _, share := range c.Shares {
		amount := share.TotalMC - s.takenOf(share.AppID, c.Loss.AccountID)
		for _, payment := range c.Payments {
			amount -= s.takenOf(share.AppID, payment)
		}
		if amount != 0 {
			s.appendMarginRecord(MarginRecord{
				AppID:       share.AppID,
				Kind:        marginDisputed,
				Subject:     c.Loss.AccountID,
				DeveloperID: share.DeveloperID,
				AmountMC:    amount,
			}, nowUS)
		}
	}
	s.Changes.Losses = append(s.Changes.Losses, c.Loss)
	s.Changes.MustSync = true
	return Result{}, nil
}
