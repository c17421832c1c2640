package bank

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// leave closes a person's own account. Most who think about it stay. Some end before what the closing waits for.
func (p *Player) leave(s Step) error {
	person := p.person(s.A)
	if s.B%2 > 0 || p.left[person] {
		return nil
	}
	if s.C%4 > 0 {
		if status := []string{"", "", "pending", "pending", "failed"}[s.C/4%5]; status != "" {
			_ = p.steer("", "refunds", "new", "1", "status", status)
		}
		if err := p.takeAll(s, person); err != nil {
			return err
		}
	}
	form := url.Values{"confirm": {Address(person)}, "present": {Password}}
	shown, err := p.Service.Page(context.Background(), p.node(s), person, "GET", "/settings/data/close", nil)
	if err != nil {
		return err
	}
	if _, rest, ok := strings.Cut(shown.Body, `name="seen" value="`); ok {
		seen, _, _ := strings.Cut(rest, `"`)
		form.Set("seen", seen)
	}
	wrong, waiting := error(nil), len(p.parked)
	err = p.page(s, person, "/settings/data/close", form, func(Answer) {
		p.Done["left"]++
		p.left[person] = true
		if waiting == 0 {
			wrong = errors.Join(p.Book.checkLeft(person), p.Book.checkFarewell(person))
		}
	})
	return errors.Join(err, wrong)
}

// takeAll turns automatic top-up off, revokes a person's connections and those with the person's apps, and returns all
// that the person has available.
func (p *Player) takeAll(s Step, person string) error {
	if err := p.page(s, person, "/top-up/auto/off", nil, nil); err != nil {
		return err
	}
	for _, app := range p.Apps {
		for _, user := range p.Names {
			if user != person && app.Developer != person {
				continue
			}
			c, ok, err := p.connection(user, app)
			if ok && err == nil {
				_, _, err = p.try(s, rules.Revoke{ConnectionID: c.ID, StopCalls: true})
			}
			if err != nil {
				return err
			}
		}
	}
	b, err := store.GetBalance(context.Background(), p.Service.DB(), p.People[person])
	if err != nil || b.AvailableMC < money.Cent {
		return err
	}
	return p.page(s, person, "/top-up/refund", url.Values{
		"token": {id.NewSecret()}, "amount": {dollars(int64(b.AvailableMC / money.Cent))}, "present": {Password},
	}, nil)
}

// close lets an operator close an account, or return again what came back to one that is closed.
func (p *Player) close(s Step) error {
	person := p.anyone(s.A)
	if s.B%2 > 0 {
		return nil
	}
	if s.C%3 == 0 {
		status := []string{"failed", "pending", "succeeded"}[s.C/3%3]
		err := errors.Join(p.steer("", "refunds", "new", "1", "status", status),
			p.operateOn(s, person, "goodwill", goodwillOf(p.Service.Now(), money.Dollar), nil),
			p.operateOn(s, person, "suspend", because, nil))
		if err != nil {
			return err
		}
	}
	waiting, wasClosed := len(p.parked), p.left[person]
	return p.operateOn(s, person, "close", because, func(a Answer) error {
		if p.left[person] = true; wasClosed || waiting > 0 {
			return nil
		}
		var closing struct {
			WithdrawnMC money.MC `json:"withdrawn_mc"`
			GoesOn      []string `json:"goes_on"`
		}
		if err := json.Unmarshal([]byte(a.Body), &closing); err != nil {
			return err
		}
		return errors.Join(p.Book.checkLeft(person), p.Book.checkWithdrawn(person, closing.WithdrawnMC),
			p.Book.checkNamed(person, strings.Join(closing.GoesOn, " ")))
	})
}

