package bank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// An Answer is what a page or the API answers.
type Answer struct {
	Status   int
	To, Body string // To is where it redirects
}

// A Service is our side, as people, Stripe and the operator reach it, on one of its nodes.
type Service interface {
	// Page is a request of a person's browser, which is signed in.
	Page(ctx context.Context, node int, person, method, path string, form url.Values) (Answer, error)
	// Deliver is an event of Stripe's.
	Deliver(ctx context.Context, node int, event []byte) (Answer, error)
	// Operate is a request to the operator's API; body is JSON.
	Operate(ctx context.Context, node int, method, path, body string) (Answer, error)
	// Do is a command of a call.
	Do(ctx context.Context, node int, c rules.Command) (rules.Result, error)
	// RefundCall is a refund by the app.
	RefundCall(ctx context.Context, node int, appID, requestID string) error
	// Onboard opens Stripe's page for a developer.
	Onboard(ctx context.Context, node int, developer string) (address string, err error)
	// RunTopUps and RunPayouts run the jobs once.
	RunTopUps(ctx context.Context, node int) error
	RunPayouts(ctx context.Context, node int) error
	// Reconcile compares all books with Stripe's, once a day; nil = there is no such job, and all events come at last.
	Reconcile() func(ctx context.Context, node int) error
	// Now is the time of the nodes and of Stripe, and Pass lets time pass.
	Now() time.Time
	Pass(d time.Duration)
	// Nodes is how many there are.
	Nodes() int
	// DB is where the books are.
	DB() *db.DB
}

// An App is an app with its developer.
type App struct{ ID, Developer string }

// A Player plays histories.
type Player struct {
	Service  Service
	Stripe   *stripe.Server
	Network  *Network
	People   map[string]string // ids of accounts, by name
	Names    []string          // of People, in order
	Apps     []App
	Patience time.Duration // how long an act may take; 0 = two minutes of the machine

	sessions []string          // of Checkout, in the order in which they were opened
	left     map[string]bool   // people whose accounts are closed, by name
	told     map[int]bool      // events that were delivered, by number
	never    map[int]bool      // events that are not delivered before the end
	payees   map[string]string // acct_…, by developer
	parked   []*act
	calls    int
	Book     *Book
	Done     map[string]int // how often steps did something, by what they do
}

// NewPlayer returns a player of a fresh service.
func NewPlayer(p Player) *Player {
	p.told, p.never, p.payees, p.Done = map[int]bool{}, map[int]bool{}, map[string]string{}, map[string]int{}
	p.left = map[string]bool{}
	p.Patience = cmp.Or(p.Patience, 2*time.Minute)
	p.Book = &Book{DB: p.Service.DB(), Stripe: p.Stripe, People: p.People, Now: p.Service.Now,
		Payable: map[string]bool{}}
	p.Network.Watch = p.Book.CheckRequest
	return &p
}

// run lets the service do something on a node, until it is done or waits for Stripe. After it, check is called with
// whether a fault was in it.
func (p *Player) run(do func(ctx context.Context), check func(faulty bool) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	a := &act{end: cancel, parked: make(chan struct{}), goOn: make(chan struct{}), done: make(chan struct{})}
	a.check = func() error { cancel(); return errors.Join(a.wrong, check(a.hit)) }
	go func() {
		defer close(a.done)
		do(ctx)
	}()
	return p.follow(a)
}

// follow waits until an act is done, or waits for Stripe.
func (p *Player) follow(a *act) error {
	p.Network.begin(a)
	defer p.Network.begin(nil)
	late := time.NewTimer(p.Patience)
	defer late.Stop()
	select {
	case <-a.done:
		return a.check()
	case <-a.parked:
		p.parked = append(p.parked, a)
		return nil
	case <-late.C:
		return fmt.Errorf("an act is stuck")
	}
}

// goOn lets the act go on that has waited for the longest time.
func (p *Player) goOn() error {
	if len(p.parked) == 0 {
		return nil
	}
	return p.goOnWith(0)
}

