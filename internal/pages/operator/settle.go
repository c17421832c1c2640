package operator

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// SettleAccount records that the user of a suspended or closed account was paid an amount of its balance otherwise than
// by its cards, which did not take it, such as by a bank transfer (decision 124).
func (d *Service) SettleAccount(ctx context.Context, by, accountID string, amount money.MC,
	reason string) (after accounts.Account, err error) {
	a := action{by: by, what: "settle", subject: accountID, reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		before, err := accounts.Lock(ctx, tx, accountID)
		switch {
		case err != nil:
			return missing(err, "account")
		case before.Sandbox:
			return apierr.InvalidRequest.Errorf("a test account belongs to its developer")
		case before.SuspendedUS == 0 && !before.Closed:
			return apierr.InvalidRequest.Errorf("only the balance of a suspended or closed account is settled; users " +
				"return their money themselves")
		}
		if err := d.Topups.SettleElsewhere(ctx, tx, accountID, amount, reason); err != nil {
			return err
		}
		after = before
		a.before, a.after = describeAccount(before), settledEntry{describeAccount(after), amount}
		return nil
	})
	return after, err
}

// settledEntry is the account in the audit log after a settlement.
type settledEntry struct {
	accountEntry
	SettledMC money.MC `json:"settled_mc"`
}

// settleBody is the body of POST /v1/operator/accounts/{id}/settle.
type settleBody struct {
	AmountMC web.Field[money.MC] `json:"amount_mc"`
	Reason   web.Field[string]   `json:"reason"`
}

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
	}
	reason, err := CheckReason(b.Reason.Value)
	if err != nil {
		return err
	}
	found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	a, err := h.Service.SettleAccount(r.Context(), web.ClientAddress(r), found.ID, b.AmountMC.Value, reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newAccountResource(a))
}