// workOffTasks does what is an operator's to do for closed accounts that are owed money: it goes to the cards, and what
// no card takes is paid otherwise.
func (p *Player) workOffTasks() error {
	for _, person := range p.Names {
		for _, how := range []string{"close", "settle"} {
			owed, err := p.Book.owed(person)
			if err != nil {
				return err
			} else if owed < money.Cent {
				continue
			}
			body := because
			if how == "settle" {
				body = settlementOf(owed)
			}
			if err := p.operateOn(Step{}, person, how, body, nil); err != nil {
				return err
			}
			p.Done["task"]++
		}
	}
	return nil
}

// owed returns what a closed account has available, unless Stripe or a bank has yet to decide about some of it.
func (b *Book) owed(person string) (owed money.MC, err error) {
	at, err := b.closed(person)
	if !at.isClosed || at.disputes+at.refunds > 0 {
		return 0, err
	}
	return at.available, err
}

// A tombstone is what is left of an account that is closed.
type tombstone struct {
	isClosed            bool
	available, reserved money.MC
	connections         int // that are not revoked, of the account and with its apps
	plans               int // of automatic top-up
	disputes, refunds   int // that are open
}

func (b *Book) closed(person string) (at tombstone, err error) {
	err = b.DB.QueryRowContext(context.Background(), `SELECT COALESCE(b.available_mc, 0), COALESCE(b.reserved_mc, 0),
			(SELECT COUNT(*) FROM connections c JOIN apps p ON p.id = c.app_id
				WHERE (c.account_id = a.id OR p.owner_id = a.id) AND c.status <> 'revoked'),
			(SELECT COUNT(*) FROM auto_topups t WHERE t.account_id = a.id AND t.enabled = 1),
			(SELECT COUNT(*) FROM open_disputes d WHERE d.account_id = a.id),
			(SELECT COUNT(*) FROM refunds r WHERE r.account_id = a.id AND r.state = 'open')
		FROM accounts a LEFT JOIN balances b ON b.account_id = a.id WHERE a.id = $1 AND a.closed_us IS NOT NULL`,
		b.People[person]).Scan(&at.available, &at.reserved, &at.connections, &at.plans,
		&at.disputes, &at.refunds)
	if errors.Is(err, sql.ErrNoRows) {
		return at, nil
	}
	at.isClosed = true
	return at, err
}

// checkLeft checks that nothing was on its way to or from an account when it was closed (property 5).
func (b *Book) checkLeft(person string) error {
	at, err := b.closed(person)
	if err != nil || !at.isClosed {
		return err
	}
	if at.refunds > 0 || at.available+at.reserved >= money.Cent || at.available < 0 || at.connections+at.plans > 0 {
		return fmt.Errorf("property 5: %s has left with something open: %+v", person, at)
	}
	for _, at := range b.Stripe.Payments() {
		if at.Account != b.People[person] || !at.Paid && at.Status != "processing" {
			continue
		}
		p, err := store.GetPayment(context.Background(), b.DB, at.TopUp)
		if err != nil {
			return err
		}
		if p.Status == rules.PaymentPending {
			return fmt.Errorf("property 5: %s has left, and %s of it is on its way", person, p.ID)
		}
	}
	return nil
}

// checkWithdrawn checks that a closing has withdrawn no goodwill while something of a payment was left, which the
// person has paid (property 5): people spend goodwill first.
func (b *Book) checkWithdrawn(person string, withdrawn money.MC) error {
	list, err := store.PaymentsOfAccount(context.Background(), b.DB, b.People[person], 1000)
	if err != nil || withdrawn < money.Cent {
		return err
	}
	for _, p := range list {
		if p.Status == rules.PaymentSettled && p.AmountMC > p.ReversedMC {
			return fmt.Errorf("property 5: %s has left, goodwill of %s is withdrawn, and %s of %s is left", person,
				withdrawn.Display(), (p.AmountMC - p.ReversedMC).Display(), p.ID)
		}
	}
	return nil
}

// checkFarewell checks that the last email to a person who has left names the margin that is not paid.
func (b *Book) checkFarewell(person string) error {
	var text string
	err := b.DB.QueryRowContext(context.Background(), `SELECT COALESCE(MAX(text), '') FROM mails
		WHERE account_id = $1`, b.People[person]).Scan(&text)
	if err != nil {
		return err
	}
	return b.checkNamed(person, text)
}

