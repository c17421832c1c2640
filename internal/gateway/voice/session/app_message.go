package session

import (
	"cmp"

	"github.com/purserhq/purser/internal/base/money"
)

// The service's own events on the control channel (contract §6).
type (
	startedMessage struct {
		Type      string `json:"type"`
		ID        string `json:"session_id"`
		Model     string `json:"model"`
		Mock      bool   `json:"mock"`
		StartedAt string `json:"started_at"`
	}
	settledMessage struct {
		Type                  string    `json:"type"`
		ID                    string    `json:"session_id"`
		ResponseID            string    `json:"response_id"`
		Receipt               *Receipt  `json:"receipt"` // with AllocationRemainingMC: nil if nothing was charged
		ChargedMC             money.MC  `json:"charged_mc"`
		ChargedDisplay        string    `json:"charged_display"`
		ResponseCount         int64     `json:"response_count"`
		AllocationRemainingMC *money.MC `json:"allocation_remaining_mc"`
	}
	transcriptSettledMessage struct {
		Type                  string   `json:"type"`
		ID                    string   `json:"session_id"`
		ItemID                string   `json:"item_id"`
		Receipt               Receipt  `json:"receipt"`
		ChargedMC             money.MC `json:"charged_mc"`
		ChargedDisplay        string   `json:"charged_display"`
		AllocationRemainingMC money.MC `json:"allocation_remaining_mc"`
	}
	spendWarningMessage struct {
		Type           string    `json:"type"`
		ID             string    `json:"session_id"`
		Reason         string    `json:"reason"`
		ChargedMC      money.MC  `json:"charged_mc"`
		ChargedDisplay string    `json:"charged_display"`
		MaxCostMC      *money.MC `json:"max_cost_mc"`
	}
	budgetCheckpointMessage struct {
		Type             string   `json:"type"`
		ID               string   `json:"session_id"`
		ChargedMC        money.MC `json:"charged_mc"`
		ChargedDisplay   string   `json:"charged_display"`
		BlockMC          money.MC `json:"budget_block_mc"`
		Blocks           int64    `json:"blocks"`
		ApprovalRequired bool     `json:"approval_required"`
		ApproveBy        *string  `json:"approve_by"`
	}
	configResetMessage struct {
		Type   string   `json:"type"`
		ID     string   `json:"session_id"`
		Fields []string `json:"fields"`
		Resets int64    `json:"resets"`
	}
	endingMessage struct {
		Type   string `json:"type"`
		ID     string `json:"session_id"`
		Reason string `json:"reason"`
	}
	errorMessage struct {
		Type       string `json:"type"`
		ResponseID string `json:"response_id,omitempty"` // of a reply that failed at the provider
		Error      struct {
			Type    string         `json:"type"`
			Code    string         `json:"code"`
			Message string         `json:"message"`
			EventID *string        `json:"event_id"`
			Details map[string]any `json:"details,omitempty"` // of a call that the provider refused
		} `json:"error"`
	}
)

// EndedMessage is the last event on the control channel. The caller sends it when the end of the
// session is saved: only then its sum is final.
type EndedMessage struct {
	Type           string   `json:"type"`
	ID             string   `json:"session_id"`
	Reason         string   `json:"reason"`
	ChargedMC      money.MC `json:"charged_mc"`
	ChargedDisplay string   `json:"charged_display"`
	ResponseCount  int64    `json:"response_count"`
}

// NewEndedMessage returns svc.session.ended.
func NewEndedMessage(id, reason string, chargedMC money.MC, replies int64) EndedMessage {
	return EndedMessage{
		Type:           "svc.session.ended",
		ID:             id,
		Reason:         reason,
		ChargedMC:      chargedMC,
		ChargedDisplay: chargedMC.Display(),
		ResponseCount:  replies,
	}
}

// newErrorMessage returns the error event that refuses an app's event. An empty id is null.
func newErrorMessage(eventID, problem string) errorMessage {
	out := errorMessage{Type: "error"}
	out.Error.Type, out.Error.Code, out.Error.Message = "invalid_request_error", "invalid_event", problem
	if eventID != "" {
		out.Error.EventID = &eventID
	}
	return out
}

// newCallRefusal returns the error event of a call that the provider refused.
func newCallRefusal(e *CallRefused) errorMessage {
	out := errorMessage{Type: "error"}
	out.Error.Type, out.Error.Code, out.Error.Message = "provider_error", ProviderError, e.Message
	out.Error.Details = e.Details
	return out
}

// newFailureMessage returns the error event of a reply that failed at the provider.
func newFailureMessage(r *responseObject) errorMessage {
	out := errorMessage{Type: "error", ResponseID: r.ID}
	out.Error.Type, out.Error.Code, out.Error.Message = "provider_error", ProviderError, "the provider failed the reply"
	if f := r.Failure; f != nil {
		out.Error.Code = cmp.Or(f.Code, out.Error.Code)
		out.Error.Message = cmp.Or(f.Message, out.Error.Message)
	}
	return out
}
