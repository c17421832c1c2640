package voice

import (
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// Session is a voice session as the API shows it (contract §2, Realtime session).
type Session struct {
	ID             string            `json:"id"`
	Status         session.Status    `json:"status"`
	Model          string            `json:"model"`
	Feature        *string           `json:"feature"`
	Mock           bool              `json:"mock"`
	CreatedAt      string            `json:"created_at"`
	StartedAt      *string           `json:"started_at"`
	EndedAt        *string           `json:"ended_at"`
	EndReason      *string           `json:"end_reason"`
	MaxDurationS   int64             `json:"max_duration_s"`
	MaxCostMC      *money.MC         `json:"max_cost_mc"`
	ResponseCount  int64             `json:"response_count"`
	ChargedMC      money.MC          `json:"charged_mc"`
	ChargedDisplay string            `json:"charged_display"`
	ChildID        *string           `json:"child_id,omitempty"` // only of a child
	Live           *LiveNow          `json:"live"`
	Receipts       []session.Receipt `json:"receipts,omitzero"` // nil in lists

	ConnectionID string `json:"-"`
	AccountID    string `json:"-"`
	AppID        string `json:"-"`
}

// LiveNow is what a session shows only while it is live.
type LiveNow struct {
	ChargedMC       money.MC `json:"charged_mc"`
	ChargedDisplay  string   `json:"charged_display"`
	ResponseCount   int64    `json:"response_count"`
	Ending          bool     `json:"ending"`
	ControlAttached bool     `json:"control_attached"`
}

// newSession renders a row with its receipts. Without receipts (nil), the sum and the count of an
// ended session are those of its row.
func newSession(r *row, receipts []session.Receipt) Session {
	s := Session{
		ID:           r.ID,
		Status:       r.Status,
		Model:        r.Model,
		Mock:         r.Mock,
		CreatedAt:    timestamp.Format(r.CreatedUS),
		StartedAt:    optionalTimestamp(r.StartedUS),
		EndedAt:      optionalTimestamp(r.EndedUS),
		EndReason:    r.EndReason,
		MaxDurationS: r.MaxDurationS,
		MaxCostMC:    r.MaxCostMC,
		Receipts:     receipts,
		ConnectionID: r.ConnectionID,
		AccountID:    r.AccountID,
		AppID:        r.AppID,
	}
	if r.Feature != "" {
		s.Feature = &r.Feature
	}
	if r.ChildID != "" {
		s.ChildID = &r.ChildID
	}
	for i := range receipts {
		s.ChargedMC += receipts[i].UserChargeMC
		if receipts[i].Kind == session.KindReply {
			s.ResponseCount++
		}
	}
	if receipts == nil && r.ChargedMC != nil {
		s.ChargedMC, s.ResponseCount = *r.ChargedMC, *r.ReplyCount
	}
	s.ChargedDisplay = s.ChargedMC.Display()
	if r.Status == session.Live {
		s.Live = &LiveNow{
			ChargedMC:       s.ChargedMC,
			ChargedDisplay:  s.ChargedDisplay,
			ResponseCount:   s.ResponseCount,
			Ending:          r.Ending || r.EndRequested != "",
			ControlAttached: r.ControlAttached,
		}
	}
	return s
}

func optionalTimestamp(us *int64) *string {
	if us == nil {
		return nil
	}
	t := timestamp.Format(*us)
	return &t
}
