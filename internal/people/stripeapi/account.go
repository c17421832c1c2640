package stripeapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/stripe"
	"github.com/purserhq/purser/internal/models/metrics"
)

// ErrOtherAccount says that the key is of another account at Stripe than the one that the books are of.
var ErrOtherAccount = errors.New("stripeapi: stripe.key is of another account at Stripe than before")

// An Account knows whether the key is of the account at Stripe that the books are of. Another account does not have our
// customers, cards and payees, and answers that they are missing: they are not gone (decision 126).
type Account struct {
	Client  *stripe.Client
	DB      *db.DB
	Metrics *metrics.Metrics
	Log     *slog.Logger

	isSame atomic.Bool // known for the key of this process
}

// Check returns ErrOtherAccount if the key is of another account than the first that this database has seen. A key that
// may not read its own account passes: then only the operator can tell.
func (a *Account) Check(ctx context.Context) error {
	if a.isSame.Load() {
		return nil
	}
	own, err := stripe.GetOwnAccount(ctx, a.Client)
	if e, ok := errors.AsType[*stripe.Error](err); ok && e.Status == http.StatusForbidden {
		a.Log.Info("the stripe key may not read its own account", "answer", e.Message)
		a.isSame.Store(true)
		return nil
	} else if err != nil {
		return fmt.Errorf("stripeapi: own account: %w", err)
	}
	kept, err := settings.Keep(ctx, a.DB, settings.StripeAccount, own.ID)
	if err != nil {
		return fmt.Errorf("stripeapi: own account: %w", err)
	}
	if kept != own.ID {
		a.Log.Error("the stripe key is of another account", "account", own.ID, "before", kept)
		a.Metrics.RaiseAlarm("stripe_account", "stripe")
		return ErrOtherAccount
	}
	a.isSame.Store(true)
	return nil
}
