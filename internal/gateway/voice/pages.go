package voice

import (
	"context"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// pageRows is how many sessions a page lists.
const pageRows = 50

// ListForPage returns the newest sessions as a page shows them.
func (s *Store) ListForPage(ctx context.Context, f Filter) (rows []ui.VoiceSession, err error) {
	f.Limit = pageRows
	list, err := s.List(ctx, f)
	if err != nil {
		return nil, fmt.Errorf("voice: sessions: %w", err)
	}
	for _, one := range list {
		r := ui.VoiceSession{
			When:    one.CreatedAt,
			Shown:   formatTime(one.CreatedAt),
			Model:   one.Model,
			Mock:    one.Mock,
			Status:  one.StatusText(),
			Length:  one.Duration(s.Now()),
			Replies: fmt.Sprint(one.ResponseCount),
			Cost:    ui.PriceMoney(one.ChargedMC),
		}
		if one.EndReason != nil {
			r.End = EndReasonText(*one.EndReason)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func formatTime(timestamp string) string {
	t, _ := time.Parse(time.RFC3339, timestamp) // a timestamp that newSession rendered
	return t.UTC().Format("2 Jan 2006, 15:04")
}

// StatusText is the session's status for people.
func (s *Session) StatusText() string {
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

// Duration returns how long the session was live, or has been until now, as minutes and seconds.
func (s *Session) Duration(now time.Time) string {
	if s.StartedAt == nil {
		return "–"
	}
	from, _ := time.Parse(time.RFC3339, *s.StartedAt) // a timestamp that newSession rendered
	if s.EndedAt != nil {
		now, _ = time.Parse(time.RFC3339, *s.EndedAt) // as above
	}
	seconds := int64(max(now.Sub(from), 0) / time.Second)
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// EndReasonText is an end reason (contract §3) for people.
func EndReasonText(reason string) string {
	if text, ok := endReasonTexts[reason]; ok {
		return text
	}
	return "Refused: " + reason
}

var endReasonTexts = map[string]string{
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
	session.UserStopped:       "The user stopped it",
	session.ServerShutdown:    "The service was restarted",
	session.Unavailable:       "The service was briefly unavailable",
	"allocation_exhausted":    "The spend cap couldn’t cover the next reply",
}
