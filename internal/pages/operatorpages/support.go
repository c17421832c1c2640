package operatorpages

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/pages/operator"
	"github.com/purserhq/purser/internal/pages/privacy"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
)

const invitationsPath = "/operator/invitations"

// A supportAction is what an operator does with an account, on a page of its own: /operator/accounts/{id}/NAME.
type supportAction struct {
	name    string
	about   string // names the link to the page
	link    string // its text
	heading string
	text    string // what it does
	button  string
	danger  bool
	closed  bool                        // of closed accounts, too
	offered func(accounts.Account) bool // nil = always
	fields  func() []ui.Entry           // nil = the reason
	act     func(h *Handler, r *http.Request, s staff, form url.Values, reason string) error
}

// supportActions are all, in the order of their links.
var supportActions = []supportAction{
	{
		name:    "credit",
		about:   "Goodwill",
		link:    "Give a goodwill credit",
		heading: "Give a goodwill credit?",
		text:    "The amount is added to the balance, without a payment. The user gets an email with the reason.",
		button:  "Give credit",
		fields: func() []ui.Entry {
			return append([]ui.Entry{{ID: "amount", Label: "Amount in dollars", Hint: "At most 1000."}},
				reasonField("The user reads it.")...)
		},
		act: (*Handler).giveGoodwill,
	},
	{
		name:    "sign-out",
		about:   "Sessions",
		link:    "Sign out everywhere",
		heading: "Sign out everywhere?",
		text:    "All sessions end, and links in emails stop working. Connections to apps stay.",
		button:  "Sign out",
		act: func(h *Handler, r *http.Request, s staff, _ url.Values, reason string) error {
			_, err := h.Service.SignOut(r.Context(), s.ID, r.PathValue("id"), reason)
			return err
		},
	},
	{
		name:    "reset-two-step",
		about:   "Second factors",
		link:    "Turn off two-step verification",
		heading: "Turn off two-step verification?",
		text: "All passkeys, the authenticator app and the recovery codes are removed, and all sessions end. The " +
			"password alone signs in afterwards, so make sure that you talk to the owner. The user gets an email.",
		button:  "Turn off",
		danger:  true,
		offered: func(a accounts.Account) bool { return a.TwoStep },
		act: func(h *Handler, r *http.Request, s staff, _ url.Values, reason string) error {
			_, err := h.Service.ResetTwoStep(r.Context(), s.ID, r.PathValue("id"), reason)
			return err
		},
	},
	{
		name:    "suspend",
		about:   "Access",
		link:    "Suspend",
		heading: "Suspend this account?",
		text: "The user is signed out and can’t sign in, and apps can’t make calls. They can still charge what they " +
			"hold for their own work, within ten minutes. No money moves. The user gets an email with the reason.",
		button:  "Suspend",
		danger:  true,
		offered: func(a accounts.Account) bool { return a.SuspendedUS == 0 },
		act: func(h *Handler, r *http.Request, s staff, _ url.Values, reason string) error {
			_, err := h.Service.SuspendAccount(r.Context(), s.ID, r.PathValue("id"), reason)
			return err
		},
	},
	{
		name:    "lift",
		about:   "Access",
		link:    "Lift the suspension",
		heading: "Lift the suspension?",
		text:    "The user can sign in again. Connections that the suspension has paused work again.",
		button:  "Lift suspension",
		offered: func(a accounts.Account) bool { return a.SuspendedUS > 0 },
		act: func(h *Handler, r *http.Request, s staff, form url.Values, reason string) error {
			shownUS, err := readSeenSuspension(form)
			if err != nil {
				return err
			}
			_, err = h.Service.ReinstateAccount(r.Context(), s.ID, r.PathValue("id"), reason, shownUS)
			return err
		},
	},
	{
		name:    "close",
		about:   "Account",
		link:    "Close",
		heading: "Close this account?",
		text: "The account is suspended, its connections are revoked, what is left of its payments goes back to the card, " +
			"what is left of goodwill credits is taken back, and its personal data is erased. If something below " +
			"still blocks it, this stops and says so: repeat it then. This can’t be undone.",
		button: "Close account",
		danger: true,
		act: func(h *Handler, r *http.Request, s staff, form url.Values, reason string) error {
			shown := form.Get(fieldOpen)
			_, err := h.Service.CloseAccount(r.Context(), s.ID, r.PathValue("id"), reason, &shown)
			return err
		},
	},
	{
		name:    "return",
		about:   "Money that came back",
		link:    "Return it to the card",
		heading: "Return what came back to this closed account?",
		text: "A refund that a bank rejects comes back to the balance, also after the account was closed. This asks " +
			"for refunds to the cards that paid it, newest first.",
		button:  "Return to the card",
		closed:  true,
		offered: func(a accounts.Account) bool { return a.Closed },
		act: func(h *Handler, r *http.Request, s staff, _ url.Values, reason string) error {
			_, err := h.Service.CloseAccount(r.Context(), s.ID, r.PathValue("id"), reason, nil)
			return err
		},
	},
	{
		name:    "settle",
		about:   "Paid otherwise",
		link:    "Record a payment to the user",
		heading: "Did you pay the user otherwise?",
		text: "Where no card takes the money, pay the user otherwise, such as by bank transfer, and record it here. " +
			"The amount leaves the balance. No money moves by this.",
		button:  "Record",
		closed:  true,
		offered: func(a accounts.Account) bool { return a.Closed || a.SuspendedUS > 0 },
		fields: func() []ui.Entry {
			return append([]ui.Entry{{ID: "amount", Label: "Amount in dollars"}}, reasonField("For the audit log.")...)
		},
		act: (*Handler).settleAccount,
	},
}

