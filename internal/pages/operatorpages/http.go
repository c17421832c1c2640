// Package operatorpages serves the operator's pages: balances and revenue, go-live requests, apps, accounts, risk,
// providers and prices, and the audit log. Actions go through operator.Service, which logs them;
// the pages have no other way to change anything. Only operators and viewers see them. A GET changes nothing.
package operatorpages

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	DB        *db.DB
	Service   *operator.Service
	Accounts  *accounts.Store
	Sessions  *accounts.Sessions
	Catalog   *catalog.Source
	Estimates *estimates.Calibration
	Metrics   *metrics.Metrics
	Free      tiers.FreeCredit
	MFA       func(*http.Request) bool // whether this session proved a second factor; nil = none is asked for
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /operator", h.show(h.overview))
	rt.HandlePage("GET /operator/verify", h.show(h.verifications))
	rt.HandlePage("POST /operator/verify", h.change(h.verifications, h.verify))
	rt.HandlePage("GET /operator/reviews", h.show(h.reviews))
	rt.HandlePage("GET /operator/reviews/{id}", h.show(h.review))
	rt.HandlePage("POST /operator/reviews/{id}", h.change(h.review, h.decide))
	rt.HandlePage("GET /operator/apps", h.show(h.apps))
	rt.HandlePage("GET /operator/apps/{id}", h.show(h.app))
	rt.HandlePage("POST /operator/apps/{id}", h.change(h.app, h.switchApp))
	rt.HandlePage("GET /operator/accounts", h.show(h.accounts))
	rt.HandlePage("GET /operator/accounts/{id}", h.show(h.account))
	rt.HandlePage("GET /operator/connections/{id}", h.show(h.connection))
	rt.HandlePage("POST /operator/connections/{id}", h.change(h.connection, h.switchConnection))
	rt.HandlePage("GET /operator/ledger/{id}", h.show(h.entry))
	rt.HandlePage("GET /operator/ledger/{id}/reverse", h.show(h.confirm))
	rt.HandlePage("POST /operator/ledger/{id}/reverse", h.change(h.confirm, h.reverse))
	rt.HandlePage("GET /operator/risk", h.show(h.risk))
	rt.HandlePage("GET /operator/providers", h.show(h.providers))
	rt.HandlePage("GET /operator/log", h.show(h.log))
	rt.HandlePage("GET /operator/log/{id}", h.show(h.logged))
}

// A staff is whoever looks at the pages.
type staff struct {
	accounts.Account
	role accounts.Role
}

func (s staff) acts() bool { return s.role == accounts.Operator }

// A page gathers what is shown, as things stand now.
type page func(r *http.Request, s staff) (ui.Report, error)

// show serves a page to operators and viewers.
func (h *Handler) show(p page) web.Handler {
	return h.only(func(w http.ResponseWriter, r *http.Request, s staff) error {
		c, err := p(r, s)
		if err != nil {
			return err
		}
		c.Done = doneTexts[r.URL.Query().Get("done")]
		return ui.Render(w, http.StatusOK, c)
	})
}

// change lets operators do f, which says where to go then; what it refuses is told
// on the page.
func (h *Handler) change(p page, f func(r *http.Request, s staff, form url.Values) (to string, err error)) web.Handler {
	return h.only(func(w http.ResponseWriter, r *http.Request, s staff) error {
		if !s.acts() {
			return forbidden.Errorf("You’re a viewer: you can see everything here but change nothing.")
		}
		form, err := web.ReadForm(r)
		if err != nil {
			return err
		}
		to, err := f(r, s, form)
		if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status == http.StatusBadRequest {
			c, err := p(r, s)
			if err != nil {
				return err
			}
			c.Refill(form, []ui.Problem{{Field: "reason", Text: sentence(e.Message)}})
			return ui.Render(w, http.StatusUnprocessableEntity, c)
		} else if err != nil {
			return err
		}
		return web.SeeOther(w, to)
	})
}

var forbidden = apierr.Code{Name: "forbidden", Status: http.StatusForbidden, Type: "forbidden", Final: true}

