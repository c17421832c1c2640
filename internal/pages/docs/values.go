package docs

import (
	"database/sql"
	"errors"
	"html"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/sandbox"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// tokenCap is the spend cap of a connection that a token for the examples creates. It is test money.
const tokenCap = 10 * money.Dollar

// values is what the examples of a page are filled in with for a signed-in developer.
type values struct {
	panel    ui.Values
	app      *apps.App // nil = none
	accounts []sandbox.TestAccount
}

// loadValues returns the values of the developer's sandbox app that form names, or of the first one
// by name. form is the query of a GET or the body of a POST.
func (h *Handler) loadValues(r *http.Request, form url.Values) (v values, err error) {
	a, ok := accounts.CurrentAccount(r.Context())
	switch {
	case !ok:
		v.panel.SignIn = accounts.SignInPath(r.URL.EscapedPath())
		return v, nil
	case !a.Developer:
		v.panel.Why = "Enable developer tools and create an app to see its values in the examples."
		v.panel.Link = &ui.Link{Href: "/developer", Text: "Open the developer console"}
		return v, nil
	}
	list, err := apps.ListOwned(r.Context(), h.DB, a.ID)
	if err != nil {
		return v, err
	}
	list = slices.DeleteFunc(list, func(app apps.App) bool { return app.Tier != apps.Sandbox })
	slices.SortStableFunc(list, func(a, b apps.App) int { return strings.Compare(a.Name, b.Name) })
	if len(list) == 0 {
		v.panel.Why = "Create an app in the sandbox to see its values in the examples."
		v.panel.Link = &ui.Link{Href: "/developer/apps/new", Text: "Create app"}
		return v, nil
	}
	chosen := max(0, slices.IndexFunc(list, func(app apps.App) bool { return app.ID == form.Get("app") }))
	v.app = &list[chosen]
	for i, app := range list {
		v.panel.Apps = append(v.panel.Apps, ui.Option{ID: app.ID, Text: app.Name, Chosen: i == chosen})
	}
	if v.accounts, err = h.Sandbox.List(r.Context(), a.ID); err != nil {
		return v, err
	}
	// Leave out the test accounts of testers: those users decide about them.
	v.accounts = slices.DeleteFunc(v.accounts, func(t sandbox.TestAccount) bool { return t.TesterID != "" })
	for _, t := range v.accounts {
		v.panel.Accounts = append(v.panel.Accounts,
			ui.Option{
				ID:     t.ID,
				Text:   t.Email + ", " + ui.Dollars(t.Balance.AvailableMC),
				Chosen: t.ID == form.Get("account"),
			})
	}
	v.panel.App, v.panel.BaseURL, v.panel.ClientID = v.app.Name, h.BaseURL, v.app.ClientID
	return v, nil
}

// createToken issues an access token of the test account that form names, or of the first one. Its refresh token is
// not shown, so the token ends soon.
func (h *Handler) createToken(r *http.Request, v *values, form url.Values) error {
	if v.app == nil || len(v.accounts) == 0 {
		return nil // the panel says what is missing
	}
	account := v.accounts[max(0, slices.IndexFunc(v.accounts, func(t sandbox.TestAccount) bool {
		return t.ID == form.Get("account")
	}))]
	tokens, err := h.Tokens.ConnectTestAccount(r.Context(), v.app.ID, account.ID, tokenCap)
	if errors.Is(err, sql.ErrNoRows) { // the app or the account has changed since
		return ui.NotFound()
	}
	if refused := describeRefusal(err); refused != "" {
		v.panel.Problem = refused
		return nil
	} else if err != nil {
		return err
	}
	v.panel.Token, v.panel.Minutes = tokens.AccessToken, tokens.ExpiresIn/60
	return nil
}

// requireDeveloper serves next to developers; others see the sign-in page, or the page that enables developer tools.
func (h *Handler) requireDeveloper(next func(http.ResponseWriter, *http.Request, url.Values) error) web.Handler {
	return h.Sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		form, err := web.ReadForm(r)
		if err != nil {
			return err
		}
		a, ok := accounts.CurrentAccount(r.Context())
		switch {
		case !ok:
			return web.SeeOther(w, accounts.SignInPath(r.URL.EscapedPath()))
		case !a.Developer:
			return web.SeeOther(w, "/developer")
		}
		return next(w, r, form)
	})
}

// filledVariable matches a variable of an example, as command render writes it.
var filledVariable = regexp.MustCompile(VariableStart + `([A-Z_]+)">\$[A-Z_]+</var>`)

// plainValue matches values that a shell takes as they are, also outside of quotes.
var plainValue = regexp.MustCompile(`^[A-Za-z0-9:/._-]+$`)

// fill puts values into the examples of a page.
func (v values) fill(body template.HTML) template.HTML {
	known := map[string]string{
		"BASE_URL":     v.panel.BaseURL,
		"CLIENT_ID":    v.panel.ClientID,
		"ACCESS_TOKEN": v.panel.Token,
	}
	return template.HTML(filledVariable.ReplaceAllStringFunc(string(body), func(old string) string {
		name := filledVariable.FindStringSubmatch(old)[1]
		if !plainValue.MatchString(known[name]) {
			return old
		}
		return strings.TrimSuffix(old, "$"+name+"</var>") + html.EscapeString(known[name]) + "</var>"
	}))
}
