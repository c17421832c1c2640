package catalog

import (
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// A googleModel is a model as Google's clients read it.
type googleModel struct {
	Name             string   `json:"name"` // models/ and the id
	BaseModelID      string   `json:"baseModelId"`
	Version          string   `json:"version"` // not known: the id
	DisplayName      string   `json:"displayName"`
	Description      string   `json:"description"`
	InputTokenLimit  int64    `json:"inputTokenLimit"`
	OutputTokenLimit int64    `json:"outputTokenLimit"`
	Methods          []string `json:"supportedGenerationMethods"`
	Thinking         bool     `json:"thinking"`
}

// listGoogle returns the models that generate content, of every provider.
func (h *Handler) listGoogle() []googleModel {
	list := []googleModel{}
	for _, l := range h.list(h.Catalog.Current(), h.Now().UTC()) {
		if l.Capabilities.Realtime || l.Capabilities.Embeddings {
			continue
		}
		list = append(list, googleModel{
			Name:             "models/" + l.ID,
			BaseModelID:      l.ID,
			Version:          l.ID,
			DisplayName:      l.ID,
			Description:      ProviderName(l.Provider) + "’s " + l.ID,
			InputTokenLimit:  l.ContextWindow,
			OutputTokenLimit: l.MaxOutputTokens,
			Methods:          []string{"generateContent", "countTokens"},
			Thinking:         l.Capabilities.Reasoning,
		})
	}
	return list
}

// CheckGoogleAddress refuses a token in the address, and a version of Google's API that is none. v1beta and v1, for
// which Google's SDK for Node asks since its version 3, are the same here.
func CheckGoogleAddress(r *http.Request) error {
	if v := r.PathValue("version"); v != "v1beta" && v != "v1" {
		return apierr.NotFound.Errorf(
			"There is nothing at this address: the path begins with /google/v1beta or /google/v1.")
	}
	return web.RefuseTokenInURL(r)
}

// listForGoogle answers GET /google/v1beta/models. The list is one page, whatever size the client asks for.
func (h *Handler) listForGoogle(w http.ResponseWriter, r *http.Request) error {
	if err := CheckGoogleAddress(r); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, map[string][]googleModel{"models": h.listGoogle()})
}

// getForGoogle answers GET /google/v1beta/models/{model}.
func (h *Handler) getForGoogle(w http.ResponseWriter, r *http.Request) error {
	if err := CheckGoogleAddress(r); err != nil {
		return err
	}
	for _, m := range h.listGoogle() {
		if m.BaseModelID == r.PathValue("model") {
			return web.WriteJSON(w, http.StatusOK, m)
		}
	}
	return apierr.NotFound.Errorf("model: this model is not offered; GET /google/v1beta/models lists what is")
}