// goOnWith lets one of the acts that wait go on.
func (p *Player) goOnWith(n int) error {
	a := p.parked[n]
	p.parked = slices.Delete(p.parked, n, n+1)
	p.Network.begin(a)
	a.goOn <- struct{}{}
	p.Done["waited"]++
	return p.follow(a)
}

// Resume lets what waits go on, and disarms the network.
func (p *Player) Resume() {
	p.Network.Arm("", 0)
	p.Stop()
}

// Stop lets every act end.
func (p *Player) Stop() {
	for len(p.parked) > 0 {
		_ = p.goOn() // the history has ended
	}
}

// Play plays a step. The error is a property that does not hold.
func (p *Player) Play(s Step) error {
	for _, k := range kinds {
		if k.name == s.Do {
			p.Service.Pass(time.Second)
			return k.play(p, s)
		}
	}
	return fmt.Errorf("no step %q", s.Do)
}

// page sends a form of a person. Only a fault may make it fail.
func (p *Player) page(s Step, person, path string, form url.Values, then func(Answer)) error {
	var a Answer
	var err error
	return p.run(func(ctx context.Context) {
		a, err = p.Service.Page(ctx, p.node(s), person, "POST", path, form)
	}, func(faulty bool) error {
		if !faulty && (err != nil || a.Status >= 500) {
			return fmt.Errorf("property 1: %s of %s is answered by %d, %v: %.300s", path, person, a.Status, err, a.Body)
		}
		if err == nil && a.Status < 400 && then != nil {
			then(a)
		}
		return nil
	})
}

// node is the node to which a step goes.
func (p *Player) node(s Step) int { return s.C % p.Service.Nodes() }

// person chooses a person who has not left: half of the time the first, so that much happens to one.
func (p *Player) person(n int) string {
	var open []string
	for _, name := range p.Names {
		if !p.left[name] {
			open = append(open, name)
		}
	}
	if len(open) == 0 || n%2 == 0 {
		return append(open, p.Names[0])[0]
	}
	return open[n/2%len(open)]
}

// anyone chooses a person, also one who has left.
func (p *Player) anyone(n int) string {
	if n%2 == 0 {
		return p.Names[0]
	}
	return p.Names[n/2%len(p.Names)]
}

// amounts that people choose, in cents.
var amounts = []int64{5_00, 10_00, 10_01, 25_00, 50_00, 100_00}

