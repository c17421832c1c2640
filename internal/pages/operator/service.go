package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/golive"
	"github.com/purserhq/purser/internal/apps/notices"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/receipts"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
)

// A Service performs operator actions. Each action and its entry in the audit log are one transaction. The argument by
// says who acts: the name of the operator's token, the address of a token without one, or the id of the account that is
// signed in.
type Service struct {
	DB          *db.DB
	Accounts    *accounts.Store
	Identity    *identity.Store
	Identifiers accounts.SafetyIdentifiers
	Apps        *apps.Store
	GoLive      *golive.Store
	Ledger      *store.Writer
	Topups      *topups.Store
	Privacy     *privacy.Store
	Mails       *mail.Store
	Notices     *notices.Store
	Policies    *policies.Book
	Box         *seal.Box
	Sealed      []seal.Column // every column of sealed values
	Now         func() time.Time
}

// An action is an entry to append to the audit log.
type action struct {
	id            string // of the entry; runAction sets it before it runs the action
	by            string
	what, subject string
	reason        string
	before, after any // as the API shows them
}

// runAction runs f and appends the action to the audit log, in one transaction.
func (d *Service) runAction(ctx context.Context, a *action, f func(ctx context.Context, tx *db.Tx) error) error {
	err := d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		a.id, a.before, a.after = id.New(logPrefix, d.Now()), nil, nil
		if err := f(ctx, tx); err != nil {
			return err
		}
		return d.appendEntry(ctx, tx, *a)
	})
	if err != nil {
		return fmt.Errorf("operator: %s %s: %w", a.what, a.subject, err)
	}
	d.Apps.NotifyChange("")
	web.Log(ctx, slog.String("operator_action", a.what), slog.String("subject", a.subject))
	return nil
}

func (d *Service) appendEntry(ctx context.Context, tx *db.Tx, a action) error {
	now := d.Now()
	e := Entry{
		ID:        a.id,
		Actor:     a.by,
		Action:    a.what,
		Subject:   a.subject,
		Reason:    a.reason,
		CreatedUS: now.UnixMicro(),
	}
	var err error
	if e.Before, err = json.Marshal(a.before); err != nil {
		return err
	}
	if e.After, err = json.Marshal(a.after); err != nil {
		return err
	}
	return insert(ctx, tx, e)
}

const maxReason = 500

// CheckReason returns the reason of an action, trimmed. An empty or too long one is 400 invalid_request.
func CheckReason(text string) (string, error) {
	reason := strings.TrimSpace(text)
	return reason, apps.CheckText("reason", reason, maxReason)
}

// Approve moves the app of a go-live request to the tier that it asked for.
func (d *Service) Approve(ctx context.Context, by, requestID string) (req golive.Request, app apps.App, err error) {
	a := action{by: by, what: "approve", subject: requestID}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		var before apps.App
		if req, before, app, err = d.GoLive.Approve(ctx, tx, requestID); err != nil {
			return err
		}
		a.before, a.after = resource(before), resource(app)
		return d.Notices.ReportReview(ctx, tx, app, notices.Review{Approved: true, Change: req.IsChange()})
	})
	return req, app, err
}

// Refuse leaves the app of a go-live request as it is.
func (d *Service) Refuse(ctx context.Context, by, requestID, reason string) (req golive.Request, err error) {
	a := action{by: by, what: "refuse", subject: requestID, reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		if req, err = d.GoLive.Reject(ctx, tx, requestID, reason); err != nil {
			return err
		}
		before := req
		before.Status, before.Reason, before.DecidedUS = golive.Pending, "", 0
		a.before, a.after = before.Resource(), req.Resource()
		app, err := apps.LockApp(ctx, tx, req.AppID)
		if err != nil {
			return err
		}
		return d.Notices.ReportReview(ctx, tx, app, notices.Review{Change: req.IsChange(), Reason: reason})
	})
	return req, err
}

// Suspend suspends an app.
func (d *Service) Suspend(ctx context.Context, by, appID, reason string) (apps.App, error) {
	a := action{by: by, what: "suspend", subject: appID, reason: reason}
	return d.changeApp(ctx, &a, "the app is suspended already",
		func(ctx context.Context, tx *db.Tx) (before, after apps.App, err error) {
			if before, after, err = d.Apps.Suspend(ctx, tx, appID, apps.ByOperator, reason); err == nil {
				err = d.Notices.ReportSuspension(ctx, tx, after)
			}
			return before, after, err
		})
}

// Lift ends a suspension by the service. The reason may be empty. An app whose developer's account is closed stays
// suspended for that cause, so that its margin is paid and no call is made. shownUS is when the suspension began that
// the operator saw; 0 = whichever there is.
func (d *Service) Lift(ctx context.Context, by, appID, reason string, shownUS int64) (apps.App, error) {
	a := action{by: by, what: "lift", subject: appID, reason: reason}
	return d.changeApp(ctx, &a, "the service has not suspended this app",
		func(ctx context.Context, tx *db.Tx) (before, after apps.App, err error) {
			if before, after, err = d.lift(ctx, tx, appID); err == nil {
				err = checkShown(before.Suspension.SinceUS, shownUS)
			}
			return before, after, err
		})
}

// checkShown refuses to lift a suspension that is not the one that the operator saw.
func checkShown(sinceUS, shownUS int64) error {
	if shownUS == 0 || shownUS == sinceUS {
		return nil
	}
	return apierr.InvalidRequest.Errorf("it was suspended again since the page was shown; look at the page before " +
		"you lift it")
}

