package mail

import (
	"database/sql"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// maxShownMails bounds the mails on the outbox page.
const maxShownMails = 100

// An Outbox serves the mail outbox without authentication, for development only.
type Outbox struct{ Store *Store }

// Mount serves /dev/mail.
func (o *Outbox) Mount(rt *web.Router) {
	rt.HandlePage("GET /dev/mail", o.showList)
	rt.HandlePage("GET /dev/mail/{id}", o.showMail)
	rt.HandlePage("GET /dev/mail/{id}/html", o.serveHTML)
}

func (o *Outbox) showList(w http.ResponseWriter, r *http.Request) error {
	list, err := o.Store.ListNewest(r.Context(), maxShownMails)
	if err != nil {
		return err
	}
	var page ui.Outbox
	for _, m := range list {
		page.Mails = append(page.Mails, ui.OutboxRow{
			Href:    "/dev/mail/" + m.ID,
			To:      m.To,
			Subject: m.Subject,
			Created: formatTime(m.CreatedUS),
		})
	}
	return ui.Render(w, http.StatusOK, page)
}

// linkPattern matches the links of a text, which the page lists because it may not render the HTML
// of a mail.
var linkPattern = regexp.MustCompile(`https?://[^\s<>"]+`)

// loadMail returns the mail that the path names; a mail that does not exist is 404.
func (o *Outbox) loadMail(r *http.Request) (Mail, error) {
	m, err := o.Store.Get(r.Context(), r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) {
		return Mail{}, apierr.NotFound.Errorf("This email doesn’t exist.")
	}
	return m, err
}

// showMail shows a mail as users see it, in a frame, or its text or its source.
func (o *Outbox) showMail(w http.ResponseWriter, r *http.Request) error {
	m, err := o.loadMail(r)
	if err != nil {
		return err
	}
	view := r.URL.Query().Get("view")
	if view != "text" && view != "source" {
		view = "html"
	}
	if m.HTML == "" {
		view = "text"
	}
	links := linkPattern.FindAllString(m.Text, -1)
	slices.Sort(links)
	return ui.Render(w, http.StatusOK, ui.OutboxMail{
		To:          m.To,
		Subject:     m.Subject,
		Created:     formatTime(m.CreatedUS),
		Text:        strings.TrimSpace(m.Text),
		HTML:        m.HTML,
		Unsubscribe: m.Unsubscribe,
		Links:       slices.Compact(links),
		Path:        "/dev/mail/" + m.ID,
		View:        view,
	})
}

// framePolicy allows a mail its own styles and nothing else: no script, no form, and nothing from another host. Only
// our pages may frame it. Its links open a new tab.
const framePolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; base-uri 'none'; " +
	"form-action 'none'; sandbox allow-popups allow-popups-to-escape-sandbox"

// serveHTML serves the HTML of a mail for the frame of showMail.
func (o *Outbox) serveHTML(w http.ResponseWriter, r *http.Request) error {
	m, err := o.loadMail(r)
	if err != nil {
		return err
	} else if m.HTML == "" {
		return apierr.NotFound.Errorf("This email has no HTML.")
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", framePolicy)
	h.Set("X-Frame-Options", "SAMEORIGIN")
	_, err = io.WriteString(w, m.HTML)
	return err
}

func formatTime(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04:05") }
