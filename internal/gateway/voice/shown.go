package voice

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/ui"
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
	case s.Status == Pending:
		return "Waiting for the browser"
	case s.Status == Ended:
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
	ClientClosed:           "The browser left",
	AppEnded:               "The app ended it",
	MaxDuration:            "It had lasted as long as it may",
	MaxCost:                "It had cost as much as it may",
	IdleTimeout:            "Nobody spoke any more",
	BudgetNotApproved:      "The app approved no more spending",
	ControlLost:            "The app was not there any more",
	ConfigTampering:        "The browser kept changing its settings",
	SidebandLost:           "The call could not be metered any more",
	ProviderError:          "The model’s provider failed",
	TicketExpired:          "No browser came",
	ConnectionRevoked:      "The connection was ended",
	ConnectionFrozen:       "The connection was paused",
	ServerShutdown:         "The service was restarted",
	"allocation_exhausted": "The next reply did not fit into the cap",
}
