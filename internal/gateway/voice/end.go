package voice

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/voice/session"
)

// getSession serves GET /v1/realtime/sessions/{id}.
func (h *Handler) getSession(w http.ResponseWriter, r *http.Request) error {
	who, err := h.resolveCaller(r)
	if err != nil {
		return err
	}
	s, err := h.Supervisor.Get(r.Context(), holderOf(who), r.PathValue("id"))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, s)
}

// listSessions serves GET /v1/realtime/sessions: the sessions of the connection, or of the child whose token it is,
// newest first, without receipts.
func (h *Handler) listSessions(w http.ResponseWriter, r *http.Request) error {
	who, err := h.resolveCaller(r)
	if err != nil {
		return err
	}
	page, err := web.ReadPage(r, id.Voice)
	if err != nil {
		return err
	}
	list, err := h.Supervisor.List(r.Context(), Filter{
		ConnectionID: who.ConnectionID,
		ChildID:      who.ChildID(),
		Before:       page.StartingAfter,
		Limit:        page.Limit + 1,
	})
	if err != nil {
		return err
	}
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, list[len(list)-1].ID)
	}
	return web.WriteJSON(w, http.StatusOK, append([]Session{}, list...))
}

// endSession serves POST /v1/realtime/sessions/{id}/end on any node.
func (h *Handler) endSession(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.Supervisor.endTimeout)
	defer cancel()
	r = r.WithContext(ctx)
	who, err := h.resolveCaller(r)
	if err != nil {
		return err
	}
	when, err := readWhen(r)
	if err != nil {
		return err
	}
	sessionID := r.PathValue("id")
	if err := h.Supervisor.End(r.Context(), holderOf(who), sessionID, when); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusAccepted, map[string]any{"id": sessionID, "ending": true})
}

// readWhen reads the optional body of a request to end.
func readWhen(r *http.Request) (when string, err error) {
	var body struct {
		When string `json:"when"`
	}
	if r.ContentLength != 0 {
		if err := web.ReadJSON(r, &body); err != nil {
			return "", err
		}
	}
	switch body.When {
	case "":
		return session.AfterHeard, nil
	case session.AfterHeard, session.Immediate:
		return body.When, nil
	}
	return "", invalid("when: must be after_heard or immediate")
}
