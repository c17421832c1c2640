package bank

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A Book compares what the ledger says of people's money with what Stripe says.
type Book struct {
	DB     *db.DB
	Stripe *stripe.Server
	People map[string]string // ids of accounts, by name
	Now    func() time.Time

	Payable map[string]bool // ids of accounts that Stripe lets be paid
}

// longestWindow is longer than margin takes to mature, and a payout to be due.
const longestWindow = 4 * 24 * time.Hour

// nameOf returns the name of the person of an account.
func (b *Book) nameOf(accountID string) string {
	for name, id := range b.People {
		if id == accountID {
			return name
		}
	}
	return ""
}

// sum returns the sum that a query selects.
func (b *Book) sum(query string, args ...any) (mc money.MC, err error) {
	err = b.DB.QueryRowContext(context.Background(), query, args...).Scan(&mc)
	return mc, err
}

// sums fills each of into by its query.
func (b *Book) sums(into map[string]*money.MC, args ...any) (err error) {
	for query, mc := range into {
		if *mc, err = b.sum(query, args...); err != nil {
			return err
		}
	}
	return nil
}

// CheckStep returns the first property that does not hold now, of those that hold after each step (4 and 6), and of
// what verify checks, the sums of each account and payment, which is cheap enough for each step.
func (b *Book) CheckStep() error {
	wrong, err := ids(b, `SELECT 'balance of ' || b.account_id FROM balances b WHERE b.available_mc <> (SELECT
			COALESCE(SUM(l.available_delta_mc), 0) FROM ledger l WHERE l.account_id = b.account_id)
			OR b.reserved_mc <> (SELECT COALESCE(SUM(l.reserved_delta_mc), 0) FROM ledger l
				WHERE l.account_id = b.account_id) OR b.reserved_mc < 0
		UNION ALL SELECT 'payment ' || payment_id FROM payment_records GROUP BY payment_id
			HAVING SUM(CASE kind WHEN 'reversed' THEN amount_mc WHEN 'restored' THEN -amount_mc ELSE 0 END)
				NOT BETWEEN 0 AND MAX(CASE kind WHEN 'opened' THEN amount_mc ELSE 0 END)`)
	if err != nil {
		return err
	} else if len(wrong) > 0 {
		return fmt.Errorf("the sums of %s are wrong", wrong)
	}
	for name, accountID := range b.People {
		if err := b.checkMargin(name, accountID); err != nil {
			return err
		}
	}
	return errors.Join(b.checkBounds(), b.checkUnbilled())
}

// settledCalls are the rows of an account's calls that were charged and not refunded.
const settledCalls = ` FROM ledger l WHERE l.account_id = $1 AND l.type = 'spend' AND l.status = 'settled'
	AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)`

