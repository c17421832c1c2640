package docs

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/ui"
)

// showIndex is GET /llms.txt: what the documentation has, with links to plain text.
func (h *Handler) showIndex(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	c, err := h.contract()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(introduction)
	for _, g := range l.groups {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		for _, p := range g.pages {
			fmt.Fprintf(&b, "- [%s](%s%s.md): %s\n", p.title, h.BaseURL, p.path(), p.summary)
		}
	}
	fmt.Fprintf(&b, "\n## Reference\n\n- [OpenAPI 3.1](%[1]s/openapi.json): every route, member and error\n"+
		"- [Everything on one page](%[1]s/llms-full.txt): all guides and the list of routes\n", h.BaseURL)
	writeRoutes(&b, c)
	return ui.WriteText(w, r, "text/plain; charset=utf-8", []byte(b.String()))
}

// introduction begins both texts, in the form of llmstxt.org.
const introduction = `# Purser

> Purser stands between apps and AI providers. A user allows an app to spend a bounded part of their balance, and the
> app calls models with an access token. Each call is metered and billed to the user.
`

// showAll is GET /llms-full.txt: all guides and the routes.
func (h *Handler) showAll(w http.ResponseWriter, r *http.Request) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	c, err := h.contract()
	if err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(introduction)
	writeRoutes(&b, c)
	for _, p := range l.pages {
		fmt.Fprintf(&b, "\n---\nSource: %s%s\n\n%s", h.BaseURL, p.path(), p.source)
	}
	return ui.WriteText(w, r, "text/plain; charset=utf-8", []byte(b.String()))
}

// writeRoutes lists the operations of the contract.
func writeRoutes(b *strings.Builder, c *contract) {
	b.WriteString("\n## Routes\n\n")
	for _, g := range c.groups {
		for _, o := range g.Operations {
			fmt.Fprintf(b, "- `%s %s`: %s\n", o.Method, o.Path, o.Summary)
		}
	}
}
