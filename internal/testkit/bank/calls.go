package bank

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// WaivedDayMC bounds what the empty answers of a user on an app may cost the service in a day, and UnbilledDayMC what
// the calls may that the user leaves.
const (
	WaivedDayMC   = money.Dollar
	UnbilledDayMC = money.Dollar
)

// A callEnd is how a call ends.
type callEnd int

const (
	answered callEnd = iota
	empty            // with an answer that has no content
	left             // by its client, before the answer
)

// connection returns the live connection of a person with an app, and whether there is one.
func (p *Player) connection(person string, app App) (c rules.Connection, ok bool, err error) {
	list, err := store.ConnectionsOfAccount(context.Background(), p.Service.DB(), p.People[person], 1000)
	for _, c := range list {
		if c.AppID == app.ID && c.Status != rules.Revoked {
			return c, true, err
		}
	}
	return c, false, err
}

// try applies a command of a person or an app. That the rules refuse it is no failure.
func (p *Player) try(s Step, c rules.Command) (r rules.Result, ok bool, failed error) {
	r, err := p.Service.Do(context.Background(), p.node(s), c)
	if e, refused := errors.AsType[*apierr.Error](err); refused && e.Code.Status < 500 {
		return r, false, nil
	}
	return r, err == nil, err
}

func (p *Player) choose(s Step) (person string, app App) {
	return p.person(s.A), p.Apps[s.B%len(p.Apps)]
}

