package voice

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Get returns a session of a holder, or 404.
func (s *Store) Get(ctx context.Context, h Holder, sessionID string) (Session, error) {
	return s.getIf(ctx, sessionID, func(r *row) bool { return h.owns(r.ConnectionID, r.ChildID) })
}

// GetOfApp returns a session of an app, or 404.
func (s *Store) GetOfApp(ctx context.Context, appID, sessionID string) (Session, error) {
	return s.getIf(ctx, sessionID, func(r *row) bool { return r.AppID == appID })
}

// getIf returns a session with its receipts, or 404 if visible refuses its row.
func (s *Store) getIf(ctx context.Context, sessionID string, visible func(*row) bool) (Session, error) {
	r, err := getRow(ctx, s.DB, sessionID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !visible(&r) {
		return Session{}, apierr.NotFound.Errorf("no such session")
	} else if err != nil {
		return Session{}, err
	}
	receipts, err := listReceipts(ctx, s.DB, sessionID)
	if err != nil {
		return Session{}, err
	}
	return newSession(&r, receipts), nil
}

// List returns sessions, newest first, without receipts. Of those that have not ended, sum and count
// are what is billed so far.
func (s *Store) List(ctx context.Context, f Filter) (list []Session, err error) {
	rows, err := s.listRows(ctx, f)
	if err != nil {
		return nil, err
	}
	if err := setCharged(ctx, s.DB, rows); err != nil {
		return nil, err
	}
	for i := range rows {
		list = append(list, newSession(&rows[i], nil))
	}
	return list, nil
}

// ListRunning returns at most limit sessions of an account that have not ended, newest first, without receipts.
func (s *Store) ListRunning(ctx context.Context, accountID string, limit int) (list []Session, err error) {
	rows, err := s.listOpenOfAccount(ctx, accountID, limit)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		list = append(list, newSession(&rows[i], nil))
	}
	return list, nil
}

// finishSession ends a session that this node owns and emits its event, in one transaction. The error is
// errAlreadyEnded if there is nothing to do.
func (s *Store) finishSession(ctx context.Context, saved *savedSession) (ended Session, err error) {
	sessionID := saved.State.ID
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		// a mock call ends with its socket
		callGone := saved.State.Mock || saved.State.Ending != nil && saved.State.Ending.CallGone
		if err := s.saveEnd(ctx, tx, saved, callGone); err != nil {
			return err
		}
		if err := s.saveTotals(ctx, tx, sessionID); err != nil {
			return err
		}
		receipts, err := listReceipts(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		r, err := getRow(ctx, tx, sessionID)
		if err != nil {
			return err
		}
		ended = newSession(&r, receipts)
		_, err = s.Ledger.DoTx(ctx, tx, rules.EmitEvent{
			ConnectionID: r.ConnectionID,
			Type:         "realtime_session.ended",
			Data:         string(mustJSON(map[string]any{"session": ended})),
		})
		return err
	})
	if err != nil && !errors.Is(err, errAlreadyEnded) {
		err = fmt.Errorf("voice: end of %s: %w", sessionID, err)
	}
	return ended, err
}
