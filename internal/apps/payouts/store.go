package payouts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/stripeapi"
	"github.com/purserhq/purser/internal/people/topups"
)

// Config says when developers are paid.
type Config struct {
	Every     time.Duration // between two payouts of an app; 0 = nobody is paid
	Window    time.Duration // the margin of a call can be paid when the call is older, at least a day
	MinimumMC money.MC      // of one payout
}

// The defaults of a Config. Card networks take disputes for about 120 days.
const (
	DefaultWindow  = 120 * 24 * time.Hour
	DefaultMinimum = 25 * money.Dollar
)

// Waits.
const (
	payeeTTL   = time.Hour           // how long Stripe's answer about a payee is taken as true
	reversible = 30 * 24 * time.Hour // how long a transfer is looked at again

	listPause   = 30 * time.Minute // between two lists of all recent transfers; a run comes at least every hour
	listOverlap = time.Hour        // of two lists: clocks differ
)

// pageSize is how many payees or payouts are read at once.
const pageSize = 100

// maxOpenPayouts bounds the payouts that wait, which a run asks Stripe about: those of suspended developers stay.
const maxOpenPayouts = 10_000

// idPrefix is that of the ids of payouts.
const idPrefix = "po_"

// Store pays developers. It is safe for concurrent use by many nodes.
type Store struct {
	DB           *db.DB
	Ledger       *store.Writer
	Apps         *apps.Store
	Stripe       *stripe.Client     // nil = Stripe is not configured
	Account      *stripeapi.Account // whose key Stripe is asked with
	Config       Config
	StripeURL    string // of an emulator; "" = Stripe's
	DashboardURL string // Stripe redirects developers back to it
	Mails        *mail.Store
	Metrics      *metrics.Metrics
	Log          *slog.Logger
	Now          func() time.Time

	listedUS atomic.Int64 // until when all transfers at Stripe were compared with the books; 0 = not yet
}

// IsOn reports whether developers are paid here.
func (s *Store) IsOn() bool { return s.Stripe != nil && s.Config.Every > 0 }

// OnboardingOrigin returns the origin of Stripe's page for developers.
func (s *Store) OnboardingOrigin() string {
	if s.StripeURL != "" {
		return s.StripeURL
	}
	return "https://connect.stripe.com"
}

// matured is the time before which the margin of calls can be paid.
func (s *Store) matured() time.Time { return s.Now().Add(-s.Config.Window) }

