package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// longCall is the body of a stream that takes a minute, unless it is stopped.
const longCall = `{"stream":true,"max_tokens":700,"messages":[{"role":"user",` +
	`"content":"Tell me a long story.\n!mock pace=100ms words=600 chunks=600"}]}`

// stream makes a streamed call in the background, and returns what delivers its whole answer.
func stream(t *testing.T, p *servertest.Process) <-chan string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 70*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "POST", p.BaseURL+"/v1/ai/"+model, strings.NewReader(longCall))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.Connection.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", servertest.UUID())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	whole := make(chan string, 1)
	go func() {
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			text = append(text, err.Error()...)
		}
		whole <- string(text)
	}()
	return whole
}

// shows waits until the page shows a text, without a reload.
func (b *tab) shows(part string) {
	b.t.Helper()
	for deadline := time.Now().Add(stepLimit); !strings.Contains(b.text(), part); {
		if time.Now().After(deadline) {
			b.t.Fatalf("the page never shows %q:\n%s", part, b.text())
		}
		run(b, chromedp.Sleep(50*time.Millisecond))
	}
}

// clickLive clicks what a script may replace with the same at any time.
func (b *tab) clickLive(role, name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepLimit)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Click(name, as(role, name)))
	for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
		_, err = chromedp.Run(ctx, chromedp.Click(name, as(role, name)))
	}
	if err != nil {
		b.t.Fatalf("%s %q: %v", role, name, err)
	}
}

// TestRunningCalls sees calls run on the dashboard, which refreshes itself, stops one by its button,
// and pauses everything, with and without JavaScript.
func TestRunningCalls(t *testing.T) {
	t.Parallel()
	for _, scripts := range []bool{true, false} {
		name := "with scripts"
		if !scripts {
			if !testkit.IsLong() {
				continue // package dashboard proves it over HTTP
			}
			name = "without scripts"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := servertest.Start(t, "")
			b := newTab(t, p.BaseURL)
			if !scripts {
				b.withoutScripts()
			}
			b.open(p.DashboardURL + "/dashboard")
			b.signIn(p.TestAccount.Email, p.TestAccount.Password)
			b.says("Running now", "No calls in progress.")
			stopped := stream(t, p)
			if scripts {
				b.shows("Stop ends the call at once.")
			} else {
				for deadline := time.Now().Add(stepLimit); strings.Contains(b.text(), "No calls in progress."); {
					if time.Now().After(deadline) {
						t.Fatal("the call is never listed")
					}
					b.open(p.DashboardURL + "/dashboard")
				}
			}
			b.says(model, "Stop ends the call at once.")
			if scripts {
				b.look("dashboard-running")
			}
			stop := b.named("button", "Stop Sample app")
			if scripts {
				b.clickLive("button", stop)
				b.shows("No calls in progress.")
			} else if b.press("button", stop); b.at().Path != "/dashboard" {
				t.Errorf("stopped, and got to %s", b.at())
			}
			if text := <-stopped; !strings.Contains(text, `"code":"call_stopped"`) ||
				!strings.Contains(text, `"settlement":"estimated"`) || !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("the stopped call got\n%s", text)
			}
			b.says("No calls in progress.")
			paused := stream(t, p)
			b.open(p.DashboardURL + "/dashboard")
			b.press("link", "Pause everything…")
			b.says("Pause everything?", "Sample app")
			if scripts {
				b.look("pause-everything")
			}
			b.press("button", "Pause everything")
			b.says("Everything is paused.", "Needs your attention", "Paused")
			if scripts {
				b.look("dashboard-paused")
			}
			if text := <-paused; !strings.Contains(text, `"code":"connection_frozen"`) {
				t.Errorf("the call at the pause got\n%s", text)
			}
			if code, _ := refused(t, p); code != "connection_frozen" {
				t.Errorf("a call after the pause: %q", code)
			}
			b.open(p.DashboardURL + "/dashboard")
			b.press("link", "Review (Sample app)")
			b.press("button", "Resume")
			if code, _ := refused(t, p); code != "" {
				t.Errorf("a call after the resume: %q", code)
			}
			p.Verify()
		})
	}
}
