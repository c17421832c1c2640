package console

import (
	"net/http"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/domains"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// profileFields returns the fields of the form about who stands behind the app.
func profileFields(p apps.Profile) []ui.Field {
	return []ui.Field{
		{
			ID:    "developer_name",
			Label: "Developer (optional)",
			Value: p.DeveloperName,
			Hint:  "Your name or your company’s. Users see “by NAME”.",
		},
		{ID: "website_url", Label: "Website (optional)", Kind: "url", Value: p.WebsiteURL},
		{ID: "privacy_policy_url", Label: "Privacy policy (optional)", Kind: "url", Value: p.PrivacyPolicyURL},
		{
			ID:    "support",
			Label: "Support (optional)",
			Value: p.Support,
			Hint:  "An email address or an https URL.",
		},
		{
			ID:    "domain",
			Label: "Domain (optional)",
			Value: p.Domain,
			Hint:  "Users see it once it is verified. Another domain must be verified again.",
		},
	}
}

// describeDomain says how to verify the domain of an app, and whether it is.
func describeDomain(a apps.App) ui.Domain {
	d := ui.Domain{Name: a.Profile.Domain, Record: domains.Record(a.ID), AppID: a.ID}
	if d.Name != "" {
		d.File = "https://" + d.Name + domains.FilePath
	}
	if a.Profile.DomainVerifiedUS != 0 {
		d.Verified = ui.Date(a.Profile.DomainVerifiedUS)
	}
	return d
}

// saveProfile is POST /developer/apps/{id}/profile.
func (h settingsPages) saveProfile(w http.ResponseWriter, r *http.Request, v visit) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	form = ui.TypedFields(form)
	in := formReader{form: form}
	change := apps.Change{ProfileChange: apps.ProfileChange{
		DeveloperName:    in.readText("developer_name"),
		WebsiteURL:       in.readText("website_url"),
		PrivacyPolicyURL: in.readText("privacy_policy_url"),
		Support:          in.readText("support"),
		Domain:           in.readText("domain"),
	}}
	if _, err = h.Apps.Patch(r.Context(), v.app.ID, change, h.isOffered); err == nil {
		h.Apps.NotifyChange(v.app.ID)
		return web.SeeOther(w, v.path("/settings?done=profile"))
	}
	return h.renderProfile(w, r, v, form, err)
}

// checkDomain is POST /developer/apps/{id}/domain: it looks for the proof of the saved domain.
func (h settingsPages) checkDomain(w http.ResponseWriter, r *http.Request, v visit) error {
	if wait, ok := h.checks.Allow(v.app.ID); !ok {
		e := apierr.RateLimited.Errorf("Too many checks. Wait a minute and try again.")
		e.RetryAfter = wait
		return e
	}
	domain := v.app.Profile.Domain
	err := h.Domains.Check(r.Context(), domain, v.app.ID)
	if err == nil {
		err = h.Apps.VerifyDomain(r.Context(), v.app.ID, domain)
	}
	if err == nil {
		return web.SeeOther(w, v.path("/settings?done=domain"))
	}
	return h.renderProfile(w, r, v, nil, err)
}

// renderProfile shows the settings with what is wrong with the profile; form is what was submitted, nil = nothing.
func (h settingsPages) renderProfile(w http.ResponseWriter, r *http.Request, v visit, form url.Values,
	err error) error {
	page := h.settingsPage(r, v)
	if page.Errors = formProblems(err, page.Profile); page.Errors == nil {
		return err
	}
	if form != nil {
		page.Profile = withValues(page.Profile, form)
	}
	page.Profile = withErrors(page.Profile, page.Errors)
	return ui.Render(w, http.StatusUnprocessableEntity, page)
}
