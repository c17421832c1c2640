package oauth

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// deviceFlow connects devices without a browser of their own (RFC 8628; decision 068).
type deviceFlow struct {
	*Handler
	starts       *web.Limiter // requests of devices, by client_id and address
	accountTries *web.Limiter // wrong user codes, by account
	addressTries *web.Limiter // wrong user codes, by address
}

// newDeviceFlow returns the device flow of h. A user code has 34 bits and lives for ten minutes, so
// that at these rates a guess hardly ever meets an open one (RFC 8628 §5.1).
func newDeviceFlow(h *Handler) *deviceFlow {
	return &deviceFlow{
		Handler:      h,
		starts:       web.NewLimiter(time.Second, 60, h.Store.Now),
		accountTries: web.NewLimiter(time.Minute, 10, h.Store.Now),
		addressTries: web.NewLimiter(20*time.Second, 30, h.Store.Now),
	}
}

func (f *deviceFlow) mount(rt *web.Router) {
	rt.Handle("POST /oauth/device_authorization", f.authorizeDevice)
	rt.HandlePage("GET /device", f.Sessions.With(f.showCodeForm))
	rt.HandlePage("POST /device", f.Sessions.With(f.submitCode))
}

// oauthErrors are the errors of RFC 6749 §5.2 for the codes of the envelope that are called differently.
var oauthErrors = map[string]string{
	apierr.Unauthorized.Name: "invalid_client",
	apierr.RateLimited.Name:  slowDown.Name, // devices poll less often then
	apierr.Unavailable.Name:  "temporarily_unavailable",
	apierr.Internal.Name:     "server_error",
}

// encodeOAuthError encodes an error as RFC 6749 §5.2 has it. Libraries poll by the error's name, so the envelope, whose
// error is an object, would end the device flow.
func encodeOAuthError(e *apierr.Error, l web.Links, _ string) ([]byte, error) {
	name := e.Code.Name
	if other, ok := oauthErrors[name]; ok {
		name = other
	}
	return json.Marshal(struct {
		Error       string         `json:"error"`
		Description string         `json:"error_description"`
		URI         string         `json:"error_uri,omitempty"`
		Details     map[string]any `json:"details,omitempty"`
	}{name, e.Message, documentOf(e.Code, l), e.Details})
}

// documentOf returns error_uri of a code. What a device polls by is in no section of its own.
func documentOf(c apierr.Code, l web.Links) string {
	if _, ok := apierr.ByName(c.Name); !ok {
		return ""
	}
	return l.Doc(c)
}

// deviceAuthorization is the answer to a device (RFC 8628 §3.2).
type deviceAuthorization struct {
	DeviceCode              string `json:"device_code"`
	UserCode                string `json:"user_code"`
	VerificationURI         string `json:"verification_uri"`
	VerificationURIComplete string `json:"verification_uri_complete"`
	ExpiresIn               int64  `json:"expires_in"` // seconds
	Interval                int64  `json:"interval"`   // seconds
}

// authorizeDevice is POST /oauth/device_authorization.
func (f *deviceFlow) authorizeDevice(w http.ResponseWriter, r *http.Request) error {
	web.UseErrorBody(r.Context(), encodeOAuthError)
	app, form, err := f.authenticateClient(w, r, f.Apps.AuthenticateToken)
	if err != nil {
		return err
	}
	if err := checkClientParams(app.ClientID, form); err != nil {
		return err
	}
	requestedMC, slugs, problem := verdict.ReadProposal(form)
	if problem != "" {
		return apierr.InvalidRequest.Errorf("%s", problem)
	}
	if app.Suspended {
		return newInvalidGrant(verdict.AppSuspended)
	}
	if wait, ok := f.starts.Allow(app.ClientID + " " + web.ClientNetwork(r)); !ok {
		e := apierr.RateLimited.Errorf("too many device codes for this client_id; see the header Retry-After")
		e.RetryAfter = wait
		return e
	}
	codes, err := f.Store.createDeviceCode(r.Context(), deviceRequest{app.ID, requestedMC, slugs})
	if err != nil {
		return err
	}
	userCode := verdict.FormatUserCode(codes.user)
	return web.WriteJSON(w, http.StatusOK, deviceAuthorization{
		DeviceCode:              codes.device,
		UserCode:                userCode,
		VerificationURI:         f.AuthURL + "/device",
		VerificationURIComplete: f.AuthURL + devicePath(userCode),
		ExpiresIn:               int64(verdict.DeviceCodeTTL.Seconds()),
		Interval:                int64(verdict.PollInterval.Seconds()),
	})
}

// devicePath returns the path of the page with a user code filled in.
func devicePath(userCode string) string {
	if userCode == "" {
		return "/device"
	}
	return "/device?user_code=" + url.QueryEscape(userCode)
}

// showCodeForm is GET /device: the form for the user code, or first the sign-in page.
func (f *deviceFlow) showCodeForm(w http.ResponseWriter, r *http.Request) error {
	q, err := web.ReadQuery(r)
	if err != nil {
		return err
	}
	typed := showUserCode(q.Get("user_code"))
	account, ok := accounts.CurrentAccount(r.Context())
	if !ok {
		return web.SeeOther(w, accounts.SignInPath(devicePath(typed)))
	}
	return ui.Render(w, http.StatusOK, ui.ConnectDevice{Email: account.Email, UserCode: typed})
}