func dollars(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

// topUp opens a checkout, which is mostly paid at once.
func (p *Player) topUp(s Step) error {
	person := p.person(s.A)
	form := url.Values{"token": {id.NewSecret()}, "amount": {dollars(amounts[s.B%len(amounts)])}}
	return p.page(s, person, "/top-up", form, func(a Answer) { p.open(a, s.C%4 > 0) })
}

func (p *Player) saveCard(s Step) error { return p.saveCardOf(s, p.person(s.A), s.C%4 > 0) }

func (p *Player) saveCardOf(s Step, person string, paid bool) error {
	form := url.Values{"token": {id.NewSecret()}, "first": {dollars(amounts[s.B%len(amounts)])}, "agree": {"yes"}}
	return p.page(s, person, "/top-up/auto/card", form, func(a Answer) { p.open(a, paid) })
}

// open notes the session to which a form leads. It may be paid at once.
func (p *Player) open(a Answer, paid bool) {
	i := strings.LastIndex(a.To, "/cs_test_")
	if i < 0 {
		return
	}
	p.sessions = append(p.sessions, a.To[i+1:])
	if p.Done["session"]++; paid {
		_ = p.steer(a.To[i+1:], "pay")
	}
}

// automatic turns automatic top-up on, or changes it. Who has no card saves one first.
func (p *Player) automatic(s Step) error {
	person := p.person(s.A)
	cards, err := ids(p.Book, `SELECT payment_method FROM auto_topups
		WHERE account_id = $1 AND payment_method <> ''`, p.People[person])
	if err == nil && len(cards) == 0 {
		if err = p.saveCardOf(s, person, true); err == nil {
			err = p.event(Step{C: 2})
		}
	}
	return errors.Join(err, p.setAutomatic(s, person))
}

func (p *Player) setAutomatic(s Step, person string) error {
	below := []string{"20", "1", "20"}[s.B%3]
	form := url.Values{"below": {below}, "add": {[]string{"20", "50"}[s.B/3%2]}, "most": {"200"}}
	a, err := p.Service.Page(context.Background(), p.node(s), person, "GET", "/top-up/auto", nil)
	if err != nil || a.Status != http.StatusOK {
		return err // a person who cannot sign in
	}
	if _, rest, ok := strings.Cut(a.Body, `name="shown" value="`); ok {
		shown, _, _ := strings.Cut(rest, `"`)
		form.Set("shown", shown)
	}
	return p.page(s, person, "/top-up/auto", form, func(Answer) { p.Done["automatic"]++ })
}

func (p *Player) automaticOff(s Step) error {
	path := []string{"/top-up/auto/off", "/top-up/auto/card/remove"}[s.B%2]
	return p.page(s, p.person(s.A), path, url.Values{}, nil)
}

func (p *Player) toCard(s Step) error {
	person := p.rich(s.A)
	if disputed, err := ids(p.Book, `SELECT b.account_id FROM balances b WHERE b.available_mc >= 1000000 AND EXISTS
			(SELECT 1 FROM open_disputes d WHERE d.account_id = b.account_id) ORDER BY b.account_id`); err != nil {
		return err
	} else if len(disputed) > 0 && s.B%2 == 0 { // who may owe it
		person = p.Book.nameOf(disputed[s.A%len(disputed)])
	}
	was, err := p.Book.beforeReturn(person)
	if err != nil {
		return err
	}
	cents := amounts[s.B%len(amounts)]
	switch s.B % 7 {
	case 0:
		cents = int64(1 + s.B)
	case 1, 2, 3: // all
		cents = int64(min(was.available, was.left) / money.Cent)
	}
	if s.C%4 > 0 {
		if err := p.page(s, person, "/top-up/auto/off", nil, nil); err != nil {
			return err
		}
	}
	if s.C%5 == 0 {
		p.Network.Arm(doubts[s.C/5%len(doubts)], NextChange)
	}
	form := url.Values{"token": {id.NewSecret()}, "amount": {dollars(cents)}, "present": {Password}}
	wrong := error(nil)
	err = p.page(s, person, "/top-up/refund", form, func(Answer) {
		p.Done["return"]++
		wrong = p.Book.checkReturn(person, was)
	})
	return errors.Join(err, wrong)
}

// Password is that of every person.
const Password = "correct horse battery"

// steer lets something happen at Stripe. What Stripe does not allow then does not happen.
func (p *Player) steer(who, what string, pairs ...string) error {
	with := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		with.Set(pairs[i], pairs[i+1])
	}
	if err := p.Stripe.Steer(who, what, with); err == nil {
		p.Done["stripe "+what]++
	}
	return nil
}

// checkout ends a session, or what it waits for.
func (p *Player) checkout(s Step) error {
	if len(p.sessions) == 0 {
		return nil
	}
	back := s.A % min(len(p.sessions), 3)
	session := p.sessions[len(p.sessions)-1-back]
	word := []string{"pay", "pay", "pay", "pay", "later", "clear", "clear", "bounce", "expire"}[s.B%9]
	return p.steer(session, word, "card", stripe.Cards[s.C%2])
}

func (p *Player) card(s Step) error {
	if cards := p.Stripe.SavedCards(); len(cards) == 1 { // of several the order is random
		return p.steer(cards[0], "card", "card", stripe.Cards[s.A%len(stripe.Cards)])
	}
	return nil
}

// pick chooses a payment that Stripe has, gladly a new one.
func (p *Player) pick(n int) (stripe.Payment, bool) {
	list := p.Stripe.Payments()
	paid := list[:0]
	for _, payment := range list {
		if payment.Paid {
			paid = append(paid, payment)
		}
	}
	if len(paid) == 0 {
		return stripe.Payment{}, false
	}
	return paid[len(paid)-1-n%min(len(paid), 4)], true
}

