package operator

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/identity"
)

// SearchAccounts returns the account with the email address, the safety identifier or the id in text, or the one that
// owns the connection, the ledger row or the request with that id. Not finding one is no error.
func (d *Service) SearchAccounts(ctx context.Context, text string) ([]accounts.Account, error) {
	a, err := d.searchAccount(ctx, text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []accounts.Account{a}, nil
}

func (d *Service) searchAccount(ctx context.Context, text string) (accounts.Account, error) {
	accountID := text
	switch {
	case strings.Contains(text, "@"):
		return d.Accounts.GetByEmail(ctx, text)
	case accounts.IsSafetyIdentifier(text):
		return d.FindAccount(ctx, text)
	case strings.HasPrefix(text, id.Connection):
		c, err := store.GetConnection(ctx, d.DB, text)
		if err != nil {
			return accounts.Account{}, err
		}
		accountID = c.AccountID
	case strings.HasPrefix(text, id.Ledger), strings.HasPrefix(text, id.Request):
		e, err := store.GetEntry(ctx, d.DB, entryID(text))
		if err != nil {
			return accounts.Account{}, err
		}
		accountID = e.AccountID
	}
	return d.Accounts.Get(ctx, accountID)
}

// entryID returns the id of the ledger row that an operator names by it or by its request.
func entryID(text string) string {
	if rest, ok := strings.CutPrefix(text, id.Request); ok {
		return id.Ledger + rest
	}
	return text
}

// Invite returns a link by which the owner of an email address gets an account, without an email from this service.
func (d *Service) Invite(ctx context.Context, by, email string) (i identity.Invitation, err error) {
	a := action{by: by, what: "invite"}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		if i, err = d.Identity.Invite(ctx, tx, email); err != nil {
			return err
		}
		a.subject = i.AccountID
		a.before = map[string]any{}
		a.after = map[string]any{"account_id": i.AccountID, "expires_at": timestamp.Format(i.ExpiresUS)}
		return nil
	})
	return i, err
}

// SignOut ends all sessions of an account.
func (d *Service) SignOut(ctx context.Context, by, accountID, reason string) (accounts.Account, error) {
	a := action{by: by, what: "sign_out", subject: accountID, reason: reason}
	return d.changeAccount(ctx, &a, func(ctx context.Context, tx *db.Tx, before accounts.Account) error {
		return d.Identity.SignOutAccount(ctx, tx, before.ID)
	})
}

// ResetTwoStep removes the second factors of an account whose owner has lost them, and its role on the operator's
// pages.
func (d *Service) ResetTwoStep(ctx context.Context, by, accountID, reason string) (accounts.Account, error) {
	a := action{by: by, what: "reset_two_step", subject: accountID, reason: reason}
	return d.changeAccount(ctx, &a, func(ctx context.Context, tx *db.Tx, _ accounts.Account) error {
		_, err := d.Identity.ResetTwoStep(ctx, tx, accountID)
		return err
	})
}

// SuspendAccount keeps the owner of an account from signing in, and pauses its connections. Balance and reserved
// amounts stay. The reason is for the owner and the audit log: what it says of a person is no matter of the apps.
func (d *Service) SuspendAccount(ctx context.Context, by, accountID, reason string) (accounts.Account, error) {
	a := action{by: by, what: "suspend", subject: accountID, reason: reason}
	return d.changeAccount(ctx, &a, func(ctx context.Context, tx *db.Tx, before accounts.Account) error {
		if before.SuspendedUS > 0 {
			return apierr.InvalidRequest.Errorf("the account is suspended already")
		}
		work, err := store.SumWorkHolds(ctx, tx, accountID, "")
		if err != nil {
			return err
		}
		if err := d.Identity.SuspendAccount(ctx, tx, before, reason, work); err != nil {
			return err
		}
		_, err = d.Ledger.DoTx(ctx, tx, rules.PauseAccount{
			AccountID: accountID,
			By:        rules.FrozenByOperator,
			Subject:   rules.Suspension,
			Actor:     by,
		})
		return err
	})
}

