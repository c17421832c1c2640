package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// featurePages list, create and change the features of an app.
type featurePages struct {
	Apps     *apps.Store
	Features *features.Store
	modelOffer
}

func (h featurePages) mount(rt *web.Router, access access) {
	rt.HandlePage("GET "+appPath+"/features", access.requireApp(apps.View, h.showFeatures))
	rt.HandlePage("POST "+appPath+"/features", access.requireApp(apps.Configure, h.createFeature))
	rt.HandlePage("GET "+appPath+"/features/{slug}", access.requireApp(apps.Configure, h.showFeature))
	rt.HandlePage("POST "+appPath+"/features/{slug}", access.requireApp(apps.Configure, h.saveFeature))
}

// featureFields returns the fields of the form. Only a new feature has the field for its slug.
func (h featurePages) featureFields(v visit, f features.Feature) []ui.Field {
	fields := []ui.Field{
		{ID: "display_name", Label: "Name", Value: f.DisplayName, Hint: "Shown to users, such as “Summaries”."},
		{ID: "description", Label: "Description", Value: f.Description, Hint: "One sentence for users."},
		{ID: "max_cost_per_call_mc", Label: "Max cost per call (USD, optional)", Kind: "dollars"},
		{
			ID:    "max_tokens",
			Label: "Default output limit (tokens, optional)",
			Kind:  "number",
			Hint:  "For calls that don’t set max_tokens.",
		},
		fitField(f.Fit, "As the app’s settings say"),
		fitMinTokensField(f.FitMinTokens),
		{
			ID:    "rate_limit",
			Label: "Calls per minute (optional)",
			Kind:  "number",
			Hint:  "Per user, in any 60 seconds.",
		},
		{ID: "default_model", Label: "Default model", Kind: "select", Hint: "For calls that don’t name a model."},
		{
			ID:    "dev_margin_rate",
			Label: "Your margin (%, optional)",
			Kind:  "number",
			Hint:  "Overrides the app’s margin of " + formatPercent(v.app.DevMargin) + "%.",
		},
	}
	if f.Slug == "" {
		fields = append([]ui.Field{{
			ID:    "slug",
			Label: "Slug",
			Hint:  "The name in code: lower-case letters, digits and hyphens. It can’t be changed later.",
		}}, fields...)
	}
	model := ""
	for i := range fields {
		switch field := &fields[i]; {
		case field.ID == "max_cost_per_call_mc" && f.MaxCostPerCallMC != nil:
			field.Value = ui.Typed(*f.MaxCostPerCallMC)
		case field.ID == "max_tokens" && f.MaxTokens != nil:
			field.Value = strconv.FormatInt(*f.MaxTokens, 10)
		case field.ID == "rate_limit" && f.RateLimit != nil:
			field.Value = strconv.FormatInt(*f.RateLimit, 10)
		case field.ID == "dev_margin_rate" && f.DevMargin != nil:
			field.Value = formatPercent(*f.DevMargin)
		case field.ID == "default_model":
			if f.DefaultModel != nil {
				model = *f.DefaultModel
			}
			field.Value, field.Options = model, h.modelOptions("None", model)
		}
	}
	return fields
}

// modelOptions returns the offered models, and the chosen one even if it is no longer offered.
func (h featurePages) modelOptions(none, chosen string) []ui.Option {
	var list []ui.Option
	if none != "" {
		list = append(list, ui.Option{Text: none, Chosen: chosen == ""})
	}
	for _, m := range h.Catalog.Current().Offered(h.Now()) {
		if !m.Capabilities.Embeddings || m.ID == chosen { // no route calls an embedding model by a feature's name
			list = append(list, ui.Option{ID: m.ID, Text: m.ID, Chosen: m.ID == chosen})
		}
	}
	if chosen != "" && !h.isOffered(chosen) {
		list = append(list, ui.Option{ID: chosen, Text: chosen + " (no longer offered)", Chosen: true})
	}
	return list
}

// parseFeature reads the form.
func parseFeature(form url.Values) (features.Change, []ui.Problem) {
	in := formReader{form: form}
	c := features.Change{
		DisplayName:      in.readText("display_name"),
		Description:      in.readText("description"),
		MaxCostPerCallMC: in.readDollars("max_cost_per_call_mc", "Max cost per call"),
		MaxTokens:        in.readInteger("max_tokens", "Default output limit"),
		Fit:              in.readSwitch("fit"),
		FitMinTokens:     in.readInteger("fit_min_tokens", "Lowest output limit"),
		RateLimit:        in.readInteger("rate_limit", "Calls per minute"),
		DevMarginRate:    in.readPercent("dev_margin_rate", "Your margin", true),
		DefaultModel:     in.readText("default_model"),
	}
	if form.Has("default_model") && form.Get("default_model") == "" {
		c.DefaultModel = nullField[string]()
	}
	return c, in.problems
}

