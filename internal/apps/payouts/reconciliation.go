package payouts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/topups"
)

// secondTransfer is between the id of a payout and that of a further transfer for it, in the id of the payout as which
// the books have that transfer.
const secondTransfer = ":"

// BookTransfer books a transfer that Stripe has for a payout which the books do not have, or have given back, because
// the database went back in time (decision 127), or have paid by another transfer, because a node paused for longer
// than Stripe remembers its key: that is a payout of its own. It reports whether it did. From then on no money leaves
// until a reconciliation has ended, and payouts of the app that have begun end without a transfer, each under its
// claim. A transfer for an app that is not here is refused: it may be another installation's.
func (s *Store) BookTransfer(ctx context.Context, t *stripe.Transfer) (bool, error) {
	payoutID, appID := t.Metadata["payout_id"], t.Metadata["app_id"]
	p, err := store.PayoutOfApp(ctx, s.DB, appID, payoutID)
	alarm := "payout_unknown"
	if err == nil && p.TransferID != "" && p.TransferID != t.ID && (p.Paid() || p.Failed()) {
		payoutID, alarm = payoutID+secondTransfer+t.ID, "payout_twice"
		p, err = store.PayoutOfApp(ctx, s.DB, appID, payoutID)
	}
	if err != nil || p.Begun() || p.Paid() || t.Reversed || p.Failed() && p.TransferID == t.ID {
		return false, err // one that has begun is ended by its transfer
	}
	app, err := s.Apps.Get(ctx, appID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, topups.NewRefused("transfer " + t.ID + " is for app " + appID + ", which is unknown")
	} else if err != nil {
		return false, fmt.Errorf("payouts: app %s: %w", appID, err)
	}
	if t.Currency != stripe.USD || t.Amount <= 0 {
		return false, topups.NewRefused(fmt.Sprintf("transfer %s is of %d %s", t.ID, t.Amount, t.Currency))
	}
	if err := topups.WaitForReconciliation(ctx, s.DB, s.Now()); err != nil {
		return false, err
	}
	r, err := s.Ledger.Do(ctx, rules.RecordPayout{
		PayoutID:    payoutID,
		AppID:       appID,
		DeveloperID: app.OwnerID,
		TransferID:  t.ID,
		AmountMC:    money.MC(t.Amount) * money.Cent,
	})
	if err != nil || r.Outcome != rules.Applied {
		return false, err
	}
	s.Log.Error("stripe has a transfer that the books did not have", "payout_id", payoutID, "app_id", appID)
	s.Metrics.RaiseAlarm(alarm, "stripe")
	return true, nil
}

// MayHaveTransfers reports whether developers are paid here, or any has an account at Stripe. A restore may have lost
// the accounts of all.
func (s *Store) MayHaveTransfers(ctx context.Context) (bool, error) {
	if s.IsOn() {
		return true, nil
	}
	list, err := listPayees(ctx, s.DB, "", 1)
	return len(list) > 0, err
}

// transfersSince are the parameters of a list of transfers since a time.
func transfersSince(us int64) stripe.Params {
	return stripe.Params{"created[gte]": strconv.FormatInt(us/1e6, 10), "limit": strconv.Itoa(pageSize)}
}

// bookUnknown asks Stripe which transfers a developer's account has, and books those that the books do not have. It
// reports whether there were any.
func (s *Store) bookUnknown(ctx context.Context, destination string) (found bool, err error) {
	sinceUS, err := topups.ListedSinceUS(ctx, s.DB, s.Now())
	if err != nil {
		return false, err
	}
	p := transfersSince(sinceUS)
	p["destination"] = destination
	for t, err := range stripe.List[stripe.Transfer](ctx, s.Stripe, p) {
		if err != nil {
			return found, fmt.Errorf("payouts: transfers to %s: %w", destination, err)
		}
		if t.Metadata["payout_id"] == "" {
			continue
		}
		booked, err := s.BookTransfer(ctx, t)
		if err != nil {
			return found, err
		}
		found = found || booked
	}
	return found, nil
}

// bookRecent books the transfers that Stripe has made since the last run, or, on a node that has just started, since
// the books may not know them, and that the books do not have: a node that paused may have made one after another node
// ended the payout. Those that the books cannot take are the daily reconciliation's, which lists all while money waits.
func (s *Store) bookRecent(ctx context.Context) error {
	now, last := s.Now(), s.listedUS.Load()
	if now.UnixMicro()-last < listPause.Microseconds() {
		return nil
	}
	if some, err := s.MayHaveTransfers(ctx); err != nil || !some {
		return err
	}
	if waits, err := topups.MoneyWaits(ctx, s.DB); err != nil || waits {
		return err
	}
	sinceUS := last - listOverlap.Microseconds()
	if last == 0 {
		var err error
		if sinceUS, err = topups.ListedSinceUS(ctx, s.DB, now); err != nil {
			return err
		}
	}
	for t, err := range stripe.List[stripe.Transfer](ctx, s.Stripe, transfersSince(sinceUS)) {
		if err != nil {
			return fmt.Errorf("payouts: recent transfers: %w", err)
		}
		if t.Metadata["payout_id"] == "" {
			continue
		}
		if _, err := s.BookTransfer(ctx, t); err != nil && !topups.IsRefused(err) {
			return err
		}
	}
	s.listedUS.Store(now.UnixMicro())
	return nil
}

// reportUnfinished raises an alarm about payouts that wait for Stripe, which is not configured any more.
func (s *Store) reportUnfinished(ctx context.Context) error {
	open, err := store.OpenPayouts(ctx, s.DB, 1)
	if err == nil && len(open) > 0 {
		s.Log.Error("payouts wait for stripe, which is not configured")
		s.Metrics.RaiseAlarm("stripe_missing", "stripe")
	}
	return err
}
