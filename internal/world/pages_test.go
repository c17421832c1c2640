package world

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/purserhq/purser/internal/testkit/bank"
)

// A reader is the actor who reads pages: each of the people opens pages that other pages lead to, fills in the forms
// that it finds, and sends them.
type reader struct {
	*player
	known map[string][]string // addresses by person, in the order in which they were seen
	drawn map[string]int      // "METHOD pattern" of forms that were sent
	ended [][]*http.Cookie    // of sessions that people have ended
}

// kept are forms that a reader does not send, and why.
var kept = map[string]string{
	"/settings/data/close":    "package bank closes accounts, and knows who has left",
	"/settings/password":      "everybody keeps the one password, by which they sign in again",
	"/settings/email":         "everybody is found by the address",
	"/settings/two-step":      "nobody has a second step, which each sign-in would ask for",
	"/settings/passkeys/new":  "a passkey needs a browser",
	"/settings/passkeys/make": "a passkey needs a browser",
	"/settings/provider":      "there is no identity provider",
	"/sign-out":               "the next page would sign in again",
	"/sign-in":                "each browser stays that of its person",
}

// starts are the pages at which everybody begins.
var starts = []string{
	"/dashboard", "/connections", "/activity", "/top-up", "/top-ups", "/settings", "/settings/notices",
	"/settings/security", "/settings/data", "/developer", "/developer/apps/new", "/developer/test-accounts",
	"/developer/payouts", "/developer/keys", "/operator", "/operator/accounts", "/operator/apps", "/operator/settings",
}

// knownPages bounds the addresses that a person remembers.
const knownPages = 200

func (r *reader) see(person, address string) {
	u, err := url.Parse(address)
	if err != nil || u.Host != "" && u.Host != r.host(purserHost) || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "/assets/") || strings.HasPrefix(u.Path, "/docs") {
		return
	}
	u.Scheme, u.Host, u.Fragment = "", "", ""
	list := r.known[person]
	if list == nil {
		list = slices.Clone(starts)
	}
	if at := u.String(); !slices.Contains(list, at) {
		list = append(list, at)
	}
	if len(list) > knownPages { // the oldest that is no start
		list = slices.Delete(list, len(starts), len(starts)+1)
	}
	r.known[person] = list
}

// reads opens some pages.
func (r *reader) reads(s bank.Step) error {
	for i := range 3 {
		if err := r.read(bank.Step{A: s.A, B: s.B + 17*i, C: s.C + 5*i}); err != nil {
			return err
		}
	}
	return nil
}

// read opens a page and, mostly, sends one of its forms. The network's faults may make that fail, and nothing else.
func (r *reader) read(s bank.Step) error {
	person := names[s.A%len(names)]
	r.see(person, starts[0])
	list := r.known[person]
	path := list[(s.A/7*31+s.B)%len(list)]
	a, err := r.Page(context.Background(), 0, person, "GET", path, nil)
	if err == nil {
		err = checkPage("GET", path, a)
	}
	if err != nil {
		return err
	}
	r.see(person, a.To)
	forms := r.parse(person, a.Body)
	if len(forms) == 0 {
		return nil
	}
	f := forms[s.C%len(forms)]
	for prefix := range kept {
		if strings.HasPrefix(f.action, prefix) {
			return nil
		}
	}
	values := f.fill(person, s)
	if f.method != "POST" {
		r.see(person, f.action+"?"+values.Encode())
		return nil
	}
	a, err = r.Page(context.Background(), 0, person, "POST", f.action, values)
	if err != nil {
		return fmt.Errorf("POST %s: %w", f.action, err)
	}
	r.see(person, a.To)
	r.parse(person, a.Body)
	if a.Status < 400 {
		r.drawn["POST "+idPattern.ReplaceAllString(f.action, "{}")]++
	}
	return checkPage("POST", f.action, a)
}

// noValue is what a template prints that lacks a value.
var noValue = regexp.MustCompile(`<no value>|%!\w\(|&lt;nil&gt;`)

