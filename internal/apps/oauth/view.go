package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/features"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/catalog"
)

// makePage makes the consent screen. form has the submitted values, nil for the first display.
func (h *Handler) makePage(ctx context.Context, v *visit, form *consentForm) (ui.Consent, error) {
	p := ui.Consent{
		Email: v.account.Email,
		AppID: v.app.ID,
		App:   v.app.Name,
		Logo:  v.app.LogoPath(),
		Behind: ui.Behind{
			Developer: v.app.Profile.DeveloperName,
			Domain:    v.app.Profile.VerifiedDomain(),
			Website:   v.app.Profile.WebsiteURL,
			Privacy:   v.app.Profile.PrivacyPolicyURL,
			Support:   v.app.Profile.SupportURL(),
		},
		Sandbox:    v.app.Tier == apps.Sandbox,
		Public:     v.app.ClientType == apps.Public,
		OwnWork:    v.app.OwnWork,
		Heard:      v.app.Transcripts,
		UserCode:   v.userCode,
		Action:     v.action,
		CapHint:    "You can change or revoke it at any time.",
		DailyHint:  "The most it may spend in any 24 hours.",
		Models:     v.app.AllowedModels,
		Providers:  h.describeProviders(v.app),
		Dashboard:  hostOf(h.DashboardURL),
		ReturnTo:   v.req.RedirectURI,
		ReturnHost: hostOf(v.req.RedirectURI),
	}
	list, err := h.Features.ListAll(ctx, v.app.ID)
	if err != nil {
		return ui.Consent{}, err
	}
	p.Purposes, p.Price = listPurposes(v.app, list, v.req.Features), h.describePrice(v.app, list)
	p.Rates = ratesOf(v.app, list).encode()
	if v.req.RequestedMC > 0 {
		p.Asked = dollars(proposedCap(v.app, v.req.RequestedMC, 0))
	}
	filled := consentForm{Cap: typed(proposedCap(v.app, v.req.RequestedMC, 0))}
	var own *standing // nil = it depends on the choice
	if v.role.UsesTestAccount() {
		if p.Choices, err = h.makeChoices(ctx, v, form); err != nil {
			return ui.Consent{}, err
		}
	} else {
		s, err := h.loadStanding(ctx, v.app.ID, v.account.ID)
		if err != nil {
			return ui.Consent{}, err
		}
		own = &s
		h.fillOwnAccount(v, s, &p, &filled)
	}
	proposed, _ := ui.ReadCap(filled.Cap)
	if form != nil {
		if form.KeepCap {
			form.Cap = filled.Cap
		}
		if form.KeepDaily {
			form.Daily = filled.Daily
		}
		filled = *form
	}
	p.SpendCap, p.DailyLimit = filled.Cap, filled.Daily
	size, err := usage.LoadCallSize(ctx, h.Store.DB, v.app.ID, h.Store.Now())
	if err != nil {
		return ui.Consent{}, err
	}
	p.Amounts = makeAmounts(offeredCaps(proposed, maxCap(v.app), own), own, size)
	p.OwnAmount = true
	for i, a := range p.Amounts {
		if a.Value == filled.Cap {
			p.Amounts[i].Chosen, p.OwnAmount = true, false
		}
	}
	return p, nil
}

// fillOwnAccount adds the balance of an account that connects as itself, and its existing connection, if any.
func (h *Handler) fillOwnAccount(v *visit, s standing, p *ui.Consent, filled *consentForm) {
	p.Available = dollars(s.balance.AvailableMC)
	p.OfYour = v.req.RequestedMC > 0 && proposedCap(v.app, v.req.RequestedMC, 0) <= s.balance.AvailableMC
	if s.balance.AvailableMC == 0 && v.app.Tier != apps.Sandbox {
		p.CapHint += " Your balance is empty. Until you top up, only calls paid by free credit go through."
	}
	if s.live == nil {
		p.FreeCents = int64(max(0, s.balance.AvailableMC) / money.Cent)
		if v.app.Tier == apps.LimitedLive {
			p.CapHint = "At most " + dollars(maxCap(v.app)) + " while the app is new. " + p.CapHint
		}
		return
	}
	parts := ui.SplitDollars(s.live.RemainingMC(), s.live.SetAsideMC(), s.live.ConsumedMC)
	p.Live = &ui.Live{
		Cap:    dollars(s.live.AllocationMC),
		Used:   parts[2].Text,
		Frozen: s.live.Status == rules.Frozen,
	}
	if s.live.SetAsideMC() > 0 {
		p.Live.Held = parts[1].Text
	}
	p.CapHint = "In total, including what is already used."
	filled.Cap = typed(proposedCap(v.app, v.req.RequestedMC, s.live.AllocationMC))
	if s.live.VelocityLimitMC != nil {
		filled.Daily = typed(*s.live.VelocityLimitMC)
	}
	p.Shown = ui.ShownFields([]ui.Field{
		{ID: fieldCap, Value: typed(s.live.AllocationMC)},
		{ID: fieldDaily, Value: filled.Daily},
	})
}

