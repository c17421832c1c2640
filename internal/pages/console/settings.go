package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/models/images"
)

// settingsPages show and change the settings of an app.
type settingsPages struct {
	Apps    *apps.Store
	Domains *domains.Checker
	checks  *web.Limiter // of domains, by app
	identityCheck
	modelOffer
}

func (h settingsPages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/settings", access.requireApp(apps.Configure, h.showSettings))
	rt.HandlePage("POST "+appPath+"/settings", access.requireApp(apps.Configure, h.saveSettings))
	rt.HandlePage("POST "+appPath+"/profile", access.requireApp(apps.Configure, h.saveProfile))
	rt.HandlePage("POST "+appPath+"/domain", access.requireApp(apps.Configure, h.checkDomain))
	rt.HandlePage("POST "+appPath+"/logo", access.requireApp(apps.Configure, h.setLogo))
	rt.HandlePage("POST "+appPath+"/logo/delete", access.requireApp(apps.Configure, h.removeLogo))
	rt.HandlePage("GET "+appPath+"/secret", access.requireApp(apps.ManageSecret, h.confirmSecret))
	rt.HandlePage("POST "+appPath+"/secret", access.requireApp(apps.ManageSecret, h.replaceSecret))
	rt.HandlePage("GET "+appPath+"/client-type", access.requireApp(apps.ManageSecret, h.showClientType))
	rt.HandlePage("POST "+appPath+"/client-type", access.requireApp(apps.ManageSecret, h.changeClientType))
	rt.HandlePage("GET "+appPath+"/switch", access.requireApp(apps.Disable, h.confirmDisable))
	rt.HandlePage("POST "+appPath+"/switch", access.requireApp(apps.Disable, h.changeSuspension))
}

// settingsFields returns the fields of the form with the app's settings.
func settingsFields(a apps.App) []ui.Field {
	fields := append(clientFields(a),
		ui.Field{
			ID:    "default_max_tokens",
			Label: "Default output limit (tokens, optional)",
			Kind:  "number",
			Value: formatCount(a.DefaultMaxTokens),
			Hint:  "For calls that don’t set max_tokens. A lower limit holds less money during a call.",
		},
		fitField(&a.Fit, ""),
		fitMinTokensField(&a.FitMinTokens),
		ui.Field{
			ID:    "dev_margin_rate",
			Label: "Your margin (%)",
			Kind:  "number",
			Value: formatPercent(a.DevMargin),
			Hint: "On top of provider cost, paid by the user. Features can have their own margin. Applies to new " +
				"calls immediately.",
		},
		ui.Field{
			ID:    "prompt_cache",
			Label: "Prompt caching",
			Kind:  "select",
			Hint:  "Marks long conversations for the provider’s cache, where that saves your users money.",
			Options: []ui.Option{
				{ID: "on", Text: "On", Chosen: a.PromptCache},
				{ID: "off", Text: "Off", Chosen: !a.PromptCache},
			},
		},
		ui.Field{
			ID:    "own_work",
			Label: "Charges for your own work",
			Kind:  "select",
			Hint: "Lets you charge users for work that isn’t a call, such as a search, at your own prices. The " +
				"consent screen says so, and users who connected before must connect again.",
			Options: []ui.Option{
				{ID: "off", Text: "Off", Chosen: !a.OwnWork},
				{ID: "on", Text: "On", Chosen: a.OwnWork},
			},
		},
		ui.Field{
			ID:    "transcripts",
			Label: "Transcripts of voice",
			Kind:  "select",
			Hint: "Lets your voice sessions have what users say written down. Each transcript is charged. The " +
				"consent screen says so, and users who connected before must connect again.",
			Options: []ui.Option{
				{ID: "off", Text: "Off", Chosen: !a.Transcripts},
				{ID: "on", Text: "On", Chosen: a.Transcripts},
			},
		},
	)
	if a.Tier != apps.Sandbox {
		return fields
	}
	return append(fields,
		ui.Field{
			ID:    "provider_mode",
			Label: "Mode",
			Kind:  "select",
			Value: a.ProviderMode,
			Hint:  "Live models in the sandbox have a daily allowance. Beyond it, add your own provider keys.",
			Options: []ui.Option{
				{ID: apps.Mock, Text: "Mock (free, canned answers)", Chosen: a.ProviderMode == apps.Mock},
				{ID: apps.Live, Text: "Live (the models’ providers)", Chosen: a.ProviderMode == apps.Live},
			},
		},
		ui.Field{
			ID:    "test_allowlist",
			Label: "Testers (emails, one per line)",
			Kind:  "area",
			Value: strings.Join(a.TestAllowlist, "\n"),
			Hint:  "Each tester gets a test account with test money.",
		},
	)
}

