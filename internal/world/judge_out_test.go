package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/bank"
)

// daysOut is within how many days everybody is out who wants to leave, once all faults are over and every bank has
// decided. A refund takes a day at most, margin takes payouts.Window to mature, and a payout comes each payouts.Every.
const daysOut = 14

// patience is after how many days somebody turns to support whose money no card takes, and who found no app to spend it
// on: the developers may have left first.
const patience = 3

// atTheEnd is why operators act.
const atTheEnd = `{"reason":"At the end."}`

// checkOut lets everybody leave, after a history has ended: each gets the money back or spends it, and closes the
// account, by what its pages say. Who is suspended is closed by an operator.
func (w *world) checkOut() error {
	for n := range daysOut {
		if err := w.decide(); err != nil {
			return err
		}
		inside, err := w.leaveAll(n)
		if err != nil {
			return fmt.Errorf("out: %w", err)
		}
		w.Pass(day)
		if len(inside) == 0 {
			return w.checkGone()
		}
	}
	inside, err := w.leaveAll(daysOut)
	if len(inside) > 0 {
		err = errors.Join(err, fmt.Errorf("out: after %d days there are still %s", daysOut, strings.Join(inside, "; ")))
	}
	return err
}

// decide lets banks decide what is open: of the disputes every other one is lost.
func (w *world) decide() error {
	_ = w.Stripe.Steer("", "refunds", url.Values{"new": {"1"}, "status": {"succeeded"}}) // it cannot fail
	for i, p := range w.Stripe.Payments() {
		for _, d := range p.Disputes {
			if d.IsOpen() {
				if err := w.Stripe.Steer(d.ID, []string{"won", "lost"}[i%2], nil); err != nil {
					return err
				}
			}
		}
		for _, r := range p.Refunds {
			if r.Status == "pending" {
				if err := w.Stripe.Steer(r.ID, "succeeded", nil); err != nil {
					return err
				}
			}
		}
	}
	sessions, err := w.texts(`SELECT session_id FROM checkouts WHERE next_us IS NOT NULL AND session_id IS NOT NULL`)
	for _, session := range sessions {
		_ = w.Stripe.Steer(session, "clear", nil) // unless it waits for nothing
	}
	return err
}