// Onboard returns the address of Stripe's page where a developer says whom to pay and where, for a few minutes.
// Stripe being unreachable is 503 unavailable.
func (s *Store) Onboard(ctx context.Context, a accounts.Account) (string, error) {
	if !s.IsOn() {
		return "", apierr.Unavailable.Errorf("Payouts are not set up on this server.")
	}
	p, err := getPayee(ctx, s.DB, a.ID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && p.GoneUS > 0 {
		p, err = s.createPayee(ctx, a)
	}
	if err != nil {
		return "", err
	}
	link, err := s.createLink(ctx, p)
	if stripeapi.Sort(err).Missing == stripeapi.MissingPayee {
		if err := s.markGone(ctx, p); err != nil {
			return "", s.unavailable("onboarding not opened", a.ID, err)
		}
		if p, err = s.createPayee(ctx, a); err != nil {
			return "", err
		}
		link, err = s.createLink(ctx, p)
	}
	if err != nil {
		return "", s.unavailable("onboarding not opened", a.ID, err)
	}
	return link.URL, nil
}

// createLink opens Stripe's page for a payee.
func (s *Store) createLink(ctx context.Context, p Payee) (*stripe.AccountLink, error) {
	back := s.DashboardURL + Page
	return stripe.Create[stripe.AccountLink](ctx, s.Stripe, stripe.Params{
		"account":     p.StripeID,
		"type":        "account_onboarding",
		"refresh_url": back,
		"return_url":  back,
	}, "")
}

// createPayee opens the developer's account at Stripe. The key of the request makes it one, however often it is sent.
func (s *Store) createPayee(ctx context.Context, a accounts.Account) (p Payee, err error) {
	params := stripe.Params{
		"type":                               "express",
		"email":                              a.Email,
		"capabilities[transfers][requested]": "true",
		"metadata[account_id]":               a.ID,
	}
	var account *stripe.Account
	err = s.requests().Make(ctx, stripeapi.Payee, a.ID, "payee_", func(key string) (err error) {
		account, err = stripe.Create[stripe.Account](ctx, s.Stripe, params, key)
		return err
	})
	if err != nil {
		return p, s.unavailable("payee not created", a.ID, err)
	}
	if err := insertPayee(ctx, s.DB, a.ID, account.ID, s.Now().UnixMicro()); err != nil {
		return p, fmt.Errorf("payouts: payee: %w", err)
	}
	return getPayee(ctx, s.DB, a.ID)
}

// requests carry out what changes something at Stripe.
func (s *Store) requests() *stripeapi.Requests {
	return &stripeapi.Requests{DB: s.DB, Metrics: s.Metrics, Log: s.Log, Now: s.Now}
}

// markGone records that Stripe no longer has the account of a payee, and tells the developer once. A key of another
// account than ours does not have it either: that is an error, and says nothing of the payee.
func (s *Store) markGone(ctx context.Context, p Payee) error {
	if err := s.Account.Check(ctx); err != nil {
		return fmt.Errorf("payouts: payee %s: %w", p.AccountID, err)
	}
	err := s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		changed, err := setPayeeGone(ctx, tx, p, s.Now().UnixMicro())
		if err != nil || !changed {
			return err
		}
		s.Log.Error("payee is gone at stripe", "account_id", p.AccountID, "payee", p.StripeID)
		s.Metrics.RaiseAlarm("payee_gone", "stripe")
		return errors.Join(s.requests().Renew(ctx, tx, stripeapi.Payee, p.AccountID),
			s.sendMail(ctx, tx, p.AccountID, s.goneEmail()))
	})
	if err != nil {
		return fmt.Errorf("payouts: payee %s: %w", p.AccountID, err)
	}
	return nil
}

func (s *Store) unavailable(event, accountID string, err error) error {
	s.Log.Error(event, "account_id", accountID, "error", err)
	s.Metrics.RaiseAlarm("payee_failed", "stripe")
	e := apierr.Unavailable.Errorf("We can’t reach Stripe right now. Please try again in a minute.")
	e.RetryAfter = time.Minute
	return e.WithCause(err)
}

// GetPayee returns the payee of a developer as Stripe has it now, or sql.ErrNoRows. While Stripe cannot be reached it
// is as it was.
func (s *Store) GetPayee(ctx context.Context, accountID string) (Payee, error) {
	p, err := getPayee(ctx, s.DB, accountID)
	if err != nil {
		return p, err
	}
	if fresh, err := s.refresh(ctx, p); err == nil {
		return fresh, nil
	}
	s.Log.Warn("payee not refreshed", "account_id", accountID)
	return p, nil
}

// refresh asks Stripe whether a payee can be paid, and whether Stripe still has it.
func (s *Store) refresh(ctx context.Context, p Payee) (Payee, error) {
	if s.Stripe == nil {
		return p, nil
	}
	a, err := stripe.Get[stripe.Account](ctx, s.Stripe, p.StripeID, nil)
	if stripeapi.Sort(err).Outcome == stripeapi.Gone {
		p.Enabled, p.Submitted = false, false
		p.GoneUS = cmp.Or(p.GoneUS, s.Now().UnixMicro())
		return p, s.markGone(ctx, p)
	} else if err != nil {
		return p, fmt.Errorf("payouts: payee %s: %w", p.AccountID, err)
	}
	p.Submitted, p.CheckedUS, p.GoneUS = a.DetailsSubmitted, s.Now().UnixMicro(), 0
	p.Enabled = a.PayoutsEnabled && a.Capabilities.Transfers == stripe.CapabilityActive
	if err := updatePayee(ctx, s.DB, p); err != nil {
		return p, fmt.Errorf("payouts: payee %s: %w", p.AccountID, err)
	}
	return p, nil
}

// An AppMargin is the margin of an app for its developer.
type AppMargin struct {
	apps.App
	store.AppMarginView
	NextUS int64 // the earliest next payout
}

