package inference

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// TestOpenAIErrors: an error has param and all members of the envelope, and its message says where the user can help.
func TestOpenAIErrors(t *testing.T) {
	t.Parallel()
	links := web.Links{Dashboard: "https://d"}
	for _, tt := range []struct {
		err     *apierr.Error
		param   any
		message string
	}{
		{apierr.InvalidRequest.Errorf("input[0].role: must be"), "input[0].role", "input[0].role: must be"},
		{apierr.NotFound.Errorf("model: none"), nil, "model: none"},
		{apierr.AllocationExhausted.On("conn_1", "The cap is reached"), nil,
			"The cap is reached. Raise the spend cap at https://d/connections/conn_1/increase"},
		{apierr.ConnectionFrozen.On("conn_1", "The connection is paused"), nil,
			"The connection is paused. Resume it at https://d/connections/conn_1/review"},
	} {
		before := tt.err.Message
		b, err := encodeOpenAIError(tt.err, links, "req_1")
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Error map[string]any }
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%v in %s", err, b)
		}
		param, has := got.Error["param"]
		if !has || param != tt.param || got.Error["message"] != tt.message || got.Error["code"] != tt.err.Code.Name ||
			strings.Count(string(b), `"param"`) != 1 || tt.err.Message != before {
			t.Errorf("%s", b)
		}
		if _, has := got.Error["connection_id"]; !has {
			t.Errorf("the envelope's members are missing: %s", b)
		}
	}
}