func (h featurePages) featureList(r *http.Request, v visit) (ui.FeatureList, error) {
	page := ui.FeatureList{
		Console: v.newPage(r, "Features", "/features"),
		Fields:  h.featureFields(v, features.Feature{}),
	}
	page.Only = v.explain(apps.Configure)
	list, err := h.Features.ListAll(r.Context(), v.app.ID)
	for _, f := range list {
		page.List = append(page.List, ui.FeatureLine{
			Slug:        f.Slug,
			Name:        f.DisplayName,
			Description: f.Description,
			Rules:       describeGuardrails(f),
		})
	}
	return page, err
}

// describeGuardrails returns a feature's guardrails as one line of text.
func describeGuardrails(f features.Feature) string {
	var list []string
	if f.MaxCostPerCallMC != nil {
		list = append(list, "at most "+ui.Exact(*f.MaxCostPerCallMC)+" per call")
	}
	if f.MaxTokens != nil {
		list = append(list, ui.Count(*f.MaxTokens)+" tokens by default")
	}
	if f.Fit != nil && *f.Fit {
		list = append(list, "lowered until it fits")
	}
	if f.RateLimit != nil {
		list = append(list, ui.Count(*f.RateLimit)+" calls per minute")
	}
	if f.DefaultModel != nil {
		list = append(list, *f.DefaultModel+" by default")
	}
	if f.DevMargin != nil {
		list = append(list, "margin "+formatPercent(*f.DevMargin)+"%")
	}
	return strings.Join(list, " · ")
}

// showFeatures is GET /developer/apps/{id}/features.
func (h featurePages) showFeatures(w http.ResponseWriter, r *http.Request, v visit) error {
	page, err := h.featureList(r, v)
	if err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, page)
}

// createFeature is POST /developer/apps/{id}/features.
func (h featurePages) createFeature(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	change, found := parseFeature(form)
	if change.Slug = setField(strings.TrimSpace(form.Get("slug"))); len(found) == 0 {
		if _, err = h.Features.Create(r.Context(), v.app.ID, change); err == nil {
			h.Apps.NotifyChange(v.app.ID)
			return web.SeeOther(w, v.path("/features?done=feature"))
		}
	}
	page, listErr := h.featureList(r, v)
	if listErr != nil {
		return listErr
	}
	if page.Errors = found; err != nil {
		if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
			return err
		}
	}
	page.Fields = withErrors(withValues(page.Fields, form), page.Errors)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}

func (h featurePages) featurePage(r *http.Request, v visit, f features.Feature) ui.FormPage {
	fields := h.featureFields(v, f)
	return ui.FormPage{
		Console: v.newPage(r, "Feature "+f.Slug, "/features"),
		Fields:  fields,
		Shown:   ui.ShownFields(fields),
		Action:  v.path("/features/" + f.Slug),
		Button:  "Save",
		Back:    ui.Link{Href: v.path("/features"), Text: "All features"},
	}
}

// showFeature is GET /developer/apps/{id}/features/{slug}.
func (h featurePages) showFeature(w http.ResponseWriter, r *http.Request, v visit) error {
	f, err := h.Features.Get(r.Context(), v.app.ID, r.PathValue("slug"))
	if err != nil {
		return notFound(err)
	}
	return ui.Render(w, http.StatusOK, h.featurePage(r, v, f))
}

// saveFeature is POST /developer/apps/{id}/features/{slug}.
func (h featurePages) saveFeature(w http.ResponseWriter, r *http.Request, v visit) error {
	f, err := h.Features.Get(r.Context(), v.app.ID, r.PathValue("slug"))
	if err != nil {
		return notFound(err)
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	form = ui.TypedFields(form)
	change, found := parseFeature(form)
	if f.DefaultModel != nil && *f.DefaultModel == change.DefaultModel.Value {
		change.DefaultModel = web.Field[string]{} // a model that has retired since may stay
	}
	if len(found) == 0 {
		if _, err = h.Features.Patch(r.Context(), v.app.ID, f.Slug, change); err == nil {
			h.Apps.NotifyChange(v.app.ID)
			return web.SeeOther(w, v.path("/features/"+f.Slug+"?done=saved"))
		}
	}
	page := h.featurePage(r, v, f)
	if page.Errors = found; err != nil {
		if page.Errors = formProblems(err, page.Fields); page.Errors == nil {
			return notFound(err)
		}
	}
	page.Fields = withErrors(withValues(page.Fields, form), page.Errors)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}
