package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A freeze says why a connection is paused and since when; all is zero if it is not.
type freeze struct {
	why       string
	since     ui.Moment // of the cause that it shows
	resumable bool      // its user ends all causes
	causes    string    // the keys of the causes
}

// explainFreeze says who paused a connection, why and when: the cause that it shows first.
func (h *Handler) explainFreeze(ctx context.Context, c *rules.Connection) (f freeze, err error) {
	if c.Status != rules.Frozen {
		return freeze{}, nil
	}
	causes, err := store.ListFreezes(ctx, h.DB, c.ID)
	if err != nil {
		return freeze{}, fmt.Errorf("dashboard: freeze: %w", err)
	}
	if len(causes) == 0 { // frozen by a node of an earlier version
		causes = []rules.FreezeRow{{Cause: c.FrozenBy, Reason: c.FrozenReason}}
	}
	rules.SortFreezes(causes)
	f.causes = rules.JoinKeys(causes)
	if us := causes[0].SinceUS; us > 0 {
		f.since = ui.NewMoment(us)
	}
	f.resumable = true
	var sentences []string
	for i := range causes {
		sentences = append(sentences, h.describeCause(c, &causes[i]))
		f.resumable = f.resumable && rules.Resume{}.Ends(&causes[i])
	}
	f.why = strings.Join(slices.Compact(sentences), " ")
	return f, nil
}

// describeCause says why a connection is paused by one of its causes.
func (h *Handler) describeCause(c *rules.Connection, f *rules.FreezeRow) string {
	switch f.Cause {
	case rules.FrozenByRisk:
		return "We paused it because it suddenly spent much faster than usual" + h.describeRisk(c, f.SinceUS) + "."
	case rules.FrozenByUser:
		return "You paused it."
	case rules.FrozenByPayment:
		if f.Subject == rules.BelowZero {
			return "One of your payments was reversed, and your balance fell below zero."
		}
		return "One of your payments is disputed. Your apps stay paused until your bank has decided."
	case rules.FrozenByOperator:
		if f.Subject == rules.Suspension {
			return "The account is suspended."
		}
		if f.Reason != "" {
			return "We paused it. The reason: “" + f.Reason + "”. To resume it, contact support."
		}
		return "We paused it. To resume it, contact support."
	}
	return "Either you paused it, or we did."
}

// describeRisk writes the spend that froze a connection, as ": $4.20 within 20 minutes, 21 times its usual". It is ""
// when the window of spend is not kept any more. Buckets count as a whole, so the spend may have taken as long as the
// window and a bucket.
func (h *Handler) describeRisk(c *rules.Connection, frozenUS int64) string {
	at := time.UnixMicro(frozenUS)
	spent := money.MC(c.RiskSpend().Sum(at, limits.RiskWindow))
	usual := h.Policies.At(at).Risk.UsualMC(c.Spent, 1, at)
	if frozenUS == 0 || usual <= 0 || spent < 2*usual {
		return ""
	}
	span := limits.RiskWindow + limits.SpendBucketWidth
	return fmt.Sprintf(": %s within %d minutes, %s times its usual", ui.Total(spent), int64(span/time.Minute),
		strconv.FormatInt(int64(spent/usual), 10))
}

// freezeConnection is POST /connections/{id}/freeze: the user pauses it (contract §3).
func (h *Handler) freezeConnection(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.runCommand(w, r, a, func(connectionID string) rules.Command {
		return rules.Freeze{ConnectionID: connectionID, By: rules.FrozenByUser, Actor: a.ID}
	}, "?done=freeze", "")
}

// resumeConnection is POST /connections/{id}/resume: the user resumes what they paused. A connection that is paused for
// another reason stays so; its review page says why.
func (h *Handler) resumeConnection(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	return h.runCommand(w, r, a, func(connectionID string) rules.Command {
		return rules.Resume{ConnectionID: connectionID, OnlyFrozenBy: rules.FrozenByUser}
	}, "?done=resume", "/review")
}

// lists are the pages that a button may return to instead of the connection's.
var lists = map[string]string{"connections": "/connections", "overview": "/dashboard"}

// runCommand runs the command of a button. It redirects to the page that the button was on: a list, or the
// connection's. If the command is refused, as for a connection that was revoked meanwhile, it redirects to the refused
// page of the connection.
func (h *Handler) runCommand(w http.ResponseWriter, r *http.Request, a accounts.Account,
	command func(connectionID string) rules.Command, done, refused string) error {
	v, err := h.loadVisit(r.Context(), a, r.PathValue("id"), connectionPath(r.PathValue("id")))
	if err != nil {
		return err
	}
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	_, err = h.Ledger.Do(r.Context(), command(v.conn.ID))
	switch {
	case err == nil:
		if list := lists[form.Get("from")]; list != "" {
			return web.SeeOther(w, list+done)
		}
		return web.SeeOther(w, connectionPath(v.conn.ID)+done)
	case refusalText(err) == "":
		return err
	}
	return web.SeeOther(w, connectionPath(v.conn.ID)+refused)
}
