package e2e

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPlayground talks with two models side by side, goes on with the conversation, stops a call in its middle, and
// takes the call along as code.
func TestPlayground(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
	b := newTab(t, p.BaseURL)
	page := p.DashboardURL + "/developer/apps/" + p.App.ID + "/playground"
	b.open(page)
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.says("Answers stream in here.")
	b.look("playground")
	change := func(id, value string) {
		t.Helper()
		run(b, chromedp.Evaluate[bool](`(() => { const s = document.getElementById("`+id+`"); s.value = "`+value+
			`"; s.dispatchEvent(new Event("change")); return true; })()`))
	}
	// A shift that comes more than half a second after an input counts as one of loading.
	run(b, chromedp.Evaluate[bool](`(() => { const send = fetch; window.fetch = async (...request) => {
		await new Promise((done) => setTimeout(done, 1000)); return send(...request); }; return true; })()`))
	const lanes = `[...document.querySelectorAll(".lane:not([hidden])")]`
	const billed = `.every((lane) => [...lane.querySelectorAll(".figures")]
		.every((f) => /^\$0\.0\d+ ·.* out · Receipt/.test(f.innerText)))`
	change("model", model)
	change("second", "claude-haiku-4-5")
	b.write("Prompt", "Say <b>hello</b>.")
	run(b, chromedp.Click("Run", as("button", "Run")))
	b.await("two answers with their bills",
		lanes+`.length === 2 && document.querySelectorAll(".figures a").length === 2 && `+lanes+billed)
	b.says("first byte", "Say <b>hello</b>.", model)
	const announced = `document.getElementById("announce").innerText.includes("Cost: $")`
	if !run(b, chromedp.Evaluate[bool](announced)) {
		t.Error("the answers are not announced")
	}
	b.look("playground-two")
	b.write("Prompt", "And once more.")
	run(b, chromedp.Focus("Prompt", as("textbox", "Prompt")))
	run(b, chromedp.KeyEvent(kb.Enter, chromedp.KeyModifiers(2))) // Ctrl
	b.await("the second turns", `document.querySelectorAll(".figures a").length === 4`)

	run(b, chromedp.Click("Copy as code", as("button", "Copy as code")))
	b.await("the code", `document.querySelectorAll("#code [role=tab]").length === 4`)
	b.says("And once more.", "Idempotency-Key")
	run(b, chromedp.Click("Python", as("tab", "Python")))
	b.says("purser.with_token", "stream.bill()")
	b.look("playground-code")

	change("second", "")
	b.fill("Output limit (tokens)", "700")
	b.write("Prompt", "Tell me a long story.\n!mock pace=100ms words=600 chunks=600")
	run(b, chromedp.Click("Run", as("button", "Run")))
	const answerLength = `(document.querySelector(".turn[aria-busy] .turn-text")?.innerText.length || 0)`
	b.await("a part of the answer", answerLength+` > 20`)
	const place = `(() => { const at = document.getElementById("stop").getBoundingClientRect();
		return at.top + scrollY + " " + at.left })()`
	before, length := run(b, chromedp.Evaluate[string](place)), run(b, chromedp.Evaluate[int](answerLength))
	b.await("more of the answer", fmt.Sprintf("%s > %d", answerLength, length+200))
	if after := run(b, chromedp.Evaluate[string](place)); after != before {
		t.Errorf("while the answer grew, Stop moved from %s to %s", before, after)
	}
	run(b, chromedp.Click("Stop", as("button", "Stop")))
	b.await("the bill of the part", `/^\$0\.0\d+ \(estimated\)/.test([...document.querySelectorAll(".lane .figures")]
		.filter((f) => f.innerText.includes("estimated"))[0]?.innerText || "")`)
	b.says("You pay for what was delivered.")
}
