package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
	"github.com/yuin/goldmark/ast"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"github.com/purserhq/purser/internal/pages/docs"
)

// languageNames are the languages that become tabs, with the names that pages show.
var languageNames = map[string]string{"sh": "curl", "ts": "TypeScript", "python": "Python", "go": "Go"}

// tabsKind is the kind of tabs nodes.
var tabsKind = ast.NewNodeKind("Tabs")

// tabs is a node: code blocks that show the same in several languages.
type tabs struct{ ast.BaseBlock }

// Kind implements ast.Node.
func (*tabs) Kind() ast.NodeKind { return tabsKind }

// Dump implements ast.Node.
func (t *tabs) Dump(src []byte, level int) { ast.DumpHelper(t, src, level, nil, nil) }

// groupTabs puts code blocks that follow each other directly into one tabs node, as long as their languages differ and
// are in languageNames.
func groupTabs(root ast.Node, src []byte) {
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		run := tabRun(n, src)
		if len(run) < 2 {
			continue
		}
		t := &tabs{}
		root.InsertBefore(root, n, t)
		for _, block := range run {
			root.RemoveChild(root, block)
			t.AppendChild(t, block)
		}
		n = t
	}
}

// tabRun returns the code blocks from n on that make one tabs node.
func tabRun(n ast.Node, src []byte) (run []ast.Node) {
	var seen []string
	for ; n != nil; n = n.NextSibling() {
		block, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			break
		}
		language := string(block.Language(src))
		if languageNames[language] == "" || slices.Contains(seen, language) {
			break
		}
		seen, run = append(seen, language), append(run, n)
	}
	return run
}

// A nodeRenderer renders what differs from goldmark's HTML: code, tabs, headings and tables.
type nodeRenderer struct{}

// RegisterFuncs implements renderer.NodeRenderer.
func (nodeRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(tabsKind, renderTabs)
	r.Register(ast.KindFencedCodeBlock, renderCode)
	r.Register(ast.KindHeading, renderHeading)
	r.Register(extensionast.KindTable, renderTable)
}

func renderTabs(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString("<div class=\"code-tabs\">\n")
	} else {
		_, _ = w.WriteString("</div>\n")
	}
	return ast.WalkContinue, nil
}

// renderHeading adds a link to the heading itself.
func renderHeading(w util.BufWriter, _ []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	n := node.(*ast.Heading)
	level := string(rune('0' + n.Level))
	if !entering {
		_, _ = w.WriteString("</a></h" + level + ">\n")
		return ast.WalkContinue, nil
	}
	id, _ := n.AttributeString("id")
	anchor, _ := id.([]byte)
	escaped := util.EscapeHTML(anchor)
	_, _ = w.WriteString("<h" + level + ` id="` + string(escaped) + `"><a class="anchor" href="#` + string(escaped) +
		`">`)
	return ast.WalkContinue, nil
}

// renderTable puts a table into a part that scrolls, which the keyboard can reach.
func renderTable(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		_, _ = w.WriteString(
			"<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\"><table class=\"table\">\n")
	} else {
		_, _ = w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

// renderCode writes a code block with its language as a label, and with the tokens that chroma finds as classes.
func renderCode(w util.BufWriter, src []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	block := node.(*ast.FencedCodeBlock)
	language := string(block.Language(src))
	html, err := highlight(language, string(block.Lines().Value(src)))
	if err != nil {
		return ast.WalkStop, err
	}
	label := languageNames[language]
	switch {
	case language == "sh" && block.Parent().Kind() != tabsKind:
		label = "Shell"
	case label == "" && language != "text":
		label = strings.ToUpper(language)
	}
	var b bytes.Buffer
	b.WriteString(`<figure class="code" data-lang="` + string(util.EscapeHTML([]byte(language))) + `">`)
	if label != "" {
		b.WriteString("<figcaption>" + string(util.EscapeHTML([]byte(label))) + "</figcaption>")
	}
	b.WriteString(`<pre tabindex="0"><code>` + html + "</code></pre></figure>\n")
	_, err = w.Write(b.Bytes())
	return ast.WalkSkipChildren, err
}

// variable matches what Your values fills in.
var variable = regexp.MustCompile(`\$(BASE_URL|CLIENT_ID|ACCESS_TOKEN)\b`)

// highlight returns code as HTML: a span with a class for each token. In the shell, variables that Your values knows
// are var elements.
func highlight(language, code string) (string, error) {
	lexer := lexers.Get(language)
	if lexer == nil || language == "" || language == "text" {
		return string(util.EscapeHTML([]byte(code))), nil
	}
	it, err := chroma.Coalesce(lexer).Tokenise(nil, code)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, token := range it.Tokens() {
		value := string(util.EscapeHTML([]byte(token.Value)))
		if language == "sh" && token.Type == chroma.NameVariable {
			value = variable.ReplaceAllString(value, docs.VariableStart+`$1">$$$1</var>`)
		}
		if class := tokenClass(token.Type); class != "" {
			value = `<span class="` + class + `">` + value + "</span>"
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// tokenClass returns the class of a token; "" = plain text. The style sheet has a colour for each.
func tokenClass(t chroma.TokenType) string {
	switch {
	case t.InCategory(chroma.Comment):
		return "c"
	case t.InCategory(chroma.Keyword), t == chroma.NameTag:
		return "k"
	case t.InSubCategory(chroma.LiteralString):
		return "s"
	case t.InSubCategory(chroma.LiteralNumber):
		return "m"
	case t == chroma.NameFunction, t == chroma.NameClass, t == chroma.NameBuiltin, t == chroma.NameAttribute:
		return "f"
	case t == chroma.NameVariable:
		return "v"
	}
	return ""
}
