package apps

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
)

// This file holds back what the developer of a live app changes of what its users trust, until an operator has seen it
// (decision 119).

// A Proposal has the members of a live app that wait for review; nil = the member does not. It is stored.
type Proposal struct {
	Name          *string  `json:"name,omitempty"`
	DeveloperName *string  `json:"developer_name,omitempty"`
	Domain        *string  `json:"domain,omitempty"`
	LogoHash      *string  `json:"logo,omitempty"`
	RedirectURIs  []string `json:"redirect_uris,omitempty"`
}

// Members returns the names of the members that wait.
func (p Proposal) Members() (names []string) {
	for _, m := range []struct {
		name  string
		waits bool
	}{
		{"name", p.Name != nil},
		{"developer_name", p.DeveloperName != nil},
		{"domain", p.Domain != nil},
		{"logo", p.LogoHash != nil},
		{"redirect_uris", p.RedirectURIs != nil},
	} {
		if m.waits {
			names = append(names, m.name)
		}
	}
	return names
}

// AsProposed returns the app as it is once its proposal is approved. Another domain must be verified again.
func (a App) AsProposed() App {
	p := a.Proposed
	for _, m := range []struct {
		proposed *string
		value    *string
	}{
		{p.Name, &a.Name},
		{p.DeveloperName, &a.Profile.DeveloperName},
		{p.LogoHash, &a.LogoHash},
	} {
		if m.proposed != nil {
			*m.value = *m.proposed
		}
	}
	if p.Domain != nil && *p.Domain != a.Profile.Domain {
		a.Profile.Domain, a.Profile.DomainVerifiedUS = *p.Domain, 0
	}
	if p.RedirectURIs != nil {
		a.RedirectURIs = p.RedirectURIs
	}
	return a
}

// hold returns after, the app with the change c of before, but with what needs a review held back as proposed. What a
// change sets to what it is, or removes, needs none, and ends an earlier proposal of the member.
func (c *Change) hold(before, after App) App {
	if before.Tier == Sandbox {
		return after
	}
	p := &after.Proposed
	if c.Name.Set {
		p.Name = holdText(before.Name, &after.Name)
	}
	if c.DeveloperName.Set {
		p.DeveloperName = holdText(before.Profile.DeveloperName, &after.Profile.DeveloperName)
	}
	if c.Domain.Set {
		if p.Domain = holdText(before.Profile.Domain, &after.Profile.Domain); p.Domain != nil {
			after.Profile.DomainVerifiedUS = before.Profile.DomainVerifiedUS
		}
	}
	if c.RedirectURIs.Set {
		p.RedirectURIs = nil
		if hasNewHost(before.RedirectURIs, after.RedirectURIs) {
			p.RedirectURIs, after.RedirectURIs = after.RedirectURIs, before.RedirectURIs
		}
	}
	return after
}

// holdText sets a text back to what it was, and returns what is proposed in its place; nil = it needs no review.
func holdText(was string, is *string) (proposed *string) {
	if *is == was || *is == "" {
		return nil
	}
	text := *is
	*is = was
	return &text
}

// hasNewHost reports whether a redirect URI leads to a host to which none has led.
func hasNewHost(before, after []string) bool {
	return slices.ContainsFunc(after, func(uri string) bool {
		host := redirectHost(uri)
		return !slices.ContainsFunc(before, func(known string) bool { return redirectHost(known) == host })
	})
}

// redirectHost returns the scheme and host of a redirect URI, without its port.
func redirectHost(uri string) string {
	u, err := url.Parse(uri)
	if err != nil { // registered ones parse
		return uri
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname())
}

// reviewed are the members of a sandbox app that an operator judges it by.
type reviewed struct {
	Name             string    `json:"name"`
	DeveloperName    string    `json:"developer_name"`
	WebsiteURL       string    `json:"website_url"`
	PrivacyPolicyURL string    `json:"privacy_policy_url"`
	Support          string    `json:"support"`
	Domain           string    `json:"domain"`
	Logo             string    `json:"logo"`
	ClientType       string    `json:"client_type"`
	RedirectURIs     []string  `json:"redirect_uris"`
	AllowedModels    []string  `json:"allowed_models"`
	DevMarginRate    money.PPM `json:"dev_margin_ppm"`
	OwnWork          bool      `json:"own_work"`
	Transcripts      bool      `json:"transcripts"`
}

// Reviewed returns what a review of the app is about, as JSON: of a sandbox app what it is, of a live one what its
// developer proposes; "" = nothing.
func (a App) Reviewed() (string, error) {
	var v any = a.Proposed
	if a.Tier == Sandbox {
		v = reviewed{
			Name:             a.Name,
			DeveloperName:    a.Profile.DeveloperName,
			WebsiteURL:       a.Profile.WebsiteURL,
			PrivacyPolicyURL: a.Profile.PrivacyPolicyURL,
			Support:          a.Profile.Support,
			Domain:           a.Profile.Domain,
			Logo:             a.LogoHash,
			ClientType:       a.ClientType,
			RedirectURIs:     orEmptyList(a.RedirectURIs),
			AllowedModels:    orEmptyList(a.AllowedModels),
			DevMarginRate:    a.DevMargin,
			OwnWork:          a.OwnWork,
			Transcripts:      a.Transcripts,
		}
	} else if len(a.Proposed.Members()) == 0 {
		return "", nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("apps: what is reviewed of %s: %w", a.ID, err)
	}
	return string(text), nil
}

// updateReviewed is updateLocked for changes that a review may be about.
func (s *Store) updateReviewed(ctx context.Context, appID string,
	f func(ctx context.Context, tx *db.Tx, a App) (App, error)) (after App, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, after, err = s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) { return f(ctx, tx, a) })
		if err == nil && s.OnReviewed != nil {
			err = s.OnReviewed(ctx, tx, after)
		}
		return err
	})
	return after, err
}

// ApplyProposal gives a live app what its developer has proposed, in the caller's transaction. It is 400
// invalid_request if the app may not have it any more.
func (s *Store) ApplyProposal(ctx context.Context, tx *db.Tx, appID string) (before, after App, err error) {
	before, after, err = s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) {
		logo := a.Proposed.LogoHash != nil
		a = a.AsProposed()
		a.Proposed = Proposal{}
		if logo {
			if err := moveLogoProposal(ctx, tx, a.ID); err != nil {
				return a, err
			}
		}
		return a, validateRedirectURIs(a.RedirectURIs, redirectRules{dev: s.dev, public: a.ClientType == Public})
	})
	return before, after, err
}

// DropProposal forgets what the developer of a live app has proposed, in the caller's transaction.
func (s *Store) DropProposal(ctx context.Context, tx *db.Tx, appID string) error {
	_, _, err := s.updateLockedTx(ctx, tx, appID, func(a App) (App, error) {
		a.Proposed = Proposal{}
		return a, deleteLogoProposal(ctx, tx, a.ID)
	})
	return err
}