// ReinstateAccount ends the suspension of an account, and what the suspension has paused. A connection that is paused
// for another reason, too, stays so. The reason may be empty. shownUS is when the suspension began that the operator
// saw; 0 = whichever there is.
func (d *Service) ReinstateAccount(ctx context.Context, by, accountID, reason string,
	shownUS int64) (accounts.Account, error) {
	a := action{by: by, what: "lift", subject: accountID, reason: reason}
	return d.changeAccount(ctx, &a, func(ctx context.Context, tx *db.Tx, before accounts.Account) error {
		if before.SuspendedUS == 0 {
			return apierr.InvalidRequest.Errorf("the account is not suspended")
		}
		if err := checkShown(before.SuspendedUS, shownUS); err != nil {
			return err
		}
		if err := d.Topups.CheckNoRefund(ctx, tx, accountID); err != nil {
			return err
		}
		if err := d.Identity.ReinstateAccount(ctx, tx, before); err != nil {
			return err
		}
		_, err := d.Ledger.DoTx(ctx, tx, rules.ResumeAccount{AccountID: accountID, Subject: rules.Suspension})
		return err
	})
}

// changeAccount locks a user's account, runs f and logs the account before and after. Test accounts belong to their
// developers, and closed accounts have only an id: both are 400 invalid_request.
func (d *Service) changeAccount(ctx context.Context, a *action,
	f func(ctx context.Context, tx *db.Tx, before accounts.Account) error) (after accounts.Account, err error) {
	err = d.runAction(ctx, a, func(ctx context.Context, tx *db.Tx) error {
		before, err := accounts.Lock(ctx, tx, a.subject)
		switch {
		case err != nil:
			return missing(err, "account")
		case before.Sandbox:
			return apierr.InvalidRequest.Errorf("a test account belongs to its developer")
		case before.Closed:
			return apierr.InvalidRequest.Errorf("the account is closed")
		}
		if err := f(ctx, tx, before); err != nil {
			return err
		}
		if after, err = accounts.GetAccount(ctx, tx, a.subject); err != nil {
			return err
		}
		a.before, a.after = describeAccount(before), describeAccount(after)
		return nil
	})
	return after, err
}

// accountEntry is an account in the audit log. It has no email address: users may have theirs erased, and entries are
// permanent.
type accountEntry struct {
	AccountID string `json:"account_id"`
	Status    string `json:"status"`
	TwoStep   bool   `json:"two_step"`
	Operator  bool   `json:"operator"` // has a role on the operator's pages
}

func describeAccount(a accounts.Account) accountEntry {
	return accountEntry{a.ID, accountStatus(a), a.TwoStep, a.Operator}
}

// accountStatus returns the status of an account in the API.
func accountStatus(a accounts.Account) string {
	switch {
	case a.Closed || a.Sandbox && a.Deactivated:
		return "closed"
	case a.SuspendedUS > 0:
		return "suspended"
	case a.Unconfirmed:
		return "unconfirmed"
	}
	return "active"
}

// accountResource is an account as its operator sees it.
type accountResource struct {
	ID         string              `json:"id"`
	Email      string              `json:"email"`
	Status     string              `json:"status"`
	Sandbox    bool                `json:"sandbox"`
	Developer  bool                `json:"developer"`
	TwoStep    bool                `json:"two_step"`
	Suspension *suspensionResource `json:"suspension"`
	CreatedAt  string              `json:"created_at"`
}

type suspensionResource struct {
	Reason string `json:"reason"`
	Since  string `json:"since"`
}

func newAccountResource(a accounts.Account) accountResource {
	r := accountResource{
		ID:        a.ID,
		Email:     a.Email,
		Status:    accountStatus(a),
		Sandbox:   a.Sandbox,
		Developer: a.Developer,
		TwoStep:   a.TwoStep,
		CreatedAt: timestamp.Format(a.CreatedUS),
	}
	if a.SuspendedUS > 0 {
		r.Suspension = &suspensionResource{a.SuspendedReason, timestamp.Format(a.SuspendedUS)}
	}
	return r
}

// accountDetails is an account with its money and its newest connections.
type accountDetails struct {
	accountResource
	Role             string                     `json:"role"`
	SafetyIdentifier string                     `json:"safety_identifier"`
	AvailableMC      money.MC                   `json:"available_mc"`
	AvailableDisplay string                     `json:"available_display"`
	ReservedMC       money.MC                   `json:"reserved_mc"`
	ReservedDisplay  string                     `json:"reserved_display"`
	Connections      []rules.ConnectionResource `json:"connections"`
}

