package main

import (
	"bytes"
	"errors"
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

	"github.com/purserhq/purser/internal/pages/docs"
)

// markdown renders guides. HTML within Markdown is left out, and links with dangerous schemes lose their address: both
// are what goldmark does unless it is told otherwise.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.Table, extension.Strikethrough),
	goldmark.WithParserOptions(parser.WithASTTransformers(util.Prioritized(transformer{}, 100))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(nodeRenderer{}, 100))),
)

// renderGuide renders the Markdown of one guide.
func renderGuide(source string) (g docs.Rendered, err error) {
	src := []byte(source)
	root := markdown.Parser().Parse(text.NewReader(src), parser.WithContext(parser.NewContext()))
	title, ok := root.FirstChild().(*ast.Heading)
	if !ok || title.Level != 1 {
		return g, errors.New("the first line is no title")
	}
	g.Title = plainText(title, src)
	root.RemoveChild(root, title) // the frame shows it
	if first, ok := root.FirstChild().(*ast.Paragraph); ok {
		g.Summary = strings.Join(strings.Fields(plainText(first, src)), " ")
	}
	g.Sections = collect(g.Title, root, src)
	var b bytes.Buffer
	err = markdown.Renderer().Render(&b, src, root)
	g.Body = b.String()
	for _, name := range []string{"{base_url}", "{auth_url}", "{dashboard_url}"} {
		if strings.Count(source, name) != strings.Count(g.Body, name) {
			return g, errors.New(name + " is in a place where the server cannot fill it in")
		}
	}
	return g, err
}

// collect gives headings their anchors, and lists them with the text below each.
func collect(title string, root ast.Node, src []byte) []docs.Section {
	taken := map[string]int{}
	sections := []docs.Section{{Level: 1, Text: title}}
	for n := root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok {
			sections[len(sections)-1].Body += plainText(n, src) + "\n"
			continue
		}
		s := docs.Section{Level: h.Level, Text: plainText(h, src)}
		s.Anchor = anchorOf(s.Text)
		if n := taken[s.Anchor]; n > 0 {
			taken[s.Anchor]++
			s.Anchor += "-" + strconv.Itoa(n)
		} else {
			taken[s.Anchor] = 1
		}
		h.SetAttributeString("id", []byte(s.Anchor))
		sections = append(sections, s)
	}
	return sections
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
