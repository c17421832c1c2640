package payouts

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
)

// A Standing is the margin that a developer has earned and was not paid yet.
type Standing struct {
	UnpaidMC   money.MC // of all apps together, with what payouts have under way; below zero: the developer owes it
	UnderWayMC money.MC // of payouts whose transfer is not confirmed
	HeldMC     money.MC // of it: not paid while the Held apps are suspended
	Held       []string // the names of the service's suspended apps that have margin
	MinimumMC  money.MC // of a payout
	FromUS     int64    // when the last of it can be paid
	On         bool     // developers are paid here
	Payable    bool     // Stripe lets the developer be paid
}

// LoadStanding loads the standing of a developer; q may be a transaction. It does not ask Stripe.
func (s *Store) LoadStanding(ctx context.Context, q db.Queryer, developerID string) (st Standing, err error) {
	st.On, st.MinimumMC = s.IsOn(), max(s.Config.MinimumMC, money.Cent)
	owned, err := apps.ListOwned(ctx, q, developerID)
	if err != nil || len(owned) == 0 {
		return st, err
	}
	var free money.MC // of apps that are not suspended; apps below zero use it up, of whatever app they are
	for _, app := range owned {
		v, err := store.ViewAppMargin(ctx, q, app.ID, s.matured(), s.Now())
		if err != nil {
			return st, err
		}
		if v == (store.AppMarginView{}) {
			continue
		}
		unpaid := v.EarnedMC - v.TakenMC
		st.UnpaidMC += unpaid
		if app.Suspension != nil && !app.EndedWithAccount() {
			if unpaid >= money.Cent {
				st.Held = append(st.Held, app.Name)
			}
			continue
		}
		free += max(unpaid, 0)
		payableUS, err := s.payableFromUS(ctx, q, app.ID)
		if err != nil {
			return st, err
		}
		st.FromUS = max(st.FromUS, payableUS)
	}
	st.HeldMC = max(st.UnpaidMC-free, 0)
	list, err := store.PayoutsOfDeveloper(ctx, q, developerID, pageSize)
	if err != nil {
		return st, err
	}
	for _, p := range list {
		if p.Begun() {
			st.UnderWayMC += p.AmountMC
		}
	}
	st.UnpaidMC += st.UnderWayMC
	p, err := getPayee(ctx, q, developerID)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return st, fmt.Errorf("payouts: payee %s: %w", developerID, err)
	}
	st.Payable = p.Enabled
	return st, nil
}

// payableFromUS returns when all margin of an app has matured and its next payout is due, in microseconds.
func (s *Store) payableFromUS(ctx context.Context, q db.Queryer, appID string) (int64, error) {
	last, err := store.LastPayoutUS(ctx, q, appID)
	if err != nil {
		return 0, err
	}
	dueUS := last
	if last > 0 {
		dueUS += s.Config.Every.Microseconds()
	}
	newest, err := store.LastMarginDay(ctx, q, appID)
	if err != nil || newest == "" {
		return dueUS, err
	}
	day, err := time.Parse(time.DateOnly, newest)
	if err != nil {
		return 0, fmt.Errorf("payouts: margin of %s: %w", appID, err)
	}
	return max(dueUS, day.AddDate(0, 0, 1).Add(s.Config.Window).UnixMicro()), nil
}

// FindPayee returns the payee of a developer as it was when Stripe was last asked, and false if there is none.
func (s *Store) FindPayee(ctx context.Context, developerID string) (Payee, bool, error) {
	p, err := getPayee(ctx, s.DB, developerID)
	if errors.Is(err, sql.ErrNoRows) {
		return p, false, nil
	} else if err != nil {
		return p, false, fmt.Errorf("payouts: payee %s: %w", developerID, err)
	}
	return p, true, nil
}
