package golive

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// IDPrefix is the prefix of request ids.
const IDPrefix = "glr_"

// keptReplaced is the number of requests of an app that stay after a change has replaced or withdrawn them. Each shows
// the whole app, and a developer makes one with each change.
const keptReplaced = 20

// shownRequests is the number of requests in the history of an app.
const shownRequests = 100

// A Store stores requests and executes decisions.
type Store struct {
	DB     *db.DB
	Apps   *apps.Store
	Ledger *store.Writer
	Now    func() time.Time
}

// CreateRequest creates a request for the next tier. It returns 400 invalid_request if a required item is not met, a
// request is pending, or there is no next tier. It locks the app, so that concurrent calls create only one request.
func (s *Store) CreateRequest(ctx context.Context, appID string) (r Request, err error) {
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		app, err := s.Apps.Lock(ctx, tx, appID)
		if err != nil {
			return err
		}
		to, err := nextTier(app.Tier)
		if err != nil {
			return err
		}
		if open, err := getPending(ctx, tx, appID); err == nil {
			return errPending(open.ID)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		n, err := countFeatures(ctx, tx, appID)
		if err != nil {
			return err
		}
		if err := requireComplete(app, n); err != nil {
			return err
		}
		reviewed, err := app.Reviewed()
		if err != nil {
			return err
		}
		r, err = s.insertRequest(ctx, tx, app, to, reviewed)
		return err
	})
	if err != nil {
		return Request{}, fmt.Errorf("golive: ask: %w", err)
	}
	return r, nil
}

// insertRequest stores a pending request.
func (s *Store) insertRequest(ctx context.Context, tx *db.Tx, app apps.App, to, reviewed string) (Request, error) {
	now := s.Now()
	r := Request{
		ID:        id.New(IDPrefix, now),
		AppID:     app.ID,
		From:      app.Tier,
		To:        to,
		Reviewed:  reviewed,
		Status:    Pending,
		CreatedUS: now.UnixMicro(),
	}
	return r, insertRequest(ctx, tx, r)
}

// Why a request ended without an operator.
const (
	reasonChanged   = "The app was changed during the review. A new request took the place of this one."
	reasonWithdrawn = "The developer has withdrawn the change."
	reasonClosed    = "The developer's account was closed."
)

// Follow keeps the pending request of an app in step with a change, in its transaction: a request is about what it
// showed, and another one takes its place (decision 119). A change of a live app that needs a review asks for one.
func (s *Store) Follow(ctx context.Context, tx *db.Tx, app apps.App) error {
	reviewed, err := app.Reviewed()
	if err != nil {
		return err
	}
	to := app.Tier
	r, err := getPending(ctx, tx, app.ID)
	switch {
	case err == nil && r.Reviewed == reviewed:
		return nil
	case err == nil:
		to = r.To
		r.Status, r.Reason, r.DecidedUS = Refused, reasonChanged, s.Now().UnixMicro()
		if reviewed == "" {
			r.Reason = reasonWithdrawn
		}
		err := updateDecision(ctx, tx, r)
		if err == nil {
			err = deleteReplaced(ctx, tx, app.ID, keptReplaced)
		}
		if err != nil {
			return fmt.Errorf("golive: follow: %w", err)
		}
	case !errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("golive: follow: %w", err)
	case app.Tier == apps.Sandbox:
		return nil // it has not asked
	}
	if reviewed == "" {
		return nil
	}
	if _, err := s.insertRequest(ctx, tx, app, to, reviewed); err != nil {
		return fmt.Errorf("golive: follow: %w", err)
	}
	return nil
}

// Approve moves the app to the requested tier and sets its provider mode live, in the caller's transaction. A live app
// has no fake money, so the same transaction revokes the connections of test accounts (I-29). It checks the required
// items again, because they may have changed. Of a live app it makes the change. It approves what the request was about
// when it was made, and nothing else.
func (s *Store) Approve(ctx context.Context, tx *db.Tx,
	requestID string) (r Request, before, after apps.App, err error) {
	if r, before, err = s.lockPending(ctx, tx, requestID); err != nil {
		return r, before, before, err
	}
	if before.Tier != r.From {
		return r, before, before,
			apierr.InvalidRequest.Errorf("the app's tier is %s by now, and not %s", before.Tier, r.From)
	}
	if r.IsChange() {
		after, err = s.applyChange(ctx, tx, r, before)
	} else {
		after, err = s.promote(ctx, tx, r, before)
	}
	if err != nil {
		return r, before, before, err
	}
	r.Status, r.DecidedUS = Approved, s.Now().UnixMicro()
	return r, before, after, updateDecision(ctx, tx, r)
}

// applyChange gives a live app what its developer has proposed.
func (s *Store) applyChange(ctx context.Context, tx *db.Tx, r Request, before apps.App) (after apps.App, err error) {
	if err := requireUnchanged(r, before); err != nil {
		return before, err
	}
	_, after, err = s.Apps.ApplyProposal(ctx, tx, r.AppID)
	return after, err
}

