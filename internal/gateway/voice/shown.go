package voice

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// listed is how many sessions a page lists.
const listed = 50

// Shown lists the newest sessions for a page.
func (h *Handler) Shown(ctx context.Context, f Filter) (rows []ui.VoiceSession, err error) {
	f.Limit = listed
	list, err := h.List(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("voice: sessions: %w", err)
	}
	for _, s := range list {
		row := ui.VoiceSession{
			When: s.CreatedAt, Shown: shownTime(s.CreatedAt), Model: s.Model, Mock: s.Mock, Status: s.Shown(),
			Length: s.Length(h.Now()), Replies: fmt.Sprint(s.ResponseCount), Cost: ui.Money(s.ChargedMC),
		}
		if s.EndReason != nil {
			row.End = Because(*s.EndReason)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func shownTime(timestamp string) string {
	t, _ := time.Parse(time.RFC3339, timestamp) // of ours
	return t.UTC().Format("2 Jan 2006, 15:04")
}

// Shown is the session's status for people.
func (s *Session) Shown() string {
	switch {
	case s.Status == session.Pending:
		return "Waiting for the browser"
	case s.Status == session.Ended:
		return "Ended"
	case s.Live.Ending:
		return "Ending"
	}
	return "Live"
}

// Length is how long the session was live, or has been, as minutes and seconds.
func (s *Session) Length(now time.Time) string {
	if s.StartedAt == nil {
		return "–"
	}
	from, _ := time.Parse(time.RFC3339, *s.StartedAt) // both are ours
	if s.EndedAt != nil {
		now, _ = time.Parse(time.RFC3339, *s.EndedAt)
	}
	d := int64(max(now.Sub(from), 0) / time.Second)
	return fmt.Sprintf("%d:%02d", d/60, d%60)
}

// Because says an end reason (spec §3) for people.
func Because(reason string) string {
	if text, ok := reasons[reason]; ok {
		return text
	}
	return "Refused: " + reason
}

var reasons = map[string]string{
	session.ClientClosed:      "The browser disconnected",
	session.AppEnded:          "Ended by the app",
	session.MaxDuration:       "Maximum duration reached",
	session.MaxCost:           "Maximum cost reached",
	session.IdleTimeout:       "No one spoke",
	session.BudgetNotApproved: "The app didn’t approve more spending",
	session.ControlLost:       "The app disconnected",
	session.ConfigTampering:   "The browser changed settings it may not change",
	session.SidebandLost:      "We lost the metering connection",
	session.ProviderError:     "The model’s provider failed",
	session.TicketExpired:     "No browser connected",
	session.ConnectionRevoked: "The connection was revoked",
	session.ConnectionFrozen:  "The connection was paused",
	session.ServerShutdown:    "The service was restarted",
	"allocation_exhausted":    "The spend cap couldn’t cover the next reply",
}
