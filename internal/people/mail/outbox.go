package mail

import (
	"database/sql"
	"errors"
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

func (o *Outbox) showMail(w http.ResponseWriter, r *http.Request) error {
	m, err := o.Store.Get(r.Context(), r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("This email doesn’t exist.")
	} else if err != nil {
		return err
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
	})
}

func formatTime(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04:05") }
