package webhooks

import (
	"encoding/json"
	"fmt"
	"time"

	"purser/internal/ledger"
	"purser/internal/money"
	"purser/internal/web"
)

// Types are the events of spec §6, in its order.
var Types = []string{
	"connection.created", "connection.exhausted", "connection.revoked", "connection.frozen", "connection.resumed", "connection.risk_warning",
	"allocation_change.requested", "allocation_change.approved", "allocation_change.denied",
	"app.spend_limit_reached", "request.settled", "realtime_session.ended",
}

// An event is a row of the outbox with what its body needs besides.
type event struct {
	ledger.Event
	sandbox, test bool
}

// message is the body of a delivery (decisions, Webhooks).
type message struct {
	ID           string                     `json:"id"`
	Type         string                     `json:"type"`
	CreatedAt    string                     `json:"created_at"`
	AppID        string                     `json:"app_id"`
	ConnectionID *string                    `json:"connection_id"`
	Sandbox      bool                       `json:"sandbox"`
	Test         bool                       `json:"test,omitempty"` // nothing happened: somebody tries the webhook
	Seq          int64                      `json:"seq"`
	APIVersion   string                     `json:"api_version"`
	Data         map[string]json.RawMessage `json:"data"`
}

// message renders an event, always to the same bytes. review tells where the user
// of a frozen connection decides.
func (e *event) message(review func(connectionID string) string) (message, error) {
	m := message{
		ID: e.ID, Type: e.Type, CreatedAt: ledger.Timestamp(e.CreatedUS), AppID: e.AppID,
		Sandbox: e.sandbox, Test: e.test, Seq: e.Seq, APIVersion: web.Version,
	}
	if err := json.Unmarshal([]byte(e.Data), &m.Data); err != nil {
		return m, fmt.Errorf("webhooks: data of %s: %w", e.ID, err)
	}
	if e.test && e.Type != "app.spend_limit_reached" {
		e.ConnectionID = sampleConnection
	}
	if e.ConnectionID != "" {
		m.ConnectionID = &e.ConnectionID
	}
	if e.Type == "connection.frozen" {
		text, err := json.Marshal(review(e.ConnectionID))
		if err != nil {
			return m, err
		}
		m.Data["review_url"] = text
	}
	return m, nil
}

// What samples are about does not exist.
const (
	sampleConnection = "conn_00000000000000000000000000"
	sampleAmount     = money.MC(500_000_000)
)

// sample makes the data of a sample event.
func sample(kind, appID string, now time.Time) (string, error) {
	at := ledger.Timestamp(now.UnixMicro())
	c := ledger.Connection{
		ID: sampleConnection, AppID: appID, AccountID: "wac_00000000000000000000000000",
		AllocationMC: sampleAmount, Status: ledger.Active, CreatedUS: now.UnixMicro(),
	}
	data := map[string]any{}
	switch kind {
	case "allocation_change.requested", "allocation_change.approved", "allocation_change.denied":
		status := map[string]string{"allocation_change.requested": "pending", "allocation_change.approved": "approved", "allocation_change.denied": "denied"}[kind]
		data["allocation_request"] = map[string]any{
			"id": "acr_00000000000000000000000000", "connection_id": sampleConnection, "status": status,
			"current_allocation_mc": sampleAmount, "current_allocation_display": sampleAmount.Display(),
			"target_allocation_mc": 2 * sampleAmount, "target_allocation_display": (2 * sampleAmount).Display(),
			"approval_url": "https://dashboard.example.com/allocation-requests/acr_00000000000000000000000000",
		}
	case "app.spend_limit_reached":
		data["app"] = map[string]any{"id": appID}
	case "request.settled":
		data["request"] = map[string]any{
			"id": "req_00000000000000000000000000", "object": "request", "status": "settled", "connection_id": sampleConnection, "created_at": at,
			"model": nil, "feature": nil, "billed": true,
		}
	case "realtime_session.ended":
		data["session"] = map[string]any{
			"id": "rts_00000000000000000000000000", "status": "ended", "model": "gpt-realtime", "feature": nil, "created_at": at, "started_at": at, "ended_at": at,
			"end_reason": "app_ended", "max_duration_s": 900, "max_cost_mc": nil, "response_count": 0, "charged_mc": 0, "live": nil, "receipts": []any{},
		}
	default:
		switch kind {
		case "connection.exhausted":
			c.ConsumedMC = sampleAmount
		case "connection.revoked":
			c.Status = ledger.Revoked
		case "connection.frozen":
			c.Status = ledger.Frozen
		}
		data["connection"] = c.Resource()
	}
	text, err := json.Marshal(data)
	return string(text), err
}