func (d *Service) lift(ctx context.Context, tx *db.Tx, appID string) (before, after apps.App, err error) {
	if before, after, err = d.Apps.Lift(ctx, tx, appID); err != nil {
		return before, after, err
	}
	owner, err := accounts.GetAccount(ctx, tx, after.OwnerID)
	if err != nil || !owner.Closed {
		return before, after, err
	}
	if before.EndedWithAccount() {
		return before, after, apierr.InvalidRequest.Errorf("the account of the app's developer is closed; the app " +
			"has ended")
	}
	_, after, err = d.Apps.Suspend(ctx, tx, appID, apps.ByOperator, apps.ClosedReason)
	return before, after, err
}

func (d *Service) changeApp(ctx context.Context, a *action, same string,
	f func(context.Context, *db.Tx) (before, after apps.App, err error)) (after apps.App, err error) {
	err = d.runAction(ctx, a, func(ctx context.Context, tx *db.Tx) error {
		var before apps.App
		if before, after, err = f(ctx, tx); err != nil {
			return unchanged(missing(err, "app"), same)
		}
		a.before, a.after = resource(before), resource(after)
		return nil
	})
	return after, err
}

// unchanged turns "nothing to change" into the 400 that says so.
func unchanged(err error, says string) error {
	if errors.Is(err, apps.ErrUnchanged) {
		return apierr.InvalidRequest.Errorf("%s", says)
	}
	return err
}

// Reverse refunds a charge by a new row: to the connection's reserved pool, or to available once it is revoked
// (contract §2, 7). The charge is named by its ledger row or by its request. Of a goodwill credit it takes back what is
// left of it and available.
func (d *Service) Reverse(ctx context.Context, by, charge, reason string) (reversal rules.Entry, err error) {
	a := action{by: by, what: "reverse", subject: entryID(charge), reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		original, err := store.GetEntry(ctx, tx, a.subject)
		if err != nil {
			return missing(err, "ledger row")
		}
		if original.Type == rules.EntryTopUp {
			reversal, err = d.withdrawGoodwill(ctx, tx, original, reason)
		} else {
			reversal, err = d.reverseCharge(ctx, tx, original, reason)
		}
		if err != nil {
			return err
		}
		a.before, a.after = original.Resource(), reversal.Resource()
		return nil
	})
	return reversal, err
}

func (d *Service) reverseCharge(ctx context.Context, tx *db.Tx, original rules.Entry,
	reason string) (rules.Entry, error) {
	user, err := accounts.Lock(ctx, tx, original.AccountID)
	if err != nil {
		return rules.Entry{}, err
	} else if user.Closed {
		return rules.Entry{}, apierr.InvalidRequest.Errorf("the account of this charge is closed; nothing can be " +
			"returned to it")
	}
	done, err := d.Ledger.DoTx(ctx, tx, rules.Reverse{
		EntryID:   original.ID,
		AccountID: original.AccountID,
		Reason:    reason,
		Receipt:   receipts.JSON,
	})
	return done.Entry, err
}

// Freeze pauses a connection, also one that is paused already: each pause by an operator is a cause of its own, until
// Resume.
func (d *Service) Freeze(ctx context.Context, by, connectionID, reason string) (rules.Connection, error) {
	a := action{by: by, what: "freeze", subject: connectionID, reason: reason}
	return d.changeFreeze(ctx, &a, func(rules.Connection) rules.Command {
		return rules.Freeze{
			ConnectionID: connectionID,
			By:           rules.FrozenByOperator,
			Subject:      a.id,
			Actor:        by,
			Reason:       reason,
		}
	})
}

// Resume ends the pauses of a connection by operators and by the risk layer. What its user has paused stays so. The
// reason may be empty; while a payment is disputed it is required, and the connection goes on before the dispute is
// decided. shown are the keys of the causes that the operator saw, which end alone; nil = all.
func (d *Service) Resume(ctx context.Context, by, connectionID, reason string,
	shown []string) (rules.Connection, error) {
	a := action{by: by, what: "resume", subject: connectionID, reason: reason}
	return d.changeFreeze(ctx, &a, func(before rules.Connection) rules.Command {
		if before.Status == rules.Active {
			return nil
		}
		return rules.Resume{
			ConnectionID:   connectionID,
			By:             rules.FrozenByOperator,
			DespiteDispute: reason != "",
			Shown:          shown,
		}
	})
}

// changeFreeze pauses or resumes a connection by the command that follows from it; nil = it is active already.
func (d *Service) changeFreeze(ctx context.Context, a *action,
	command func(before rules.Connection) rules.Command) (after rules.Connection, err error) {
	err = d.runAction(ctx, a, func(ctx context.Context, tx *db.Tx) error {
		before, err := store.LockConnection(ctx, tx, a.subject)
		if err != nil {
			return missing(err, "connection")
		}
		if before.Status == rules.Revoked {
			return apierr.InvalidRequest.Errorf("the connection is revoked, and cannot be changed")
		}
		c := command(before)
		if c == nil {
			return apierr.InvalidRequest.Errorf("the connection is active already")
		}
		done, err := d.Ledger.DoTx(ctx, tx, c)
		if err != nil {
			return err
		}
		after = done.Connection
		a.before, a.after = before.Resource(), after.Resource()
		return nil
	})
	return after, err
}