// isOurFault says of a status that the product is wrong, and not one of those that it needs.
func isOurFault(status int) bool {
	return status >= 500 && status != http.StatusServiceUnavailable && status != http.StatusBadGateway
}

func checkPage(method, path string, a bank.Answer) error {
	if isOurFault(a.Status) {
		return fmt.Errorf("%s %s is answered by %d: %.500s", method, path, a.Status, a.Body)
	}
	if wrong := noValue.FindString(a.Body); wrong != "" {
		return fmt.Errorf("%s %s says %q", method, path, wrong)
	}
	return nil
}

// A form is one of a page.
type form struct {
	method, action string
	inputs         []input
}

type input struct {
	name, kind, value string
	chosen            bool // checked
	options           []string
}

// parse returns the forms of a page, and remembers where it leads.
func (r *reader) parse(person, text string) []form {
	list, links := formsOf(text)
	for _, to := range links {
		r.see(person, to)
	}
	return list
}

// formsOf returns the forms of a page, and where it leads.
func formsOf(text string) (list []form, links []string) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return nil, nil
	}
	var walk func(n *html.Node, f *form)
	walk = func(n *html.Node, f *form) {
		if n.Type == html.ElementNode {
			switch n.Data {
			case "a":
				if to := attribute(n, "href"); to != "" {
					links = append(links, to)
				}
			case "form":
				list = append(list, form{
					method: strings.ToUpper(attribute(n, "method")),
					action: attribute(n, "action"),
				})
				f = &list[len(list)-1]
			case "input", "textarea", "button":
				if f != nil && attribute(n, "name") != "" {
					f.inputs = append(f.inputs, input{
						name:   attribute(n, "name"),
						kind:   strings.ToLower(attribute(n, "type")),
						value:  attribute(n, "value"),
						chosen: has(n, "checked"),
					})
					if n.Data == "textarea" && n.FirstChild != nil {
						f.inputs[len(f.inputs)-1].value = strings.TrimPrefix(n.FirstChild.Data, "\n")
					}
				}
			case "select":
				if f != nil {
					in := input{name: attribute(n, "name"), kind: "select"}
					for o := range n.Descendants() {
						if o.Type == html.ElementNode && o.Data == "option" {
							in.options = append(in.options, attribute(o, "value"))
							if len(in.options) == 1 || has(o, "selected") {
								in.value = attribute(o, "value")
							}
						}
					}
					f.inputs = append(f.inputs, in)
				}
			}
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c, f)
		}
	}
	walk(root, nil)
	return slices.DeleteFunc(list, func(f form) bool { return !strings.HasPrefix(f.action, "/") }), links
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// texts are what people write into a field.
var texts = []string{"A history", "5", "10.00", "1", "20", "https://app.example.com/back", "gpt-6-luna", "x",
	"<script>alert(1)</script>", "ünïcödé ✓", "-1", "0.000000000000001", "2026-11-03", strings.Repeat("long ", 300)}

// fill fills in a form as a person does.
func (f form) fill(person string, s bank.Step) url.Values {
	values := url.Values{}
	for i, in := range f.inputs {
		n := s.C/3 + 7*i + s.B
		switch in.kind {
		case "hidden":
			values.Add(in.name, in.value)
		case "checkbox":
			if n%3 > 0 {
				values.Add(in.name, in.value)
			}
		case "radio":
			if values.Get(in.name) == "" || n%2 == 0 {
				values.Set(in.name, in.value)
			}
		case "submit", "button":
			if values.Get(in.name) == "" || n%2 == 0 {
				values.Set(in.name, in.value)
			}
		case "select":
			if len(in.options) > 0 {
				values.Add(in.name, in.options[n%len(in.options)])
			}
		case "email":
			values.Add(in.name, bank.Address(names[n%len(names)]))
		case "password":
			values.Add(in.name, bank.Password)
		default:
			switch {
			case in.name == "confirm":
				values.Add(in.name, bank.Address(person))
			case in.value != "" && n%4 > 0:
				values.Add(in.name, in.value)
			default:
				values.Add(in.name, texts[n%len(texts)])
			}
		}
	}
	return values
}
