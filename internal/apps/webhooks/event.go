package webhooks

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// Types are the events of contract §6, in its order, with those that came later: a changed limit,
// the end of a child (decision 107), a suspension (decision 062) and a refund (decision 022).
var Types = []string{
	"connection.created", "connection.updated", "connection.exhausted", "connection.revoked", "connection.frozen",
	"connection.resumed",
	"connection.risk_warning", "connection.child_ended",
	"allocation_change.requested", "allocation_change.approved", "allocation_change.denied",
	"app.spend_limit_reached", "app.suspended", "request.settled", "request.refunded", "realtime_session.ended",
}

// A storedEvent is a row of the event outbox with the flags that its body needs.
type storedEvent struct {
	rules.Event
	sandbox, test bool
}

// message is the body of a delivery (decision 039).
type message struct {
	ID           string                     `json:"id"`
	Type         string                     `json:"type"`
	CreatedAt    string                     `json:"created_at"`
	AppID        string                     `json:"app_id"`
	ConnectionID *string                    `json:"connection_id"`
	Sandbox      bool                       `json:"sandbox"`
	Test         bool                       `json:"test,omitempty"` // a test event that the developer sent
	Seq          int64                      `json:"seq"`
	APIVersion   string                     `json:"api_version"`
	Data         map[string]json.RawMessage `json:"data"`
}

// makeMessage renders an event, always to the same bytes. links adds the present URLs of the
// dashboard, which the outbox does not store.
func (e *storedEvent) makeMessage(links web.Links) (message, error) {
	m := message{
		ID:         e.ID,
		Type:       e.Type,
		CreatedAt:  timestamp.Format(e.CreatedUS),
		AppID:      e.AppID,
		Sandbox:    e.sandbox,
		Test:       e.test,
		Seq:        e.Seq,
		APIVersion: web.Version,
	}
	connectionID := e.ConnectionID
	if e.test && !strings.HasPrefix(e.Type, "app.") {
		connectionID = sampleConnection
	}
	if connectionID != "" {
		m.ConnectionID = &connectionID
	}
	err := json.Unmarshal([]byte(e.Data), &m.Data)
	switch e.Type {
	case "connection.frozen":
		if err == nil {
			err = setText(m.Data, "review_url", links.Review(connectionID))
		}
	case "allocation_change.requested", "allocation_change.approved", "allocation_change.denied":
		if err == nil {
			err = addApproval(m.Data, links)
		}
	}
	if err != nil {
		return m, fmt.Errorf("webhooks: data of %s: %w", e.ID, err)
	}
	return m, nil
}

// addApproval adds to an allocation request the URL where its user decides.
func addApproval(data map[string]json.RawMessage, links web.Links) error {
	var request map[string]json.RawMessage
	var id string
	if err := json.Unmarshal(data["allocation_request"], &request); err != nil {
		return err
	}
	if err := json.Unmarshal(request["id"], &id); err != nil {
		return err
	}
	if err := setText(request, "approval_url", links.Approval(id)); err != nil {
		return err
	}
	text, err := json.Marshal(request)
	data["allocation_request"] = text
	return err
}

func setText(object map[string]json.RawMessage, member, value string) error {
	text, err := json.Marshal(value)
	object[member] = text
	return err
}

// Values of sample events. The objects do not exist.
const (
	sampleConnection        = "conn_00000000000000000000000000"
	sampleAllocationRequest = "acr_00000000000000000000000000"
	sampleAmount            = money.MC(500_000_000)
	sampleDailyLimit        = money.MC(25_000_000_000) // the daily limit of a limited-live app (contract §8)
)

