package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A finding is what axe has to say against a page.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct {
		Target         []any
		FailureSummary string
	}
}

// colours are the rules that depend on how a page is coloured, beside how it is built.
var colours = []string{"color-contrast", "link-in-text-block"}

// accessible fails the test for what axe finds serious or critical in the page as
// it is shown now, by these rules, or by all.
func (b *tab) accessible(name string, rules ...string) {
	b.t.Helper()
	b.visit()
	for _, f := range b.axe(rules...) {
		for _, n := range f.Nodes {
			b.t.Errorf("%s: %s (%s): %s\n\t%v: %s", name, f.ID, f.Impact, f.Help, n.Target,
				strings.ReplaceAll(n.FailureSummary, "\n", " "))
		}
	}
}

// axe returns what axe finds serious or critical. It runs beside the page's own
// scripts, of which there may be none, and out of reach of the content policy.
func (b *tab) axe(rules ...string) (found []finding) {
	b.t.Helper()
	installNode(b.t, "node")
	source, err := os.ReadFile("node/node_modules/axe-core/axe.min.js")
	if err != nil {
		b.t.Fatal(err)
	}
	if b.scriptless {
		call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: false})
		defer b.withoutScripts()
	}
	if !run(b, chromedp.Evaluate[bool](`"axe" in window`)) {
		run(b, chromedp.Evaluate[bool](string(source)+"\n;true"))
	}
	only := ""
	if len(rules) > 0 {
		only = fmt.Sprintf(`, runOnly: ["%s"]`, strings.Join(rules, `", "`))
	}
	check := `axe.run({resultTypes: ["violations"]` + only +
		`}).then((r) => JSON.stringify(r.violations.filter((v) => ["serious", "critical"].includes(v.impact))))`
	text := run(b, chromedp.Evaluate[string](check, func(p *runtime.EvaluateParams) {
		wait := true
		p.AwaitPromise = &wait
	}))
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		b.t.Fatal(err)
	}
	return found
}

// TestAxe makes sure that the check finds what is wrong, also where a page's own
// scripts do not run, and in the colours that are shown.
func TestAxe(t *testing.T) {
	t.Parallel()
	for _, scripts := range []bool{true, false} {
		b := newTab(t)
		if !scripts {
			b.withoutScripts()
		}
		for scheme, want := range map[string][]string{"light": {"label"}, "dark": {"color-contrast", "label"}} {
			call(b, emulation.SetEmulatedMedia,
				emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
					{Name: "prefers-color-scheme", Value: scheme},
				}})
			b.open(`data:text/html,<!doctype html><html lang="en"><title>A page</title><style>@media (prefers-color-scheme: dark) { p { color: %23bbb } }</style><main><h1>A page</h1><p>Hello</p><input></main>`)
			var got []string
			for _, f := range b.axe() {
				got = append(got, f.ID)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s, scripts=%t: %q, want %q", scheme, scripts, got, want)
			}
			if got := b.nameless(); !slices.Equal(got, []string{"textbox"}) {
				t.Errorf("%s, scripts=%t: without a name: %q", scheme, scripts, got)
			}
		}
	}
}
