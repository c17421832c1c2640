package operator

import (
	"context"
	"net/http"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/people/mail"
)

// ResendMail has a mail of the outbox sent now, also one that was sent or given up.
func (d *Service) ResendMail(ctx context.Context, by, mailID string) (m mail.Summary, err error) {
	a := action{by: by, what: "resend", subject: mailID}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		before, err := d.Mails.Resend(ctx, tx, mailID)
		if err != nil {
			return missing(err, "mail")
		}
		m = before
		m.Status, m.Attempts, m.DoneUS = mail.Pending, 0, nil
		a.before, a.after = describeMail(before), describeMail(m)
		return nil
	})
	return m, err
}

// describeMail returns a mail for the audit log, without its subject, which may name an app or a person.
func describeMail(m mail.Summary) map[string]any {
	return map[string]any{"account_id": m.AccountID, "status": m.Status, "attempts": m.Attempts}
}

// mailResource is a mail as its operator sees it: never its text, which may have a link for its recipient alone.
type mailResource struct {
	ID        string  `json:"id"`
	AccountID string  `json:"account_id"`
	Subject   string  `json:"subject"`
	Status    string  `json:"status"`
	Attempts  int64   `json:"attempts"`
	LastError *string `json:"last_error"`
	CreatedAt string  `json:"created_at"`
	DoneAt    *string `json:"done_at"`
}

func newMailResource(m mail.Summary) mailResource {
	r := mailResource{
		ID:        m.ID,
		AccountID: m.AccountID,
		Subject:   m.Subject,
		Status:    m.Status,
		Attempts:  m.Attempts,
		LastError: rules.TextOrNull(m.LastError),
		CreatedAt: timestamp.Format(m.CreatedUS),
	}
	if m.DoneUS != nil {
		done := timestamp.Format(*m.DoneUS)
		r.DoneAt = &done
	}
	return r
}

// mails answers GET /v1/operator/mails: those of an account, of the last 30 days, newest first.
func (h *Handler) mails(w http.ResponseWriter, r *http.Request) error {
	page, err := web.ReadPage(r, mail.IDPrefix, "account")
	if err != nil {
		return err
	}
	account := r.URL.Query().Get("account")
	if account == "" {
		return apierr.InvalidRequest.Errorf("account: required")
	}
	a, err := h.Service.searchAccount(r.Context(), account)
	if err != nil {
		return missing(err, "account")
	}
	list, err := h.Service.Mails.ListOfAccount(r.Context(), a.ID, page.StartingAfter, page.Limit+1)
	if err != nil {
		return err
	}
	return writeList(w, r, page, list, func(m mail.Summary) string { return m.ID }, newMailResource)
}

func (h *Handler) resendMail(w http.ResponseWriter, r *http.Request) error {
	m, err := h.Service.ResendMail(r.Context(), actorOf(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, newMailResource(m))
}
