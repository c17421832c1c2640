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

// shown is how many mails the outbox page lists.
const shown = 100

// An Outbox serves what would be sent, to whoever can reach it: it is for the
// development set-up only.
type Outbox struct{ Store *Store }

// Mount serves /dev/mail.
func (o *Outbox) Mount(rt *web.Router) {
	rt.HandlePage("GET /dev/mail", o.list)
	rt.HandlePage("GET /dev/mail/{id}", o.one)
}

func (o *Outbox) list(w http.ResponseWriter, r *http.Request) error {
	list, err := o.Store.Newest(r.Context(), shown)
	if err != nil {
		return err
	}
	var page ui.Outbox
	for _, m := range list {
		page.Mails = append(page.Mails, ui.OutboxRow{Href: "/dev/mail/" + m.ID, To: m.To, Subject: m.Subject, Created: at(m.CreatedUS)})
	}
	return ui.Render(w, http.StatusOK, page)
}

// address finds the links of a text: a page may not run the HTML of a mail.
var address = regexp.MustCompile(`https?://[^\s<>"]+`)

func (o *Outbox) one(w http.ResponseWriter, r *http.Request) error {
	m, err := o.Store.Get(r.Context(), r.PathValue("id"))
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("There is no such email.")
	} else if err != nil {
		return err
	}
	links := address.FindAllString(m.Text, -1)
	slices.Sort(links)
	return ui.Render(w, http.StatusOK, ui.OutboxMail{
		To: m.To, Subject: m.Subject, Created: at(m.CreatedUS), Text: strings.TrimSpace(m.Text), HTML: m.HTML, Unsubscribe: m.Unsubscribe, Links: slices.Compact(links),
	})
}

func at(us int64) string { return time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04:05") }
