package bank

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// times that pass.
var times = []time.Duration{time.Minute, 6 * time.Minute, time.Hour, 3 * time.Hour, 25 * time.Hour, 3 * 24 * time.Hour}

func (p *Player) time(s Step) error {
	d := times[s.A%len(times)]
	if p.Service.Pass(d); d > 24*time.Hour {
		p.forget()
	}
	return nil
}

// forget makes Stripe forget idempotency keys, which last a day. No request is on its way for so long.
func (p *Player) forget() {
	if len(p.parked) == 0 {
		_ = p.steer("", "forget") // it cannot fail
	}
}

func (p *Player) topUpJobs(s Step) error {
	return p.jobs(s, "top-ups", p.Service.RunTopUps)
}

func (p *Player) payoutJobs(s Step) error {
	return p.jobs(s, "payouts", p.Service.RunPayouts)
}

// faultyJobs runs a job that meets a fault, mostly when it changes something at Stripe, and then often one after which
// nobody knows what Stripe has done.
func (p *Player) faultyJobs(s Step) error {
	f := faults[s.A%len(faults)]
	if s.A%3 == 0 {
		f = []Fault{LoseAnswer, EndAfter}[s.B%2]
	}
	after := s.B % 4
	if s.B%3 > 0 {
		after = NextChange
	}
	p.Network.Arm(f, after)
	if s.C/10%2 == 0 {
		return p.payoutJobs(s)
	}
	return p.topUpJobs(s)
}

func (p *Player) jobs(s Step, name string, do func(context.Context, int) error) error {
	var err error
	return p.run(func(ctx context.Context) { err = do(ctx, p.node(s)) }, func(faulty bool) error {
		if err != nil && !faulty {
			return fmt.Errorf("property 1: the job of %s failed: %w", name, err)
		}
		return nil
	})
}

// payday is longer than margin takes to mature, and than it is between two payouts.
const payday = 3*24*time.Hour + time.Hour

// doubts are faults after which a job asks again, and what it asks for may no longer be wanted then.
var doubts = []Fault{LoseRequest, TooMany, Unauthorized, Conflict, LoseAnswer, EndBefore, EndAfter, HoldRequest}

// secondThoughts lets a job charge a card or pay a developer, of which Stripe's answer does not come, lets a term of it
// change, and lets the job ask again.
func (p *Player) secondThoughts(s Step) error {
	if s.A%2 == 0 {
		return p.doubtfulPayout(s)
	}
	person, err := p.lowPerson(s.A)
	if err == nil && person == "" { // a new plan, of which the first payment is too small
		if err = p.automatic(Step{A: s.A, B: s.B / 6 * 6, C: s.C}); err == nil {
			person, err = p.lowPerson(s.A)
		}
	}
	if err != nil || person == "" {
		return err
	}
	return p.inDoubt(s, p.topUpJobs, func() error {
		switch s.C % 5 {
		case 0:
			return p.page(s, person, "/top-up/auto/off", nil, nil)
		case 1:
			return p.setAutomatic(s, person)
		case 2:
			return p.operateOn(s, person, "suspend", because, nil)
		case 3:
			return p.operateOn(s, person, "goodwill", goodwillOf(p.Service.Now(), 30*money.Dollar), nil)
		}
		return nil
	})
}

// doubtfulPayout lets a payout of a developer be due, which may be new to Stripe, and an operator suspend the developer
// or the app while Stripe's answer does not come.
func (p *Player) doubtfulPayout(s Step) error {
	n := s.C / 3 % len(p.Apps)
	if p.payees[p.Apps[n].Developer] == "" {
		if err := p.onboard(Step{A: n}); err != nil {
			return err
		}
	}
	p.Service.Pass(payday)
	p.forget()
	return p.inDoubt(s, p.payoutJobs, func() error {
		begun, err := ids(p.Book, `SELECT app_id FROM margin_records m WHERE kind = 'begun' AND NOT EXISTS
			(SELECT 1 FROM margin_records e WHERE e.subject = m.subject AND e.kind <> 'begun')`)
		for _, app := range p.Apps {
			if len(begun) == 0 || err != nil || app.ID != begun[0] {
				continue
			}
			switch s.C % 3 {
			case 0:
				err = p.operateOn(s, app.Developer, "suspend", because, nil)
			case 1:
				_, err = p.Service.Operate(context.Background(), p.node(s), "POST",
					"/v1/operator/apps/"+app.ID+"/suspend", because)
			}
		}
		return err
	})
}

// inDoubt lets a job run into a doubt, something change, and the job run again on another node. What waited goes on.
func (p *Player) inDoubt(s Step, job func(Step) error, change func() error) error {
	waiting := len(p.parked)
	p.Network.Arm(doubts[s.B%len(doubts)], NextChange)
	if err := job(s); err != nil {
		return err
	}
	if p.Network.Arm("", 0) == "" {
		p.Done["doubt"]++
	}
	if err := change(); err != nil {
		return err
	}
	p.Service.Pass(6 * time.Minute)
	if err := job(Step{C: s.C + 1}); err != nil {
		return err
	}
	for len(p.parked) > waiting {
		if err := p.goOnWith(len(p.parked) - 1); err != nil {
			return err
		}
	}
	return nil
}

