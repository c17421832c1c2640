package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"sync"
	plaintext "text/template"

	"github.com/purserhq/purser/internal/base/web"
)

// An Email is one email to a user. Every sender fills one in, so that all of them look alike.
type Email struct {
	Subject    string
	Paragraphs []string
	Amounts    []EmailAmount // a table below the paragraphs
	Action     *Link         // what the email asks the user to do; nil = nothing
	Footer     []Link        // such as where to unsubscribe
	Why        string        // why the user gets it
}

// An EmailAmount is one line of the table of an email.
type EmailAmount struct {
	Name   string
	Detail string // below the name, such as a number of calls; "" = none
	Amount string
	Href   string // of the name; "" = no link
	Total  bool   // the sum of the lines above
}

// Why users get emails. They can turn off the last two.
const (
	AboutAccount  = "You’re receiving this because it concerns your account."
	AboutBalance  = "You’re receiving this because it concerns your balance."
	AboutMembers  = "You’re receiving this because it concerns the members of an app."
	AboutApps     = "You’re receiving this because apps can spend from your balance."
	AboutWebhooks = "You’re receiving this because you own the app."
)

// The templates of all emails are parsed when the first is written.
var (
	emailHTML = sync.OnceValue(func() *template.Template {
		return template.Must(template.ParseFS(templates, "templates/mail/email.html"))
	})
	emailText = sync.OnceValue(func() *plaintext.Template {
		return plaintext.Must(plaintext.ParseFS(templates, "templates/mail/email.txt"))
	})
)

// Render writes the email as plain text and as HTML. site says who sends it.
func (e Email) Render(site web.Site) (text, html string, err error) {
	var asText, asHTML strings.Builder
	e.Footer = append(e.Footer[:len(e.Footer):len(e.Footer)], Site{site}.Links()...)
	if site.Drill {
		e.Paragraphs = append([]string{"This is a drill: it comes from a restored copy, not from the real service."},
			e.Paragraphs...)
	}
	data := struct {
		Email
		Sender string
	}{e, cmp.Or(site.Operator, "Purser")}
	if err := emailText().Execute(&asText, data); err != nil {
		return "", "", fmt.Errorf("ui: email as text: %w", err)
	}
	if err := emailHTML().Execute(&asHTML, data); err != nil {
		return "", "", fmt.Errorf("ui: email as HTML: %w", err)
	}
	return asText.String(), asHTML.String(), nil
}
