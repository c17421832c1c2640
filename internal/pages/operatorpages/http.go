// Package operatorpages serves the operator's pages: balances and revenue, go-live requests, apps, accounts, risk,
// providers and prices, and the audit log. Actions go through operator.Service, which logs them;
// the pages have no other way to change anything. Only operators and viewers see them. A GET changes nothing.
package operatorpages

import (
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/estimates"
	"github.com/purserhq/purser/internal/models/metrics"
	"github.com/purserhq/purser/internal/models/provider/upstream"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/status"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	DB        *db.DB
	Service   *operator.Service
	Accounts  *accounts.Store
	Sessions  *accounts.Sessions
	Catalog   *catalog.Source
	Pools     map[string]*upstream.Pool // the operator's keys, by provider
	Estimates *estimates.Calibration
	Metrics   *metrics.Metrics
	Status    *status.Handler
	MFA       func(*http.Request) bool // whether this session proved a second factor; nil = not required
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.HandlePage("GET /operator", h.servePage(h.showOverview))
	rt.HandlePage("GET /operator/verify", h.servePage(h.showVerifications))
	rt.HandlePage("POST /operator/verify", h.serveAction(h.showVerifications, h.requestVerification))
	rt.HandlePage("GET /operator/reviews", h.servePage(h.showReviews))
	rt.HandlePage("GET /operator/reviews/{id}", h.servePage(h.showReview))
	rt.HandlePage("POST /operator/reviews/{id}", h.serveAction(h.showReview, h.decideReview))
	rt.HandlePage("GET /operator/apps", h.servePage(h.showApps))
	rt.HandlePage("GET /operator/apps/{id}", h.servePage(h.showApp))
	rt.HandlePage("POST /operator/apps/{id}", h.serveAction(h.showApp, h.changeSuspension))
	rt.HandlePage("GET /operator/accounts", h.servePage(h.showAccounts))
	rt.HandlePage("GET /operator/accounts/{id}", h.servePage(h.showAccount))
	rt.HandlePage("GET /operator/accounts/{id}/timeline", h.servePage(h.showTimeline))
	h.mountSupport(rt)
	rt.HandlePage("GET /operator/connections/{id}", h.servePage(h.showConnection))
	rt.HandlePage("POST /operator/connections/{id}", h.serveAction(h.showConnection, h.changeFreeze))
	rt.HandlePage("GET /operator/connections/{id}/revoke", h.servePage(h.showRevoke))
	rt.HandlePage("POST /operator/connections/{id}/revoke", h.serveAction(h.showRevoke, h.revokeConnection))
	rt.HandlePage("GET /operator/ledger/{id}", h.servePage(h.showEntry))
	rt.HandlePage("GET /operator/ledger/{id}/reverse", h.servePage(h.showRefund))
	rt.HandlePage("POST /operator/ledger/{id}/reverse", h.serveAction(h.showRefund, h.reverseCharge))
	rt.HandlePage("GET /operator/risk", h.servePage(h.showRisk))
	rt.HandlePage("GET /operator/providers", h.servePage(h.showProviders))
	rt.HandlePage("GET /operator/prices", h.servePage(h.showPrices))
	rt.HandlePage("GET /operator/prices.csv", h.requireStaff(h.exportPrices))
	rt.HandlePage("GET /operator/prices/compare", h.servePage(h.showPriceChanges))
	rt.HandlePage("GET /operator/incidents", h.servePage(h.showIncidents))
	rt.HandlePage("POST /operator/incidents", h.serveAction(h.showIncidents, h.saveIncident))
	rt.HandlePage("GET /operator/incidents/{id}", h.servePage(h.showIncident))
	rt.HandlePage("POST /operator/incidents/{id}", h.serveAction(h.showIncident, h.saveIncident))
	rt.HandlePage("GET /operator/settings", h.servePage(h.showSettings))
	rt.HandlePage("POST /operator/settings", h.serveAction(h.showSettings, h.changeSettings))
	rt.HandlePage("POST /operator/settings/{id}", h.serveAction(h.showSettings, h.withdrawSettings))
	rt.HandlePage("GET /operator/log", h.servePage(h.showLog))
	rt.HandlePage("GET /operator/log.csv", h.requireStaff(h.exportLog))
	rt.HandlePage("GET /operator/log/{id}", h.servePage(h.showLogEntry))
}

