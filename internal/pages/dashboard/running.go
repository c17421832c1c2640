package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxRunning is the most running calls that a page lists.
const maxRunning = 50

// listRunning returns the calls and voice sessions of an account that run now, newest first.
func (h *Handler) listRunning(ctx context.Context, n appNames, accountID string) (list []ui.RunningCall, err error) {
	calls, err := store.ListRunningCalls(ctx, h.DB, accountID, maxRunning)
	if err != nil {
		return nil, fmt.Errorf("dashboard: running calls: %w", err)
	}
	sessions, err := h.Voice.ListRunning(ctx, accountID, maxRunning)
	if err != nil {
		return nil, fmt.Errorf("dashboard: voice sessions: %w", err)
	}
	for i := range calls {
		c := &calls[i]
		app, err := n.nameOf(ctx, c.AppID)
		if err != nil {
			return nil, err
		}
		list = append(list, ui.RunningCall{
			ID:       c.RequestID,
			StopPath: stopPath(c.ConnectionID, c.RequestID),
			App:      app,
			Model:    c.Model,
			Feature:  c.Feature,
			When:     timestamp.Format(c.CreatedUS),
			Shown:    formatClock(time.UnixMicro(c.CreatedUS)),
			Held:     ui.PriceMoney(c.HoldMC),
		})
	}
	for i := range sessions {
		s := &sessions[i]
		app, err := n.nameOf(ctx, s.AppID)
		if err != nil {
			return nil, err
		}
		at, _ := time.Parse(time.RFC3339, s.CreatedAt) // a timestamp that the session rendered
		list = append(list, ui.RunningCall{
			ID:       s.ID,
			StopPath: stopPath(s.ConnectionID, s.ID),
			App:      app,
			Model:    s.Model,
			Voice:    true,
			When:     s.CreatedAt,
			Shown:    formatClock(at),
		})
	}
	slices.SortStableFunc(list, func(a, b ui.RunningCall) int { return strings.Compare(b.When, a.When) })
	return list, nil
}

func formatClock(t time.Time) string { return t.UTC().Format("2 Jan, 15:04:05") }

func stopPath(connectionID, callID string) string {
	return connectionPath(connectionID) + "/calls/" + callID + "/stop"
}

// showRunning is GET /dashboard/running: the live part of the overview.
func (h *Handler) showRunning(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	running, err := h.listRunning(r.Context(), h.newAppNames(), a.ID)
	if err != nil {
		return err
	}
	return ui.RenderPart(w, ui.Dashboard{Running: running}, "running")
}

// Times of waiting until a call that was stopped has ended.
const (
	stopWait  = 1500 * time.Millisecond
	stopPause = 50 * time.Millisecond
)

// stopCall is POST /connections/{id}/calls/{call}/stop: the user stops one running call or voice session (decision
// 067). It waits for a moment, so that the list it shows then has the call no longer.
func (h *Handler) stopCall(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx := r.Context()
	v, err := h.loadVisit(ctx, a, r.PathValue("id"), "/dashboard")
	if err != nil {
		return err
	}
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	callID := r.PathValue("call")
	switch {
	case strings.HasPrefix(callID, id.Voice):
		err = h.Voice.StopSession(ctx, v.conn.ID, callID)
	case strings.HasPrefix(callID, id.Request):
		err = h.Calls.StopCall(ctx, v.conn.ID, callID)
	default:
		err = ui.NotFound()
	}
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	for {
		running, err := h.listRunning(ctx, h.newAppNames(), v.conn.AccountID)
		if err != nil {
			return err
		}
		runs := slices.ContainsFunc(running, func(c ui.RunningCall) bool { return c.ID == callID })
		if runs && retry.Sleep(waiting, stopPause) {
			continue
		}
		if r.Header.Get("HX-Request") == "" || v.conn.AccountID != a.ID {
			return web.SeeOther(w, "/dashboard")
		}
		return ui.RenderPart(w, ui.Dashboard{Running: running}, "running")
	}
}

// showPause is GET /dashboard/pause: it asks for confirmation.
func (h *Handler) showPause(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	ctx, n := r.Context(), h.newAppNames()
	list, err := store.ConnectionsOfAccount(ctx, h.DB, a.ID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	running, err := h.listRunning(ctx, n, a.ID)
	if err != nil {
		return err
	}
	work, err := h.listWork(ctx, a.ID, "")
	if err != nil {
		return err
	}
	page := ui.Pause{Shell: a.Shell(ui.Overview), Running: len(running), Work: sumWork(work)}
	for _, c := range list {
		if c.Status != rules.Active {
			continue
		}
		name, err := n.nameOf(ctx, c.AppID)
		if err != nil {
			return err
		}
		page.Apps = append(page.Apps, name)
	}
	return ui.Render(w, http.StatusOK, page)
}

// pauseEverything is POST /dashboard/pause: the user pauses all connections of the account, and their running calls are
// stopped (decision 067). Those of this node are stopped first, because the database may not answer.
func (h *Handler) pauseEverything(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	list, err := store.ConnectionsOfAccount(r.Context(), h.DB, a.ID, maxListed)
	if err != nil {
		return fmt.Errorf("dashboard: connections: %w", err)
	}
	var connectionIDs []string
	for _, c := range list {
		if c.Status != rules.Revoked {
			connectionIDs = append(connectionIDs, c.ID)
		}
	}
	h.Calls.PauseCalls(connectionIDs)
	c := rules.PauseAccount{AccountID: a.ID, By: rules.FrozenByUser, Actor: a.ID}
	if _, err := h.Ledger.Do(r.Context(), c); err != nil {
		return err
	}
	h.Calls.PauseCalls(connectionIDs) // those that began meanwhile
	return web.SeeOther(w, "/dashboard?done=pause")
}