// showUserCode returns a user code as pages show it, and "" for text that is none: links fill in no other text.
func showUserCode(typed string) string {
	letters, ok := verdict.ReadUserCode(typed)
	if !ok {
		return ""
	}
	return verdict.FormatUserCode(letters)
}

// submitCode is POST /device: the form for the user code, which leads to the consent screen, and the form of that
// screen. No link leads there, so that each user has seen the page that warns of codes from other people.
func (f *deviceFlow) submitCode(w http.ResponseWriter, r *http.Request) error {
	body, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	userCode := showUserCode(body.Get("user_code"))
	account, ok := accounts.CurrentAccount(r.Context())
	if !ok {
		return web.SeeOther(w, accounts.SignInPath(devicePath(userCode)))
	}
	v, problem, err := f.findVisit(r, account, userCode)
	if err != nil {
		return err
	} else if problem != "" {
		return f.renderProblem(w, account, body.Get("user_code"), problem)
	}
	if ok, err := f.admitAccount(w, r, v); !ok || err != nil {
		return err
	}
	switch decision := body.Get("decision"); decision {
	case "":
		return f.renderConsent(w, r, v, nil, nil)
	case "deny", "approve":
		return f.decide(w, r, v, decision == "approve", body)
	}
	return apierr.InvalidRequest.Errorf("decision: must be approve or deny")
}

// findVisit returns the visit for a user code, or what is wrong with the code. It limits how many
// codes an account and an address may try (RFC 8628 §5.1).
func (f *deviceFlow) findVisit(r *http.Request, account accounts.Account, userCode string) (*visit, string, error) {
	address := web.ClientNetwork(r)
	waitAccount, _ := f.accountTries.Peek(account.ID)
	waitAddress, _ := f.addressTries.Peek(address)
	if wait := max(waitAccount, waitAddress); wait > 0 {
		e := apierr.RateLimited.Errorf("Too many wrong codes. Wait a minute and try again.")
		e.RetryAfter = wait
		return nil, "", e
	}
	letters, valid := verdict.ReadUserCode(userCode)
	c, err := f.Store.getDeviceCode(r.Context(), letters)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, "", err
	}
	if !valid || err != nil || c.DecidedUS == nil && !c.Open(f.Store.Now().UnixMicro()) {
		f.accountTries.Allow(account.ID)
		f.addressTries.Allow(address)
		return nil, "This code isn’t valid. Check it on your device. Codes expire after 10 minutes: start again " +
			"there to get a new one.", nil
	}
	if c.DecidedUS != nil {
		return nil, codeUsed, nil
	}
	app, err := f.Apps.Get(r.Context(), c.AppID)
	if err != nil {
		return nil, "", err
	}
	if app.Suspended {
		return nil, app.Name + " is suspended and can’t accept new connections.", nil
	}
	return &visit{
		app:      app,
		req:      verdict.Request{RequestedMC: c.RequestedMC, Features: c.Features},
		userCode: userCode,
		account:  account,
		action:   devicePath(userCode),
	}, "", nil
}

// decide stores the decision of the consent screen and shows the last page.
func (f *deviceFlow) decide(w http.ResponseWriter, r *http.Request, v *visit, approve bool, body url.Values) error {
	form := readConsentForm(body)
	var values consentValues
	if approve {
		var problems []ui.Problem
		values, problems = form.parse(maxCap(v.app))
		disputed, err := f.findDisputeProblems(r.Context(), v, values)
		if err != nil {
			return err
		}
		if problems = append(append(findProblems(v, form), problems...), disputed...); len(problems) > 0 {
			return f.renderConsent(w, r, v, &form, problems)
		}
	}
	err := f.Store.DB.InTx(r.Context(), func(ctx context.Context, tx *db.Tx) error {
		var given Consent
		if approve {
			if err := f.checkRates(ctx, tx, v, form); err != nil {
				return err
			}
			accountID, err := f.chooseAccount(ctx, tx, v, form)
			if err != nil {
				return err
			}
			given = v.consent(accountID, form, values)
		}
		letters, _ := verdict.ReadUserCode(v.userCode)
		return f.Store.decideDevice(ctx, tx, letters, given)
	})
	raised, isRaised := errors.AsType[*raisedError](err)
	switch {
	case isRaised:
		return f.renderRaised(w, r, v, &form, raised)
	case errors.Is(err, errDecided): // meanwhile, as after a double click
		return f.renderProblem(w, v.account, v.userCode, codeUsed)
	case err != nil:
		return err
	case approve:
		f.countStep(r.Context(), v, stepApproved)
		return ui.Render(w, http.StatusOK, ui.Message{
			Heading: "Approved",
			Text: "Go back to " + v.app.Name +
				" on your device. It continues within a few seconds. You can close this page.",
			Link: &ui.Link{Href: f.DashboardURL + "/connections", Text: "See your connections"},
		})
	}
	f.countStep(r.Context(), v, stepDenied)
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Denied",
		Text:    v.app.Name + " was not connected. Nothing was shared or charged. You can close this page.",
	})
}

// codeUsed is the problem of a user code that is decided.
const codeUsed = "This code was already used. Start again on your device to get a new one."

// renderProblem shows the form for the user code again.
func (f *deviceFlow) renderProblem(w http.ResponseWriter, account accounts.Account, typed, problem string) error {
	return ui.Render(w, http.StatusUnprocessableEntity, ui.ConnectDevice{
		Email:    account.Email,
		UserCode: typed,
		Errors:   []ui.Problem{{Field: "user_code", Text: problem}},
	})
}
