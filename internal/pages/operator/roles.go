package operator

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// roles are the roles on the operator's pages, by their names in the API.
var roles = map[string]accounts.Role{"operator": accounts.Operator, "viewer": accounts.Viewer, "none": accounts.NoRole}

// roleName returns the name of a role in the API.
func roleName(role accounts.Role) string {
	if role == accounts.NoRole {
		return "none"
	}
	return string(role)
}

// roleEntry is a role in the audit log. It has no email address: users may have theirs erased, and entries are
// permanent.
type roleEntry struct {
	AccountID string `json:"account_id"`
	Role      string `json:"role"`
}

// Grant gives the account with an email address a role on the operator's pages; accounts.NoRole removes it. The pages
// read the role at each request, so the change takes effect immediately. The last operator's role can be removed too:
// the operator's token can grant it again. An account without two-step verification gets none: 400 invalid_request.
// reason is for the audit log; "" = none.
func (d *Service) Grant(ctx context.Context, by, email string, role accounts.Role, reason string) (accounts.Account,
	error) {
	person, err := d.Accounts.GetByEmail(ctx, email)
	if err != nil {
		return person, missing(err, "account")
	}
	if person.Deactivated {
		return person, missing(sql.ErrNoRows, "account")
	}
	if person.Unconfirmed {
		return person, apierr.InvalidRequest.Errorf("email: this address is not confirmed yet")
	}
	a := action{by: by, what: "grant", subject: person.ID, reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		before, err := d.Accounts.SetRole(ctx, tx, person.ID, role)
		if err != nil {
			return missing(err, "account")
		}
		if before == role {
			return apierr.InvalidRequest.Errorf("role: is %s already", roleName(role))
		}
		a.before, a.after = roleEntry{person.ID, roleName(before)}, roleEntry{person.ID, roleName(role)}
		return nil
	})
	return person, err
}

// grantBody is the body of POST /v1/operator/roles.
type grantBody struct {
	Email  web.Field[string] `json:"email"`
	Role   web.Field[string] `json:"role"`
	Reason web.Field[string] `json:"reason"`
}

// grantResource is its answer.
type grantResource struct {
	AccountID string `json:"account_id"`
	Email     string `json:"email"`
	Role      string `json:"role"`
}

func (h *Handler) grant(w http.ResponseWriter, r *http.Request) error {
	var b grantBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	if !b.Email.Set || b.Email.Null {
		return apierr.InvalidRequest.Errorf("email: required")
	}
	role, ok := roles[b.Role.Value]
	if !ok {
		return apierr.InvalidRequest.Errorf("role: must be operator, viewer or none")
	}
	reason := ""
	if b.Reason.Value != "" {
		var err error
		if reason, err = CheckReason(b.Reason.Value); err != nil {
			return err
		}
	}
	person, err := h.Service.Grant(r.Context(), actorOf(r), b.Email.Value, role, reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, grantResource{person.ID, person.Email, b.Role.Value})
}
