package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestProveIt proves a call in the browser, sees a changed proof fail, and verifies the downloaded files by purser and,
// against the whole log over HTTP, by tools/verify-log.
func TestProveIt(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	if code, _ := refused(t, p); code != "" {
		t.Fatalf("a call: %s", code)
	}
	b := newTab(t, p.BaseURL)
	b.open(p.AuthURL + "/activity")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	entry := run(b, chromedp.Evaluate[string](
		`[...document.querySelectorAll("a[href]")].map((a) => a.getAttribute("href"))
		.find((h) => /^.(requests|activity).(req|led)_/.test(h)) ?? ""`))
	b.open(p.AuthURL + entry)
	b.press("link", "Prove it")
	const ready = `!!document.querySelector("[data-prove]")`
	for !run(b, chromedp.Evaluate[bool](ready)) { // the tab's own limit ends it
		time.Sleep(50 * time.Millisecond)
		b.open(p.AuthURL + b.at().Path)
	}
	b.look("proof")
	const result = `document.querySelector("[data-result]").innerText`
	prove := func(want string) {
		t.Helper()
		run(b, chromedp.Click("Prove it", as("button", "Prove it")))
		b.await("the result", result+`.includes("`+want+`")`)
	}
	prove("Proved.")
	if marks := run(b, chromedp.Evaluate[string](`document.querySelector("[data-proof]").innerText`)); strings.Count(
		marks, "✓ Correct") != 4 {
		t.Errorf("the checks: %s", marks)
	}
	const load = `fetch(%).then((r) => r.text())`
	receipt := run(b, chromedp.Evaluate[string](strings.Replace(load, "%", "location.pathname + '.json'", 1),
		chromedp.EvalAwaitPromise))
	history := run(b, chromedp.Evaluate[string](strings.Replace(load, "%", "'/activity/history.json'", 1),
		chromedp.EvalAwaitPromise))
	for _, change := range []string{
		`r.row.columns.find((c) => c[0] === "user_charge_mc")[1]--`,
		`r.proof.position++`,
		`r.proof.checkpoint = r.proof.checkpoint.replace(/\n\d+\n/, "\n12345\n")`,
		`r.proof.entry = btoa("x".repeat(48))`,
	} {
		run(b, chromedp.Evaluate[bool](`(() => {
			const r = `+receipt+`;
			`+change+`;
			window.fetch = async () => new Response(JSON.stringify(r));
			return true;
		})()`))
		prove("This proof is wrong")
	}
	verifyFiles(t, p, receipt, history)
}

// verifyFiles verifies downloaded proofs outside of the browser.
func verifyFiles(t *testing.T, p *servertest.Process, receipt, history string) {
	t.Helper()
	folder := t.TempDir()
	save := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one, all := save("receipt.json", receipt), save("history.json", history)
	response := p.Call("GET", "/v1/log", "")
	defer response.Body.Close()
	var log struct{ Key string }
	if err := json.NewDecoder(response.Body).Decode(&log); err != nil {
		t.Fatal(err)
	}
	changed := save("changed.json", strings.Replace(receipt, `"user_charge_mc",`, `"user_charge_mc",1`, 1))
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{servertest.Binary(t), "receipt", "verify", one, "--key", log.Key}, "settled spend of"},
		{[]string{servertest.Binary(t), "receipt", "verify", all}, "none missing or changed"},
		{[]string{servertest.Binary(t), "receipt", "verify", changed}, "something in it was changed"},
		{[]string{"/usr/bin/python3", "../tools/verify-log", p.BaseURL, "--key", log.Key, "--history", all},
			"rows of the history are in the log"},
	} {
		out, err := exec.Command(tt.command[0], tt.command[1:]...).CombinedOutput()
		if !strings.Contains(string(out), tt.want) || (err != nil) != (tt.want == "something in it was changed") {
			t.Errorf("%q: %v\n%s", tt.command[1:], err, out)
		}
	}
}
