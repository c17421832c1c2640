package payouts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/topups"
)

// maxReadings is how often a run reads an account whose rows change meanwhile. The next run reads it again.
const maxReadings = 10

// errOutdated says that disputes have changed since they were read.
var errOutdated = errors.New("payouts: disputes have changed")

// takeDisputed takes from the margins of apps what accounts have lost by disputed payments, and gives back what they
// have not lost after all. It looks at the accounts of which a dispute or the balance has changed since. What cannot be
// taken of one account keeps no other's from being taken: the apps that its calls have paid are left out, because what
// is disputed is not paid.
func (s *Store) takeDisputed(ctx context.Context) (leftOut map[string]bool, err error) {
	list, err := topups.ListDisputedPayments(ctx, s.DB)
	if err != nil {
		return nil, fmt.Errorf("payouts: disputes: %w", err)
	}
	current, err := store.ListCurrentLosses(ctx, s.DB)
	if err != nil {
		return nil, err
	}
	leftOut = map[string]bool{}
	for accountID, payments := range byAccount(list) {
		is := lossOf(payments)
		if was, known := current[accountID]; known && was.DisputedCents == is.DisputedCents &&
			was.ChangedUS == is.ChangedUS {
			continue
		}
		if err := s.takeOfAccount(ctx, accountID); err != nil {
			s.Log.Error("disputed margin not taken", "account_id", accountID, "error", err)
			s.Metrics.RaiseAlarm("payout_waits", "stripe")
			apps, err := store.AppsOfAccount(ctx, s.DB, accountID)
			if err != nil {
				return nil, err
			}
			for _, appID := range apps {
				leftOut[appID] = true
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return leftOut, nil
}

func byAccount(list []topups.DisputedPayment) map[string][]topups.DisputedPayment {
	m := map[string][]topups.DisputedPayment{}
	for _, p := range list {
		m[p.AccountID] = append(m[p.AccountID], p)
	}
	return m
}

// lossOf begins the loss of an account with what is disputed of its payments.
func lossOf(payments []topups.DisputedPayment) (l rules.Loss) {
	for _, p := range payments {
		l.AccountID = p.AccountID
		l.DisputedCents += p.Cents
		l.ChangedUS = max(l.ChangedUS, p.ChangedUS)
	}
	return l
}

// takeOfAccount reads an account, and takes what it has lost. It reads it again if it has changed meanwhile.
func (s *Store) takeOfAccount(ctx context.Context, accountID string) error {
	for range maxReadings {
		payments, err := topups.DisputedPaymentsOfAccount(ctx, s.DB, accountID)
		if err != nil {
			return err
		}
		command, ok, err := s.assess(ctx, payments)
		if err != nil || !ok {
			return err
		}
		var r rules.Result
		err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if r, err = s.Ledger.DoTx(ctx, tx, command); err != nil || r.Outcome == rules.Waiting {
				return err
			}
			// The account's balance is locked, so its disputes no longer change.
			if now, err := topups.DisputedPaymentsOfAccount(ctx, tx, accountID); err != nil {
				return err
			} else if !slices.Equal(now, payments) {
				return errOutdated
			}
			return nil
		})
		if err == nil && r.Outcome == rules.Applied || err != nil && !errors.Is(err, errOutdated) {
			return err
		}
	}
	s.Log.Warn("disputed margin not taken yet", "account_id", accountID)
	return nil
}

// assess computes what an account's disputed payments take of each app's margin. ok is false if the ledger no longer
// has the calls that they may have paid for: then what was taken stays.
func (s *Store) assess(ctx context.Context, payments []topups.DisputedPayment) (c rules.TakeDisputedMargin,
	ok bool, err error) {
	c.Loss = lossOf(payments)
	// The balance is read first: a row that comes between is seen by its number.
	balance, err := store.GetBalance(ctx, s.DB, c.Loss.AccountID)
	if err != nil {
		return c, false, err
	}
	c.Loss.Seq = balance.Seq
	apps, err := store.AppsOfDispute(ctx, s.DB, c.Loss.AccountID)
	if err != nil {
		return c, false, err
	}
	var disputed []rules.DisputedPayment
	for _, p := range payments {
		d, err := store.ReadDisputedPayment(ctx, s.DB, p.PaymentID, p.Cents)
		if err != nil {
			return c, false, err
		}
		disputed = append(disputed, d)
		recorded, err := store.AppsOfDispute(ctx, s.DB, p.PaymentID)
		if err != nil {
			return c, false, err
		}
		if len(recorded) > 0 {
			apps, c.Payments = append(apps, recorded...), append(c.Payments, p.PaymentID)
		}
	}
	slices.SortFunc(disputed, func(a, b rules.DisputedPayment) int { return cmp.Compare(a.SettledSeq, b.SettledSeq) })
	loss, shares, ok := rules.AssessLoss(balance.AvailableMC+balance.ReservedMC, disputed)
	if c.Loss.LossMC = loss; !ok {
		return c, false, nil
	}
	apps = slices.AppendSeq(apps, maps.Keys(shares))
	slices.Sort(apps)
	for _, appID := range slices.Compact(apps) {
		app, err := s.Apps.Get(ctx, appID)
		if err != nil {
			return c, false, fmt.Errorf("app %s: %w", appID, err)
		}
		c.Shares = append(c.Shares, rules.DisputedShare{
			AppID:       appID,
			DeveloperID: app.OwnerID,
			TotalMC:     shares[appID],
		})
	}
	return c, true, nil
}
