package e2e

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// startTalkingPage runs the talking page of the guide for a connection, and returns its address.
func startTalkingPage(t *testing.T, p *servertest.Process, token string) (address string) {
	t.Helper()
	blocks := readGuideBlocks(t, "docs/guide/voice.md")
	for _, b := range blocks {
		if b.language != "ts" {
			continue
		}
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
		_ = free.Close() // the program listens there
		c := newGuidePrograms(t, blocks).command(t, b)
		c.Env = append(os.Environ(), "BASE_URL="+p.BaseURL, "CLIENT_ID="+p.App.ClientID, "ACCESS_TOKEN="+token,
			"PORT="+port, "NODE_OPTIONS=--experimental-websocket --no-warnings")
		c.Stderr = t.Output()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() }) // it never ends by itself
		address = "http://127.0.0.1:" + port
		await(t, "the page is there", func() bool {
			resp, err := http.Get(address)
			if err == nil {
				_ = resp.Body.Close() // that it came is enough
			}
			return err == nil
		})
		return address
	}
	t.Fatal("voice.md has no program")
	return ""
}

// TestGoneTab opens the guide's talking page with the emulated model, which notices no browser that has left. A page
// that is loaded again frees its place by its beacon, thrice; a tab that crashes in a call says nothing, and its
// session ends within 30 s, because the page is not heard from.
func TestGoneTab(t *testing.T) {
	testkit.Long(t, "it waits for 25 s; TestGuide starts the program")
	t.Parallel()
	eachNode(t, func(t *testing.T, p *servertest.Process) {
		token := grant(t, p, "5", "").AccessToken
		address := startTalkingPage(t, p, token)
		b := newTab(t, address, p.BaseURL)
		statuses := func() string {
			var list []struct{ Status string }
			status := send(t, p, "GET", "/v1/realtime/sessions", "", "Bearer "+token, &list)
			if status != http.StatusOK {
				t.Fatalf("the sessions: %d", status)
			}
			all := make([]string, len(list))
			for i, s := range list {
				all[i] = s.Status
			}
			return strings.Join(all, " ")
		}
		for range 4 { // each but the first is a page that was loaded again
			b.open(address)
			inPage[bool](b, microphone)
			run(b, chromedp.Click("#call"))
			run(b, chromedp.WaitEnabled("#end"))
			await(t, "the call is live, and no other one is", func() bool {
				s := statuses()
				return strings.HasPrefix(s, "live") && strings.Count(s, "live") == 1
			})
		}
		ctx, stop := context.WithTimeout(b.ctx, time.Second)
		defer stop()
		_, _ = chromedp.Call(ctx, page.Crash, cdp.Empty{}) // it answers no more
		crashed := time.Now()
		await(t, "the session of the tab ends", func() bool { return !strings.Contains(statuses(), "live") })
		if took := time.Since(crashed); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	}, "--providers=emulator")
}
