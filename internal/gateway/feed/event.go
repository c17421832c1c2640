package feed

import (
	"encoding/json"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// An event is one server-sent event. Its data is a JSON object whose member type repeats the
// event's type, so that a client need not read the event field.
type event struct {
	id   string // of the ledger row from which a client may go on; "" = none
	kind string
	data any
}

// The reasons of the event end.
const (
	endRevoked  = "connection_revoked"
	endToken    = "token_expired" // expired or revoked
	endShutdown = "server_shutdown"
)

// balance is the connection as it is now.
type balance struct {
	Type       string                   `json:"type"`
	Connection rules.ConnectionResource `json:"connection"`
}

// hold is a hold that this node has made.
type hold struct {
	Type        string   `json:"type"`
	RequestID   string   `json:"request_id"`
	Feature     *string  `json:"feature"`
	Model       string   `json:"model"`
	PaidBy      string   `json:"paid_by"`
	HoldMC      money.MC `json:"hold_amount_mc"`
	HoldDisplay string   `json:"hold_amount_display"`
	CreatedAt   string   `json:"created_at"`
}

// release is a hold that ended without a charge.
type release struct {
	Type            string   `json:"type"`
	RequestID       string   `json:"request_id"`
	ReleasedMC      money.MC `json:"released_mc"`
	ReleasedDisplay string   `json:"released_display"`
	CreatedAt       string   `json:"created_at"`
}

// spend is a ledger row: a charge, or a refund.
type spend struct {
	Type  string              `json:"type"`
	Entry rules.EntryResource `json:"entry"`
}

// end is the last event of a stream.
type end struct {
	Type      string `json:"type"`
	Reason    string `json:"reason"`
	Reconnect bool   `json:"reconnect"` // a client may open another stream, after end token_expired with a fresh token
}

func balanceEvent(c *rules.Connection, entryID string) event {
	return event{id: entryID, kind: "balance", data: balance{"balance", c.Resource()}}
}

func holdEvent(c *rules.Call, now time.Time) event {
	return event{kind: "hold", data: hold{
		Type:        "hold",
		RequestID:   c.RequestID,
		Feature:     rules.TextOrNull(c.Feature),
		Model:       c.Model,
		PaidBy:      c.PaidBy,
		HoldMC:      c.HoldMC,
		HoldDisplay: c.HoldMC.Display(),
		CreatedAt:   formatTime(now),
	}}
}

func releaseEvent(c *rules.Call, now time.Time) event {
	return event{kind: "release", data: release{
		Type:            "release",
		RequestID:       c.RequestID,
		ReleasedMC:      c.HoldMC,
		ReleasedDisplay: c.HoldMC.Display(),
		CreatedAt:       formatTime(now),
	}}
}

func spendEvent(e *rules.Entry) event {
	kind := "charge"
	if e.ReversalOf != "" {
		kind = "refund"
	}
	return event{id: e.ID, kind: kind, data: spend{kind, e.Resource()}}
}

func endEvent(reason string) event {
	return event{kind: "end", data: end{"end", reason, reason != endRevoked}}
}

// appendEvent appends an event in the form of the HTML standard, server-sent events.
func appendEvent(b []byte, e event) ([]byte, error) {
	data, err := json.Marshal(e.data)
	if err != nil {
		return b, err
	}
	if e.id != "" {
		b = append(append(append(b, "id: "...), e.id...), '\n')
	}
	b = append(append(append(b, "event: "...), e.kind...), '\n')
	return append(append(append(b, "data: "...), data...), "\n\n"...), nil
}
