package catalog

import (
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// An anthropicModel is a model as Anthropic's clients read it.
type anthropicModel struct {
	Type           string    `json:"type"`
	ID             string    `json:"id"`
	DisplayName    string    `json:"display_name"`
	CreatedAt      time.Time `json:"created_at"` // not known: 1970, as Anthropic says for such models
	MaxInputTokens int64     `json:"max_input_tokens"`
	MaxTokens      int64     `json:"max_tokens"`
}

// listAnthropic returns the models that answer messages, of every provider.
func (h *Handler) listAnthropic() []anthropicModel {
	list := []anthropicModel{}
	for _, l := range h.list(h.Catalog.Current(), h.Now().UTC()) {
		if l.Capabilities.Realtime || l.Capabilities.Embeddings {
			continue
		}
		list = append(list, anthropicModel{
			Type:           "model",
			ID:             l.ID,
			DisplayName:    l.ID,
			CreatedAt:      time.Unix(0, 0).UTC(),
			MaxInputTokens: l.ContextWindow,
			MaxTokens:      l.MaxOutputTokens,
		})
	}
	return list
}

// listForAnthropic answers GET /anthropic/v1/models. The list is one page, whatever limit the client asks for.
func (h *Handler) listForAnthropic(w http.ResponseWriter, r *http.Request) error {
	out := struct {
		Data    []anthropicModel `json:"data"`
		HasMore bool             `json:"has_more"`
		FirstID *string          `json:"first_id"`
		LastID  *string          `json:"last_id"`
	}{Data: []anthropicModel{}}
	if q := r.URL.Query(); q.Get("after_id") == "" && q.Get("before_id") == "" { // there is no second page
		out.Data = h.listAnthropic()
	}
	if n := len(out.Data); n > 0 {
		out.FirstID, out.LastID = &out.Data[0].ID, &out.Data[n-1].ID
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// getForAnthropic answers GET /anthropic/v1/models/{model}.
func (h *Handler) getForAnthropic(w http.ResponseWriter, r *http.Request) error {
	for _, m := range h.listAnthropic() {
		if m.ID == r.PathValue("model") {
			return web.WriteJSON(w, http.StatusOK, m)
		}
	}
	return apierr.NotFound.Errorf("model: this model is not offered; GET /anthropic/v1/models lists what is")
}