// overtaken lets what is known of a payment change while a node still has an older answer of Stripe's about it. When
// all events have come, the books agree with Stripe's.
func (p *Player) overtaken(s Step) error {
	happens := []func(Step) error{p.dashboardRefund, p.dispute, p.disputeEnds, p.refundEnds}
	if err := happens[s.A%len(happens)](s); err != nil {
		return err
	}
	waiting := len(p.parked)
	p.Network.Arm(HoldAnswer, s.B%3)
	if err := p.oneEvent(Step{A: -1, C: s.C}); err != nil {
		return err
	}
	p.Network.Arm("", 0)
	if err := happens[s.B%len(happens)](s); err != nil {
		return err
	}
	if err := p.settleEvents(); err != nil {
		return err
	}
	for len(p.parked) > waiting {
		if err := p.goOnWith(len(p.parked) - 1); err != nil {
			return err
		}
	}
	if err := p.settleEvents(); err != nil || len(p.parked)+len(p.never) > 0 {
		return err
	}
	p.Done["all told"]++
	_, _, _, err := p.Book.checkPayments()
	return err
}

// lowPerson chooses a person whose card automatic top-up would charge now; "" = there is none.
func (p *Player) lowPerson(n int) (string, error) {
	low, err := ids(p.Book, `SELECT t.account_id FROM auto_topups t JOIN balances b ON b.account_id = t.account_id
		JOIN accounts a ON a.id = t.account_id WHERE t.enabled = 1 AND b.available_mc < t.below_cents * 1000000
			AND b.available_mc >= 0 AND a.suspended_us IS NULL AND a.closed_us IS NULL
			AND NOT EXISTS (SELECT 1 FROM open_disputes d WHERE d.account_id = t.account_id)
			AND NOT EXISTS (SELECT 1 FROM connections c WHERE c.account_id = t.account_id AND c.status = 'frozen')
		ORDER BY t.account_id`)
	if err != nil || len(low) == 0 {
		return "", err
	}
	return p.Book.nameOf(low[n%len(low)]), nil
}

// Day lets a day pass, in which jobs run every three hours, and events come at its end or never.
func (p *Player) Day(events bool) error {
	for n := range 8 {
		p.Service.Pass(3 * time.Hour)
		node := Step{C: n}
		if err := errors.Join(p.topUpJobs(node), p.payoutJobs(node)); err != nil {
			return err
		}
	}
	p.forget()
	if err := p.reconcile(); err != nil {
		return err
	}
	for n, list := 0, p.Stripe.Events(); n < len(list); n++ {
		if p.never[n] = p.never[n] || !events; p.told[n] || p.never[n] {
			continue
		}
		if err := p.deliver(Step{C: n}, list, n); err != nil {
			return err
		}
	}
	return nil
}

// Settle lets everything come to its end: no fault is left, what waits goes on, every event comes, and the jobs run.
// Stripe has forgotten idempotency keys by then. Operators do what is theirs to do for accounts that are closed.
func (p *Player) Settle() error {
	p.Network.Arm("", 0)
	for len(p.parked) > 0 {
		if err := p.goOn(); err != nil {
			return err
		}
	}
	_ = p.steer("", "transfers", "status", "")
	for range 3 {
		if err := p.settleEvents(); err != nil {
			return err
		}
		for _, d := range []time.Duration{25 * time.Hour, 6 * time.Minute, 61 * time.Minute} {
			if err := p.settleJobs(d); err != nil {
				return err
			}
		}
		if err := p.reconcile(); err != nil {
			return err
		}
	}
	if err := p.workOffTasks(); err != nil {
		return err
	}
	for range 2 {
		if err := p.settleJobs(payday); err != nil {
			return err
		}
	}
	if err := errors.Join(p.settleEvents(), p.reconcile()); err != nil {
		return err
	}
	p.Done["settled"]++
	p.Done["transferred"] += len(p.Stripe.Transferred())
	for _, at := range p.Stripe.Payments() {
		if at.Paid && at.OffSession {
			p.Done["charged"]++
		}
	}
	return nil
}

// settleEvents delivers the events that were not delivered yet, but for those that never come.
func (p *Player) settleEvents() error {
	for n, list := 0, p.Stripe.Events(); n < len(list); n++ {
		if p.told[n] || p.never[n] && p.Service.Reconcile() != nil {
			continue
		}
		if err := p.deliver(Step{C: n}, list, n); err != nil {
			return err
		}
	}
	return nil
}

// settleJobs lets time pass, and then the jobs run on each node.
func (p *Player) settleJobs(d time.Duration) error {
	if p.Service.Pass(d); d > 24*time.Hour {
		p.forget()
	}
	for n := range p.Service.Nodes() {
		if err := errors.Join(p.topUpJobs(Step{C: n}), p.payoutJobs(Step{C: n})); err != nil {
			return err
		}
	}
	return nil
}

// reconcile runs the reconciliation, where there is one.
func (p *Player) reconcile() error {
	if do := p.Service.Reconcile(); do != nil {
		return p.jobs(Step{}, "reconciliation", do)
	}
	return nil
}