// A staff is the operator or viewer who is signed in.
type staff struct {
	accounts.Account
	role accounts.Role
}

func (s staff) canAct() bool { return s.role == accounts.Operator }

// A buildReport builds the report of a page from current data.
type buildReport func(r *http.Request, s staff) (ui.Report, error)

// servePage serves a page to operators and viewers.
func (h *Handler) servePage(build buildReport) web.Handler {
	return h.requireStaff(func(w http.ResponseWriter, r *http.Request, s staff) error {
		c, err := build(r, s)
		if err != nil {
			return err
		}
		c.Done = doneTexts[r.URL.Query().Get("done")]
		return ui.Render(w, http.StatusOK, c)
	})
}

// An action carries out a form, and returns the path to redirect to.
type action func(r *http.Request, s staff, form url.Values) (path string, err error)

// serveAction lets operators, not viewers, carry out an action. If it returns an invalid request, the page is shown
// again with the error.
func (h *Handler) serveAction(build buildReport, act action) web.Handler {
	return h.requireStaff(func(w http.ResponseWriter, r *http.Request, s staff) error {
		if !s.canAct() {
			return forbidden.Errorf("You’re a viewer: you can see everything here but change nothing.")
		}
		form, err := web.ReadForm(r)
		if err != nil {
			return err
		}
		path, err := act(r, s, form)
		if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status == http.StatusBadRequest {
			c, err := build(r, s)
			if err != nil {
				return err
			}
			c.Refill(form, []ui.Problem{describeProblem(e.Message)})
			return ui.Render(w, http.StatusUnprocessableEntity, c)
		} else if err != nil {
			return err
		}
		return web.SeeOther(w, path)
	})
}

var forbidden = apierr.Code{Name: "forbidden", Status: http.StatusForbidden, Type: "forbidden", Final: true}

// requireStaff serves next to operators and viewers who have passed a second step. Other accounts get 404, as at an
// address without a page.
func (h *Handler) requireStaff(next func(http.ResponseWriter, *http.Request, staff) error) web.Handler {
	return h.Sessions.Require(func(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
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
				Text: "These pages need two-step verification. Sign in again with it. If your account has none " +
					"yet, add a passkey or an authenticator app, and then have your role given again.",
				Link: &ui.Link{Href: "/settings/security", Text: "Security settings"},
			})
		}
		return next(w, r, staff{a, role})
	})
}

// sections are the tabs of the operator pages.
var sections = []ui.Tab{
	{Href: "/operator", Text: "Overview"},
	{Href: "/operator/reviews", Text: "Reviews"},
	{Href: "/operator/apps", Text: "Apps"},
	{Href: "/operator/accounts", Text: "Accounts"},
	{Href: "/operator/risk", Text: "Risk"},
	{Href: "/operator/providers", Text: "Providers"},
	{Href: "/operator/prices", Text: "Prices"},
	{Href: "/operator/incidents", Text: "Incidents"},
	{Href: "/operator/settings", Text: "Settings"},
	{Href: "/operator/log", Text: "Audit log"},
}

// newReport returns the report of a page in a section, without blocks.
func (s staff) newReport(section, heading, lead string) ui.Report {
	c := ui.Report{Shell: s.Shell(ui.Operations), Viewer: !s.canAct(), Heading: heading, Lead: lead}
	for _, t := range sections {
		t.Current = t.Href == section
		c.Sections = append(c.Sections, t)
	}
	return c
}

