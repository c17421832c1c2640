package operator

import (
	"context"
	"errors"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/topups"
)

// SettleAccount records that the user of a suspended or closed account was paid an amount of its balance otherwise than
// by its cards, which did not take it, such as by a bank transfer (decision 124). A settlement that was recorded before
// changes nothing, so that a command whose answer was lost can be repeated.
func (d *Service) SettleAccount(ctx context.Context, by string, t topups.Settlement) (after accounts.Account,
	err error) {
	a := action{by: by, what: "settle", subject: t.AccountID, reason: t.Reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		before, err := accounts.Lock(ctx, tx, t.AccountID)
		switch {
		case err != nil:
			return missing(err, "account")
		case before.Sandbox:
			return apierr.InvalidRequest.Errorf("a test account belongs to its developer")
		case before.SuspendedUS == 0 && !before.Closed:
			return apierr.InvalidRequest.Errorf("only the balance of a suspended or closed account is settled; users " +
				"return their money themselves")
		}
		after = before
		isNew, err := d.Topups.SettleElsewhere(ctx, tx, t)
		if err == nil && !isNew {
			err = errSettledAlready
		}
		a.before, a.after = describeAccount(before), settledEntry{describeAccount(after), t.ID, t.AmountMC}
		return err
	})
	if errors.Is(err, errSettledAlready) {
		err = nil
	}
	return after, err
}

// errSettledAlready rolls back an action that finds its settlement recorded.
var errSettledAlready = errors.New("the settlement was recorded before")

// settledEntry is the account in the audit log after a settlement.
type settledEntry struct {
	accountEntry
	SettlementID string   `json:"settlement_id"`
	SettledMC    money.MC `json:"settled_mc"`
}

// settleBody is the body of POST /v1/operator/accounts/{id}/settle.
type settleBody struct {
	ID       web.Field[string]   `json:"id"` // stl_…; not set = a new one
	AmountMC web.Field[money.MC] `json:"amount_mc"`
	Reason   web.Field[string]   `json:"reason"`
}

// IsSettlementID reports whether text has the form of the id of a settlement.
func IsSettlementID(text string) bool { return isIDOf(id.Settlement, text) }

func (h *Handler) settleAccount(w http.ResponseWriter, r *http.Request) error {
	var b settleBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	switch {
	case !b.AmountMC.Set || b.AmountMC.Null:
		return apierr.InvalidRequest.Errorf("amount_mc: required")
	case !b.Reason.Set || b.Reason.Null:
		return apierr.InvalidRequest.Errorf("reason: required")
	case b.ID.Set && !IsSettlementID(b.ID.Value):
		return apierr.InvalidRequest.Errorf("id: must be stl_ and 26 characters, a new one for each settlement")
	}
	reason, err := CheckReason(b.Reason.Value)
	if err != nil {
		return err
	}
	found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	t := topups.Settlement{ID: b.ID.Value, AccountID: found.ID, AmountMC: b.AmountMC.Value, Reason: reason}
	if t.ID == "" {
		t.ID = id.New(id.Settlement, h.Service.Now())
	}
	a, err := h.Service.SettleAccount(r.Context(), actorOf(r), t)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newAccountResource(a))
}
