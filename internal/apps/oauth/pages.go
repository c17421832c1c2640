package oauth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A visit is a valid authorize request with the account that makes it.
type visit struct {
	app     apps.App
	req     verdict.Request
	account accounts.Account
	role    verdict.Role
	tests   testChoice // the test accounts of a verdict.Chooser or Tester
	action  string     // normalized path and query of the request
	// userCode is that of the device flow, as the device shows it; "" = the app is in this browser.
	userCode string
}

// testChoice are test accounts to choose from, and whether one more may be made.
type testChoice struct {
	list []accounts.Account
	room bool
}

// makeTestChoice returns the test accounts that an account in the role may connect as: all for the developer, and the
// tester's own for a tester.
func makeTestChoice(role verdict.Role, personID string, all []accounts.Account) testChoice {
	room := len(all) < accounts.MaxTestAccounts
	if role == verdict.Chooser {
		return testChoice{all, room}
	}
	own := slices.DeleteFunc(slices.Clone(all), func(a accounts.Account) bool { return a.TesterID != personID })
	return testChoice{own, room && len(own) == 0}
}

// has reports whether an account is one of the choices.
func (t testChoice) has(accountID string) bool {
	return slices.ContainsFunc(t.list, func(a accounts.Account) bool { return a.ID == accountID })
}

// showConsent is GET /oauth/authorize: the consent screen, or first the sign-in page.
func (h *Handler) showConsent(w http.ResponseWriter, r *http.Request) error {
	v, err := h.checkVisit(w, r)
	if v == nil || err != nil {
		return err
	}
	return h.renderConsent(w, r, v, nil, nil)
}

// renderConsent shows the consent screen; with form, what was submitted and its problems.
func (h *Handler) renderConsent(w http.ResponseWriter, r *http.Request, v *visit, form *consentForm,
	problems []ui.Problem) error {
	page, err := h.makePage(r.Context(), v, form)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if page.Errors = problems; len(problems) > 0 {
		status = http.StatusUnprocessableEntity
	}
	h.countStep(r.Context(), v, stepShown)
	return ui.Render(w, status, page)
}

// submitConsent is POST /oauth/authorize: the form of the consent screen. It checks the whole request again; only the
// amounts come from the form.
func (h *Handler) submitConsent(w http.ResponseWriter, r *http.Request) error {
	v, err := h.checkVisit(w, r)
	if v == nil || err != nil {
		return err
	}
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	switch body.Get("decision") {
	case "deny":
		h.countStep(r.Context(), v, stepDenied)
		return h.redirectToApp(w, v.req.RedirectURI, map[string]string{
			"error":             "access_denied",
			"error_description": "the user denied the request",
			"state":             v.req.State,
		})
	case "approve":
	default:
		return apierr.InvalidRequest.Errorf("decision: must be approve or deny")
	}
	form := readConsentForm(body)
	values, problems := form.parse(maxCap(v.app))
	problems = append(findProblems(v, form), problems...)
	disputed, err := h.findDisputeProblems(r.Context(), v, values)
	if err != nil {
		return err
	}
	if problems = append(problems, disputed...); len(problems) > 0 {
		return h.renderConsent(w, r, v, &form, problems)
	}
	code, err := h.approveConsent(r.Context(), v, form, values)
	if raised, ok := errors.AsType[*raisedError](err); ok {
		return h.renderRaised(w, r, v, &form, raised)
	} else if err != nil {
		return err
	}
	h.countStep(r.Context(), v, stepApproved)
	return h.redirectToApp(w, v.req.RedirectURI, map[string]string{"code": code, "state": v.req.State})
}

// checkVisit checks the request. If there is nothing to consent to, it writes the response and returns nil.
func (h *Handler) checkVisit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, renderRefusal(w, "The app sent you to an invalid address.")
	}
	clientID, ok := verdict.ReadClientID(q)
	if !ok {
		return nil, renderRefusal(w, "The app did not identify itself: it sent no client_id, or several.")
	}
	app, err := h.Apps.GetByClientID(r.Context(), clientID)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, renderRefusal(w,
			"We don’t know the app that sent you here. Its client_id is wrong, or it was removed.")
	} else if err != nil {
		return nil, err
	}
	req, refusal := verdict.CheckRequest(ruleApp(app), q)
	switch {
	case refusal != nil && refusal.Page != "":
		return nil, renderRefusal(w, refusal.Page)
	case refusal != nil:
		return nil, h.redirectToApp(w, refusal.RedirectURI, map[string]string{
			"error":             refusal.Code,
			"error_description": refusal.Description,
			"state":             refusal.State,
		})
	}
	v := &visit{app: app, req: req, action: "/oauth/authorize?" + q.Encode()}
	if v.account, ok = accounts.CurrentAccount(r.Context()); !ok {
		return nil, web.SeeOther(w, accounts.SignInPath(v.action))
	}
	if ok, err := h.admitAccount(w, r, v); !ok || err != nil {
		return nil, err
	}
	return v, nil
}

// admitAccount finds out how the account of a visit connects. If it can't, it writes the response and returns false.
func (h *Handler) admitAccount(w http.ResponseWriter, r *http.Request, v *visit) (bool, error) {
	v.role = decideRole(v.app, v.account)
	reason := roleRefusals[v.role]
	if v.role.UsesTestAccount() {
		all, err := h.Accounts.ListTestAccounts(r.Context(), v.app.OwnerID)
		if err != nil {
			return false, err
		}
		v.tests = makeTestChoice(v.role, v.account.ID, all)
		if len(v.tests.list) == 0 && !v.tests.room {
			reason = noTestAccountLeft
		}
	}
	if reason != "" {
		return false, ui.Render(w, http.StatusForbidden, ui.Message{
			Heading: "This account can’t connect", Switch: v.action,
			Text: fmt.Sprintf("You’re signed in as %s. %s", v.account.Email, fmt.Sprintf(reason, v.app.Name)),
		})
	}
	return true, nil
}

