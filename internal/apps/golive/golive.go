// Package golive stores go-live requests: the checklist of an app, its requests for the next tier, and the operator's
// decisions (contract §3, App tier and the go-live request rules).
package golive

import (
	"encoding/json"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// The states of a request.
const (
	Pending  = "pending"
	Approved = "approved"
	Refused  = "refused"
)

// A Request asks for an app's next tier, or for a change of a live app. The app stays as it is until review.
type Request struct {
	ID        string
	AppID     string
	From, To  string // tiers; of a change both are the app's
	Reviewed  string // what it is about, as JSON; "" = an older version made it
	Status    string
	Reason    string // of a rejection
	CreatedUS int64
	DecidedUS int64 // 0 = pending
}

// IsChange reports whether the request is about a change of a live app.
func (r Request) IsChange() bool { return r.From == r.To }

// Resource is a request as the API shows it.
type Resource struct {
	ID        string          `json:"id"`
	AppID     string          `json:"app_id"`
	FromTier  string          `json:"from_tier"`
	ToTier    string          `json:"to_tier"`
	Reviewed  json.RawMessage `json:"reviewed"` // null = an older version made it
	Status    string          `json:"status"`
	Reason    *string         `json:"reason"`
	CreatedAt string          `json:"created_at"`
	DecidedAt *string         `json:"decided_at"`
}

// Resource returns the request as the API shows it.
func (r Request) Resource() Resource {
	out := Resource{
		ID:        r.ID,
		AppID:     r.AppID,
		FromTier:  r.From,
		ToTier:    r.To,
		Status:    r.Status,
		CreatedAt: timestamp.Format(r.CreatedUS),
	}
	if r.Reviewed != "" {
		out.Reviewed = json.RawMessage(r.Reviewed)
	}
	if r.Reason != "" {
		out.Reason = &r.Reason
	}
	if r.DecidedUS != 0 {
		at := timestamp.Format(r.DecidedUS)
		out.DecidedAt = &at
	}
	return out
}

// An Item is one thing that an app should have before it goes live.
type Item struct {
	Name     string `json:"item"`
	Required bool   `json:"required"`
	Met      bool   `json:"met"`
	Text     string `json:"text"`
}

// MakeChecklist returns the checklist of an app with this number of registered features.
func MakeChecklist(a apps.App, features int) []Item {
	return []Item{
		{"redirect_uri", true, a.HasLiveRedirect(),
			redirectItem(a)},
		{"feature", true, features > 0, "At least one registered feature, so users know what the app uses AI for."},
		{"allowed_models", true, len(a.AllowedModels) > 0, "A choice of allowed models."},
		{"logo", false, a.LogoPath() != "", "A logo for the consent screen."},
		{"live_models", false, a.ProviderMode == apps.Live, "Tested with live models (provider mode live)."},
	}
}

// redirectItem says which redirect URL the app needs.
func redirectItem(a apps.App) string {
	if a.ClientType == apps.Public {
		return "At least one redirect URL: https, or http://127.0.0.1 for an app on the user’s device."
	}
	return "At least one https redirect URL that is not on a loopback host."
}

// missingItems returns the required items that are not met.
func missingItems(list []Item) (names []string) {
	for _, i := range list {
		if i.Required && !i.Met {
			names = append(names, i.Name)
		}
	}
	return names
}

// nextTier returns the tier that an app may request, or 400: there is no tier above the last, and the last is not open
// yet (contract §3).
func nextTier(tier string) (string, error) {
	switch tier {
	case tiers.Sandbox:
		return tiers.LimitedLive, nil
	case tiers.LimitedLive:
		return "", apierr.InvalidRequest.Errorf("the tier full-live is not open yet")
	}
	return "", apierr.InvalidRequest.Errorf("the app is in the highest tier already")
}

// requireComplete returns an error if a required item is not met.
func requireComplete(a apps.App, features int) error {
	names := missingItems(MakeChecklist(a, features))
	if len(names) == 0 {
		return nil
	}
	e := apierr.InvalidRequest.Errorf("the app is not ready to go live, it lacks: %s; see GET /v1/apps/%s/go-live",
		strings.Join(names, ", "), a.ID)
	e.Details = map[string]any{"missing": names}
	return e
}

// requirePending returns an error if the request is already decided.
func (r Request) requirePending() error {
	if r.Status != Pending {
		return apierr.InvalidRequest.Errorf("this request was %s already", r.Status)
	}
	return nil
}

func errPending(requestID string) error {
	return apierr.InvalidRequest.Errorf("a request is pending already: %s; wait until it is reviewed", requestID)
}