// leaveAll lets everybody do what there is to do on a day, and returns who has not left and why.
func (w *world) leaveAll(onDay int) (inside []string, err error) {
	for _, person := range names {
		is, err := w.person(person)
		if err != nil {
			return nil, err
		}
		why := ""
		switch {
		case is.isClosed:
		case is.isSuspended:
			why, err = w.closeSuspended(person, is)
		default:
			why, err = w.leave(person)
			if err == nil && onDay >= patience && strings.Contains(why, "contact support") {
				_, err = w.reader.Operate(context.Background(), 0, "POST", "/v1/operator/accounts/"+
					w.money.People[person]+"/suspend", atTheEnd)
				w.api.drawn["support suspends and closes an account at the end"]++
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", person, err)
		} else if why != "" {
			inside = append(inside, person+": "+why)
		}
	}
	return inside, nil
}

// A personal is what the tables have of a person's account.
type personal struct {
	isSuspended, isClosed bool
	available, reserved   money.MC
}

func (w *world) person(name string) (is personal, err error) {
	err = w.Server.DB.QueryRowContext(context.Background(), `SELECT a.suspended_us IS NOT NULL, a.closed_us IS NOT NULL,
			COALESCE(b.available_mc, 0), COALESCE(b.reserved_mc, 0)
		FROM accounts a LEFT JOIN balances b ON b.account_id = a.id WHERE a.id = $1`, w.money.People[name]).
		Scan(&is.isSuspended, &is.isClosed, &is.available, &is.reserved)
	return is, err
}

var (
	connectionPath = regexp.MustCompile(`href="/connections/(conn_[0-9a-z]{26})"`)
	upTo           = regexp.MustCompile(`id="amount-hint">Up to \$([0-9,]+\.[0-9]{2})`)
	hidden         = regexp.MustCompile(`<input type="hidden" name="([a-z_]+)" value="([^"]*)">`)
	obstacle       = regexp.MustCompile(`<p class="note">([^<]*)`)
	belowZero      = regexp.MustCompile(`Your balance is -\$([0-9,]+\.[0-9]{2})`)
)

// leave does what a person who wants to leave finds to do on the pages, and returns what still keeps the account open.
func (w *world) leave(person string) (why string, err error) {
	ctx := context.Background()
	page := func(method, path string, form url.Values) bank.Answer {
		if err != nil {
			return bank.Answer{}
		}
		var a bank.Answer
		if a, err = w.reader.Page(ctx, 0, person, method, path, form); err == nil {
			err = checkPage(method, path, a)
		}
		return a
	}
	page("POST", "/top-up/auto/off", nil)
	list := page("GET", "/connections", nil)
	for _, m := range connectionPath.FindAllStringSubmatch(list.Body, -1) {
		page("POST", "/connections/"+m[1]+"/revoke", nil)
	}
	refund := page("GET", "/top-up/refund", nil)
	if m := upTo.FindStringSubmatch(refund.Body); m != nil {
		form := hiddenOf(refund.Body)
		form.Set("amount", strings.ReplaceAll(m[1], ",", ""))
		form.Set("present", bank.Password)
		if a := page("POST", "/top-up/refund", form); err == nil && a.Status >= 400 {
			err = fmt.Errorf("a return of %s is answered by %d: %.300s", m[1], a.Status, a.Body)
		}
	}
	closing := page("GET", "/settings/data/close", nil)
	if err != nil || closing.Status != http.StatusOK {
		return fmt.Sprint("the page of closing is ", closing.Status), err
	}
	notes := obstacle.FindAllStringSubmatch(closing.Body, -1)
	if strings.Contains(closing.Body, "Before you can close your account") {
		for _, note := range notes {
			why += note[1]
		}
		return why, errors.Join(err, w.removeObstacle(person, closing.Body))
	}
	form := hiddenOf(closing.Body)
	form.Set("confirm", bank.Address(person))
	form.Set("present", bank.Password)
	closed := page("POST", "/settings/data/close", form)
	if err == nil && closed.Status == http.StatusOK {
		w.api.drawn["a person leaves at the end"]++
		return "", nil
	}
	return fmt.Sprintf("closing is answered by %d", closed.Status), err
}

// hiddenOf returns the hidden fields of a page of one form.
func hiddenOf(page string) url.Values {
	form := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(page, -1) {
		form.Set(m[1], m[2])
	}
	return form
}

// removeObstacle does what the page of closing asks of a person beside returning money.
func (w *world) removeObstacle(person, page string) error {
	ctx := context.Background()
	if m := belowZero.FindStringSubmatch(page); m != nil {
		debt, err := money.Parse(m[1])
		if err != nil {
			return err
		}
		a, err := w.reader.Page(ctx, 0, person, "POST", "/top-up", url.Values{"token": {id.NewSecret()},
			"amount": {max(debt, 10*money.Dollar).Decimal()}})
		if i := strings.LastIndex(a.To, "/cs_test_"); err == nil && i >= 0 {
			err = w.Stripe.Steer(a.To[i+1:], "pay", nil)
		}
		return err
	}
	switch {
	case strings.Contains(page, "Say whom we pay it to first"):
		to, err := w.reader.Onboard(ctx, 0, person)
		if i := strings.LastIndex(to, "/acct_"); err == nil && i >= 0 {
			w.money.Book.Payable[w.money.People[person]] = true
			err = w.Stripe.Steer(to[i+1:], "enable", nil)
		}
		return err
	case strings.Contains(page, "Users are connected to your live apps"):
		return w.revokeUsers(person)
	case strings.Contains(page, "Spend it, or contact support"), strings.Contains(page, "Spend the rest"):
		return w.money.SpendRest(person)
	}
	return nil
}

// revokeUsers revokes the connections with a developer's apps by their API, with a new secret.
func (w *world) revokeUsers(developer string) error {
	for _, app := range w.money.Apps {
		if app.Developer != developer {
			continue
		}
		users, err := w.texts(`SELECT id FROM connections WHERE app_id = $1 AND status <> 'revoked'`, app.ID)
		if err != nil || len(users) == 0 {
			return err
		}
		client, err := w.newSecret(developer, app.ID)
		if err != nil {
			return err
		}
		for _, connectionID := range users {
			a, err := w.send(context.Background(), nil, "POST", "/v1/connections/"+connectionID+"/revoke", "",
				"Authorization", client.basic())
			if err != nil || a.Status != http.StatusOK {
				return errors.Join(err, fmt.Errorf("a revoke by %s is answered by %d: %s", app.ID, a.Status, a.Body))
			}
		}
	}
	return nil
}

var secretFact = regexp.MustCompile(`<dt>Client secret</dt><dd><code>([^<]+)</code>`)

// newSecret gets a developer a new secret of an app: forms that readers have sent may have replaced the first one.
func (w *world) newSecret(developer, appID string) (credentials, error) {
	a, err := w.reader.Page(context.Background(), 0, developer, "POST", "/developer/apps/"+appID+"/secret",
		url.Values{"when": {"now"}, "present": {bank.Password}})
	m := secretFact.FindStringSubmatch(a.Body)
	if err != nil || m == nil {
		return credentials{}, errors.Join(err, fmt.Errorf("a new secret is answered by %d: %.300s", a.Status, a.Body))
	}
	c := w.api.apps[appID]
	c.secret = m[1]
	w.api.apps[appID] = c
	return c, nil
}

// paidOtherwise finds what an operator has to pay otherwise: of the balance, what is no gift.
var paidOtherwise = regexp.MustCompile(`\$([0-9.,]+) that the user paid cannot be refunded to a payment`)

// closeSuspended lets an operator close a suspended account as docs/operate/operator.md says: the balance goes to the
// cards, and what no card takes is paid otherwise. One with a balance below zero stays suspended.
func (w *world) closeSuspended(person string, is personal) (why string, err error) {
	if is.available < 0 {
		w.api.drawn["a suspended account below zero stays"]++
		return "", nil
	}
	account := "/v1/operator/accounts/" + w.money.People[person]
	operate := func(path, body string) bank.Answer {
		a, failed := w.reader.Operate(context.Background(), 0, "POST", path, body)
		if err = errors.Join(err, failed); isOurFault(a.Status) {
			err = errors.Join(err, fmt.Errorf("%s is answered by %d: %s", path, a.Status, a.Body))
		}
		return a
	}
	users, err := w.texts(`SELECT c.id FROM connections c JOIN apps p ON p.id = c.app_id WHERE c.status <> 'revoked'
		AND p.owner_id = $1`, w.money.People[person])
	for _, connectionID := range users {
		operate("/v1/operator/connections/"+connectionID+"/revoke", atTheEnd)
	}
	a := operate(account+"/close", atTheEnd)
	if a.Status == http.StatusOK || err != nil {
		return "", err
	}
	if m := paidOtherwise.FindStringSubmatch(a.Body); m != nil {
		amount, wrong := money.Parse(m[1])
		if err = errors.Join(err, wrong); err != nil {
			return "", err
		}
		operate(account+"/settle", fmt.Sprintf(`{"amount_mc":%d,"reason":"By bank transfer."}`, amount))
		a = operate(account+"/close", atTheEnd)
	}
	if a.Status == http.StatusOK {
		return "", err
	}
	return "suspended: " + a.Body, err
}

// checkGone checks the books of those who have left: nothing is left of what they have paid, nor of who they were.
func (w *world) checkGone() error {
	if err := w.decide(); err != nil {
		return err
	}
	w.Pass(6 * day) // margin clears for two, and a payout is at most one in three
	for _, person := range names {
		is, err := w.person(person)
		if err != nil {
			return err
		}
		if is.isClosed && (is.available < 0 || is.available+is.reserved >= money.Cent) {
			return fmt.Errorf("out: %s has left, and has %s and %s reserved", person, is.available.Display(),
				is.reserved.Display())
		}
		if err := w.checkPaid(person, is); err != nil {
			return err
		}
	}
	book := w.money.Book
	return errors.Join(book.CheckStep(), book.CheckSettled(), w.verify(), w.checkErased())
}

// checkPaid compares what a person has paid, got back and spent with the balance: by what Stripe has of the payments,
// by the receipts of calls, and by the operator's gifts.
func (w *world) checkPaid(person string, is personal) error {
	accountID := w.money.People[person]
	var paid, back money.MC
	for _, p := range w.Stripe.Payments() {
		if p.Account == accountID && p.Paid {
			paid += money.MC(p.Cents) * money.Cent
			back += min(money.MC(p.RefundedCents()+p.LostCents()), money.MC(p.Cents)) * money.Cent
		}
	}
	var spent, given, elsewhere, developer money.MC
	for query, sum := range map[string]*money.MC{
		`SELECT COALESCE(SUM(user_charge_mc), 0) FROM ledger l WHERE account_id = $1 AND type = 'spend'
			AND status = 'settled' AND paid_by = 'wallet'
			AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)`: &spent,
		`SELECT COALESCE(SUM(CASE kind WHEN 'given' THEN amount_mc ELSE -amount_mc END), 0) FROM goodwill_records
			WHERE account_id = $1`: &given,
		`SELECT COALESCE(SUM(CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END), 0) FROM payment_records
			WHERE account_id = $1 AND kind IN ('reversed', 'restored') AND reason = 'paid_elsewhere'`: &elsewhere,
		`SELECT COALESCE(SUM(balance_mc), 0) FROM call_refunds WHERE developer_id = $1`: &developer,
	} {
		if err := w.Server.DB.QueryRowContext(context.Background(), query, accountID).Scan(sum); err != nil {
			return err
		}
	}
	should := paid - back + given - elsewhere - spent - developer
	if has := is.available + is.reserved; has != should && !w.isOverdrawn(accountID) {
		return fmt.Errorf("out: %s has %s: paid %s, back %s, gifts %s, settled %s, spent %s, refunded to users %s: %s",
			person, has.Display(), paid.Display(), back.Display(), given.Display(), elsewhere.Display(),
			spent.Display(), developer.Display(), should.Display())
	}
	return nil
}

// isOverdrawn reports whether of a payment more is gone than was paid: by a bank and by a settlement both, which the
// ledger cannot book.
func (w *world) isOverdrawn(accountID string) bool {
	return slices.ContainsFunc(w.Stripe.Payments(), func(p stripe.Payment) bool {
		var elsewhere money.MC
		err := w.Server.DB.QueryRowContext(context.Background(), `SELECT COALESCE(SUM(CASE kind WHEN 'reversed'
				THEN amount_mc ELSE -amount_mc END), 0) FROM payment_records WHERE payment_id = $1
				AND kind IN ('reversed', 'restored') AND reason = 'paid_elsewhere'`, p.TopUp).Scan(&elsewhere)
		gone := money.MC(p.RefundedCents()+p.LostCents())*money.Cent + elsewhere
		return err == nil && p.Account == accountID && gone > money.MC(p.Cents)*money.Cent
	})
}

// texts returns what a query of one column selects.
func (w *world) texts(query string, args ...any) (list []string, err error) {
	rows, err := w.Server.DB.QueryContext(context.Background(), query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, rows.Err()
}