// checkMargin compares the margin that a person's disputed payments have taken with that of the person's calls, and
// with what the operator has lost or would lose. It does so when the job has looked at the newest row and dispute.
func (b *Book) checkMargin(name, accountID string) error {
	var current int
	err := b.DB.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM losses l
		JOIN balances b ON b.account_id = l.account_id AND b.seq = l.seq WHERE l.account_id = $1
		AND l.changed_us = (SELECT MAX(d.changed_us) FROM disputes d JOIN checkouts c ON c.id = d.payment_id
			WHERE c.account_id = $1)`, accountID).Scan(&current)
	if err != nil || current == 0 {
		return err
	}
	var taken, margin, open, lost, balance money.MC
	err = b.sums(map[string]*money.MC{
		`SELECT CAST(COALESCE(SUM(m.amount_mc), 0) AS BIGINT) FROM margin_records m
			WHERE m.kind = 'disputed' AND m.subject = $1`: &taken,
		`SELECT CAST(COALESCE(SUM(l.dev_margin_mc), 0) AS BIGINT)` + settledCalls: &margin,
		`SELECT CAST(COALESCE(SUM(d.cents), 0) * 1000000 AS BIGINT) FROM disputes d
			JOIN checkouts c ON c.id = d.payment_id WHERE d.contested = 1 AND c.account_id = $1`: &open,
		`SELECT CAST(COALESCE(SUM(CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END), 0) AS BIGINT)
			FROM payment_records WHERE kind IN ('reversed', 'restored') AND reason = 'dispute_lost'
			AND account_id = $1`: &lost,
		`SELECT COALESCE(SUM(available_mc + reserved_mc), 0) FROM balances WHERE account_id = $1`: &balance,
	}, accountID)
	if err != nil {
		return err
	}
	if loss := max(open-lost-balance, 0); taken < 0 || taken > min(margin, loss) {
		return fmt.Errorf("property 4: disputes of %s take %s of a margin of %s, and %s are lost", name,
			taken.Display(), margin.Display(), loss.Display())
	}
	return nil
}

// checkBounds compares what empty answers have cost in any 24 hours with the bound, by app and account: connecting
// again changes nothing.
func (b *Book) checkBounds() error {
	var appID, accountID string
	var cost money.MC
	err := b.DB.QueryRowContext(context.Background(), `SELECT l.app_id, l.account_id,
			CAST(SUM(m.provider_cost_mc) AS BIGINT) AS cost
		FROM ledger l JOIN ledger m ON m.app_id = l.app_id AND m.account_id = l.account_id AND m.usage LIKE '%waived%'
			AND m.type = 'spend' AND m.status = 'settled'
			AND m.created_us <= l.created_us AND m.created_us > l.created_us - 86400000000
		WHERE l.usage LIKE '%waived%' AND l.type = 'spend' AND l.status = 'settled'
		GROUP BY l.id, l.app_id, l.account_id ORDER BY cost DESC LIMIT 1`).Scan(&appID, &accountID, &cost)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return err
	}
	if cost > WaivedDayMC {
		return fmt.Errorf("property 6: empty answers of %s on %s cost %s in a day", accountID, appID, cost.Display())
	}
	return nil
}

// checkUnbilled is checkBounds of what calls have cost that a person has left, unbilled.
func (b *Book) checkUnbilled() error {
	var appID, accountID string
	var cost money.MC
	err := b.DB.QueryRowContext(context.Background(), `SELECT u.app_id, u.account_id,
			CAST(SUM(m.provider_cost_mc) AS BIGINT) AS cost
		FROM unbilled_attempts u JOIN unbilled_attempts m ON m.app_id = u.app_id AND m.account_id = u.account_id
			AND m.created_us <= u.created_us AND m.created_us > u.created_us - 86400000000
		GROUP BY u.request_id, u.attempt, u.app_id, u.account_id ORDER BY cost DESC LIMIT 1`).
		Scan(&appID, &accountID, &cost)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err == nil && cost > UnbilledDayMC {
		return fmt.Errorf("property 6: calls that %s left on %s cost %s in a day", accountID, appID, cost.Display())
	}
	return err
}

// CheckSettled returns the first property that does not hold now, of those that hold when everything has come to its
// end (2, 3 and 5).
func (b *Book) CheckSettled() error {
	paid, gone, rest, err := b.checkPayments()
	if err != nil {
		return err
	}
	for person := range b.People {
		if err := b.checkClosed(person); err != nil {
			return err
		}
	}
	return b.checkCash(paid-gone, rest)
}

// checkPayments compares each payment with the ledger's (property 2). It returns what was paid, what is gone of it, and
// what of that cannot be booked.
func (b *Book) checkPayments() (paid, gone, rest money.MC, err error) {
	for _, p := range b.Stripe.Payments() {
		r, err := b.checkPayment(p)
		if err != nil {
			return 0, 0, 0, err
		}
		rest += r
		if p.Paid {
			paid += money.MC(p.Cents) * money.Cent
			gone += money.MC(p.RefundedCents()+p.LostCents()) * money.Cent
		}
	}
	return paid, gone, rest, nil
}

// checkPayment compares a payment with the ledger's (property 2). rest is what is gone and cannot be booked, because it
// is more than was paid.
func (b *Book) checkPayment(at stripe.Payment) (rest money.MC, err error) {
	p, err := store.GetPayment(context.Background(), b.DB, at.TopUp)
	if err != nil {
		return 0, fmt.Errorf("property 2: payment %s at Stripe: %w", at.TopUp, err)
	}
	if at.Paid && p.PaymentIntent != at.Intent {
		return 0, fmt.Errorf("property 2: %s is paid by %s and by %s", p.ID, p.PaymentIntent, at.Intent)
	}
	if !at.Paid {
		if p.PaymentIntent != at.Intent && p.Paid() { // another one has paid
			return 0, nil
		}
		if p.Status == "settled" || p.Paid() {
			return 0, fmt.Errorf("property 2: %s was never paid, and is %s", p.ID, p.Status)
		}
		return 0, nil
	}
	gone := money.MC(at.RefundedCents()+at.LostCents()) * money.Cent
	waits := at.DisputedCents(stripe.Dispute.IsOpen) > 0
	switch {
	case p.Status == "settled":
	case p.Status == "failed" && gone >= p.AmountMC:
		return gone - p.AmountMC, nil
	case p.Status == "pending" && waits:
		return 0, nil // gone is booked when it is credited
	default:
		return 0, fmt.Errorf("property 2: %s is paid, %s of it is gone, and it is %s %s", p.ID, gone.Display(),
			p.Status, p.Reason)
	}
	asked, err := b.sum(`SELECT CAST(COALESCE(SUM(cents), 0) * 1000000 AS BIGINT) FROM refunds WHERE payment_id = $1
		AND by_user = 1 AND state = 'open'`, p.ID)
	if err != nil {
		return 0, err
	}
	for _, r := range at.Refunds { // what Stripe has of these is in gone
		refused, err := b.sum(`SELECT COUNT(*) FROM refunds WHERE id = $1 AND state = 'refused'`, r.Name)
		if err != nil {
			return 0, err
		} else if refused > 0 && r.IsGone() {
			return 0, fmt.Errorf("property 2: refund %s is refused, and Stripe has made it", r.Name)
		}
		n, err := b.sum(`SELECT COUNT(*) FROM refunds WHERE id = $1 AND by_user = 1 AND state = 'open'`, r.Name)
		if err != nil {
			return 0, err
		}
		if n > 0 && r.IsGone() {
			asked -= money.MC(r.Cents) * money.Cent
		}
	}
	should := gone + asked + p.ReversedFor("paid_elsewhere")
	if p.ReversedMC != min(should, p.AmountMC) {
		return 0, fmt.Errorf("property 2: of %s of %s: gone at Stripe %s, asked for %s, paid otherwise %s; booked %s",
			p.ID, p.AmountMC.Display(), gone.Display(), asked.Display(), p.ReversedFor("paid_elsewhere").Display(),
			p.ReversedMC.Display())
	}
	return max(gone+p.ReversedFor("paid_elsewhere")-p.AmountMC, 0), nil
}

// isReal says of a row l that real money paid it. That of test accounts and free credit are Purser's own, and no cash.
const isReal = ` AND l.paid_by = 'wallet' AND l.account_id IN (SELECT account_id FROM balances WHERE sandbox = 0)`

// checkCash compares the cash that is kept at Stripe with what it is for (property 3).
func (b *Book) checkCash(cash, rest money.MC) error {
	for _, cents := range b.Stripe.Transferred() {
		cash -= money.MC(cents) * money.Cent
	}
	var balances, kept, refunded, earned, used, paidOut, goodwill, elsewhere, asked, pending money.MC
	err := b.sums(map[string]*money.MC{
		`SELECT CAST(COALESCE(SUM(available_mc + reserved_mc), 0) AS BIGINT) FROM balances
			WHERE sandbox = 0`: &balances,
		`SELECT CAST(COALESCE(SUM(user_charge_mc - dev_margin_mc), 0) AS BIGINT) FROM ledger l WHERE type = 'spend'
			AND status = 'settled' AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)` +
			isReal: &kept,
		`SELECT CAST(COALESCE(SUM(l.user_charge_mc - l.dev_margin_mc), 0) AS BIGINT) FROM ledger l
			JOIN call_refunds c ON c.entry_id = l.id WHERE 1 = 1` + isReal: &refunded,
		`SELECT CAST(COALESCE(SUM(dev_margin_mc), 0) AS BIGINT) FROM ledger l WHERE type = 'spend'
			AND status = 'settled' AND NOT EXISTS (SELECT 1 FROM ledger r WHERE r.reversal_of = l.id)` +
			isReal: &earned,
		`SELECT CAST(COALESCE(SUM(c.margin_used_mc), 0) AS BIGINT) FROM call_refunds c WHERE NOT EXISTS
			(SELECT 1 FROM call_refunds d WHERE d.app_id = c.app_id AND d.n > c.n)`: &used,
		`SELECT CAST(COALESCE(SUM(m.amount_mc), 0) AS BIGINT) FROM margin_records m WHERE m.kind = 'begun'
			AND EXISTS (SELECT 1 FROM margin_records p WHERE p.subject = m.subject AND p.kind = 'paid')
			AND NOT EXISTS (SELECT 1 FROM margin_records f
				WHERE f.subject = m.subject AND f.kind = 'failed')`: &paidOut,
		`SELECT CAST(COALESCE(SUM(CASE kind WHEN 'given' THEN amount_mc ELSE -amount_mc END), 0) AS BIGINT)
			FROM goodwill_records`: &goodwill,
		`SELECT CAST(COALESCE(SUM(CASE kind WHEN 'reversed' THEN amount_mc ELSE -amount_mc END), 0) AS BIGINT)
			FROM payment_records WHERE kind IN ('reversed', 'restored') AND reason = 'paid_elsewhere'`: &elsewhere,
	})
	if err != nil {
		return err
	}
	if err := b.underWay(&asked, &pending); err != nil {
		return err
	}
	// Disputes move margin from the apps to the operator, so the margin that they take is in neither sum.
	should := balances + kept + refunded + earned - used - paidOut - goodwill + asked + pending - rest
	if cash-elsewhere != should {
		return fmt.Errorf("property 3: cash is %s; balances %s, fees and costs %s + %s, margin owed %s, "+
			"goodwill %s, asked for %s, pending %s, not booked %s: %s",
			(cash - elsewhere).Display(), balances.Display(), kept.Display(), refunded.Display(),
			(earned - used - paidOut).Display(), goodwill.Display(), asked.Display(), pending.Display(), rest.Display(),
			should.Display())
	}
	return nil
}

// underWay returns what users have asked for and Stripe has not, and what is paid and not credited yet.
func (b *Book) underWay(asked, pending *money.MC) error {
	for _, at := range b.Stripe.Payments() {
		p, err := store.GetPayment(context.Background(), b.DB, at.TopUp)
		if err != nil {
			return err
		}
		if at.Paid && p.Status == "pending" {
			*pending += p.AmountMC - money.MC(at.RefundedCents()+at.LostCents())*money.Cent
		}
		if p.Status == "settled" {
			gone := money.MC(at.RefundedCents()+at.LostCents()) * money.Cent
			*asked += max(p.ReversedMC-p.ReversedFor("paid_elsewhere")-gone, 0)
		}
	}
	return nil
}

// Describe tells what both books say of each payment.
func (b *Book) Describe() string {
	var text strings.Builder
	for _, at := range b.Stripe.Payments() {
		fmt.Fprintf(&text, "%s of %s: %d cents, %s", at.TopUp, at.Account, at.Cents, at.Status)
		for _, r := range at.Refunds {
			fmt.Fprintf(&text, ", refund %d %s (%s)", r.Cents, r.Status, r.Name)
		}
		for _, d := range at.Disputes {
			fmt.Fprintf(&text, ", dispute %d %s", d.Cents, d.Status)
		}
		p, err := store.GetPayment(context.Background(), b.DB, at.TopUp)
		fmt.Fprintf(&text, "; booked %s %s %v", p.Status, p.Reason, err)
		for _, reason := range []string{"returned_to_card", "refunded", "dispute_lost", "paid_elsewhere"} {
			if gone := p.ReversedFor(reason); gone != 0 {
				fmt.Fprintf(&text, ", %s %s", reason, gone.Display())
			}
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

// A before is what a person had before asking for money back.
type before struct {
	returns   int      // that were asked for
	available money.MC // of the balance
	needed    money.MC // what open disputes would take of the balance if they were lost
	left      money.MC // of payments that are not disputed
}

// beforeReturn tells what a person has before asking for money back.
func (b *Book) beforeReturn(person string) (is before, err error) {
	accountID := b.People[person]
	if is.returns, err = b.countReturns(accountID); err != nil {
		return is, err
	}
	balance, err := store.GetBalance(context.Background(), b.DB, accountID)
	if err != nil {
		return is, err
	}
	is.available = balance.AvailableMC
	list, err := store.PaymentsOfAccount(context.Background(), b.DB, accountID, 1000)
	for _, p := range list {
		contested, failed := b.sum(`SELECT CAST(COALESCE(SUM(cents), 0) * 1000000 AS BIGINT) FROM disputes
			WHERE payment_id = $1 AND contested = 1`, p.ID)
		err = errors.Join(err, failed)
		if contested == 0 && p.Status == "settled" {
			is.left += p.AmountMC - p.ReversedMC
		}
		is.needed += max(min(contested-p.ReversedFor("dispute_lost"), p.AmountMC-p.ReversedMC), 0)
	}
	return is, err
}

func (b *Book) countReturns(accountID string) (n int, err error) {
	err = b.DB.QueryRowContext(context.Background(), `SELECT COUNT(*) FROM refunds WHERE account_id = $1
		AND by_user = 1`, accountID).Scan(&n)
	return n, err
}

// checkReturn is checkNeeded if a person was returned money.
func (b *Book) checkReturn(person string, was before) error {
	n, err := b.countReturns(b.People[person])
	if err != nil || n == was.returns {
		return err
	}
	return b.checkNeeded(person, was)
}

// checkNeeded checks that the balance of a person who was given money has what disputes that were open before would
// take of it if they were lost (property 8).
func (b *Book) checkNeeded(person string, was before) error {
	balance, err := store.GetBalance(context.Background(), b.DB, b.People[person])
	if err == nil && was.needed > 0 && balance.AvailableMC < min(was.needed, was.available) {
		err = fmt.Errorf("property 8: %s was returned money; %s is left, and disputes need %s", person,
			balance.AvailableMC.Display(), was.needed.Display())
	}
	return err
}
