package google

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

func refusalBody(code int, status, details string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":"It went wrong.","status":%q,"details":[%s]}}`, code, status,
		details)
}

const (
	retryInfo   = `{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.5s"}`
	perMinute   = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"m","quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}`
	perDay      = `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}`
	badKey      = `{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com"}`
	badRequest  = `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"contents"}]}`
	oddDetail   = `{"reason":7},"x",null,{"retryDelay":"soon"},{"retryDelay":"-3s"},{"violations":{}}`
	wantNothing = "the provider failed"
)

// TestEdge42Refusals: what each refusal means, before a stream and as its first
// event alike.
func TestEdge42Refusals(t *testing.T) {
	t.Parallel()
	refused := provider.Error{
		Kind:    provider.Rejected,
		Message: "the provider refused the request: It went wrong.",
		Refusal: "It went wrong.",
	}
	for what, c := range map[string]struct {
		status int
		body   string
		want   provider.Error
	}{
		"wrong request": {400, refusalBody(400, "INVALID_ARGUMENT", badRequest),
			refused},
		"in an array": {400, "[" + refusalBody(400, "INVALID_ARGUMENT", "") + "]",
			refused},
		"our key": {400, refusalBody(400, "INVALID_ARGUMENT", badRequest+","+badKey),
			provider.Error{Message: wantNothing, Alarm: "the key is refused", KeyRefused: true}},
		"billing": {400, refusalBody(400, "FAILED_PRECONDITION", ""),
			provider.Error{
				Message:    wantNothing,
				Alarm:      "the account may not be used: its billing or its region",
				KeyRefused: true,
			}},
		"unauthenticated": {401, refusalBody(401, "UNAUTHENTICATED", ""),
			provider.Error{Message: wantNothing, Alarm: "the key is refused"}},
		"denied": {403, refusalBody(403, "PERMISSION_DENIED", ""),
			provider.Error{Message: wantNothing, Alarm: "the key is refused"}},
		"unknown model": {404, refusalBody(404, "NOT_FOUND", ""),
			provider.Error{Message: wantNothing, Alarm: "the model or address is unknown"}},
		"busy": {429, refusalBody(429, "RESOURCE_EXHAUSTED", perMinute+","+retryInfo), provider.Error{
			Message:    wantNothing,
			Retry:      true,
			RetryAfter: 34500 * time.Millisecond,
		}},
		"busy, no details": {429, refusalBody(429, "RESOURCE_EXHAUSTED", ""),
			provider.Error{Message: wantNothing, Retry: true}},
		"odd details": {429, refusalBody(429, "RESOURCE_EXHAUSTED", oddDetail),
			provider.Error{Message: wantNothing, Retry: true}},
		"out of quota": {429, refusalBody(429, "RESOURCE_EXHAUSTED", retryInfo+","+perDay),
			provider.Error{Message: wantNothing, Alarm: "the account is out of quota for today", OutOfQuota: true}},
		"canceled":   {499, refusalBody(499, "CANCELLED", ""), provider.Error{Message: wantNothing}},
		"broken":     {500, refusalBody(500, "INTERNAL", ""), provider.Error{Message: wantNothing, Retry: true}},
		"overloaded": {503, refusalBody(503, "UNAVAILABLE", ""), provider.Error{Message: wantNothing, Retry: true}},
		"too slow": {504, refusalBody(504, "DEADLINE_EXCEEDED", ""),
			provider.Error{Message: wantNothing, Retry: true}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c.want.Status = c.status
			check := func(how string, err error) {
				var e *provider.Error
				if !errors.As(err, &e) || e.Cause == nil {
					t.Fatalf("%s: %+v", how, err)
				}
				got := *e
				got.Cause = nil
				if got != c.want {
					t.Errorf("%s: %+v, want %+v", how, got, c.want)
				}
			}
			ctx := t.Context()
			_, err := google(t, answers(c.status, c.body)).Complete(ctx, request(false))
			check("as a status", err)
			_, err = google(t, answers(c.status, c.body)).Stream(ctx, request(true))
			check("as a stream's status", err)
			_, err = google(t, answers(http.StatusOK, event(c.body))).Stream(ctx, request(true))
			check("as the first event", err)
			_, err = google(t, answers(http.StatusOK, c.body)).Complete(ctx, request(false))
			check("as the answer", err)
		})
	}
}

// TestRefusalsInOtherShapes are left to their status.
func TestRefusalsInOtherShapes(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "<html>", "[]", "{}", `{"error":null}`, `{"error":"text"}`,
		`{"error":{"code":"503"}}`} {
		if e := parseError(503, nil, []byte(body)); e != nil {
			t.Errorf("%s: %+v", body, e)
		}
	}
	_, err := google(t, answers(503, "<html>")).Complete(t.Context(), request(false))
	if e := fault(t, err); !e.Retry || e.Status != 503 {
		t.Errorf("%+v", e)
	}
}