// checkNamed checks that a text about a closing names the margin that is not paid, with its date if it will be, and
// what is not while an app is suspended (property 5). What one app owes, others pay.
func (b *Book) checkNamed(person, text string) error {
	var all, free money.MC
	err := b.eachMargin(person, func(_ string, isSuspended bool, m store.AppMarginView) {
		all += m.EarnedMC - m.TakenMC
		if !isSuspended {
			free += max(m.EarnedMC-m.TakenMC, 0)
		}
	})
	if err != nil {
		return err
	}
	text = strings.Join(strings.Fields(text), " ")
	if all-free >= money.Cent && !strings.Contains(text, "is suspended") {
		return fmt.Errorf("property 5: %s has left with margin of %s, of which suspended apps keep %s, and is told: %s",
			person, all.Display(), (all - free).Display(), text)
	}
	unpaid := min(all, free)
	if unpaid < money.Cent {
		return nil
	}
	var isPayable bool
	err = b.DB.QueryRowContext(context.Background(), `SELECT COUNT(*) > 0 FROM payees
		WHERE account_id = $1 AND enabled = 1`, b.People[person]).Scan(&isPayable)
	if err != nil {
		return err
	}
	words := "not paid"
	if isPayable {
		words = "the last of it after"
	}
	if !strings.Contains(text, words) {
		return fmt.Errorf("property 5: %s has left with margin of %s, and is told: %s", person, unpaid.Display(), text)
	}
	return nil
}

// closedReason is why apps are suspended whose developer has left.
const closedReason = "The developer closed their account."

// eachMargin calls f with the margin of each app of a person that had any. Suspended are those that an operator or the
// risk rules suspended.
func (b *Book) eachMargin(person string, f func(appID string, isSuspended bool, m store.AppMarginView)) error {
	list, err := ids(b, `SELECT id FROM apps WHERE owner_id = $1 ORDER BY id`, b.People[person])
	if err != nil {
		return err
	}
	suspended, err := ids(b, `SELECT id FROM apps WHERE owner_id = $1 AND suspension_by IS NOT NULL
		AND suspension_reason <> $2`, b.People[person], closedReason)
	for _, appID := range list {
		var m store.AppMarginView
		now := b.Now()
		m, failed := store.ViewAppMargin(context.Background(), b.DB, appID, now.Add(-longestWindow), now)
		if err = errors.Join(err, failed); err == nil && m != (store.AppMarginView{}) {
			f(appID, slices.Contains(suspended, appID), m)
		}
	}
	return err
}

// checkClosed checks what is left of an account that was closed, when everything has come to its end and operators have
// done their tasks (property 5): nothing that could move, and no margin that could have been paid.
func (b *Book) checkClosed(person string) error {
	at, err := b.closed(person)
	if err != nil || !at.isClosed {
		return err
	}
	if at.reserved != 0 || at.connections+at.plans > 0 || at.disputes+at.refunds == 0 && at.available >= money.Cent {
		return fmt.Errorf("property 5: %s has left, and operators cannot end what is open: %+v", person, at)
	}
	if !b.Payable[b.People[person]] {
		return nil // they have no payee, or Stripe does not let it be paid
	}
	margins, together := map[string]rules.Margin{}, money.MC(0)
	err = b.eachMargin(person, func(appID string, isSuspended bool, m store.AppMarginView) {
		if !isSuspended {
			margins[appID] = m.Margin
		}
		together += m.Balance()
	})
	for appID, m := range margins {
		if m.KeepFor(together, at.available); m.Payable(money.Cent) > 0 && err == nil {
			err = fmt.Errorf("property 5: %s has left, and %s of app %s is never paid", person,
				m.Payable(money.Cent).Display(), appID)
		}
	}
	return err
}