// noTestAccountLeft is the text for a tester when no more test accounts can be created.
const noTestAccountLeft = "%s is in testing, and its developer has reached the limit of test accounts. Ask the " +
	"developer to " +
	"delete one."

// stranger is the text for an account that cannot connect, by role; %s is the app's name.
var roleRefusals = map[verdict.Role]string{
	verdict.StrangerToSandbox: "%s is in testing. Only its developer, invited testers and test accounts can connect.",
	verdict.TestAccountOnLive: "This is a test account, and %s is live. Live apps accept real accounts only.",
}

// renderRefusal shows the user why a request is invalid.
func renderRefusal(w http.ResponseWriter, text string) error {
	return ui.Render(w, http.StatusBadRequest, ui.Message{
		Heading: "This link doesn’t work",
		Text:    text + " Nothing was shared or charged. Go back to the app and try again, or contact its developer.",
	})
}

// redirectToApp redirects the browser to the app with the result.
func (h *Handler) redirectToApp(w http.ResponseWriter, redirectURI string, params map[string]string) error {
	params["iss"] = h.AuthURL
	w.Header().Set("Location", verdict.RedirectLocation(redirectURI, params))
	w.WriteHeader(http.StatusFound)
	return nil
}

// findProblems checks that the account to connect exists. A balance is not required: without one
// the allocation is 0, and free credit pays for the first calls (contract §8).
func findProblems(v *visit, form consentForm) []ui.Problem {
	if v.role.UsesTestAccount() && form.TestAccount != newAccount && !v.tests.has(form.TestAccount) {
		return []ui.Problem{{Field: fieldAccount, Text: "Choose the test account to connect as."}}
	}
	return nil
}

// findDisputeProblems refuses what would spend more while a payment of the account is disputed (decision 123).
func (h *Handler) findDisputeProblems(ctx context.Context, v *visit, values consentValues) ([]ui.Problem, error) {
	if v.role.UsesTestAccount() {
		return nil, nil
	}
	open, err := store.ListOpenDisputes(ctx, h.Store.DB, v.account.ID)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	conn, err := store.LiveConnection(ctx, h.Store.DB, v.app.ID, v.account.ID)
	if err == nil && (values.KeepCap || values.CapMC <= conn.AllocationMC) {
		return nil, nil
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	return []ui.Problem{{
		Field: fieldCap,
		Text: "One of your payments is disputed. Until your bank has decided, you can’t connect apps or raise a " +
			"spend cap.",
	}}, nil
}

// renderRaised shows the consent screen again because the app has raised its margin.
func (h *Handler) renderRaised(w http.ResponseWriter, r *http.Request, v *visit, form *consentForm,
	raised *raisedError) error {
	v.app = raised.app
	return h.renderConsent(w, r, v, form, raised.problems())
}

// checkRates returns a raisedError if the app asks for more than the screen showed. Until tx ends the rates stay.
func (h *Handler) checkRates(ctx context.Context, tx *db.Tx, v *visit, form consentForm) error {
	app, err := apps.LockShared(ctx, tx, v.app.ID)
	if err != nil {
		return err
	}
	list, err := h.Features.ListLocked(ctx, tx, app.ID)
	if err != nil {
		return err
	}
	if raised := raisedRates(form.Rates, app, list); len(raised) > 0 {
		return &raisedError{app, raised}
	}
	return nil
}

// approveConsent creates the code, and a new test account if the user chose one.
func (h *Handler) approveConsent(ctx context.Context, v *visit, form consentForm,
	values consentValues) (code string, err error) {
	err = h.Store.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := h.checkRates(ctx, tx, v, form); err != nil {
			return err
		}
		accountID, err := h.chooseAccount(ctx, tx, v, form)
		if err != nil {
			return err
		}
		code, err = h.Store.CreateCode(ctx, tx, v.consent(accountID, form, values))
		return err
	})
	return code, err
}

// consent returns what the visitor approves for an account, by the session of the visit.
func (v *visit) consent(accountID string, form consentForm, values consentValues) Consent {
	return Consent{
		AppID:         v.app.ID,
		AccountID:     accountID,
		RedirectURI:   v.req.RedirectURI,
		Challenge:     v.req.Challenge,
		CapMC:         values.CapMC,
		VelocityMC:    values.VelocityMC,
		KeepCap:       values.KeepCap,
		KeepVelocity:  values.KeepVelocity,
		OwnWork:       form.OwnWork,
		Transcripts:   form.Transcripts,
		ApproverID:    v.account.ID,
		ApproverEpoch: v.account.Epoch,
	}
}

// chooseAccount returns the account that connects: the signed-in one, or a test account, which is created if the user
// chose a new one.
func (h *Handler) chooseAccount(ctx context.Context, tx *db.Tx, v *visit, form consentForm) (string, error) {
	switch {
	case !v.role.UsesTestAccount():
		return v.account.ID, nil
	case form.TestAccount != newAccount:
		return form.TestAccount, nil
	}
	n := accounts.NewAccount{OwnerID: v.app.OwnerID} // without a password, so that it cannot sign in
	if v.role == verdict.Tester {
		n.TesterID = v.account.ID
	}
	made, err := h.Sandbox.CreateTx(ctx, tx, n)
	return made.ID, err
}
