package catalog

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// An openAIModel is a model as OpenAI's clients read it: their members, then those of the listing.
type openAIModel struct {
	Object  string `json:"object"`
	Created int64  `json:"created"` // not known
	OwnedBy string `json:"owned_by"`
	Listing
}

func (h *Handler) listOpenAI() []openAIModel {
	list := []openAIModel{}
	for _, l := range h.list(h.Catalog.Current(), h.Now().UTC()) {
		list = append(list, openAIModel{Object: "model", OwnedBy: l.Provider, Listing: l})
	}
	return list
}

// listForOpenAI answers GET /openai/v1/models. It needs no credential, as GET /v1/models.
func (h *Handler) listForOpenAI(w http.ResponseWriter, _ *http.Request) error {
	return web.WriteJSON(w, http.StatusOK, struct {
		Object string        `json:"object"`
		Data   []openAIModel `json:"data"`
	}{"list", h.listOpenAI()})
}

// getForOpenAI answers GET /openai/v1/models/{model}.
func (h *Handler) getForOpenAI(w http.ResponseWriter, r *http.Request) error {
	for _, m := range h.listOpenAI() {
		if m.ID == r.PathValue("model") {
			return web.WriteJSON(w, http.StatusOK, m)
		}
	}
	return apierr.NotFound.Errorf("model: this model is not offered; GET /openai/v1/models lists what is")
}