// mountSupport adds the pages of support actions and invitations.
func (h *Handler) mountSupport(rt *web.Router) {
	for _, a := range supportActions {
		pattern := accountsPath + "/{id}/" + a.name
		show := func(r *http.Request, s staff) (ui.Report, error) { return h.showSupport(r, s, a) }
		rt.HandlePage("GET "+pattern, h.servePage(show))
		rt.HandlePage("POST "+pattern, h.serveAction(show,
			func(r *http.Request, s staff, form url.Values) (string, error) { return h.support(r, s, form, a) }))
	}
	rt.HandlePage("GET "+invitationsPath, h.servePage(h.showInvite))
	rt.HandlePage("POST "+invitationsPath, h.requireStaff(h.invite))
}

// offers reports whether an action is possible on an account.
func (a supportAction) offers(account accounts.Account) bool {
	return !account.Sandbox && (a.closed || !account.Closed) && (a.offered == nil || a.offered(account))
}

// supportBlock links to the actions that are possible on an account.
func supportBlock(account accounts.Account) ui.Block {
	b := ui.Block{Heading: "Support"}
	for _, a := range supportActions {
		if a.offers(account) {
			b.Facts = append(b.Facts, ui.Detail{
				Name: a.about,
				Cell: ui.Cell{Text: a.link, Href: accountsPath + "/" + url.PathEscape(account.ID) + "/" + a.name},
			})
		}
	}
	return b
}

// showSupport is GET /operator/accounts/{id}/NAME: what an action will do, and the form for its reason.
func (h *Handler) showSupport(r *http.Request, s staff, a supportAction) (ui.Report, error) {
	account, err := h.Accounts.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return ui.Report{}, notFound(err, "account")
	}
	c := s.newReport(accountsPath, a.heading, "")
	c.Back = &ui.Link{Href: accountsPath + "/" + url.PathEscape(account.ID), Text: account.Email}
	if !a.offers(account) {
		c.Heading, c.Lead = "This can’t be done", "The account is a test account, closed, or not in the state for it."
		return c, nil
	}
	c.Lead = a.text
	if !s.canAct() {
		return c, nil
	}
	form := &ui.Ask{
		Action:   accountsPath + "/" + url.PathEscape(account.ID) + "/" + a.name,
		Decision: a.name,
		Fields:   reasonField("For the audit log, and for the user."),
		Button:   a.button,
		Danger:   a.danger,
	}
	if a.fields != nil {
		form.Fields = a.fields()
	}
	if a.name == "lift" {
		form.Seen = seenSuspension(account.SuspendedUS)
	}
	if prefix := map[string]string{"credit": id.Goodwill, "settle": id.Settlement}[a.name]; prefix != "" {
		// However often the form is sent, it is one credit, or one settlement.
		form.Action += "?" + url.Values{a.name: {id.New(prefix, h.Service.Now())}}.Encode()
	}
	c.Blocks = []ui.Block{{Heading: account.Email, Form: form}}
	if a.name != "close" {
		return c, nil
	}
	open, shown, err := h.openTable(r, account)
	form.Seen = &ui.Seen{Name: fieldOpen, Value: shown}
	c.Blocks = append([]ui.Block{{Heading: "What is open", Table: open}}, c.Blocks...)
	return c, err
}

// fieldOpen is the field of what the page of a closing has shown.
const fieldOpen = "open"