// A standing is the state between an account and an app.
type standing struct {
	balance rules.Balance
	live    *rules.Connection // nil = not connected
}

func (h *Handler) loadStanding(ctx context.Context, appID, accountID string) (s standing, err error) {
	if s.balance, err = store.GetBalance(ctx, h.Store.DB, accountID); err != nil {
		return s, fmt.Errorf("oauth: balance: %w", err)
	}
	c, err := store.LiveConnection(ctx, h.Store.DB, appID, accountID)
	if errors.Is(err, sql.ErrNoRows) {
		return s, nil
	} else if err != nil {
		return s, fmt.Errorf("oauth: live connection: %w", err)
	}
	s.live = &c
	return s, nil
}

// makeChoices lists the test accounts to choose from, and a new one if the limit allows it.
func (h *Handler) makeChoices(ctx context.Context, v *visit, form *consentForm) ([]ui.Choice, error) {
	var choices []ui.Choice
	for _, a := range v.tests.list {
		s, err := h.loadStanding(ctx, v.app.ID, a.ID)
		if err != nil {
			return nil, err
		}
		detail := dollars(s.balance.AvailableMC) + " available"
		if s.live != nil {
			detail += fmt.Sprintf(" · connected, %s of %s used", ui.Total(s.live.ConsumedMC),
				dollars(s.live.AllocationMC))
		}
		choices = append(choices, ui.Choice{ID: a.ID, Name: a.Email, Detail: detail})
	}
	if v.tests.room {
		choices = append(choices, ui.Choice{
			ID:     newAccount,
			Name:   "New test account",
			Detail: "starts with " + dollars(sandbox.StartingBalance),
		})
	}
	for i := range choices {
		choices[i].Chosen = form == nil && i == 0 || form != nil && form.TestAccount == choices[i].ID
	}
	return choices, nil
}

// listPurposes returns the registered features that the app requests, in its order. Without one, the app may use all of
// its features, so all are listed (contract §5, flow rule 2).
func listPurposes(app apps.App, list []features.Feature, asked []string) []ui.Purpose {
	var named []features.Feature
	for _, slug := range asked {
		for _, f := range list {
			if f.Slug == slug {
				named = append(named, f)
			}
		}
	}
	if len(named) == 0 {
		named = list
	}
	var purposes []ui.Purpose
	for _, f := range named {
		p := ui.Purpose{Name: f.DisplayName, Description: ui.Sentence(f.Description)}
		if f.DevMargin != nil && *f.DevMargin != app.DevMargin {
			p.Margin = percent(*f.DevMargin)
		}
		purposes = append(purposes, p)
	}
	return purposes
}

// describePrice describes the price of a call, with the highest margin rate of the app. The purposes show the rates
// that differ.
func (h *Handler) describePrice(app apps.App, list []features.Feature) string {
	margin, upTo := app.DevMargin, ""
	for _, f := range list {
		if f.DevMargin != nil && *f.DevMargin > margin {
			margin, upTo = *f.DevMargin, "up to "
		}
	}
	price := "What the provider charges, plus a service fee of " + percent(h.FeeRate())
	if margin > 0 {
		price += " and " + upTo + percent(margin) + " for " + app.Name
	}
	return price + ". " + app.Name + " sets its margin and can change it. We email you when it rises."
}

// describeProviders names the providers that may receive requests: those of the app's models, or of all offered models.
func (h *Handler) describeProviders(app apps.App) string {
	if app.ProviderMode == "mock" {
		return "None. In testing, answers are canned."
	}
	book, now, used := h.Catalog.Current(), h.Store.Now(), map[string]bool{}
	for _, m := range book.Offered(now) {
		used[m.Provider] = used[m.Provider] || len(app.AllowedModels) == 0
	}
	for _, model := range app.AllowedModels {
		if m, _, ok := book.Find(model, now); ok {
			used[m.Provider] = true
		}
	}
	var names []string
	for _, p := range catalog.Providers {
		if used[p] {
			names = append(names, catalog.ProviderName(p))
		}
	}
	text := strings.Join(names, ", ")
	if h.Kept && used["openai"] {
		text += ". OpenAI keeps requests and responses for up to 30 days."
	}
	return text
}

// hostOf returns the host of a URL.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Host
}