func (p *Player) refundsWillBe(s Step) error {
	return p.steer("", "refunds", "new", "1",
		"status", []string{"succeeded", "succeeded", "pending", "pending", "failed"}[s.A%5])
}

func (p *Player) refundEnds(s Step) error {
	var list []string
	for _, payment := range p.Stripe.Payments() {
		for _, r := range payment.Refunds {
			if r.IsGone() {
				list = append(list, r.ID)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	return p.steer(list[len(list)-1-s.A%min(len(list), 4)],
		[]string{"succeeded", "succeeded", "failed", "failed", "canceled"}[s.B%5])
}

func isNotWon(d stripe.Dispute) bool { return d.Status != "won" && d.Status != "warning_closed" }

// dashboardRefund is a refund by support, as far as Stripe allows it.
func (p *Player) dashboardRefund(s Step) error {
	payment, ok := p.pick(s.A)
	left := payment.Cents - payment.RefundedCents()
	disputed := payment.DisputedCents(isNotWon)
	if !ok || left <= 0 || disputed > 0 {
		return nil
	}
	cents := left
	if s.B%2 == 0 {
		cents = 1 + int64(s.C)%left
	}
	return p.steer(payment.Intent, "refund", "cents", fmt.Sprint(cents))
}

// dispute is a dispute of all of a payment or of a part, which may be refunded already. Several are together at most
// the payment.
func (p *Player) dispute(s Step) error {
	payment, ok := p.pick(s.A)
	left := payment.Cents - payment.DisputedCents(isNotWon)
	if !ok || left <= 0 {
		return nil
	}
	cents := left
	if s.B%2 == 0 {
		cents = 1 + int64(s.C)%left
	}
	return p.steer(payment.Intent, "dispute", "cents", fmt.Sprint(cents))
}

// disputeEnds lets a bank decide a dispute, or return what it took by one that was lost.
func (p *Player) disputeEnds(s Step) error {
	var list []stripe.Dispute
	for _, payment := range p.Stripe.Payments() {
		for _, d := range payment.Disputes {
			if d.IsOpen() || s.B%10 == 9 && d.Status == "lost" {
				list = append(list, d)
			}
		}
	}
	if len(list) == 0 {
		return nil
	}
	d, status := list[s.A%len(list)], []string{"won", "lost", "lost", "warning_closed", "under_review"}[s.B%5]
	if d.Status == "lost" {
		status = "won"
	}
	return p.steer(d.ID, status)
}

func (p *Player) onboard(s Step) error {
	developer := p.Apps[s.A%len(p.Apps)].Developer
	if payee := p.payees[developer]; payee != "" {
		p.Book.Payable[p.People[developer]] = s.B%3 < 2
		return p.steer(payee, []string{"enable", "enable", "restrict"}[s.B%3])
	}
	var address string
	var err error
	return p.run(func(ctx context.Context) {
		address, err = p.Service.Onboard(ctx, p.node(s), developer)
	}, func(bool) error {
		if i := strings.LastIndex(address, "/acct_"); err == nil && i >= 0 {
			p.payees[developer], p.Book.Payable[p.People[developer]] = address[i+1:], true
			return p.steer(p.payees[developer], "enable")
		}
		return nil
	})
}

func (p *Player) transfers(s Step) error {
	return p.steer("", "transfers", "status", []string{"", "", "balance", "refuse", "reversed"}[s.A%5])
}

// operate is a request of the operator about an account.
func (p *Player) operate(s Step, what, body string) error {
	return p.operateOn(s, p.anyone(s.A), what, body, nil)
}

// operateOn calls then with an answer that is not an error; nil = with none.
func (p *Player) operateOn(s Step, person, what, body string, then func(Answer) error) error {
	var a Answer
	var err error
	path := "/v1/operator/accounts/" + p.People[person] + "/" + what
	return p.run(func(ctx context.Context) {
		a, err = p.Service.Operate(ctx, p.node(s), "POST", path, body)
	}, func(faulty bool) error {
		switch {
		case err == nil && a.Status < 300:
			p.Done["operator "+what]++
			if then != nil {
				return then(a)
			}
		case !faulty && (err != nil || a.Status >= 500 && a.Status != http.StatusServiceUnavailable):
			return fmt.Errorf("property 1: %s is answered by %d, %v: %.300s", what, a.Status, err, a.Body)
		}
		return nil
	})
}

const because = `{"reason":"A history."}`

func (p *Player) suspend(s Step) error   { return p.operate(s, "suspend", because) }
func (p *Player) reinstate(s Step) error { return p.operate(s, "lift", because) }

// settle records that a person was paid otherwise, a part or all of the balance.
func (p *Player) settle(s Step) error {
	person := p.anyone(s.A)
	was, err := p.Book.beforeReturn(person)
	if err != nil {
		return err
	}
	amount := money.MC(1+s.B) * money.Cent
	if s.C%2 == 0 {
		amount = was.available
	}
	return p.operateOn(s, person, "settle", settlementOf(amount), func(Answer) error {
		return p.Book.checkNeeded(person, was)
	})
}

func settlementOf(amount money.MC) string {
	return fmt.Sprintf(`{"amount_mc":%d,"reason":"By bank transfer."}`, amount)
}

func (p *Player) goodwill(s Step) error {
	return p.operate(s, "goodwill", goodwillOf(p.Service.Now(), money.MC(1+s.B)*money.Cent))
}

func goodwillOf(now time.Time, amount money.MC) string {
	return fmt.Sprintf(`{"id":"%s","amount_mc":%d,"reason":"Sorry."}`, id.New("gwc_", now), amount)
}

// Address is the email address of a person.
func Address(person string) string { return person + "@example.com" }

func (p *Player) suspendApp(s Step) error {
	app := p.Apps[s.A%len(p.Apps)].ID
	what := []string{"suspend", "lift", "lift"}[s.B%3]
	_, err := p.Service.Operate(context.Background(), p.node(s), "POST", "/v1/operator/apps/"+app+"/"+what, because)
	return err
}

// event delivers events that were not delivered yet, mostly the oldest.
func (p *Player) event(s Step) error {
	for n := range 1 + s.C%3 {
		if err := p.oneEvent(Step{s.Do, s.A + n, s.B, s.C}); err != nil {
			return err
		}
	}
	return nil
}

func (p *Player) oneEvent(s Step) error {
	list := p.Stripe.Events()
	var open []int
	for i := range list {
		if !p.told[i] && !p.never[i] {
			open = append(open, i)
		}
	}
	if len(open) == 0 {
		return nil
	}
	n := 0
	if s.A < 0 { // the newest
		n = len(open) - 1
	} else if s.B%3 == 0 {
		n = s.A % len(open)
	}
	return p.deliver(s, list, open[n])
}

func (p *Player) eventAgain(s Step) error {
	list := p.Stripe.Events()
	if len(list) == 0 {
		return nil
	}
	return p.deliver(s, list, s.A%len(list))
}

func (p *Player) eventNever(s Step) error {
	list := p.Stripe.Events()
	if len(list) > 0 {
		p.never[len(list)-1] = true
	}
	return nil
}

// deliver delivers an event. A legal one is answered by 2xx, unless Stripe or the network failed meanwhile; then Stripe
// repeats it.
func (p *Player) deliver(s Step, list [][]byte, n int) error {
	var a Answer
	var err error
	return p.run(func(ctx context.Context) { a, err = p.Service.Deliver(ctx, p.node(s), list[n]) },
		func(faulty bool) error {
			switch {
			case err == nil && a.Status < 300:
				p.told[n] = true
				p.Done["event"]++
			case !faulty || err == nil && a.Status < 500:
				return fmt.Errorf("property 1: an event is answered by %d, %v: %.200s\n%s", a.Status, err, a.Body,
					list[n])
			}
			return nil
		})
}

func (p *Player) fault(s Step) error {
	after := s.B % 4
	if s.B%2 == 0 {
		after = NextChange
	}
	p.Network.Arm(faults[s.A%len(faults)], after)
	return nil
}

func (p *Player) wait(Step) error { return p.goOn() }
