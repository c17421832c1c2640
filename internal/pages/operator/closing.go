package operator

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// maxGoodwill bounds the goodwill credits of an account that closing it withdraws.
const maxGoodwill = 10_000

// A Closing is what happened to the money of an account that was closed.
type Closing struct {
	Account     accounts.Account
	RefundedMC  money.MC // to payments, by the call that closed it
	WithdrawnMC money.MC // goodwill credits that were not spent
	RestMC      money.MC // less than a cent, which no card can take
	PendingMC   money.MC // of an account that was closed before: on its way to cards
	GoesOn      []string // what goes on after the closing, such as margin that is paid later
}

// CloseAccount suspends a user's account, ends its connections, refunds what is left of its payments, withdraws what is
// left of goodwill credits, and closes it: its personal data is erased, the ledger stays (decision 095). Calls that run
// and payments that are pending must end first, and nothing that the user paid may be left: then it is 400
// invalid_request, the account stays suspended, and the command can be repeated. So it is if shown, which a form
// carries of its page, is not what closing does; nil = there was no page. Of an account that is closed it returns what
// came back to it since.
func (d *Service) CloseAccount(
	ctx context.Context, by, accountID, reason string, shown *string,
) (c Closing, err error) {
	a, err := d.Accounts.Get(ctx, accountID)
	if err != nil {
		return c, missing(err, "account")
	}
	if a.Closed {
		return d.returnRest(ctx, by, a, reason)
	}
	if a.Operator {
		return c, apierr.InvalidRequest.Errorf("the account may open the operator pages; take its role first")
	}
	if err := d.Privacy.CheckShown(ctx, a, shown); err != nil {
		return c, err
	}
	if a.SuspendedUS == 0 {
		if a, err = d.SuspendAccount(ctx, by, accountID, reason); err != nil {
			return c, err
		}
	}
	// Each of the next steps stays done if a later one is refused.
	if err := d.logStep(ctx, by, "close_begun", a, reason); err != nil {
		return c, err
	}
	if err := d.Privacy.PrepareClosing(ctx, accountID); err != nil {
		return c, err
	}
	if err := d.Privacy.CheckRefundable(ctx, a); err != nil {
		return c, err
	}
	if err := d.logStep(ctx, by, "close_refunds", a, reason); err != nil {
		return c, err
	}
	if c.RefundedMC, err = d.Topups.RefundRest(ctx, accountID); err != nil {
		return c, err
	}
	if err := d.Accounts.FlushEvents(ctx); err != nil { // none may be written later
		return c, err
	}
	act := action{by: by, what: "close", subject: accountID, reason: reason}
	c.Account, err = d.changeAccount(ctx, &act, func(ctx context.Context, tx *db.Tx, now accounts.Account) error {
		if now.SuspendedUS == 0 {
			return apierr.InvalidRequest.Errorf("the account is not suspended any more")
		}
		if c.WithdrawnMC, err = d.withdrawAllGoodwill(ctx, tx, accountID, reason); err != nil {
			return err
		}
		balance, err := store.GetBalance(ctx, tx, accountID)
		if err != nil {
			return err
		}
		c.RestMC = balance.AvailableMC
		taken := c.RefundedMC + c.WithdrawnMC + c.RestMC
		c.GoesOn, err = d.Privacy.CloseForOperator(ctx, tx, now, shown, taken)
		return err
	})
	return c, err
}

// logStep writes an entry about a step of a closing before the step is done: it acts outside, or in transactions of its
// own.
func (d *Service) logStep(ctx context.Context, by, what string, a accounts.Account, reason string) error {
	act := action{by: by, what: what, subject: a.ID, reason: reason}
	return d.runAction(ctx, &act, func(context.Context, *db.Tx) error {
		act.before, act.after = describeAccount(a), describeAccount(a)
		return nil
	})
}

