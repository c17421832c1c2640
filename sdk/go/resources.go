package purser

import (
	"encoding/json"
	"time"
)

// An EventData is the object that an event is about. One field is set, and ReviewURL next to a frozen connection.
type EventData struct {
	Connection        *ConnectionInfo    `json:"connection"`         // of all other connection.…
	Child             *EndedChild        `json:"child"`              // of connection.child_ended
	ReviewURL         string             `json:"review_url"`         // of connection.frozen: where the user resumes it
	AllocationRequest *AllocationRequest `json:"allocation_request"` // of allocation_change.…
	App               *AppSpendLimit     `json:"app"`                // of app.spend_limit_reached and app.suspended
	Request           *Receipt           `json:"request"`            // of request.settled and request.refunded
	Session           json.RawMessage    `json:"session"`            // of realtime_session.ended: the voice session
}

// An AppSpendLimit is the limit that all users of an app have reached together, or the suspension of an app.
type AppSpendLimit struct {
	ID           string     `json:"id"`
	LimitMC      int64      `json:"limit_mc"`
	LimitDisplay string     `json:"limit_display"`
	WindowS      int64      `json:"window_s"`     // seconds
	SuspendedBy  string     `json:"suspended_by"` // risk or operator; of app.suspended
	Reason       string     `json:"reason"`       // of app.suspended
	SuspendedAt  *time.Time `json:"suspended_at"` // of app.suspended
}