// openTable lists what an account owes and is owed, and what closing does with each. The form carries shown.
func (h *Handler) openTable(r *http.Request, a accounts.Account) (t *ui.Table, shown string, err error) {
	t = &ui.Table{Label: "Open", Heads: []ui.Head{{Name: "What"}, {Name: "When it is closed"}}, Empty: "Nothing."}
	list, shown, err := h.Service.Privacy.ListOpen(r.Context(), a)
	if err != nil {
		return t, "", err
	}
	for _, item := range list {
		fate := map[privacy.Fate]ui.Cell{
			privacy.Blocks:   {Text: "Blocks it", Tone: "bad"},
			privacy.Returned: {Text: "Goes to the card first", Tone: "warn"},
			privacy.Ends:     {Text: "Ends", Tone: "plain"},
			privacy.GoesOn:   {Text: "Goes on", Tone: "plain"},
		}[item.Fate]
		t.Rows = append(t.Rows, []ui.Cell{{Text: ui.Sentence(item.Text)}, fate})
	}
	return t, shown, nil
}

func (h *Handler) settleAccount(r *http.Request, s staff, form url.Values, reason string) error {
	amount, err := money.Parse(form.Get("amount"))
	if err != nil || amount == 0 {
		return apierr.InvalidRequest.Errorf("amount: must be dollars and cents, such as 5 or 0.50")
	}
	t := topups.Settlement{
		ID:        r.URL.Query().Get("settle"),
		AccountID: r.PathValue("id"),
		AmountMC:  amount,
		Reason:    reason,
	}
	if !operator.IsSettlementID(t.ID) {
		return apierr.InvalidRequest.Errorf("amount: must be sent from the form of this page; open it again")
	}
	_, err = h.Service.SettleAccount(r.Context(), s.ID, t)
	return err
}

// support is POST /operator/accounts/{id}/NAME.
func (h *Handler) support(r *http.Request, s staff, form url.Values, a supportAction) (string, error) {
	if form.Get("decision") != a.name {
		return "", apierr.InvalidRequest.Errorf("decision: must be %s", a.name)
	}
	reason, err := operator.CheckReason(form.Get("reason"))
	if err != nil {
		return "", err
	}
	if err := a.act(h, r, s, form, reason); err != nil {
		return "", err
	}
	return accountsPath + "/" + url.PathEscape(r.PathValue("id")) + "?done=account-" + a.name, nil
}

func (h *Handler) giveGoodwill(r *http.Request, s staff, form url.Values, reason string) error {
	amount, err := money.Parse(form.Get("amount"))
	if err != nil || amount == 0 {
		return apierr.InvalidRequest.Errorf("amount: must be dollars and cents, such as 5 or 0.50")
	}
	goodwillID := r.URL.Query().Get("credit")
	if !operator.IsGoodwillID(goodwillID) {
		return apierr.InvalidRequest.Errorf("amount: must be sent from the form of this page; open it again")
	}
	_, err = h.Service.GiveGoodwill(r.Context(), s.ID, r.PathValue("id"), goodwillID, amount, reason)
	return err
}

// showInvite is GET /operator/invitations.
func (h *Handler) showInvite(_ *http.Request, s staff) (ui.Report, error) {
	c := s.newReport(accountsPath, "Invite a user",
		"You get a link by which the owner of the address sets a password. No email is sent.")
	c.Back = &ui.Link{Href: accountsPath, Text: "Accounts"}
	if s.canAct() {
		c.Blocks = []ui.Block{{Heading: "Invitation", Form: &ui.Ask{
			Action: invitationsPath,
			Fields: []ui.Entry{{ID: "email", Label: "Email"}},
			Button: "Create link",
		}}}
	}
	return c, nil
}

// invite is POST /operator/invitations. Its answer has the link, which no other page has.
func (h *Handler) invite(w http.ResponseWriter, r *http.Request, s staff) error {
	if !s.canAct() {
		return forbidden.Errorf("You’re a viewer: you can see everything here but change nothing.")
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	i, err := h.Service.Invite(r.Context(), s.ID, strings.TrimSpace(form.Get("email")))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status == http.StatusBadRequest {
		c, err := h.showInvite(r, s)
		if err != nil {
			return err
		}
		c.Refill(form, []ui.Problem{describeProblem(e.Message)})
		return ui.Render(w, http.StatusUnprocessableEntity, c)
	} else if err != nil {
		return err
	}
	c := s.newReport(accountsPath, "Invitation for "+i.Email, fmt.Sprintf(
		"Hand this link to the owner of the address only. It works once, until %s, and is not shown again.",
		formatTime(i.ExpiresUS)))
	c.Back = &ui.Link{Href: accountsPath, Text: "Accounts"}
	c.Blocks = []ui.Block{{Heading: "Link", Source: i.URL}}
	return ui.Render(w, http.StatusOK, c)
}
