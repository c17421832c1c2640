package e2e

import (
	"encoding/json"
	"net/url"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestFirstAnswer goes the way of a developer who has just cloned the repository: purser dev with its sample history,
// purser new, npm install, npm start, a user who connects, and an answer that streams and is billed. go test -v shows
// how long each step took.
func TestFirstAnswer(t *testing.T) {
	t.Parallel()
	begun, folder, binary := time.Now(), t.TempDir(), servertest.Binary(t)
	step := func(what string) {
		t.Logf("%5.1f s  %s", time.Since(begun).Seconds(), what)
	}
	node := startExample(t, folder, []string{binary, "dev", "--listen", "localhost:0", "--json"})
	var data sample.Data
	if err := json.Unmarshal([]byte(node.awaitLine(node.stdout, "base_url")), &data); err != nil {
		t.Fatal(err)
	}
	step("purser dev is ready")

	port := freePort(t)
	app := filepath.Join(folder, "chat")
	for _, command := range []struct {
		what, folder string
		words        []string
	}{
		{"purser new has copied the app", folder, []string{
			binary, "new", "chat", "--template", "typescript-chat", "--port", port,
		}},
		{"npm install has run", app, []string{"npm", "install", "--no-audit", "--no-fund"}},
	} {
		cmd := exec.CommandContext(t.Context(), command.words[0], command.words[1:]...)
		cmd.Dir = command.folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command.words, err, out)
		}
		step(command.what)
	}
	e := startExample(t, app, []string{"npm", "start"})
	e.awaitLine(e.stdout, "Open http")
	step("npm start: the app is ready")

	address := url.URL{Scheme: "http", Host: "localhost:" + port}
	b := newTab(t, data.BaseURL, address.String())
	b.open(address.String())
	b.fill("Name", "ada")
	b.fill("Password", "correct horse")
	b.press("button", "Create account")
	b.press("link", "Connect Purser")
	b.signIn(data.TestAccount.Email, data.TestAccount.Password)
	b.fillCap("3")
	b.pressFirst("Allow")
	b.says(" left") // the sample history has spent some of the cap
	step("a user has connected")
	b.write("Message", "Hello")
	run(b, chromedp.Click("Send", as("button", "Send")))
	b.shows("charged")
	step("the first answer has streamed, and is billed")
}