// doneTexts are the messages after an action, by the value of the redirect's query member done.
var doneTexts = map[string]string{
	"approve":  "Approved. The app is in its new tier.",
	"refuse":   "Rejected. The app keeps its tier and may request again.",
	"suspend":  "App suspended. Its calls are refused.",
	"lift":     "Suspension lifted.",
	"freeze":   "Connection paused. Its calls are refused.",
	"resume":   "Connection resumed.",
	"revoke":   "Connection revoked. What was left of its allocation is back in the user’s balance.",
	"reverse":  "Charge refunded. This entry is the refund.",
	"incident": "Published on the status page.",
	"settings": "Saved. Every node follows at its time.",

	"settings-withdrawn": "Withdrawn.",

	"account-credit":         "Goodwill credit given.",
	"account-sign-out":       "Signed out everywhere.",
	"account-reset-two-step": "Two-step verification is off.",
	"account-suspend":        "Account suspended.",
	"account-lift":           "Suspension lifted.",
	"account-close":          "Account closed. Its personal data is erased.",
	"account-return":         "Returned to the card. If the bank takes its time, a job finishes it.",
	"account-settle":         "Recorded. The amount is no longer owed.",
}

// notFound turns sql.ErrNoRows into 404; it returns other errors as they are.
func notFound(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("This %s doesn’t exist.", what)
	}
	return err
}

// fieldNames are the fields of forms other than the reason, as problems name them.
var fieldNames = map[string]string{
	"amount":  "the amount",
	"email":   "the address",
	"title":   "the title",
	"text":    "the text",
	"from":    "the start",
	"impact":  "the impact",
	"service": "the part",
}

// describeProblem turns an error message into a problem of the field that it names, or of the reason.
func describeProblem(message string) ui.Problem {
	p := ui.Problem{Field: "reason", Text: message}
	if rest, ok := strings.CutPrefix(message, "reason: "); ok {
		p.Text = "the reason " + rest
	} else if rest, ok := strings.CutPrefix(message, "settings: "); ok {
		p.Field, p.Text = policy.Settings[0].Name, rest
	} else if field, rest, ok := strings.Cut(message, ": "); ok && fieldNames[field] != "" {
		p.Field, p.Text = field, fieldNames[field]+" "+rest
	} else if ok && policy.IsSetting(field) {
		p.Field = field
	}
	p.Text = ui.Sentence(p.Text)
	return p
}

// formatTime returns a time that does not break across lines; "–" for zero.
func formatTime(us int64) string {
	if us == 0 {
		return "–"
	}
	return strings.ReplaceAll(time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04:05 UTC"), " ", "\u00a0")
}

func timeCell(us int64) ui.Cell {
	if us == 0 {
		return ui.Cell{Text: "–"}
	}
	return ui.Cell{Text: formatTime(us), When: timestamp.Format(us)}
}

func linkCell(path, id string) ui.Cell { return ui.Cell{Text: id, Href: path + url.PathEscape(id)} }

// listCell is a cell of a report in a list.
func listCell(c ui.Cell) ui.ListCell {
	return ui.ListCell{
		Text:     c.Text,
		Sub:      c.Sub,
		Title:    c.Exact,
		Time:     c.When,
		Href:     c.Href,
		Code:     c.Code,
		Monogram: c.Monogram,
	}
}

// reasonField is the field for the reason of an action.
func reasonField(hint string) []ui.Entry {
	return []ui.Entry{{ID: "reason", Label: "Reason", Hint: hint, Long: true}}
}

// maxListed is the number of rows on one page of a list.
const maxListed = 50

// nextPage returns the address of the next page of a list; "" unless more.
func nextPage(r *http.Request, more bool, name, value string) string {
	if !more {
		return ""
	}
	q := r.URL.Query()
	q.Del("done")
	q.Set(name, value)
	return r.URL.EscapedPath() + "?" + q.Encode()
}

// firstPage returns the address of the first page of a list; "" if this is it.
func firstPage(r *http.Request, name string) string {
	q := r.URL.Query()
	if !q.Has(name) {
		return ""
	}
	q.Del(name)
	return strings.TrimSuffix(r.URL.EscapedPath()+"?"+q.Encode(), "?")
}