// promote moves an app that is ready to the requested tier, and ends its test connections.
func (s *Store) promote(ctx context.Context, tx *db.Tx, r Request, before apps.App) (after apps.App, err error) {
	n, err := countFeatures(ctx, tx, r.AppID)
	if err == nil {
		err = requireComplete(before, n)
	}
	if err == nil {
		err = requireUnchanged(r, before)
	}
	if err != nil {
		return before, err
	}
	if _, after, err = s.Apps.Promote(ctx, tx, r.AppID, r.To); err != nil {
		return before, err
	}
	if err := s.endTestConnections(ctx, tx, r.AppID); err != nil {
		return before, fmt.Errorf("golive: end test connections: %w", err)
	}
	return after, nil
}

// requireUnchanged returns an error if an app is no longer what a request was about. Follow has replaced the request
// then, unless a node of an older version made the change.
func requireUnchanged(r Request, app apps.App) error {
	reviewed, err := app.Reviewed()
	if err == nil && r.Reviewed != "" && r.Reviewed != reviewed {
		err = apierr.InvalidRequest.Errorf(
			"the app has changed since this review was asked for; reject the request, so that its developer asks again")
	}
	return err
}

// endTestConnections revokes the connections of test accounts. No new one can be created, because
// the exchange of a code needs a shared lock of the app, which this transaction has locked.
func (s *Store) endTestConnections(ctx context.Context, tx *db.Tx, appID string) error {
	ids, err := lockTestConnections(ctx, tx, appID)
	if err != nil {
		return err
	}
	for _, connectionID := range ids {
		if _, err := s.Ledger.DoTx(ctx, tx, rules.Revoke{ConnectionID: connectionID}); err != nil {
			return err
		}
	}
	return nil
}

// Reject rejects a request in the caller's transaction. The app stays as it is and may create another request.
func (s *Store) Reject(ctx context.Context, tx *db.Tx, requestID, reason string) (Request, error) {
	r, _, err := s.lockPending(ctx, tx, requestID)
	if err != nil {
		return r, err
	}
	if r.IsChange() {
		if err := s.Apps.DropProposal(ctx, tx, r.AppID); err != nil {
			return r, err
		}
	}
	r.Status, r.Reason, r.DecidedUS = Refused, reason, s.Now().UnixMicro()
	return r, updateDecision(ctx, tx, r)
}

// lockPending returns a pending request and its app. It locks the app, which serializes the requests of an app. An
// unknown request is 404, a decided one 400.
func (s *Store) lockPending(ctx context.Context, tx *db.Tx, requestID string) (r Request, app apps.App, err error) {
	if r, err = getRequest(ctx, tx, requestID); errors.Is(err, sql.ErrNoRows) {
		return r, app, apierr.NotFound.Errorf("no such go-live request")
	} else if err != nil {
		return r, app, err
	}
	if app, err = s.Apps.Lock(ctx, tx, r.AppID); err != nil {
		return r, app, err
	}
	if r, err = getRequest(ctx, tx, requestID); err != nil { // again: it may have been decided before the lock
		return r, app, err
	}
	return r, app, r.requirePending()
}

// EraseReviewed ends the pending request of an app and erases what its reviews were asked about, in the caller's
// transaction at nowUS: its developer's account is closed.
func EraseReviewed(ctx context.Context, tx *db.Tx, appID string, nowUS int64) error {
	r, err := getPending(ctx, tx, appID)
	if err == nil {
		r.Status, r.Reason, r.DecidedUS = Refused, reasonClosed, nowUS
		err = updateDecision(ctx, tx, r)
	} else if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	if err == nil {
		err = eraseReviewed(ctx, tx, appID)
	}
	if err != nil {
		return fmt.Errorf("golive: erase: %w", err)
	}
	return nil
}

// ListPending returns the pending requests, oldest first, after the id after.
func (s *Store) ListPending(ctx context.Context, after string, limit int) ([]Request, error) {
	list, err := listPending(ctx, s.DB, after, limit)
	if err != nil {
		return nil, fmt.Errorf("golive: pending: %w", err)
	}
	return list, nil
}

// ListDecided returns the approved and rejected requests, newest first, before the id before; "" = the newest.
func (s *Store) ListDecided(ctx context.Context, before string, limit int) ([]Request, error) {
	list, err := listDecided(ctx, s.DB, before, limit)
	if err != nil {
		return nil, fmt.Errorf("golive: decided: %w", err)
	}
	return list, nil
}

// A Status is an app's progress to the next tier.
type Status struct {
	App       apps.App
	Checklist []Item
	Requests  []Request // newest first
}

// GetStatus returns an app's progress to the next tier.
func (s *Store) GetStatus(ctx context.Context, app apps.App) (Status, error) {
	n, err := countFeatures(ctx, s.DB, app.ID)
	if err != nil {
		return Status{}, fmt.Errorf("golive: status: %w", err)
	}
	list, err := listRequests(ctx, s.DB, app.ID, shownRequests)
	if err != nil {
		return Status{}, fmt.Errorf("golive: status: %w", err)
	}
	return Status{App: app, Checklist: MakeChecklist(app, n), Requests: list}, nil
}

// Get returns a request; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, requestID string) (Request, error) {
	r, err := getRequest(ctx, s.DB, requestID)
	if err != nil {
		return Request{}, fmt.Errorf("golive: get: %w", err)
	}
	return r, nil
}