// ListMargins returns the margins of a developer's apps, of those that have or had any.
func (s *Store) ListMargins(ctx context.Context, developerID string) (list []AppMargin, err error) {
	owned, err := apps.ListOwned(ctx, s.DB, developerID)
	if err != nil {
		return nil, err
	}
	developer, err := store.GetBalance(ctx, s.DB, developerID)
	if err != nil {
		return nil, fmt.Errorf("payouts: balance of %s: %w", developerID, err)
	}
	var together money.MC
	for _, app := range owned {
		v, err := store.ViewAppMargin(ctx, s.DB, app.ID, s.matured(), s.Now())
		if err != nil {
			return nil, err
		}
		if v == (store.AppMarginView{}) {
			continue
		}
		last, err := store.LastPayoutUS(ctx, s.DB, app.ID)
		if err != nil {
			return nil, err
		}
		list = append(list, AppMargin{app, v, max(last+s.Config.Every.Microseconds(), s.Now().UnixMicro())})
		together += v.Balance()
	}
	for i := range list {
		list[i].KeepFor(together, developer.AvailableMC)
	}
	return list, nil
}

// Pause is how long to wait between two runs of Run.
func (s *Store) Pause() time.Duration {
	if s.Config.Every <= 0 {
		return payeeTTL
	}
	return max(min(s.Config.Every/10, payeeTTL), 5*time.Second)
}

// Run takes the margin of disputed payments, pays what is due, and finishes payouts that a crash has left. Every node
// may run it: the ledger begins a payout once, and Stripe makes its transfer once. Where nobody is paid any more, what
// has begun is finished; without Stripe it waits, with an alarm.
func (s *Store) Run(ctx context.Context) error {
	if s.Stripe == nil {
		return s.reportUnfinished(ctx)
	}
	leftOut, err := s.takeDisputed(ctx)
	if err != nil {
		return err
	}
	failed := s.bookRecent(ctx)
	if waits, err := topups.MoneyWaits(ctx, s.DB); err != nil {
		return errors.Join(failed, err)
	} else if s.IsOn() && !waits {
		failed = errors.Join(failed, s.payDue(ctx, leftOut))
	}
	return errors.Join(failed, s.finishOpen(ctx), s.followTransfers(ctx))
}