// accounts answers GET /v1/operator/accounts: all, newest first, or the result of a search.
func (h *Handler) accounts(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, id.Account, "search")
	if err != nil {
		return err
	}
	var list []accounts.Account
	if text := strings.TrimSpace(r.URL.Query().Get("search")); text != "" {
		list, err = h.Service.SearchAccounts(r.Context(), text)
	} else {
		list, err = h.Service.Accounts.ListNewest(r.Context(), page.StartingAfter, page.Limit+1)
	}
	if err != nil {
		return err
	}
	return writeList(w, r, page, list, func(a accounts.Account) string { return a.ID }, newAccountResource)
}

// account answers GET /v1/operator/accounts/{id}.
func (h *Handler) account(w http.ResponseWriter, r *http.Request) error {
	ctx, d := r.Context(), h.Service
	a, err := d.searchAccount(ctx, r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	balance, err := store.GetBalance(ctx, d.DB, a.ID)
	if err != nil {
		return err
	}
	role, err := d.Accounts.GetRole(ctx, a.ID)
	if err != nil {
		return err
	}
	list, err := store.ConnectionsOfAccount(ctx, d.DB, a.ID, maxConnections)
	if err != nil {
		return err
	}
	out := accountDetails{
		accountResource:  newAccountResource(a),
		Role:             roleName(role),
		SafetyIdentifier: d.Identifiers.Identify(a.ID),
		AvailableMC:      balance.AvailableMC,
		AvailableDisplay: balance.AvailableMC.Display(),
		ReservedMC:       balance.ReservedMC,
		ReservedDisplay:  balance.ReservedMC.Display(),
		Connections:      []rules.ConnectionResource{},
	}
	for _, c := range list {
		out.Connections = append(out.Connections, c.Resource())
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// invitationBody is the body of POST /v1/operator/invitations.
type invitationBody struct {
	Email web.Field[string] `json:"email"`
}

// invitationResource is its answer. Only this answer has the URL.
type invitationResource struct {
	AccountID string `json:"account_id"`
	Email     string `json:"email"`
	URL       string `json:"url"`
	ExpiresAt string `json:"expires_at"`
}

func (h *Handler) invite(w http.ResponseWriter, r *http.Request) error {
	var b invitationBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	if !b.Email.Set || b.Email.Null {
		return apierr.InvalidRequest.Errorf("email: required")
	}
	i, err := h.Service.Invite(r.Context(), actorOf(r), b.Email.Value)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK,
		invitationResource{i.AccountID, i.Email, i.URL, timestamp.Format(i.ExpiresUS)})
}

// accountAction changes an account for a reason.
type accountAction func(ctx context.Context, by, accountID, reason string) (accounts.Account, error)

// changeAccount answers an action with the account as it is now. The path may name the account in any way that a
// search understands.
func (h *Handler) changeAccount(act accountAction) web.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		reason, err := readReason(r)
		if err != nil {
			return err
		}
		found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
		if err != nil {
			return missing(err, "account")
		}
		a, err := act(r.Context(), actorOf(r), found.ID, reason)
		if err != nil {
			return err
		}
		return web.WriteJSON(w, http.StatusOK, newAccountResource(a))
	}
}

func (h *Handler) liftAccount(w http.ResponseWriter, r *http.Request) error {
	found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	a, err := h.Service.ReinstateAccount(r.Context(), actorOf(r), found.ID, "", 0)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newAccountResource(a))
}

// writeList answers with a page of a list that has one row more than the page if there are more.
func writeList[T, R any](w http.ResponseWriter, r *http.Request, page web.Page, list []T, rowID func(T) string,
	resource func(T) R) error {
	if len(list) > page.Limit {
		list = list[:page.Limit]
		web.LinkNext(w, r, rowID(list[len(list)-1]))
	}
	out := make([]R, len(list))
	for i, row := range list {
		out[i] = resource(row)
	}
	return web.WriteJSON(w, http.StatusOK, out)
}
