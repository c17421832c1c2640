package docs

import (
	"bytes"
	"errors"
	"html/template"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// markdown renders guides. HTML within Markdown is left out, and links with dangerous schemes lose their address: both
// are what goldmark does unless it is told otherwise.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(transformer{}, 100))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodeRenderer{}, 100))),
)

// renderPage renders the Markdown of one guide.
func renderPage(name, source string) (*page, error) {
	p := &page{name: name, source: source}
	src := []byte(source)
	root := markdown.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext()))
	title, ok := root.FirstChild().(*ast.Heading)
	if !ok || title.Level != 1 {
		return nil, errors.New("the first line is no title")
	}
	p.title = plainText(title, src)
	root.RemoveChild(root, title) // the frame shows it
	if first, ok := root.FirstChild().(*ast.Paragraph); ok {
		p.summary = strings.Join(strings.Fields(plainText(first, src)), " ")
	}
	p.collect(root, src)
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, src, root); err != nil {
		return nil, err
	}
	p.body = template.HTML(b.String()) // goldmark and nodeRenderer escape all text
	p.usesVars = strings.Contains(b.String(), variableStart)
	return p, nil
}

// collect gives headings their anchors, and lists them with the text below each.
func (p *page) collect(root ast.Node, src []byte) {
	taken := map[string]int{}
	p.sections = []section{{heading: heading{level: 1, text: p.title}}}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			last := &p.sections[len(p.sections)-1]
			last.body += plainText(n, src) + "\n"
			continue
		}
		head := heading{level: h.Level, text: plainText(h, src)}
		head.anchor = anchorOf(head.text)
		if n := taken[head.anchor]; n > 0 {
			taken[head.anchor]++
			head.anchor += "-" + strconv.Itoa(n)
		} else {
			taken[head.anchor] = 1
		}
		h.SetAttributeString("id", []byte(head.anchor))
		p.headings = append(p.headings, head)
		p.sections = append(p.sections, section{heading: head})
	}
}

// anchorOf returns the anchor of a heading, as code hosts form it: lower case, spaces as hyphens, and of the other
// characters only letters, digits, hyphens and underscores.
func anchorOf(text string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case c == ' ':
			return '-'
		case c == '-' || c == '_' || unicode.IsLetter(c) || unicode.IsDigit(c):
			return unicode.ToLower(c)
		}
		return -1
	}, text)
}

// plainText returns the text of a node and all below it, without markup. Blocks are on lines of their own.
func plainText(n ast.Node, src []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(src))
				if n.SoftLineBreak() || n.HardLineBreak() {
					b.WriteByte(' ')
				}
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		case *ast.AutoLink:
			if entering {
				b.Write(n.Label(src))
			}
		case *ast.FencedCodeBlock:
			if entering {
				b.Write(n.Lines().Value(src))
			}
		default:
			if !entering && n.Type() == ast.TypeBlock && b.Len() > 0 {
				b.WriteByte('\n')
			}
		}
		return ast.WalkContinue, nil
	})
	return strings.TrimSpace(string(util.UnescapePunctuations([]byte(b.String()))))
}

// A transformer changes parsed guides: it groups code blocks into tabs, and points links to pages.
type transformer struct{}

// Transform implements parser.ASTTransformer.
func (transformer) Transform(root *ast.Document, reader text.Reader, _ parser.Context) {
	groupTabs(root, reader.Source())
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // the function returns no error
		if link, ok := n.(*ast.Link); ok && entering {
			link.Destination = []byte(pagePath(string(link.Destination)))
		}
		return ast.WalkContinue, nil
	})
}

// pagePath returns the address of a link as a page needs it: guides name each other by file.
func pagePath(link string) string {
	file, anchor, _ := strings.Cut(link, "#")
	name, isGuide := strings.CutSuffix(file, ".md")
	if !isGuide || strings.Contains(name, "/") {
		return link
	}
	if anchor != "" {
		anchor = "#" + anchor
	}
	return "/docs/" + name + anchor
}
