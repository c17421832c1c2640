package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// A thing is what a screen reader knows of one.
type thing struct {
	role, name, description string
	invalid                 bool
}

// things is the accessibility tree of the page, flat, without what is ignored.
func (b *tab) things() (list []thing) {
	b.t.Helper()
	text := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // other values are of no interest here
		}
		return s
	}
	for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored {
			continue
		}
		x := thing{role: text(n.Role), name: text(n.Name), description: text(n.Description)}
		for _, p := range n.Properties {
			x.invalid = x.invalid || p.Name == "invalid" && text(p.Value) == "true"
		}
		list = append(list, x)
	}
	return list
}

// nameless returns the roles of what can be operated or read and has no name.
func (b *tab) nameless() (roles []string) {
	b.t.Helper()
	for _, x := range b.things() {
		switch x.role {
		case "textbox", "searchbox", "button", "link", "radio", "checkbox", "combobox", "heading", "image":
			if x.name == "" {
				roles = append(roles, x.role)
			}
		}
	}
	return roles
}

// described is what a screen reader says of a field.
func (b *tab) described(field string) thing {
	b.t.Helper()
	list := b.things()
	i := slices.IndexFunc(list, func(x thing) bool { return x.role == "textbox" && x.name == field })
	if i < 0 {
		b.t.Fatalf("there is no field %q", field)
	}
	return list[i]
}

// operable wants exactly this to be there for a screen reader to name and operate.
func (b *tab) operable(page string, operable ...string) {
	b.t.Helper()
	var got []string
	for _, x := range b.things() {
		switch x.role {
		case "textbox", "button", "link", "radio", "heading", "alert", "main":
			got = append(got, strings.TrimSpace(x.role+" "+x.name))
		}
	}
	slices.Sort(got)
	if slices.Sort(operable); !slices.Equal(got, operable) {
		b.t.Errorf("%s has\n\t%s\nwant\n\t%s", page, strings.Join(got, "\n\t"), strings.Join(operable, "\n\t"))
	}
}

// TestAccessibleNames compares what can be operated on the pages with what a
// screen reader is told.
func TestAccessibleNames(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
	b := newTab(t, p.BaseURL)
	want := b.operable
	frame := []string{"link Skip to content", "main", "link Purser"}
	signIn := append(frame, "heading Sign in", "textbox Email", "textbox Password", "button Sign in",
		"link Create account", "link Forgot your password?")
	consent := append(frame, "button Use another account", "radio $5", "radio $10", "radio $15",
		"radio $25", "radio Other", "textbox Daily limit (USD, optional)", "button Not now", "heading Used for")
	slip := []string{"alert", "heading There’s a problem"}

	address, _ := link(p, "s")
	b.open(address)
	want("the sign-in page", signIn...)
	b.accessible("the sign-in page")
	b.signIn(p.TestAccount.Email, "a wrong one")
	want("the sign-in page after a slip", slices.Concat(signIn, slip, []string{"link Incorrect email or password."})...)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	want("the consent page", slices.Concat(consent, []string{
		"heading Change what Sample app may spend", "button Allow up to $15.00",
	})...)
	b.accessible("the consent page")
	b.fillCap("a lot")
	b.pressFirst("Allow")
	want("the consent page after a slip", slices.Concat(consent, slip, []string{
		"heading Change what Sample app may spend", "link Enter a spend cap in dollars, such as 25 or 12.50.",
		"textbox Spend cap (USD)", "button Allow",
	})...)
	b.press("button", "Use another account")
	b.signIn(p.Developer.Email, p.Developer.Password)
	want("the developer's consent page", slices.Concat(consent, []string{
		"heading Sample app wants to spend up to $15.00", "button Allow up to $15.00",
		"radio tester@example.com $975.00 available · connected, $0.00 of $25.00 used",
		"radio New test account starts with $1,000.00",
	})...)
}
