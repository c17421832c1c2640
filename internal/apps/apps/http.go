package apps

import (
	"encoding/json"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// A Handler serves GET and PATCH /v1/apps/{id} to the app's server, and the logos of the pages.
type Handler struct {
	Store   *Store
	Offered func(model string) bool // whether a model can be called now
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/apps/{id}", h.getApp)
	rt.Handle("PATCH /v1/apps/{id}", h.patchApp)
	rt.Handle("GET /assets/logos/{file}", h.serveLogo)
}

// Resource is an app as the API shows it (contract §2, App).
type Resource struct {
	ID               string              `json:"id"`
	ClientID         string              `json:"client_id"`
	ClientType       string              `json:"client_type"`
	Name             string              `json:"name"`
	RedirectURIs     []string            `json:"redirect_uris"`
	AllowedModels    []string            `json:"allowed_models"`
	DefaultMaxTokens *int64              `json:"default_max_tokens"`
	Fit              bool                `json:"fit"`
	FitMinTokens     int64               `json:"fit_min_tokens"`
	DevMarginRate    json.Number         `json:"dev_margin_rate"`
	Tier             string              `json:"tier"`
	TierLimits       tierLimits          `json:"tier_limits"`
	ProviderMode     string              `json:"provider_mode"`
	TestAllowlist    []string            `json:"test_allowlist"`
	Suspended        bool                `json:"suspended"`
	Suspension       *suspensionResource `json:"suspension"`
	PromptCache      bool                `json:"prompt_cache"`
	OwnWork          bool                `json:"own_work"`
	Transcripts      bool                `json:"transcripts"`
	Proposed         *proposedResource   `json:"proposed"` // null = nothing waits for review
	CreatedAt        string              `json:"created_at"`
	ProfileResource
}

// proposedResource has the members that wait for review, as they will be.
type proposedResource struct {
	Name          string   `json:"name,omitempty"`
	DeveloperName string   `json:"developer_name,omitempty"`
	Domain        string   `json:"domain,omitempty"`
	RedirectURIs  []string `json:"redirect_uris,omitempty"`
	Logo          bool     `json:"logo,omitempty"`
}

// tierLimits are the limits of the app's tier; null = no limit (contract §8).
type tierLimits struct {
	DefaultCapMC         money.MC  `json:"default_cap_mc"`
	DefaultCapDisplay    string    `json:"default_cap_display"`
	MaxCapMC             *money.MC `json:"max_cap_mc"`
	MaxCapDisplay        *string   `json:"max_cap_display"`
	ConnectionDayMC      *money.MC `json:"connection_day_mc"`
	ConnectionDayDisplay *string   `json:"connection_day_display"`
	AppDayMC             *money.MC `json:"app_day_mc"`
	AppDayDisplay        *string   `json:"app_day_display"`
}

// suspensionResource is a suspension as the API shows it, that of the service before that of the developer.
type suspensionResource struct {
	By     string  `json:"by"`
	Reason *string `json:"reason"` // null for a suspension by the developer
	Since  *string `json:"since"`
}

// Resource returns the app as the API shows it.
func (a App) Resource() Resource {
	return Resource{
		ID:               a.ID,
		ClientID:         a.ClientID,
		ClientType:       a.ClientType,
		Name:             a.Name,
		RedirectURIs:     orEmptyList(a.RedirectURIs),
		AllowedModels:    orEmptyList(a.AllowedModels),
		DefaultMaxTokens: a.DefaultMaxTokens,
		Fit:              a.Fit,
		FitMinTokens:     a.FitMinTokens,
		DevMarginRate:    json.Number(a.DevMargin.String()),
		Tier:             a.Tier,
		TierLimits:       makeLimits(a.Tier),
		ProviderMode:     a.ProviderMode,
		TestAllowlist:    orEmptyList(a.TestAllowlist),
		Suspended:        a.Suspended,
		Suspension:       a.suspensionResource(),
		PromptCache:      a.PromptCache,
		OwnWork:          a.OwnWork,
		Transcripts:      a.Transcripts,
		Proposed:         a.Proposed.resource(),
		CreatedAt:        timestamp.Format(a.CreatedUS),
		ProfileResource:  a.Profile.resource(),
	}
}

func (p Proposal) resource() *proposedResource {
	if len(p.Members()) == 0 {
		return nil
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return &proposedResource{
		Name:          text(p.Name),
		DeveloperName: text(p.DeveloperName),
		Domain:        text(p.Domain),
		RedirectURIs:  p.RedirectURIs,
		Logo:          p.LogoHash != nil,
	}
}

func (a App) suspensionResource() *suspensionResource {
	switch s := a.Suspension; {
	case s != nil:
		since := timestamp.Format(s.SinceUS)
		return &suspensionResource{By: s.By, Reason: &s.Reason, Since: &since}
	case a.SwitchedOff && a.SwitchedOffUS != 0:
		since := timestamp.Format(a.SwitchedOffUS)
		return &suspensionResource{By: ByDeveloper, Since: &since}
	case a.SwitchedOff:
		return &suspensionResource{By: ByDeveloper}
	}
	return nil
}

func makeLimits(tier string) tierLimits {
	t := tiers.PolicyOf(tier)
	out := tierLimits{DefaultCapMC: t.DefaultCapMC, DefaultCapDisplay: t.DefaultCapMC.Display()}
	if t.MaxCapMC < money.Max {
		out.MaxCapMC, out.MaxCapDisplay = withDisplay(t.MaxCapMC)
	}
	out.ConnectionDayMC, out.ConnectionDayDisplay = withDisplay(t.ConnectionDayMC)
	out.AppDayMC, out.AppDayDisplay = withDisplay(t.AppDayMC)
	return out
}

// withDisplay returns an amount and its display text, both nil if there is no limit.
func withDisplay(mc money.MC) (*money.MC, *string) {
	if mc == 0 {
		return nil, nil
	}
	text := mc.Display()
	return &mc, &text
}

func orEmptyList(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

func (h *Handler) getApp(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Store.RequireOwn(r)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, app.Resource())
}

func (h *Handler) patchApp(w http.ResponseWriter, r *http.Request) error {
	app, err := h.Store.RequireOwn(r)
	if err != nil {
		return err
	}
	var c Change
	if err := web.ReadJSON(r, &c); err != nil {
		return err
	}
	if app, err = h.Store.Patch(r.Context(), app.ID, c, h.Offered); err != nil {
		return err
	}
	h.Store.NotifyChange(app.ID)
	return web.WriteJSON(w, http.StatusOK, app.Resource())
}

// RequireOwn authenticates an app and checks that it is the app of the path. Another app's id gives the same 404 as an
// unknown one.
func (s *Store) RequireOwn(r *http.Request) (App, error) {
	app, err := s.Authenticate(r.Context(), r)
	if err != nil {
		return App{}, err
	}
	if r.PathValue("id") != app.ID {
		return App{}, apierr.NotFound.Errorf("no such app")
	}
	return app, nil
}
