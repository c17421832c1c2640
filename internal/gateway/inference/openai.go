package inference

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes"
	"github.com/purserhq/purser/internal/gateway/shapes/embeddings"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/models/provider"
)

// mountOpenAI adds the routes of OpenAI's base URL, {base_url}/openai/v1. Package catalog adds its models.
func (h *Handler) mountOpenAI(rt *web.Router) {
	const base = "/openai/v1/"
	rt.SetErrorBody("/openai/", encodeOpenAIError)
	rt.Handle("POST "+base+"chat/completions", func(w http.ResponseWriter, r *http.Request) error {
		return h.infer(w, r, plan.Route{Path: "chat/completions", Chat: true}, nil)
	})
	rt.Handle("POST "+base+"responses", func(w http.ResponseWriter, r *http.Request) error {
		return h.infer(w, r, plan.Route{Path: "openai/responses", Chat: true}, parseResponses)
	})
	rt.Handle("POST "+base+"embeddings", func(w http.ResponseWriter, r *http.Request) error {
		return h.infer(w, r, plan.Route{Path: "openai/embeddings", Chat: true}, alone(embeddings.Parse))
	})
	const offered = "here are POST /openai/v1/chat/completions, POST /openai/v1/responses, " +
		"POST /openai/v1/embeddings and GET /openai/v1/models."
	for path, why := range map[string]string{
		"completions":        "the old Completions API is not offered",
		"images/":            "images are not made here",
		"audio/":             "audio files are not offered; voice is at POST /v1/realtime/sessions",
		"realtime":           "voice is at POST /v1/realtime/sessions",
		"realtime/":          "voice is at POST /v1/realtime/sessions",
		"videos":             "videos are not made here",
		"moderations":        "moderations are not offered",
		"files":              "files are not stored here",
		"files/":             "files are not stored here",
		"uploads":            "files are not stored here",
		"batches":            "batches are not offered",
		"batches/":           "batches are not offered",
		"assistants":         "the Assistants API is not offered",
		"assistants/":        "the Assistants API is not offered",
		"threads":            "the Assistants API is not offered",
		"threads/":           "the Assistants API is not offered",
		"conversations":      "conversations are not stored here",
		"conversations/":     "conversations are not stored here",
		"fine_tuning/":       "fine-tuning is not offered",
		"vector_stores":      "vector stores are not offered",
		"vector_stores/":     "vector stores are not offered",
		"responses/":         "responses are not stored here; GET /v1/requests/{id} shows what a call cost",
		"chat/completions/":  "completions are not stored here; GET /v1/requests/{id} shows what a call cost",
		"responses/compact":  "conversations are not compacted here; send a shorter input",
		"images/generations": "images are not made here",
	} {
		rt.SetHint(base+path, why+"; "+offered)
	}
}

func parseResponses(body []byte, find responses.Finder) (shapes.Call, error) {
	c, err := responses.ParseWith(body, find)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// encodeOpenAIError encodes an error as OpenAI's clients expect it: the envelope with the member param, which names the
// member of the request that is wrong. Agents show nothing but the message, so it has the address where the user can
// help.
func encodeOpenAIError(e *apierr.Error, l web.Links, _ string) ([]byte, error) {
	b, err := web.Envelope(e, l)
	if err != nil {
		return nil, err
	}
	var sent struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(b, &sent); err != nil {
		return nil, err
	}
	param := []byte("null")
	if member := shapes.FindMember(e); member != "" {
		param = provider.AppendQuote(nil, member)
	}
	failure := shapes.ReadFailure(sent.Error)
	helpful := *e
	helpful.Message = failure.Message
	if b, err = web.Envelope(&helpful, l); err != nil {
		return nil, err
	}
	if failure.TooLong { // agents shorten the conversation when they see it
		b = bytes.Replace(b, []byte(`"code":"`+e.Code.Name+`"`), []byte(`"code":"`+shapes.TooLong+`"`), 1)
	}
	head := append(append([]byte(`{"error":{"param":`), param...), ',')
	return append(head, bytes.TrimPrefix(b, []byte(`{"error":{`))...), nil
}