// only asks whoever is not signed in to do so. To everybody else who is no
// operator there is nothing at these addresses.
func (h *Handler) only(next func(http.ResponseWriter, *http.Request, staff) error) web.Handler {
	return h.Sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		a, ok := accounts.CurrentAccount(r.Context())
		if !ok {
			return web.SeeOther(w, accounts.SignInPath(r.URL.EscapedPath()))
		}
		role, err := h.Accounts.GetRole(r.Context(), a.ID)
		if err != nil {
			return err
		}
		if role == accounts.NoRole {
			return apierr.NotFound.Errorf("There is nothing at this address.")
		}
		if h.MFA != nil && !h.MFA(r) {
			return ui.Render(w, http.StatusForbidden, ui.Message{
				Heading: "Two-step verification required",
				Text:    "These pages need two-step verification. Add a passkey or an authenticator app, or sign in again with it.",
				Link:    &ui.Link{Href: "/settings/security", Text: "Security settings"},
			})
		}
		return next(w, r, staff{a, role})
	})
}

// The sections of the operator's navigation.
var sections = []ui.Tab{
	{Href: "/operator", Text: "Overview"}, {Href: "/operator/reviews", Text: "Reviews"},
	{Href: "/operator/apps", Text: "Apps"},
	{Href: "/operator/accounts", Text: "Accounts"}, {Href: "/operator/risk", Text: "Risk"},
	{Href: "/operator/providers", Text: "Providers"}, {Href: "/operator/log", Text: "Audit log"},
}

// console begins a page that belongs to a section.
func (s staff) console(section, heading, lead string) ui.Report {
	c := ui.Report{Shell: s.Shell(ui.Operations), Viewer: !s.acts(), Heading: heading, Lead: lead}
	for _, t := range sections {
		t.Current = t.Href == section
		c.Sections = append(c.Sections, t)
	}
	return c
}

// doneTexts say what was just done, by the name that the redirect gives.
var doneTexts = map[string]string{
	"approve": "Approved. The app is in its new tier.",
	"refuse":  "Rejected. The app keeps its tier and may request again.",
	"suspend": "App suspended. Its calls are refused.",
	"lift":    "Suspension lifted.",
	"freeze":  "Connection paused. Its calls are refused.",
	"resume":  "Connection resumed.",
	"reverse": "Charge refunded. This entry is the refund.",
}

// missing is the 404 of what is not there.
func missing(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("There is no such %s.", what)
	}
	return err
}

// sentence makes a sentence for people of a message of the API.
func sentence(message string) string {
	if rest, ok := strings.CutPrefix(message, "reason: "); ok {
		message = "the reason " + rest
	} else if message == "" {
		return ""
	}
	return strings.ToUpper(message[:1]) + strings.TrimSuffix(message[1:], ".") + "."
}

// date writes a time for people, in one piece.
func date(us int64) string {
	if us == 0 {
		return "–"
	}
	return strings.ReplaceAll(time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04:05 UTC"), " ", "\u00a0")
}

// when is a cell with a time.
func when(us int64) ui.Cell { return ui.Cell{Text: date(us)} }

func link(path, id string) ui.Cell { return ui.Cell{Text: id, Href: path + url.PathEscape(id)} }

// reason is the field of every action.
func reason(hint string) []ui.Entry {
	return []ui.Entry{{ID: "reason", Label: "Reason", Hint: hint, Long: true}}
}

// maxListed is how many rows a list shows at once.
const maxListed = 50

// next is the address of the rows behind the last of a full page; "" = there are none.
func next(r *http.Request, more bool, name, value string) string {
	if !more {
		return ""
	}
	q := r.URL.Query()
	q.Del("done")
	q.Set(name, value)
	return r.URL.EscapedPath() + "?" + q.Encode()
}

// first is the address of the first page; "" if this is it.
func first(r *http.Request, name string) string {
	q := r.URL.Query()
	if !q.Has(name) {
		return ""
	}
	q.Del(name)
	return strings.TrimSuffix(r.URL.EscapedPath()+"?"+q.Encode(), "?")
}

// emails returns the addresses of accounts, by id, where there are any.
func (h *Handler) emails(ctx context.Context, ids map[string]bool) (map[string]string, error) {
	found := map[string]string{}
	for accountID := range ids {
		a, err := h.Accounts.Get(ctx, accountID)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		} else if err != nil {
			return nil, err
		}
		found[accountID] = a.Email
	}
	return found, nil
}
