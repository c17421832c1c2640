package console

import (
	"net/http"

	"github.com/purserhq/purser/internal/apps/providerkeys"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/people/accounts"
)

// keyPages manage the provider keys of a developer.
type keyPages struct {
	Keys *providerkeys.Store
}

func (h keyPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET /developer/keys", access.requireDeveloper(h.showKeys))
	rt.HandlePage("POST /developer/keys", access.requireDeveloper(h.putKey))
	rt.HandlePage("GET /developer/keys/{provider}/delete", access.requireDeveloper(h.confirmDelete))
	rt.HandlePage("POST /developer/keys/{provider}/delete", access.requireDeveloper(h.deleteKey))
}

func (h keyPages) keysPage(r *http.Request, a accounts.Account) (ui.ProviderKeys, error) {
	page := ui.ProviderKeys{Console: newDeveloperPage(r, a, "Provider keys", "/developer/keys"), Fields: []ui.Field{
		{ID: "provider", Label: "Provider", Kind: "select"},
		{
			ID:    "key",
			Label: "Key",
			Kind:  "password",
			Hint:  "We verify it by listing the provider’s models, which is free.",
		},
	}}
	for _, p := range []string{"openai", "anthropic", "google"} {
		page.Fields[0].Options = append(page.Fields[0].Options, ui.Option{ID: p, Text: catalog.ProviderName(p)})
	}
	list, err := h.Keys.List(r.Context(), a.ID)
	for _, k := range list {
		page.List = append(page.List, ui.ProviderKey{
			Provider: k.Provider,
			Name:     catalog.ProviderName(k.Provider),
			Last4:    k.Last4,
			Tested:   ui.Date(k.TestedUS),
		})
	}
	return page, err
}

// showKeys is GET /developer/keys.
func (h keyPages) showKeys(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	page, err := h.keysPage(r, a)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// putKey is POST /developer/keys. No response repeats the submitted key.
func (h keyPages) putKey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
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
	if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
		return err
	}
	for i := range page.Fields[0].Options {
		page.Fields[0].Options[i].Chosen = page.Fields[0].Options[i].ID == provider
	}
	page.Fields = withErrors(page.Fields, page.Errors)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// confirmDelete is GET /developer/keys/{provider}/delete.
func (h keyPages) confirmDelete(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	list, err := h.Keys.List(r.Context(), a.ID)
	if err != nil {
		return err
	}
	for _, k := range list {
		if k.Provider == r.PathValue("provider") {
			return ui.Render(w, http.StatusOK, ui.Confirm{
				Console: newDeveloperPage(r, a, "Delete your key of "+catalog.ProviderName(k.Provider)+"?",
					"/developer/keys"),
				Lead:   "Sandbox calls to its models count against the daily allowance again.",
				Action: "/developer/keys/" + k.Provider + "/delete",
				Button: "Delete key",
				Back:   ui.Link{Href: "/developer/keys", Text: "Cancel"},
			})
		}
	}
	return ui.NotFound()
}

// deleteKey is POST /developer/keys/{provider}/delete.
func (h keyPages) deleteKey(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if err := h.Keys.Delete(r.Context(), a.ID, r.PathValue("provider")); err != nil {
		return notFound(err)
	}
	return web.SeeOther(w, "/developer/keys?done=deleted")
}