// rich chooses a person who has a dollar, or anyone if there is none.
func (p *Player) rich(n int) string {
	var list []string
	for _, name := range p.Names {
		b, err := store.GetBalance(context.Background(), p.Service.DB(), p.People[name])
		if err == nil && b.AvailableMC+b.ReservedMC >= money.Dollar {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return p.person(n)
	}
	return list[n%len(list)]
}

// cap connects a person with an app, or sets the spend cap, of at most $40.
func (p *Player) cap(s Step) error {
	return p.setCap(s, p.spender(s.A), p.Apps[s.B%len(p.Apps)])
}

func (p *Player) setCap(s Step, person string, app App) error {
	amount := money.MC(1+s.C%40) * money.Dollar
	c, ok, err := p.connection(person, app)
	if err != nil {
		return err
	}
	if ok {
		_, _, err = p.try(s, rules.ChangeCap{ConnectionID: c.ID, TargetMC: c.ConsumedMC + c.HeldMC + amount})
		return err
	}
	open, err := p.isOpen(person, app)
	if err != nil || !open {
		return err
	}
	_, _, err = p.try(s, rules.Connect{
		ConnectionID: id.New(id.Connection, p.Service.Now()), AppID: app.ID, AccountID: p.People[person],
		RequestedMC: amount,
	})
	return err
}

// isOpen reports whether a person can use an app: who is suspended or has left uses none, and nobody uses one that is
// suspended. The service refuses it before it asks the ledger.
func (p *Player) isOpen(person string, app App) (open bool, err error) {
	err = p.Service.DB().QueryRowContext(context.Background(), `SELECT COUNT(*) > 0 FROM accounts a, apps p
		WHERE a.id = $1 AND a.suspended_us IS NULL AND a.closed_us IS NULL
			AND p.id = $2 AND p.suspended = 0 AND p.suspension_by IS NULL`, p.People[person], app.ID).Scan(&open)
	return open, err
}

func (p *Player) revoke(s Step) error {
	c, ok, err := p.connection(p.choose(s))
	if ok && err == nil {
		_, _, err = p.try(s, rules.Revoke{ConnectionID: c.ID, StopCalls: true})
	}
	return err
}

func (p *Player) pause(s Step) error {
	c, ok, err := p.connection(p.choose(s))
	if ok && err == nil {
		_, _, err = p.try(s, rules.Freeze{ConnectionID: c.ID, By: rules.FrozenByUser})
	}
	return err
}

func (p *Player) resume(s Step) error {
	c, ok, err := p.connection(p.rich(s.A), p.Apps[s.B%len(p.Apps)])
	if ok && err == nil {
		_, _, err = p.try(s, rules.Resume{ConnectionID: c.ID, By: rules.FrozenByUser})
	}
	return err
}

// tokenMC is what a token costs. Margin and fee are half of the cost each.
const tokenMC = 10_001

// termsOf returns the price terms of a call of so many tokens, and what it costs, is charged and holds.
func termsOf(tokens int64) (terms string, a rules.Amounts, hold money.MC) {
	terms = fmt.Sprintf(`{"rates":{"book":"2026-11-01","mc_per_million":[[0,1,1,1,%d]]},"margin_ppm":500000,`+
		`"fee_ppm":500000,"input_tokens":0,"max_tokens":%d}`, tokenMC*1_000_000, tokens)
	cost := money.MC(tokens * tokenMC)
	a = rules.Amounts{ProviderCostMC: cost, SvcFeeMC: (cost + 1) / 2, DevMarginMC: (cost + 1) / 2}
	a.UserChargeMC = a.ProviderCostMC + a.SvcFeeMC + a.DevMarginMC
	return terms, a, (a.UserChargeMC*105 + 99) / 100
}

// spender chooses a person who can spend: who has a dollar, and no open dispute. If there is none, it is anyone.
func (p *Player) spender(n int) string {
	var list []string
	for _, name := range p.Names {
		b, err := store.GetBalance(context.Background(), p.Service.DB(), p.People[name])
		disputed, failed := p.isDisputed(name)
		if errors.Join(err, failed) == nil && b.AvailableMC+b.ReservedMC >= money.Dollar && !disputed {
			list = append(list, name)
		}
	}
	if len(list) == 0 || n%5 == 0 {
		return p.person(n)
	}
	return list[n%len(list)]
}

// isDisputed reports whether the books have an open dispute of a person.
func (p *Player) isDisputed(person string) (yes bool, err error) {
	err = p.Service.DB().QueryRowContext(context.Background(), `SELECT COUNT(*) > 0 FROM open_disputes
		WHERE account_id = $1`, p.People[person]).Scan(&yes)
	return yes, err
}

// call bills some calls.
func (p *Player) call(s Step) error {
	person, app := p.spender(s.A), p.Apps[s.B%len(p.Apps)]
	for n := range 1 + s.C%3 {
		if err := p.bill(s, person, app, int64(1+s.C)*150+int64(s.A%7+n), answered); err != nil {
			return err
		}
	}
	return nil
}

// emptyCalls bill calls with empty answers of up to 60 cents, which are free if the day's bound allows, or end them
// before their answers begin. The person may connect again between two of them.
func (p *Player) emptyCalls(s Step) error {
	person, app, ends := p.spender(s.A), p.Apps[s.B%len(p.Apps)], empty
	if s.A%3 == 0 {
		ends = left
	}
	for range 2 + s.C%4 {
		if err := p.bill(s, person, app, int64(2000+s.B*4), ends); err != nil {
			return err
		}
		c, ok, err := p.connection(person, app)
		if ok && err == nil && s.A%2 == 0 {
			_, _, err = p.try(s, rules.Revoke{ConnectionID: c.ID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// active returns a person's connection with an app that has some money left, after connecting, resuming or raising it.
func (p *Player) active(s Step, person string, app App) (c rules.Connection, ok bool, err error) {
	if open, err := p.isOpen(person, app); err != nil || !open {
		return c, false, err
	}
	if c, ok, err = p.connection(person, app); err != nil {
		return c, false, err
	}
	if !ok {
		err = p.setCap(s, person, app)
	} else if c.Status == rules.Frozen {
		_, _, err = p.try(s, rules.Resume{ConnectionID: c.ID, By: rules.FrozenByUser})
	}
	if err != nil {
		return c, false, err
	}
	if c, ok, err = p.connection(person, app); ok && err == nil && c.RemainingMC() < money.Dollar {
		_, _, err = p.try(s, rules.ChangeCap{ConnectionID: c.ID, TargetMC: c.AllocationMC + 20*money.Dollar})
		if err == nil {
			c, ok, err = p.connection(person, app)
		}
	}
	return c, ok && c.Status == rules.Active, err
}

// bill bills a call of so many tokens, or of as many as the connection can pay for. Nobody spends while a dispute is
// open (property 11).
func (p *Player) bill(s Step, person string, app App, tokens int64, ends callEnd) error {
	disputed, err := p.isDisputed(person)
	if err != nil {
		return err
	}
	c, ok, err := p.active(s, person, app)
	if !ok || err != nil {
		return err
	}
	if tokens = min(int64(c.RemainingMC())/(2*tokenMC*106/100+2), tokens); tokens <= 0 {
		return nil
	}
	p.calls++
	terms, charge, hold := termsOf(tokens)
	call := rules.Call{
		ConnectionID: c.ID, AccountID: c.AccountID, AppID: c.AppID, Key: fmt.Sprint("key ", p.calls), Fingerprint: "f",
		RequestID: id.New(id.Request, p.Service.Now()), Model: "gpt-5.6-terra", Terms: terms, HoldMC: hold,
	}
	r, ok, err := p.try(s, rules.Hold{Call: call, NodeID: "node", Claim: call.RequestID})
	if !ok || err != nil {
		return err
	} else if disputed {
		if disputed, err = p.isDisputed(person); err != nil {
			return err
		} else if disputed { // and no job has ended it meanwhile
			return fmt.Errorf("property 11: %s spends while a dispute is open", person)
		}
	}
	usage := fmt.Sprintf(`{"input":0,"cached":0,"cache_write":0,"output":%[1]d,"reasoning":%[1]d}`, tokens)
	settle := rules.Settle{
		Call: call, Attempt: r.Attempt, Settlement: rules.Settled, Charge: charge,
		Usage: rules.Usage{OutputTokens: tokens, JSON: usage},
	}
	if ends == left {
		cost := charge.ProviderCostMC
		settle.Settlement = rules.Estimated
		settle.Charge = rules.Amounts{ProviderCostMC: cost, SvcFeeMC: cost / 2, DevMarginMC: cost / 2,
			UserChargeMC: cost + cost/2*2}
		r, err = p.Service.Do(context.Background(), p.node(s), rules.Release{Call: call, Attempt: r.Attempt,
			Unbilled: &rules.Unbilled{CostMC: cost, DayMC: UnbilledDayMC, Estimate: &settle}})
		p.Done[map[bool]string{true: "left call charged", false: "left call"}[r.Estimated]]++
		return err
	}
	if ends == empty {
		settle.Waiver = &rules.Waiver{DayMC: WaivedDayMC, Usage: rules.Usage{
			OutputTokens: tokens, JSON: usage[:len(usage)-1] + "," + rules.WaivedEmpty + "}",
		}}
	}
	_, err = p.Service.Do(context.Background(), p.node(s), settle)
	p.Done[map[callEnd]string{answered: "call", empty: "empty call"}[ends]]++
	return err
}

// SpendRest spends what a person has on the apps that are open to them, but for less than a cent.
func (p *Player) SpendRest(person string) error {
	for n := range 6 {
		for _, app := range p.Apps {
			b, err := store.GetBalance(context.Background(), p.Service.DB(), p.People[person])
			if err != nil || b.AvailableMC+b.ReservedMC < money.Cent {
				return err
			}
			s := Step{C: []int{39, 9, 0}[n%3]} // a cap that takes all, or one that a balance can pay
			if err := p.bill(s, person, app, math.MaxInt32, answered); err != nil {
				return err
			}
		}
	}
	return nil
}

// A billed call is named by its app and its row.
type billed struct{ appID, entryID string }

// pickCall chooses a call that was charged.
func (p *Player) pickCall(n int) (c billed, ok bool, err error) {
	rows, err := p.Service.DB().QueryContext(context.Background(), `SELECT app_id, id FROM ledger WHERE type = 'spend'
		AND status = 'settled' ORDER BY id DESC LIMIT 6`)
	if err != nil {
		return c, false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var list []billed
	for rows.Next() {
		if err := rows.Scan(&c.appID, &c.entryID); err != nil {
			return c, false, err
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return c, false, rows.Err()
	}
	return list[n%len(list)], true, rows.Err()
}

func (p *Player) refundCall(s Step) error {
	c, ok, err := p.pickCall(s.A)
	if !ok || err != nil {
		return err
	}
	requestID := id.ReplacePrefix(c.entryID, id.Ledger, id.Request)
	err = p.Service.RefundCall(context.Background(), p.node(s), c.appID, requestID)
	if e, refused := errors.AsType[*apierr.Error](err); refused && e.Code.Status < 500 {
		return nil
	}
	p.Done["call refunded"]++
	return err
}

func (p *Player) reverseCall(s Step) error {
	c, ok, err := p.pickCall(s.A)
	if !ok || err != nil {
		return err
	}
	a, err := p.Service.Operate(context.Background(), p.node(s), "POST", "/v1/operator/ledger/"+c.entryID+"/reverse",
		because)
	if err == nil && a.Status >= 500 {
		err = fmt.Errorf("property 1: a reversal is answered by %d: %.300s", a.Status, a.Body)
	}
	return err
}

// A kind is a kind of step.
type kind struct {
	name   string
	weight int
	play   func(*Player, Step) error
}

// kinds are all kinds of steps, with how often they come.
var kinds []kind

func init() {
	kinds = []kind{
		{"top-up", 15, (*Player).topUp},
		{"checkout", 3, (*Player).checkout},
		{"save-card", 2, (*Player).saveCard},
		{"automatic", 8, (*Player).automatic},
		{"automatic-off", 1, (*Player).automaticOff},
		{"card", 1, (*Player).card},
		{"return", 12, (*Player).toCard},
		{"refunds-will-be", 3, (*Player).refundsWillBe},
		{"refund-ends", 6, (*Player).refundEnds},
		{"dashboard-refund", 3, (*Player).dashboardRefund},
		{"dispute", 4, (*Player).dispute},
		{"dispute-ends", 7, (*Player).disputeEnds},
		{"cap", 3, (*Player).cap},
		{"call", 18, (*Player).call},
		{"empty-calls", 3, (*Player).emptyCalls},
		{"revoke", 2, (*Player).revoke},
		{"pause", 1, (*Player).pause},
		{"resume", 3, (*Player).resume},
		{"refund-call", 5, (*Player).refundCall},
		{"reverse-call", 1, (*Player).reverseCall},
		{"faulty-jobs", 8, (*Player).faultyJobs},
		{"second-thoughts", 6, (*Player).secondThoughts},
		{"overtaken", 3, (*Player).overtaken},
		{"top-up-jobs", 7, (*Player).topUpJobs},
		{"payout-jobs", 6, (*Player).payoutJobs},
		{"time", 9, (*Player).time},
		{"onboard", 4, (*Player).onboard},
		{"transfers", 1, (*Player).transfers},
		{"suspend", 1, (*Player).suspend},
		{"reinstate", 3, (*Player).reinstate},
		{"close", 3, (*Player).close},
		{"settle", 1, (*Player).settle},
		{"goodwill", 1, (*Player).goodwill},
		{"leave", 5, (*Player).leave},
		{"suspend-app", 1, (*Player).suspendApp},
		{"event", 22, (*Player).event},
		{"event-again", 2, (*Player).eventAgain},
		{"event-never", 2, (*Player).eventNever},
		{"fault", 4, (*Player).fault},
		{"wait", 3, (*Player).wait},
	}
}