// formatCount writes an optional number for a field.
func formatCount(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

// fitField is the switch that lowers the output limit of calls that don’t fit. fit is its value,
// or nil if it is the app’s, for which unset is the text; "" = it is always set.
func fitField(fit *bool, unset string) ui.Field {
	field := ui.Field{
		ID:    "fit",
		Label: "When a call doesn’t fit",
		Kind:  "select",
		Hint: "A call that could cost more than the user has left can run with fewer output tokens instead of being " +
			"refused.",
	}
	if unset != "" {
		field.Options = append(field.Options, ui.Option{Text: unset, Chosen: fit == nil})
	}
	field.Options = append(field.Options,
		ui.Option{ID: "off", Text: "Refuse it", Chosen: fit != nil && !*fit},
		ui.Option{ID: "on", Text: "Lower its output limit until it fits", Chosen: fit != nil && *fit})
	for _, o := range field.Options {
		if o.Chosen {
			field.Value = o.ID
		}
	}
	return field
}

// fitMinTokensField is the floor of that switch; nil = the app’s.
func fitMinTokensField(n *int64) ui.Field {
	return ui.Field{
		ID:    "fit_min_tokens",
		Label: "Lowest output limit (tokens, optional)",
		Kind:  "number",
		Value: formatCount(n),
		Hint:  "A call that doesn’t fit with this many output tokens is refused.",
	}
}

func (h settingsPages) settingsPage(r *http.Request, v visit) ui.AppSettings {
	p := ui.AppSettings{
		Console:  v.newPage(r, "Settings", "/settings"),
		Fields:   settingsFields(v.app.AsProposed()),
		ClientID: v.app.ClientID,
		Runs:     describeClientType(v.app.ClientType),
		Created:  ui.Date(v.app.CreatedUS),
		Off:      v.app.SwitchedOff,
		Profile:  profileFields(v.app.AsProposed().Profile),
		Domain:   describeDomain(v.app),
		Models:   modelGroups(h.Catalog.Current().Offered(h.Now()), v.app.AllowedModels),
	}
	if waiting := v.app.Proposed.Members(); len(waiting) > 0 {
		p.InReview = strings.ReplaceAll(strings.Join(waiting, ", "), "_", " ")
	}
	boxes := []ui.Option{}
	for _, g := range p.Models {
		boxes = append(boxes, g.Models...)
	}
	p.Shown, p.ProfileShown = ui.ShownFields(p.Fields, boxes...), ui.ShownFields(p.Profile)
	p.OnlySecret, p.OnlySwitch = v.explain(apps.ManageSecret), v.explain(apps.Disable)
	if v.app.OldSecretUntilUS > h.Now().UnixMicro() {
		p.OldSecret = ui.Date(v.app.OldSecretUntilUS)
	}
	if v.app.Suspension != nil {
		p.Suspension = ui.Sentence(v.app.Suspension.Reason)
	}
	return p
}

// showSettings is GET /developer/apps/{id}/settings.
func (h settingsPages) showSettings(w http.ResponseWriter, r *http.Request, v visit) error {
	return ui.Render(w, http.StatusOK, h.settingsPage(r, v))
}

// saveSettings is POST /developer/apps/{id}/settings: it patches every setting that was typed.
func (h settingsPages) saveSettings(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	change, found := h.parseSettings(form, v.app)
	if to := form.Get("client_type"); to != "" && to != v.app.ClientType { // the page of an earlier version
		found = append(found, ui.Problem{
			Field: "form",
			Text:  "Owners change where the app runs on another page now. See Credentials below.",
		})
	}
	if len(found) == 0 {
		if _, err = h.Apps.Patch(r.Context(), v.app.ID, change, h.isOffered); err == nil {
			h.Apps.NotifyChange(v.app.ID)
			return web.SeeOther(w, v.path("/settings?done=saved"))
		}
	}
	page := h.settingsPage(r, v)
	if page.Errors = found; err != nil {
		if page.Errors = formProblems(err,
			append(page.Fields, ui.Field{ID: "allowed_models", Label: "Allowed models"})); page.Errors == nil {
			return err
		}
	}
	page.Fields = withErrors(withValues(page.Fields, ui.TypedFields(form)), page.Errors)
	page.Models = modelGroups(h.Catalog.Current().Offered(h.Now()), change.AllowedModels.Value)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// parseSettings reads the form.
func (h settingsPages) parseSettings(form url.Values, a apps.App) (apps.Change, []ui.Problem) {
	typed := ui.TypedFields(form)
	in := formReader{form: typed}
	all := a.AllowedModels // retired models may stay
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		if !slices.Contains(a.AllowedModels, m.ID) {
			all = append(all[:len(all):len(all)], m.ID)
		}
	}
	c := apps.Change{
		Name:             in.readText("name"),
		RedirectURIs:     in.readLines("redirect_uris"),
		AllowedModels:    setField(tickedBoxes(form, modelPrefix, all, a.AllowedModels)),
		DefaultMaxTokens: in.readInteger("default_max_tokens", "Default output limit"),
		Fit:              in.readSwitch("fit"),
		FitMinTokens:     in.readInteger("fit_min_tokens", "Lowest output limit"),
		DevMarginRate:    in.readPercent("dev_margin_rate", "Your margin", false),
	}
	if typed.Has("prompt_cache") {
		c.PromptCache = setField(typed.Get("prompt_cache") == "on")
	}
	if typed.Has("own_work") {
		c.OwnWork = setField(typed.Get("own_work") == "on")
	}
	if typed.Has("transcripts") {
		c.Transcripts = setField(typed.Get("transcripts") == "on")
	}
	if a.Tier == apps.Sandbox {
		c.ProviderMode, c.TestAllowlist = in.readText("provider_mode"), in.readLines("test_allowlist")
	}
	return c, in.problems
}

// setLogo is POST /developer/apps/{id}/logo.
func (h settingsPages) setLogo(w http.ResponseWriter, r *http.Request, v visit) error {
	file, err := web.ReadFile(r, "logo", images.MaxLogoBytes)
	if err == nil {
		err = h.Apps.SetLogo(r.Context(), v.app.ID, file)
	}
	if err == nil {
		return web.SeeOther(w, v.path("/settings?done=logo"))
	}
	page := h.settingsPage(r, v)
	if page.Errors = formProblems(err, []ui.Field{{ID: "logo", Label: "Logo"}}); page.Errors == nil {
		return err
	}
	page.LogoError = page.Errors[0].Text
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// removeLogo is POST /developer/apps/{id}/logo/delete.
func (h settingsPages) removeLogo(w http.ResponseWriter, r *http.Request, v visit) error {
	if err := h.Apps.RemoveLogo(r.Context(), v.app.ID); err != nil {
		return err
	}
	return web.SeeOther(w, v.path("/settings?done=no-logo"))
}

// When a replaced client secret ends: the values of the form's field "when".
const (
	endOverlap = "overlap"
	endNow     = "now"
)

// secretPage asks whether to replace the client secret; when is the chosen end of the old one.
func secretPage(r *http.Request, v visit, when string) ui.Confirm {
	return ui.Confirm{
		Console: v.newPage(r, "Replace the client secret?", "/settings"),
		Lead:    "Your server needs the new secret for its next token request. Access tokens stay valid.",
		Action:  v.path("/secret"),
		Legend:  "The old secret",
		Choices: []ui.Choice{
			{
				ID:     endOverlap,
				Name:   "Works for 24 more hours",
				Detail: "Deploy the new secret without downtime. A secret replaced before ends now.",
				Chosen: when != endNow,
			},
			{
				ID:     endNow,
				Name:   "Ends now",
				Detail: "Choose this if the old secret may have leaked.",
				Chosen: when == endNow,
			},
		},
		Button: "Replace client secret",
		Back:   ui.Link{Href: v.path("/settings"), Text: "Cancel"},
	}
}

// confirmSecret is GET /developer/apps/{id}/secret.
func (h settingsPages) confirmSecret(w http.ResponseWriter, r *http.Request, v visit) error {
	return h.identityCheck.show(w, r, v.Account, secretPage(r, v, endOverlap))
}

// replaceSecret is POST /developer/apps/{id}/secret.
func (h settingsPages) replaceSecret(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	when := form.Get("when")
	if when != endOverlap && when != endNow {
		return apierr.InvalidRequest.Errorf("when: must be overlap or now")
	}
	page := secretPage(r, v, when)
	if ok, err := h.identityCheck.pass(w, r, v.Account, form.Get("present"), page); !ok || err != nil {
		return err
	}
	secret, err := h.Apps.ReplaceSecret(r.Context(), v.app.ID, when == endOverlap)
	if err != nil {
		return err
	}
	old := "The old one no longer works."
	if when == endOverlap {
		old = "The old one works until " + ui.Date(h.Now().Add(apps.SecretOverlap).UnixMicro()) + "."
	}
	return ui.Render(w, http.StatusOK, ui.Secret{
		Console: v.newPage(r, "New client secret", "/settings"),
		Lead:    "You won’t see this secret again. " + old + secretNote(v.app),
		Facts:   []ui.Fact{{Name: "Client id", Value: v.app.ClientID}, {Name: "Client secret", Value: secret}},
		Next:    ui.Link{Href: v.path("/settings"), Text: "Back to settings"},
	})
}

// clientTypePage asks for another client type; to is the chosen one. A public client needs no secret, so that who may
// choose it is who may replace the secret.
func clientTypePage(r *http.Request, v visit, to string) ui.Confirm {
	return ui.Confirm{
		Console: v.newPage(r, "Change where the app runs?", "/settings"),
		Lead:    aboutTypes,
		Action:  v.path("/client-type"),
		Legend:  "Where it runs",
		Choices: []ui.Choice{
			{
				ID:     apps.Confidential,
				Name:   onServer,
				Detail: "Its token requests need the client secret.",
				Chosen: to == apps.Confidential,
			},
			{
				ID:     apps.Public,
				Name:   onDevices,
				Detail: "Its token requests need no secret. Redirect URLs can lead to http://127.0.0.1/….",
				Chosen: to == apps.Public,
			},
		},
		Button: "Change where it runs",
		Back:   ui.Link{Href: v.path("/settings"), Text: "Cancel"},
	}
}

// showClientType is GET /developer/apps/{id}/client-type.
func (h settingsPages) showClientType(w http.ResponseWriter, r *http.Request, v visit) error {
	return h.identityCheck.show(w, r, v.Account, clientTypePage(r, v, v.app.ClientType))
}

// changeClientType is POST /developer/apps/{id}/client-type.
func (h settingsPages) changeClientType(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	to := form.Get("when")
	page := clientTypePage(r, v, to)
	if ok, err := h.identityCheck.pass(w, r, v.Account, form.Get("present"), page); !ok || err != nil {
		return err
	}
	if _, err = h.Apps.Patch(r.Context(), v.app.ID, apps.Change{ClientType: setField(to)}, h.isOffered); err == nil {
		h.Apps.NotifyChange(v.app.ID)
		return web.SeeOther(w, v.path("/settings?done=saved"))
	}
	if page.Errors = formProblems(err, append(clientFields(v.app), clientTypeField())); page.Errors == nil {
		return err
	}
	page.Password = v.HasPassword
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

// confirmDisable is GET /developer/apps/{id}/switch.
func (h settingsPages) confirmDisable(w http.ResponseWriter, r *http.Request, v visit) error {
	if v.app.SwitchedOff {
		return web.SeeOther(w, v.path("/settings"))
	}
	return ui.Render(w, http.StatusOK, ui.Confirm{
		Console: v.newPage(r, "Disable "+v.app.Name+"?", "/settings"),
		Lead: "New calls, tokens and connections are refused until you enable the app again. Running calls finish. " +
			"Existing connections are kept.",
		Action: v.path("/switch"),
		Value:  ui.Fact{Name: "to", Value: "off"},
		Button: "Disable app",
		Back:   ui.Link{Href: v.path("/settings"), Text: "Cancel"},
	})
}

// changeSuspension is POST /developer/apps/{id}/switch.
func (h settingsPages) changeSuspension(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	to := form.Get("to")
	if to != "on" && to != "off" {
		return apierr.InvalidRequest.Errorf("to: must be on or off")
	}
	if to == "on" && v.app.Suspension != nil { // Patch would refuse it
		page := h.settingsPage(r, v)
		page.Errors = []ui.Problem{
			{
				Field: "form",
				Text: "The service suspended this app, and only the operator can lift this: " +
					ui.Sentence(v.app.Suspension.Reason),
			},
		}
		return ui.Render(w, http.StatusUnprocessableEntity, page)
	}
	if _, err := h.Apps.Patch(r.Context(), v.app.ID, apps.Change{Suspended: setField(to == "off")},
		h.isOffered); err != nil {
		return err
	}
	h.Apps.NotifyChange(v.app.ID)
	return web.SeeOther(w, v.path("/settings?done="+to))
}
