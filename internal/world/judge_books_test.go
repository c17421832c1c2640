package world

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// checkBooks checks what must hold after each step.
func (w *world) checkBooks() error {
	return errors.Join(w.checkPauses(), w.checkTraces(), w.checkProfiles())
}

// checkSettledBooks checks what must hold days after everybody has stopped to act.
func (w *world) checkSettledBooks() error {
	return errors.Join(w.checkCards(), w.checkUnpaid(), w.checkOnboarding())
}

// none returns an error that says what, if a query selects something.
func (w *world) none(what, query string, args ...any) error {
	list, err := w.texts(query, args...)
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("%s: %s", what, list)
	}
	return err
}

// checkPauses checks that a connection is not active which an operator has paused and not resumed since.
func (w *world) checkPauses() error {
	return w.none("access: operators have paused", `SELECT c.id FROM connections c WHERE c.status = 'active' AND EXISTS
		(SELECT 1 FROM operator_log f WHERE f.subject = c.id AND f.action = 'freeze' AND NOT EXISTS
			(SELECT 1 FROM operator_log r WHERE r.subject = c.id AND r.action = 'resume'
				AND r.created_us >= f.created_us))`)
}

// checkTraces checks that operators have a trace of each refund by a closing, from before it.
func (w *world) checkTraces() error {
	return w.none("one truth: no operator knows of refunds", `SELECT r.id FROM refunds r WHERE r.by_user = 0
		AND NOT EXISTS (SELECT 1 FROM operator_log o WHERE o.subject = r.account_id AND o.action LIKE 'close%'
			AND o.created_us <= r.created_us)`)
}

// checkProfiles checks that the apps of who has left say nothing of their developer.
func (w *world) checkProfiles() error {
	return w.none("ends: developers have left and are told of", `SELECT p.id FROM apps p
		JOIN accounts a ON a.id = p.owner_id WHERE a.closed_us IS NOT NULL AND (p.developer_name <> ''
			OR p.website_url <> '' OR p.privacy_policy_url <> '' OR p.support <> '' OR p.domain <> ''
			OR p.proposed <> '' OR p.test_allowlist <> '[]')`)
}

// checkCards checks, days after everybody has stopped to act, that Stripe keeps no card that people have not saved.
func (w *world) checkCards() error {
	list, err := w.texts(`SELECT payment_method FROM auto_topups WHERE payment_method IS NOT NULL`)
	for _, card := range w.Stripe.SavedCards() {
		if err == nil && !slices.Contains(list, card) {
			err = fmt.Errorf("one truth: Stripe keeps card %s, and nobody has saved it", card)
		}
	}
	return err
}

// checkUnpaid checks, days after everybody has stopped to act, that developers who can be paid are owed less than a
// payout.
func (w *world) checkUnpaid() error {
	ctx, now := context.Background(), w.Server.DB.Now()
	for _, name := range names {
		accountID := w.money.People[name]
		is, err := w.person(name)
		if err != nil {
			return err
		}
		if is.isSuspended || is.isClosed || !w.money.Book.Payable[accountID] {
			continue
		}
		balance, err := store.GetBalance(ctx, w.Server.DB, accountID)
		if err != nil {
			return err
		}
		apps := `SELECT id FROM apps WHERE owner_id = $1`
		list, err := w.texts(apps, accountID)
		if err != nil {
			return err
		}
		paid, err := w.texts(apps+` AND suspension_by IS NULL`, accountID)
		if err != nil {
			return err
		}
		margins, together := map[string]rules.Margin{}, money.MC(0)
		for _, appID := range list {
			// Two days more than margin takes to mature.
			v, err := store.ViewAppMargin(ctx, w.Server.DB, appID, now.Add(-w.config.Payouts.Window-2*day), now)
			if err != nil {
				return err
			}
			margins[appID], together = v.Margin, together+v.Balance()
		}
		for _, appID := range paid {
			m := margins[appID]
			m.KeepFor(together, balance.AvailableMC)
			if due := m.Payable(w.config.Payouts.MinimumMC); due > 0 {
				return fmt.Errorf("ends: %s can be paid, and %s of app %s is not", name, due.Display(), appID)
			}
		}
	}
	return nil
}

// checkOnboarding checks that each developer can set up payouts.
func (w *world) checkOnboarding() error {
	for _, name := range []string{"dev", "eve"} {
		if is, err := w.person(name); err != nil {
			return err
		} else if is.isSuspended || is.isClosed {
			continue
		}
		if _, err := w.reader.Onboard(context.Background(), 0, name); err != nil {
			return fmt.Errorf("ways out: %s cannot set up payouts: %w", name, err)
		}
	}
	return nil
}