// payDue begins the payouts that are due, but those of developers of whom an app is left out.
func (s *Store) payDue(ctx context.Context, leftOut map[string]bool) error {
	after := ""
	for {
		list, err := listPayees(ctx, s.DB, after, pageSize)
		if err != nil {
			return fmt.Errorf("payouts: payees: %w", err)
		}
		for _, p := range list {
			if err := s.payDeveloper(ctx, p, leftOut); err != nil {
				s.Log.Error("developer not paid", "account_id", p.AccountID, "error", err)
				s.Metrics.RaiseAlarm("payout_waits", "stripe")
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		if len(list) < pageSize {
			return nil
		}
		after = list[len(list)-1].AccountID
	}
}

// payDeveloper begins the payouts of a developer's apps that are due. Who is suspended waits. Who has closed the
// account is paid on, also less than the minimum, because nothing more is earned; an app that was suspended before
// waits.
func (s *Store) payDeveloper(ctx context.Context, p Payee, leftOut map[string]bool) error {
	a, err := accounts.GetAccount(ctx, s.DB, p.AccountID)
	if err != nil {
		return err
	}
	owned, err := apps.ListOwned(ctx, s.DB, p.AccountID)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(owned, func(app apps.App) bool { return leftOut[app.ID] }) {
		return nil // what one app owes, the others bear
	}
	for _, app := range owned {
		if !mayBePaid(a, app) {
			continue
		}
		for outcome := rules.Waiting; outcome == rules.Waiting; { // its margin has changed: look again
			if outcome, err = s.payApp(ctx, &p, app.ID, owned, a.Closed); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayBePaid reports whether neither a developer nor an app is suspended. An app that ended with its developer's account
// is paid.
func mayBePaid(developer accounts.Account, app apps.App) bool {
	return developer.SuspendedUS == 0 && (app.Suspension == nil || developer.Closed && app.EndedWithAccount())
}

// payApp begins a payout of an app, which is one of those that its developer owns, if one is due, there is enough to
// pay, and Stripe lets its payee be paid. It asks Stripe also about a payee that could not be paid when Stripe was last
// asked. closed says that the developer's account is closed: then a payee that cannot be paid is an alarm, because the
// developer sees no page that says so.
func (s *Store) payApp(ctx context.Context, p *Payee, appID string, owned []apps.App, closed bool) (rules.Outcome,
	error) {
	minimum := s.Config.MinimumMC
	if closed {
		minimum = money.Cent
	}
	last, err := store.LastPayoutUS(ctx, s.DB, appID)
	if err != nil || last > s.Now().Add(-s.Config.Every).UnixMicro() {
		return rules.Done, err
	}
	margin, err := store.ReadMaturedMargin(ctx, s.DB, appID, s.matured())
	if err != nil || margin.MaturedMC < max(minimum, money.Cent) {
		return rules.Done, err
	}
	if p.CheckedUS < s.Now().Add(-payeeTTL).UnixMicro() {
		if *p, err = s.refresh(ctx, *p); err != nil {
			return rules.Done, err
		}
	}
	if !p.Enabled {
		if closed {
			s.Log.Error("margin of a closed account not payable", "account_id", p.AccountID, "app_id", appID)
			s.Metrics.RaiseAlarm("payout_waits", "stripe")
		}
		return rules.Done, nil
	}
	if found, err := s.bookUnknown(ctx, p.StripeID); err != nil || found {
		return rules.Done, err
	}
	others := map[string]rules.MaturedMargin{}
	for _, other := range owned {
		if other.ID == appID {
			continue
		}
		if others[other.ID], err = store.ReadMaturedMargin(ctx, s.DB, other.ID, s.matured()); err != nil {
			return rules.Done, err
		}
	}
	r, err := s.Ledger.Do(ctx, rules.BeginPayout{
		PayoutID:    id.New(idPrefix, s.Now()),
		AppID:       appID,
		DeveloperID: p.AccountID,
		Margin:      margin,
		Others:      others,
		MinimumMC:   minimum,
	})
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code == apierr.InvalidRequest { // nothing to pay yet
		return rules.Done, nil
	}
	return r.Outcome, err
}

// finishOpen asks Stripe for the transfers of payouts that have begun.
func (s *Store) finishOpen(ctx context.Context) error {
	open, err := store.OpenPayouts(ctx, s.DB, maxOpenPayouts)
	if err != nil {
		return err
	}
	for _, p := range open {
		if err := s.finish(ctx, p); err != nil {
			s.Log.Error("payout not finished", "payout_id", p.ID, "error", err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

// finish makes the transfer of a payout, unless Stripe has it already, and records it. A transfer that Stripe refuses
// to make gives the amount back to the app; so does a payee that Stripe no longer has, or does not let be paid, and a
// transfer that was found of the margin that the payout would pay. It waits for everything else: while our own balance
// at Stripe is too small, while Stripe does not say whether it has the transfer, and while the developer or the app was
// suspended since it began.
func (s *Store) finish(ctx context.Context, p *rules.Payout) error {
	payee, err := getPayee(ctx, s.DB, p.DeveloperID)
	if err != nil {
		return fmt.Errorf("payouts: payee %s: %w", p.DeveloperID, err)
	}
	var transfer *stripe.Transfer
	var now terms
	answer, err := s.requests().Do(ctx, stripeapi.Request{
		Kind: stripeapi.Transfer,
		ID:   p.ID,
		Find: func(ctx context.Context) (_ bool, err error) {
			if transfer, err = s.findTransfer(ctx, p.ID, ""); err != nil || transfer != nil {
				return transfer != nil, err
			}
			_, err = s.bookUnknown(ctx, payee.StripeID)
			return false, err
		},
		Check: func(ctx context.Context) (_ stripeapi.Outcome, err error) {
			now, err = s.checkTerms(ctx, p, payee.StripeID)
			return now.outcome, err
		},
		Create: func(ctx context.Context, key string) error {
			made, err := s.createTransfer(ctx, p, payee.StripeID, key)
			if err == nil {
				transfer = made
			}
			return err
		},
		Judge: func(ctx context.Context, a stripeapi.Answer) (stripeapi.Answer, error) {
			return s.judge(ctx, payee, a)
		},
		End: func(ctx context.Context, a stripeapi.Answer, forget stripeapi.Forget) error {
			if now.isEnded {
				return s.DB.InTx(ctx, forget)
			}
			return s.conclude(ctx, p, cmp.Or(now.why, a.Text), transfer, forget)
		},
	})
	switch {
	case errors.Is(err, stripeapi.ErrClaimed): // another node carries it out
		return nil
	case err != nil:
		return err
	}
	switch answer.Outcome {
	case stripeapi.Ours, stripeapi.NotNow, stripeapi.Unknown:
		return fmt.Errorf("payouts: transfer of %s: %s: %s", p.ID, answer.Outcome, answer.Text)
	}
	return nil
}

// Reasons why a payout fails that Stripe was not asked for, or not about it.
const (
	goneReason  = "Stripe no longer has your account"
	foundReason = "a transfer of the same margin was found"
	lessReason  = "less is owed: payments of users were disputed or refunded meanwhile"
)

// terms are those of a payout as they are now.
type terms struct {
	outcome stripeapi.Outcome
	why     string // Unwanted: the reason
	isEnded bool   // another node has recorded its end
}

// checkTerms says whether a payout is still to be paid to a payee of Stripe's. A transfer that was found since the
// payout began has taken the margin that it would pay: what is left of it is paid by another payout. So is what is
// still owed, when disputes or the developer's own balance have taken some of it since.
func (s *Store) checkTerms(ctx context.Context, p *rules.Payout, stripeID string) (t terms, err error) {
	now, err := store.GetPayout(ctx, s.DB, p.AppID, p.ID)
	if err != nil {
		return t, err
	} else if !now.Begun() {
		return terms{outcome: stripeapi.Unwanted, isEnded: true}, nil
	}
	payee, err := getPayee(ctx, s.DB, p.DeveloperID)
	if err != nil {
		return t, err
	} else if payee.GoneUS > 0 {
		return terms{outcome: stripeapi.Unwanted, why: goneReason}, nil
	} else if payee.StripeID != stripeID { // another one since: the next run pays that one
		return terms{outcome: stripeapi.Postponed}, nil
	}
	if found, err := store.HasFoundSince(ctx, s.DB, p.AppID, p.ID); err != nil {
		return t, err
	} else if found {
		return terms{outcome: stripeapi.Unwanted, why: foundReason}, nil
	}
	if less, err := s.owesLess(ctx, p.DeveloperID); err != nil {
		return t, err
	} else if less {
		return terms{outcome: stripeapi.Unwanted, why: lessReason}, nil
	}
	developer, err := accounts.GetAccount(ctx, s.DB, p.DeveloperID)
	if err != nil {
		return t, err
	}
	app, err := s.Apps.Get(ctx, p.AppID)
	if err != nil {
		return t, err
	}
	waits, err := topups.MoneyWaits(ctx, s.DB)
	if err != nil || waits || !mayBePaid(developer, app) {
		return terms{outcome: stripeapi.Postponed}, err
	}
	return terms{outcome: stripeapi.Wanted}, nil
}

// owesLess reports whether a developer is owed less by now than what payouts have under way: all apps and the own
// balance together are below zero.
func (s *Store) owesLess(ctx context.Context, developerID string) (bool, error) {
	owned, err := apps.ListOwned(ctx, s.DB, developerID)
	if err != nil {
		return false, err
	}
	developer, err := store.GetBalance(ctx, s.DB, developerID)
	if err != nil {
		return false, fmt.Errorf("payouts: balance of %s: %w", developerID, err)
	}
	together := min(developer.AvailableMC, 0)
	for _, app := range owned {
		v, err := store.ViewAppMargin(ctx, s.DB, app.ID, s.matured(), s.Now())
		if err != nil {
			return false, err
		}
		together += v.Balance()
	}
	return together < 0, nil
}

// judge asks Stripe about the payee of a transfer that was not made: Stripe may say by the payee alone that it cannot
// be paid, or has no account any more.
func (s *Store) judge(ctx context.Context, payee Payee, a stripeapi.Answer) (stripeapi.Answer, error) {
	if a.Outcome == stripeapi.NotNow {
		return a, nil
	}
	fresh, err := s.refresh(ctx, payee)
	switch {
	case err != nil:
		return a, err
	case fresh.GoneUS > 0:
		a.Outcome, a.Text = stripeapi.Gone, goneReason
	case !fresh.Enabled:
		a.Outcome, a.Text = stripeapi.Refused, "Stripe does not let your account be paid"
	case a.Outcome == stripeapi.Gone: // Stripe has the payee: something else is missing
		a.Outcome = stripeapi.Ours
	}
	return a, nil
}

// conclude records how a payout has ended: by the transfer that Stripe has, or for a reason.
func (s *Store) conclude(ctx context.Context, p *rules.Payout, why string, transfer *stripe.Transfer,
	forget stripeapi.Forget) error {
	if transfer == nil {
		if why != foundReason && why != lessReason {
			s.Metrics.RaiseAlarm("payout_refused", "stripe")
		}
		_, err := s.end(ctx, p, rules.EndPayout{Failure: why}, forget)
		return err
	}
	if s.differs(p, transfer) {
		return s.DB.InTx(ctx, forget)
	}
	ended, err := s.end(ctx, p, rules.EndPayout{TransferID: transfer.ID}, forget)
	if err != nil || ended.TransferID == transfer.ID {
		return err
	}
	// Another node has failed it while Stripe was asked, or has made another transfer.
	_, err = s.BookTransfer(ctx, transfer)
	return err
}

// differs reports whether a transfer is not what the payout says, which only the operator can judge.
func (s *Store) differs(p *rules.Payout, t *stripe.Transfer) bool {
	if t.Amount == int64(p.AmountMC/money.Cent) && t.Currency == stripe.USD {
		return false
	}
	s.Log.Error("transfer differs from its payout", "payout_id", p.ID, "transfer", t.ID, "cents", t.Amount,
		"currency", t.Currency)
	s.Metrics.RaiseAlarm("payout_differs", "stripe")
	return true
}

// end records the end of a payout, tells the developer, and returns the payout as it is then. also runs in the
// transaction. Of a payout that another transfer has paid, or that begins anew with less, there is nothing to tell.
func (s *Store) end(ctx context.Context, p *rules.Payout, c rules.EndPayout,
	also func(context.Context, *db.Tx) error) (ended rules.Payout, err error) {
	c.PayoutID, c.AppID, c.DeveloperID = p.ID, p.AppID, p.DeveloperID
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err := s.Ledger.DoTx(ctx, tx, c)
		if err != nil {
			return err
		}
		if ended = r.Payout; r.Outcome == rules.Applied && c.Failure != foundReason && c.Failure != lessReason {
			if err := s.sendMail(ctx, tx, p.DeveloperID, s.endedEmail(&r.Payout)); err != nil {
				return err
			}
		}
		return also(ctx, tx)
	})
	return ended, err
}

// followTransfers gives the amount of a payout back to its app once its transfer was reversed at Stripe.
func (s *Store) followTransfers(ctx context.Context) error {
	paid, err := store.PaidPayouts(ctx, s.DB, s.Now().Add(-reversible).UnixMicro())
	if err != nil {
		return err
	}
	var failed error
	for _, p := range paid {
		transfer, err := s.findTransfer(ctx, p.ID, p.TransferID)
		switch {
		case err != nil: // asked again
			failed = errors.Join(failed, fmt.Errorf("payouts: transfer of %s: %w", p.ID, err))
			continue
		case transfer == nil || transfer.AmountReversed == 0:
			continue
		case !transfer.Reversed: // a part of it, which only the operator can judge
			s.Log.Error("payout reversed in part", "payout_id", p.ID, "cents", transfer.AmountReversed)
			s.Metrics.RaiseAlarm("payout_differs", "stripe")
			continue
		}
		_, err = s.end(ctx, p, rules.EndPayout{
			TransferID: transfer.ID,
			Failure:    "the transfer was reversed",
		}, func(context.Context, *db.Tx) error { return nil })
		failed = errors.Join(failed, err)
	}
	return failed
}
