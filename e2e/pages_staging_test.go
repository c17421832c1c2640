package e2e

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// start runs a command of purser until the test ends.
func start(t *testing.T, environ []string, args ...string) *bufio.Reader {
	t.Helper()
	cmd := exec.Command(servertest.Binary(t), args...)
	cmd.Env = environ
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return bufio.NewReader(out)
}

// TestStaging runs a node as in production, with the emulator in place of everything that is not ours: a person signs
// in by the OpenID Connect provider and pays by Stripe.
func TestStaging(t *testing.T) {
	testkit.Long(t, "package identity proves sign-in, package topups proves payments, each against the same emulators")
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil { // the node takes it
		t.Fatal(err)
	}
	node := "http://" + address
	var is map[string]string
	line, err := start(t, nil, "emulator", "--listen", "127.0.0.1:0", "--stripe", "127.0.0.1:0", "--events",
		node+"/stripe/events", "--oidc", "127.0.0.1:0", "--redirect", node+"/sign-in/provider/callback", "--json").
		ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &is); err != nil {
		t.Fatal(err)
	}
	start(t, []string{
		"PURSER_DATABASE=sqlite:" + t.TempDir() + "/purser.db",
		"PURSER_LISTEN=" + address,
		"PURSER_BASE_URL=" + node,
		"PURSER_DRAIN=0s",
		"PURSER_ENVELOPE_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
		"PURSER_STRIPE_KEY=" + is["stripe.key"],
		"PURSER_STRIPE_WEBHOOK_SECRET=" + is["stripe.webhook_secret"],
		"PURSER_STRIPE_BASE_URL=" + is["stripe.base_url"],
		"PURSER_OIDC_NAME=" + is["oidc.name"],
		"PURSER_OIDC_ISSUER=" + is["oidc.issuer"],
		"PURSER_OIDC_CLIENT_ID=" + is["oidc.client_id"],
		"PURSER_OIDC_CLIENT_SECRET=" + is["oidc.client_secret"],
	}, "serve")
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if resp, err := http.Get(node + "/readyz"); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("the node is not ready after a minute")
		}
	}
	b := newTab(t, node, is["oidc.issuer"], is["stripe.base_url"])
	b.withoutScripts()
	b.open(node + "/sign-up?next=/top-up")
	b.press("button", "Continue with Emulator")
	run(b, chromedp.WaitVisible("the provider's page", as("heading", "Who are you?")))
	b.fill("Email", "ann@example.com")
	b.press("button", "Sign in")
	b.topUp(node)
}
