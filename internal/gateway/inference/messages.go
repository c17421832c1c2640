package inference

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/gateway/shapes/messages"
)

// messagesPrefix begins the paths of Anthropic's clients. Their base URL ends before /v1.
const messagesPrefix = "/anthropic/"

// mountMessages adds the routes of Anthropic's clients (decision 074).
func (h *Handler) mountMessages(rt *web.Router) {
	rt.SetErrorBody(messagesPrefix, messages.ErrorBody)
	rt.SetRequestIDHeader(messagesPrefix, "Request-Id")
	route := plan.Route{Path: "anthropic/messages", Chat: true}
	rt.Handle("POST /anthropic/v1/messages", func(w http.ResponseWriter, r *http.Request) error {
		if err := acceptKey(r, "x-api-key"); err != nil {
			return err
		}
		return h.infer(w, r, route, alone(messages.Parse))
	})
	rt.Handle("POST /anthropic/v1/messages/count_tokens", func(w http.ResponseWriter, r *http.Request) error {
		if err := acceptKey(r, "x-api-key"); err != nil {
			return err
		}
		return h.countTokens(w, r, route, alone(messages.ParseCount), "input_tokens")
	})
	const offered = "POST /anthropic/v1/messages answers one message at a time, whole or streamed."
	for path, name := range map[string]string{
		"/anthropic/v1/messages/batches": "Message batches are not offered; ",
		"/anthropic/v1/files":            "Files are not offered; send images in the messages. ",
		"/anthropic/v1/complete":         "Text completions are not offered; ",
		"/anthropic/messages":            "The path begins with /anthropic/v1. ",
	} {
		rt.SetHint(path, name+offered)
	}
}

// acceptKey takes an access token from the header where the clients of an API send it, as well as from Authorization.
func acceptKey(r *http.Request, header string) error {
	values := r.Header.Values(header)
	if len(values) == 0 {
		return nil
	}
	if len(values) == 1 {
		bearer := "Bearer " + values[0]
		switch other := r.Header.Values("Authorization"); {
		case len(other) == 0:
			r.Header.Set("Authorization", bearer)
			return nil
		case len(other) == 1 && other[0] == bearer:
			return nil
		}
	}
	err := web.NewBearerRefusal()
	err.Message = header + " and Authorization hold different access tokens; send one of them"
	return err
}

// countTokens answers how many input tokens a request has by our count, which a hold would be made for, in a member of
// that name. It makes none.
func (h *Handler) countTokens(w http.ResponseWriter, r *http.Request, route plan.Route, parse parser,
	member string) error {
	_, err := h.withCall(r, func(c *call) error {
		if err := h.planCall(w, r, route, parse, c); err != nil {
			return err
		}
		if c.plan.Images > 0 {
			if err := h.readImages(r.Context(), c); err != nil {
				return err
			}
		}
		return web.WriteJSON(w, http.StatusOK, map[string]int64{member: c.plan.InputTokens})
	})
	return err
}
