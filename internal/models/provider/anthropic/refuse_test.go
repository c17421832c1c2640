package anthropic

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

func asks(c *Client, stream bool) error {
	if !stream {
		_, err := c.Complete(context.Background(), request())
		return err
	}
	s, err := c.Stream(context.Background(), request())
	if err == nil {
		_ = s.Close()
	}
	return err
}

// TestErrorTable is the table of statuses, in both kinds of calls.
func TestErrorTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		kind   string
		retry  bool
		alarm  string
	}{
		{401, "authentication_error", false, "the key is refused"},
		{402, "billing_error", false, "the account is out of credit"},
		{403, "permission_error", false, "the key is refused"},
		{404, "not_found_error", false, "the model or address is unknown"},
		{429, "rate_limit_error", true, ""},
		{500, "api_error", true, ""},
		{504, "timeout_error", true, ""},
		{529, "overloaded_error", true, ""},
	} {
		text := `{"type":"error","error":{"type":"` + c.kind + `","message":"about ` + sampleKey +
			`"},"request_id":"req_011"}`
		for _, stream := range []bool{false, true} {
			e := fault(t, asks(serve(t, answers(c.status, text, "Retry-After", "2")), stream))
			if e.Kind != provider.Failed || e.Status != c.status || e.Retry != c.retry || e.Alarm != c.alarm ||
				e.RetryAfter != 2*time.Second || e.Message != "the provider failed" {
				t.Errorf("%d: %+v", c.status, e)
			}
		}
	}
	for _, status := range []int{400, 413} {
		e := fault(t, asks(serve(t,
			answers(status, `{"type":"error","error":{"type":"invalid_request_error","message":"messages.1: text is `+
				sampleKey+` too long"}}`)), false))
		if e.Kind != provider.Rejected || e.Retry || e.Alarm != "" ||
			e.Message != "the provider refused the request: messages.1: text is [removed] too long" {
			t.Errorf("%d: %+v", status, e)
		}
	}
}

// TestAccountInDisguise: a 400 that is about our account is not the app's fault.
func TestAccountInDisguise(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
		"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
	} {
		e := fault(t, asks(serve(t,
			answers(400, `{"type":"error","error":{"type":"invalid_request_error","message":"`+message+`"}}`)), true))
		if e.Kind != provider.Failed || e.Alarm != "the account is out of credit" || e.Retry ||
			strings.Contains(e.Message, "redit") {
			t.Errorf("%+v", e)
		}
	}
}

// TestDisabledAccount: a 400 that says that our account is disabled is the operator's, whole, streamed and as an event.
// What a request quotes is not.
func TestDisabledAccount(t *testing.T) {
	t.Parallel()
	body := func(message string) string {
		return `{"type":"error","error":{"type":"invalid_request_error","message":"` + message + `"}}`
	}
	for _, message := range []string{"This organization has been disabled.", "Your account is suspended."} {
		for _, stream := range []bool{false, true} {
			for how, h := range map[string]http.HandlerFunc{
				"status": answers(400, body(message)),
				"event":  answers(200, "event: error\ndata: "+body(message)+"\n\n"),
			} {
				e := fault(t, asks(serve(t, h), stream))
				if e.Kind != provider.Failed || e.Alarm != "the account is disabled" || !e.KeyRefused || e.Retry ||
					e.Status != 400 || strings.Contains(e.Message, "isabled") {
					t.Errorf("%s as a %s: %+v", message, how, e)
				}
			}
		}
	}
	e := fault(t, asks(serve(t, answers(400, body("tools.0.name: 'This organization has been disabled' is too long"))),
		false))
	if e.Kind != provider.Rejected || e.Alarm != "" {
		t.Errorf("%+v", e)
	}
}

func TestRefusalsWithoutAReason(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"no text":  "",
		"a page":   "<html>",
		"a list":   "[]",
		"a string": `{"error":"m"}`,
	} {
		if e := fault(t, asks(serve(t, answers(400, text)), false)); e.Kind != provider.Rejected ||
			e.Message != "the provider refused the request: it gave no reason" {
			t.Errorf("%s: %+v", what, e)
		}
	}
}
