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
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxGoodwillMC is the most that one goodwill credit can be, against slips of the keyboard.
const maxGoodwillMC = 1000 * money.Dollar

// GiveGoodwill credits a user's account without a payment, and notifies the user (decision 095). A goodwillID that was
// used for the same credit before changes nothing, and the row of that credit is returned: so that a command whose
// answer was lost can be repeated.
func (d *Service) GiveGoodwill(ctx context.Context, by, accountID, goodwillID string, amount money.MC,
	reason string) (given rules.Entry, err error) {
	if amount <= 0 || amount > maxGoodwillMC {
		return given, apierr.InvalidRequest.Errorf("amount_mc: must be from 1 to %d, %s", int64(maxGoodwillMC),
			maxGoodwillMC.Display())
	}
	if g, err := store.GetGoodwill(ctx, d.DB, goodwillID); err == nil && g.AccountID == accountID &&
		g.AmountMC == amount && g.Reason == reason {
		return store.GetEntry(ctx, d.DB, g.EntryID)
	} else if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return given, err
	}
	a := action{by: by, what: "goodwill", subject: accountID, reason: reason}
	_, err = d.changeAccount(ctx, &a, func(ctx context.Context, tx *db.Tx, _ accounts.Account) error {
		done, err := d.Ledger.DoTx(ctx, tx, rules.GiveGoodwill{
			GoodwillID: goodwillID,
			AccountID:  accountID,
			AmountMC:   amount,
			Reason:     reason,
		})
		if err != nil {
			return err
		}
		if done.Outcome == rules.Done { // by another request at the same time
			return errGivenAlready
		}
		given = done.Entry
		return d.Topups.NotifyGoodwill(ctx, tx, accountID, amount, reason)
	})
	if errors.Is(err, errGivenAlready) {
		g, err := store.GetGoodwill(ctx, d.DB, goodwillID)
		if err != nil {
			return given, err
		}
		return store.GetEntry(ctx, d.DB, g.EntryID)
	}
	return given, err
}

// errGivenAlready rolls back an action that finds its goodwill credit given.
var errGivenAlready = errors.New("the goodwill credit was given before")

// withdrawGoodwill takes back what is left of a goodwill credit and available, in the transaction of Reverse.
func (d *Service) withdrawGoodwill(ctx context.Context, tx *db.Tx, original rules.Entry,
	reason string) (rules.Entry, error) {
	g, err := store.GoodwillOfEntry(ctx, tx, original.ID)
	if errors.Is(err, sql.ErrNoRows) || err == nil && g.EntryID != original.ID {
		return rules.Entry{}, apierr.InvalidRequest.Errorf("only a charge or a goodwill credit can be reversed")
	} else if err != nil {
		return rules.Entry{}, err
	}
	if _, err := accounts.Lock(ctx, tx, g.AccountID); err != nil {
		return rules.Entry{}, err
	}
	if err := d.Topups.CheckNoRefund(ctx, tx, g.AccountID); err != nil {
		return rules.Entry{}, err
	}
	done, err := d.Ledger.DoTx(ctx, tx, rules.WithdrawGoodwill{GoodwillID: g.ID, Reason: reason})
	if err != nil {
		return rules.Entry{}, err
	} else if done.Outcome == rules.Done {
		return rules.Entry{}, apierr.InvalidRequest.Errorf("all of this goodwill credit was withdrawn already")
	}
	disputed, err := d.Topups.SumDisputed(ctx, tx, g.AccountID)
	if err != nil {
		return rules.Entry{}, err
	}
	balance, err := store.GetBalance(ctx, tx, g.AccountID)
	if err != nil {
		return rules.Entry{}, err
	}
	if balance.AvailableMC < disputed {
		return rules.Entry{}, apierr.InvalidRequest.Errorf("%s of the balance is disputed; it stays until the bank "+
			"has decided", disputed.Display())
	}
	return done.Entry, nil
}

// goodwillBody is the body of POST /v1/operator/accounts/{id}/goodwill.
type goodwillBody struct {
	ID       web.Field[string]   `json:"id"` // gwc_…; not set = a new one
	AmountMC web.Field[money.MC] `json:"amount_mc"`
	Reason   web.Field[string]   `json:"reason"`
}

// IsGoodwillID reports whether text has the form of the id of a goodwill credit.
func IsGoodwillID(text string) bool { return isIDOf(id.Goodwill, text) }

// isIDOf reports whether text has the form of an id with a prefix.
func isIDOf(prefix, text string) bool {
	return strings.HasPrefix(text, prefix) && len(text) == len(prefix)+26 && !id.Time(text).IsZero()
}

func (h *Handler) giveGoodwill(w http.ResponseWriter, r *http.Request) error {
	var b goodwillBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	switch {
	case !b.AmountMC.Set || b.AmountMC.Null:
		return apierr.InvalidRequest.Errorf("amount_mc: required")
	case !b.Reason.Set || b.Reason.Null:
		return apierr.InvalidRequest.Errorf("reason: required")
	case b.ID.Set && !IsGoodwillID(b.ID.Value):
		return apierr.InvalidRequest.Errorf("id: must be gwc_ and 26 characters, a new one for each credit")
	}
	reason, err := CheckReason(b.Reason.Value)
	if err != nil {
		return err
	}
	found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	goodwillID := b.ID.Value
	if goodwillID == "" {
		goodwillID = id.New(id.Goodwill, h.Service.Now())
	}
	e, err := h.Service.GiveGoodwill(r.Context(), actorOf(r), found.ID, goodwillID, b.AmountMC.Value, reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, e.Resource())
}