// makeSample makes the data of a sample event.
func makeSample(kind, appID string, now time.Time) (string, error) {
	at := timestamp.Format(now.UnixMicro())
	c := rules.Connection{
		ID:           sampleConnection,
		AppID:        appID,
		AccountID:    "wac_00000000000000000000000000",
		AllocationMC: sampleAmount,
		Status:       rules.Active,
		CreatedUS:    now.UnixMicro(),
	}
	data := map[string]any{}
	switch kind {
	case "allocation_change.requested", "allocation_change.approved", "allocation_change.denied":
		data["allocation_request"] = makeSampleRequest(strings.TrimPrefix(kind, "allocation_change."), at)
	case "app.spend_limit_reached":
		data["app"] = map[string]any{
			"id":            appID,
			"limit_mc":      sampleDailyLimit,
			"limit_display": sampleDailyLimit.Display(),
			"window_s":      24 * 60 * 60,
		}
	case "app.suspended":
		data["app"] = map[string]any{
			"id":           appID,
			"suspended_by": "risk",
			"reason":       "3 charges were taken back by banks within 30 days",
			"suspended_at": at,
		}
	case "request.settled", "request.refunded":
		data["request"] = makeSampleReceipt(kind == "request.refunded", at)
	case "connection.child_ended":
		data["child"] = makeSampleChild(now)
	case "realtime_session.ended":
		data["session"] = map[string]any{
			"id":              "rts_00000000000000000000000000",
			"status":          "ended",
			"model":           "gpt-realtime-2.1-mini",
			"feature":         nil,
			"mock":            true,
			"created_at":      at,
			"started_at":      at,
			"ended_at":        at,
			"end_reason":      "app_ended",
			"max_duration_s":  900,
			"max_cost_mc":     nil,
			"response_count":  0,
			"charged_mc":      0,
			"charged_display": money.MC(0).Display(),
			"live":            nil,
			"receipts":        []any{},
		}
	default:
		switch kind {
		case "connection.exhausted":
			c.ConsumedMC = sampleAmount
		case "connection.revoked":
			c.Status = rules.Revoked
		case "connection.frozen":
			c.Status, c.FrozenBy = rules.Frozen, rules.FrozenByRisk
		}
		data["connection"] = c.Resource()
	}
	text, err := json.Marshal(data)
	return string(text), err
}

// makeSampleRequest makes an allocation request that was requested, approved or denied.
func makeSampleRequest(change, at string) map[string]any {
	status, decided := change, any(at)
	if change == "requested" {
		status, decided = "pending", nil
	}
	return map[string]any{
		"id": sampleAllocationRequest, "connection_id": sampleConnection, "status": status,
		"current_allocation_mc": sampleAmount, "current_allocation_display": sampleAmount.Display(),
		"target_allocation_mc": 2 * sampleAmount, "target_allocation_display": (2 * sampleAmount).Display(),
		"reason": nil, "superseded_by": nil, "created_at": at, "decided_at": decided,
	}
}

// makeSampleChild makes a child that its parent has ended.
func makeSampleChild(now time.Time) rules.EndedChild {
	ended, amount, spent := now.UnixMicro(), money.MC(100_000_000), money.MC(2_925)
	child := rules.Child{
		ID:           "chd_00000000000000000000000000",
		ConnectionID: sampleConnection,
		Depth:        1,
		Label:        "Researcher",
		AmountMC:     amount,
		ExpiresUS:    now.Add(time.Hour).UnixMicro(),
		CreatedUS:    ended,
		EndedUS:      &ended,
		EndedBy:      rules.EndedByApp,
		ReturnedMC:   amount - spent,
	}
	return child.Ended(0, 0)
}

// makeSampleReceipt makes the receipt of a call that was settled, and perhaps refunded.
func makeSampleReceipt(refunded bool, at string) map[string]any {
	const cost, fee, margin, hold = money.MC(2_340), money.MC(117), money.MC(468), money.MC(268_950)
	charge, remaining := cost+fee+margin, sampleAmount-(cost+fee+margin)
	receipt := map[string]any{
		"id":            "req_00000000000000000000000000",
		"object":        "request",
		"status":        "settled",
		"connection_id": sampleConnection,
		"created_at":    at,
		"model":         "gpt-6-luna",
		"feature":       nil,
		"billed":        true,
		"charge": map[string]any{
			"hold_amount_mc":               hold,
			"hold_amount_display":          hold.Display(),
			"provider_cost_mc":             cost,
			"svc_fee_mc":                   fee,
			"dev_margin_mc":                margin,
			"user_charge_mc":               charge,
			"user_charge_display":          charge.Display(),
			"allocation_remaining_mc":      remaining,
			"allocation_remaining_display": remaining.Display(),
			"paid_by":                      "wallet",
		},
		"refunded_mc":        0,
		"reversed_by":        nil,
		"max_tokens_applied": 4096,
		"usage": map[string]any{
			"prompt_tokens":             9,
			"completion_tokens":         45,
			"total_tokens":              54,
			"prompt_tokens_details":     map[string]any{"cached_tokens": 0, "cache_write_tokens": 0},
			"completion_tokens_details": map[string]any{"reasoning_tokens": 0},
		},
		"price_version": "2026-11-21-448a1fb2",
		"lines": []map[string]any{
			{"class": "input", "tokens": 9, "unit_price_usd_per_1m": "0.10", "cost_exact_mc": "90"},
			{"class": "output", "tokens": 45, "unit_price_usd_per_1m": "0.50", "cost_exact_mc": "2250"},
		},
		"error":         nil,
		"first_byte_ms": 412,
		"duration_ms":   2310,
		"finish_reason": "stop",
		"explanation":   "This is a sample. No call was made, and no user was charged.",
	}
	if refunded {
		receipt["refunded_mc"], receipt["reversed_by"] = charge, "led_00000000000000000000000001"
	}
	return receipt
}