// returnRest returns what came back to an account after it was closed, such as a refund that failed late, to its cards
// again. Where there is nothing of it, and when the cards refuse it again, it is 400 invalid_request.
func (d *Service) returnRest(ctx context.Context, by string, a accounts.Account, reason string) (c Closing, err error) {
	c.Account = a
	st, err := d.Topups.LoadStandingOf(ctx, a.ID)
	if err != nil {
		return c, err
	}
	if st.ReturnableMC+st.ReturningMC == 0 {
		return c, apierr.InvalidRequest.Errorf("the account is closed, and nothing of its balance can go to a card")
	}
	if err := d.logStep(ctx, by, "close", a, reason); err != nil {
		return c, err
	}
	rest, err := d.Topups.ReturnRest(ctx, a.ID)
	if err != nil {
		return c, err
	}
	if c.RefundedMC, c.PendingMC = rest.ReturnedMC, rest.PendingMC; c.RefundedMC+c.PendingMC == 0 {
		return c, apierr.InvalidRequest.Errorf("Stripe refuses to refund it. Pay the user otherwise, and record it " +
			"by purser operator settle")
	}
	balance, err := store.GetBalance(ctx, d.DB, a.ID)
	c.RestMC = balance.AvailableMC
	return c, err
}

// withdrawAllGoodwill takes back what is left of the goodwill credits of an account, as far as it
// is available. It comes after refunds: the user spent the goodwill first. What the user paid and no payment takes back
// is no goodwill: then it is 400 invalid_request.
func (d *Service) withdrawAllGoodwill(ctx context.Context, tx *db.Tx, accountID,
	reason string) (withdrawn money.MC, err error) {
	balance, err := store.LockBalance(ctx, tx, accountID)
	if err != nil {
		return 0, err
	}
	disputed, err := d.Topups.SumDisputed(ctx, tx, accountID)
	if err != nil {
		return 0, err
	} else if disputed = min(disputed, balance.AvailableMC); disputed >= money.Cent {
		return 0, apierr.InvalidRequest.Errorf("%s is disputed; the account stays suspended. Repeat when the bank has "+
			"decided", disputed.Display())
	}
	paid, err := d.Topups.SumUnrefundable(ctx, tx, balance)
	if err != nil {
		return 0, err
	} else if paid >= money.Cent {
		return 0, apierr.InvalidRequest.Errorf("%s that the user paid cannot be refunded to a payment; the account "+
			"stays suspended. Pay the user otherwise, record it by purser operator settle, and repeat", paid.Display())
	}
	list, err := store.GoodwillOfAccount(ctx, tx, accountID, maxGoodwill)
	if err != nil {
		return 0, err
	}
	for _, g := range list {
		balance, err := store.LockBalance(ctx, tx, accountID)
		if err != nil {
			return 0, err
		}
		if g.RestMC() == 0 || balance.AvailableMC <= 0 {
			continue
		}
		done, err := d.Ledger.DoTx(ctx, tx, rules.WithdrawGoodwill{GoodwillID: g.ID, Reason: reason})
		if err != nil {
			return 0, err
		}
		withdrawn += done.Entry.AmountMC
	}
	return withdrawn, nil
}

// closingResource is the answer to POST /v1/operator/accounts/{id}/close.
type closingResource struct {
	Account          accountResource `json:"account"`
	RefundedMC       money.MC        `json:"refunded_mc"`
	RefundedDisplay  string          `json:"refunded_display"`
	WithdrawnMC      money.MC        `json:"withdrawn_mc"`
	WithdrawnDisplay string          `json:"withdrawn_display"`
	RestMC           money.MC        `json:"rest_mc"`
	RestDisplay      string          `json:"rest_display"`
	PendingMC        money.MC        `json:"pending_mc"`
	PendingDisplay   string          `json:"pending_display"`
	GoesOn           []string        `json:"goes_on"`
}

func (h *Handler) closeAccount(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	found, err := h.Service.searchAccount(r.Context(), r.PathValue("id"))
	if err != nil {
		return missing(err, "account")
	}
	c, err := h.Service.CloseAccount(r.Context(), actorOf(r), found.ID, reason, nil)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, closingResource{
		Account:          newAccountResource(c.Account),
		RefundedMC:       c.RefundedMC,
		RefundedDisplay:  c.RefundedMC.Display(),
		WithdrawnMC:      c.WithdrawnMC,
		WithdrawnDisplay: c.WithdrawnMC.Display(),
		RestMC:           c.RestMC,
		RestDisplay:      c.RestMC.Display(),
		PendingMC:        c.PendingMC,
		PendingDisplay:   c.PendingMC.Display(),
		GoesOn:           append([]string{}, c.GoesOn...),
	})
}
