package operatorpages

import (
	"strings"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
)

// subjectPaths are the addresses of things that have a page, by the prefix of their ids.
var subjectPaths = map[string]string{
	id.App:        "/operator/apps/",
	id.Account:    "/operator/accounts/",
	id.Connection: "/operator/connections/",
	id.Ledger:     "/operator/ledger/",
	"glr_":        "/operator/reviews/",
	"inc_":        "/operator/incidents/",
}

// names has the names of apps, accounts and other subjects by their ids.
type names map[string]string

// cell shows a subject by its name, with a monogram and a link to its page. Without a name it shows the id.
func (n names) cell(subject string) ui.Cell {
	c := ui.Cell{Text: subject, Code: true}
	for prefix, path := range subjectPaths {
		if strings.HasPrefix(subject, prefix) {
			c = linkCell(path, subject)
		}
	}
	if name := n[subject]; name != "" {
		c.Text, c.Exact, c.Monogram = name, subject, subject
	}
	return c
}

// cellOr is cell; it shows a dash for no subject.
func (n names) cellOr(subject string) ui.Cell {
	if subject == "" {
		return ui.Cell{Text: "–"}
	}
	return n.cell(subject)
}
