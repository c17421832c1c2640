package privacy

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/people/accounts"
)

// Handler serves the pages.
type Handler struct {
	Store *Store

	exports *web.Limiter // by account
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	h.exports = web.NewLimiter(20*time.Minute, 3, h.Store.Now)
	rt.HandlePage("GET /settings/data", h.signedIn(h.showData))
	rt.HandlePage("POST /settings/data/export", h.signedIn(h.Store.Sessions.InTurn(h.export)))
	rt.HandlePage("GET /settings/data/close", h.signedIn(h.showClose))
	rt.HandlePage("POST /settings/data/close", h.signedIn(h.closeAccount))
}

// signedIn redirects a browser without a session to the sign-in page, which leads back to
// /settings/data: the export has no page to come back to.
func (h *Handler) signedIn(next accounts.PageHandler) web.Handler {
	return h.Store.Sessions.With(func(w http.ResponseWriter, r *http.Request) error {
		a, ok := accounts.CurrentAccount(r.Context())
		if !ok {
			return web.SeeOther(w, accounts.SignInPath("/settings/data"))
		}
		return next(w, r, a)
	})
}

func (h *Handler) showData(w http.ResponseWriter, _ *http.Request, a accounts.Account) error {
	return ui.Render(w, http.StatusOK, ui.YourData{Shell: a.Shell(ui.Settings)})
}

// export is POST /settings/data/export, three times an hour at most, since it reads much. It records a security event.
func (h *Handler) export(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	if _, err := web.ReadForm(r); err != nil {
		return err
	}
	if wait, ok := h.exports.Allow(a.ID); !ok {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		return ui.Render(w, http.StatusTooManyRequests, ui.YourData{
			Shell: a.Shell(ui.Settings),
			Errors: []ui.Problem{
				{Text: "You’ve just downloaded your data several times. Wait a while, then try again."},
			},
		})
	}
	s := h.Store
	err := s.DB.InTx(r.Context(), func(ctx context.Context, tx *db.Tx) error {
		return s.Accounts.RecordEvent(ctx, tx, a.ID, accounts.DataExported, accounts.ClientOf(r))
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/zip")
	w.Header().Set("Content-Disposition", `attachment; filename="purser-data.zip"`)
	return s.Export(r.Context(), w, a)
}

func (h *Handler) showClose(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	st, err := h.Store.loadStanding(r.Context(), h.Store.DB, a)
	if err != nil {
		return err
	}
	if a.Sandbox {
		return apierr.NotFound.Errorf("A test account is deleted by its developer, in the developer console.")
	}
	if h.Store.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	return ui.Render(w, http.StatusOK, h.Store.closePage(st, a, st.ownObstacles()))
}

// closeAccount is POST /settings/data/close. It checks the form before the password, so that a typing error costs no
// attempt.
func (h *Handler) closeAccount(w http.ResponseWriter, r *http.Request, a accounts.Account) error {
	form, err := web.ReadForm(r)
	if err != nil {
		return err
	}
	if h.Store.Accounts.MustSignInAgain(r.Context(), a) {
		return accounts.RenderSignInAgain(w, r, a)
	}
	typed := form.Get("confirm")
	renderAgain := func(status int, blocking []row, problems ...ui.Problem) error {
		st, err := h.Store.loadStanding(r.Context(), h.Store.DB, a)
		if err != nil {
			return err
		}
		if blocking == nil {
			blocking = st.ownObstacles()
		}
		page := h.Store.closePage(st, a, blocking)
		page.Typed, page.Errors = typed, problems
		return ui.Render(w, status, page)
	}
	if email, err := accounts.NormalizeEmail(typed); !a.Sandbox && (err != nil || email != a.Email) {
		return renderAgain(http.StatusUnprocessableEntity, nil,
			ui.Problem{Field: "confirm", Text: "This is not your account’s email address."})
	}
	err = h.Store.Accounts.Reauthenticate(r.Context(), accounts.ClientOf(r), a, form.Get("present"))
	if e, ok := errors.AsType[*apierr.Error](err); ok && e.Code.Status < 500 {
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
		}
		return renderAgain(e.Code.Status, nil, ui.Problem{Field: "present", Text: e.Message})
	} else if err != nil {
		return err
	}
	err = h.Store.Close(r.Context(), a, form.Get("seen"))
	if o, ok := errors.AsType[*obstacles](err); ok {
		return renderAgain(http.StatusConflict, o.rows)
	} else if u, ok := errors.AsType[*unseen](err); ok {
		var problems []ui.Problem
		for _, r := range u.rows {
			problems = append(problems, ui.Problem{Text: "This has changed since you opened the page. " + r.own().Text})
		}
		return renderAgain(http.StatusConflict, nil, problems...)
	} else if err != nil {
		return err
	}
	if err := h.Store.Sessions.End(r.Context(), w); err != nil {
		return err
	}
	return ui.Render(w, http.StatusOK, ui.Message{
		Heading: "Your account is closed",
		Text: "Your personal data is erased and you’re signed out everywhere. We sent you a last email to confirm. " +
			"Thanks for using Purser.",
	})
}
