package console

import (
	"net/http"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

func (h *Handler) keysPage(r *http.Request, a accounts.Account) (ui.ProviderKeys, error) {
	page := ui.ProviderKeys{Console: own(r, a, "Provider keys", "/developer/keys"), Fields: []ui.Field{
		{ID: "provider", Label: "Provider", Kind: "select"},
		{
			ID:    "key",
			Label: "Key",
			Kind:  "password",
			Hint:  "We verify it by listing the provider’s models, which is free.",
		},
	}}
	for _, p := range []string{"openai", "anthropic", "google"} {
		page.Fields[0].Options = append(page.Fields[0].Options, ui.Option{ID: p, Text: providerName(p)})
	}
	list, err := h.Keys.List(r.Context(), a.ID)
	for _, k := range list {
		page.List = append(page.List, ui.ProviderKey{
			Provider: k.Provider,
			Name:     providerName(k.Provider),
			Last4:    k.Last4,
			Tested:   ui.Date(k.TestedUS),
		})
	}
	return page, err
}

// keys is GET /developer/keys.
func (h *Handler) keys(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.keysPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// putKey is POST /developer/keys. The key that was typed is never sent back.
func (h *Handler) putKey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	provider := form.Get("provider")
	if !providerkeys.IsKnownProvider(provider) {
		return ui.NotFound()
	}
	if _, err = h.Keys.Put(r.Context(), a.ID, provider, providerkeys.NewSecret(form.Get("key"))); err == nil {
		return web.SeeOther(w, "/developer/keys?done=key")
	}
	page, listErr := h.keysPage(r, a)
	if listErr != nil {
		return listErr
	}
	if page.Errors = problems(err, page.Fields); page.Errors == nil {
		return err
	}
	for i := range page.Fields[0].Options {
		page.Fields[0].Options[i].Chosen = page.Fields[0].Options[i].ID == provider
	}
	page.Fields = beside(page.Fields, page.Errors)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// deleteKey is POST /developer/keys/{provider}/delete.
func (h *Handler) deleteKey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := h.Keys.Delete(r.Context(), a.ID, r.PathValue("provider")); err != nil {
		return gone(err)
	}
	return web.SeeOther(w, "/developer/keys?done=deleted")
}
