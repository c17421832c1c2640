package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// openAIVoice returns the only block in a language of the guide of OpenAI's realtime library.
func openAIVoice(t *testing.T, language string) string {
	t.Helper()
	code := ""
	for _, b := range readGuideBlocks(t, "docs/guide/voice-openai.md") {
		if b.language == language && code == "" {
			code = b.code
		} else if b.language == language {
			t.Fatalf("%s: another block of %s", b.name(), language)
		}
	}
	if code == "" {
		t.Fatalf("no block of %s", language)
	}
	return code
}

// A nodeProgram is a program of Node.js that runs beside a test, which reads what it prints.
type nodeProgram struct {
	t     *testing.T
	lines *bufio.Scanner
	said  []string
}

// startRealtimeProgram starts a program that imports OpenAI's realtime library.
func startRealtimeProgram(t *testing.T, code string, env ...string) *nodeProgram {
	t.Helper()
	installNode(t, "realtime")
	folder := t.TempDir()
	err := os.Symlink(absolute(t, "realtime/node_modules"), filepath.Join(folder, "node_modules"))
	if err := errors.Join(err, writeProgram(folder, "program.mjs", code)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	c := exec.CommandContext(ctx, "node", "program.mjs")
	c.Dir, c.Env = folder, append(os.Environ(), env...)
	out, err := c.StdoutPipe()
	c.Stderr = c.Stdout // in their order
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = c.Wait() // it was stopped
	})
	return &nodeProgram{t: t, lines: bufio.NewScanner(out)}
}

// says waits for a line that begins so, and returns the rest of it.
func (p *nodeProgram) says(begin string) string {
	p.t.Helper()
	for p.lines.Scan() {
		p.said = append(p.said, p.lines.Text())
		if rest, ok := strings.CutPrefix(p.lines.Text(), begin); ok {
			return strings.TrimSpace(rest)
		}
	}
	p.t.Fatalf("it did not say %q, but %s", begin, strings.Join(p.said, "\n"))
	return ""
}

// TestOpenAIRealtimeOnAServer runs the guide's program: OpenAI's library follows a session on its control channel,
// hands over from one agent to another, runs a tool and lets the model answer. It is connected before the browser,
// which is the mock's socket here.
func TestOpenAIRealtimeOnAServer(t *testing.T) {
	t.Parallel()
	p := sharedConnection(t)
	program := startRealtimeProgram(t, openAIVoice(t, "ts"), "BASE_URL="+p.BaseURL,
		"ACCESS_TOKEN="+p.Connection.AccessToken)
	client := read[struct {
		MockURL string `json:"mock_url"`
		Ticket  string
	}](t, program.says("for the browser:"))
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	browser, _, err := websocket.Dial(ctx, client.MockURL+"?ticket="+client.Ticket, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browser.CloseNow() }) // the session may have closed it
	browser.SetReadLimit(1 << 20)
	for text := []byte(nil); !strings.Contains(string(text), "transfer_to_Cook"); { // its update is done
		if _, text, err = browser.Read(ctx); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		for err := error(nil); err == nil; _, _, err = browser.Read(context.Background()) {
		}
	}()
	ask := func(text string) {
		t.Helper()
		item := fmt.Sprintf(`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[`+
			`{"type":"input_text","text":%q}]}}`, text)
		for _, event := range []string{item, `{"type":"response.create"}`} {
			if err := browser.Write(ctx, websocket.MessageText, []byte(event)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask("I want to cook.") // the mock calls the first tool that there is: the hand-over, and then the timer
	program.says("from Host to Cook")
	program.says("cost so far") // the call of the tool
	program.says("cost so far") // the answer
	ask("Five minutes, please.")
	if said := program.says("set_timer"); said != "The timer is set: {}" {
		t.Errorf("the tool said %s", said)
	}
	program.says("cost so far")
	program.says("cost so far")
	sessions := p.Connection.AccessToken
	var list []struct{ ID, Status string }
	if status := send(t, p, "GET", "/v1/realtime/sessions", "", "Bearer "+sessions, &list); status != http.StatusOK ||
		len(list) == 0 {
		t.Fatalf("the sessions: %d %v", status, list)
	}
	if status := send(t, p, "POST", "/v1/realtime/sessions/"+list[0].ID+"/end", "", "Bearer "+sessions,
		nil); status != http.StatusAccepted {
		t.Errorf("ending it: %d", status)
	}
	program.says("ended: app_ended")
	for _, line := range program.said {
		if strings.Contains(line, "rror") {
			t.Errorf("the library says: %s", line)
		}
	}
}

// realtimeBundle is OpenAI's library for a page.
func realtimeBundle(t *testing.T) []byte {
	t.Helper()
	installNode(t, "realtime")
	if err := buildTypeScript(); err != nil { // with it esbuild is there
		t.Fatal(err)
	}
	c := exec.Command(absolute(t, sdkFolder+"/typescript/node_modules/.bin/esbuild"), "--bundle", "--format=esm",
		"--platform=browser", "--log-level=warning")
	c.Dir, c.Stdin = "realtime", strings.NewReader(`export * from "@openai/agents-realtime"`)
	bundle, err := c.Output()
	if err != nil {
		t.Fatalf("esbuild: %v", err)
	}
	return bundle
}

// setTimer is the tool of the guide's page, as its server declares it.
const setTimer = `{"type":"function","name":"set_timer","description":"Sets a kitchen timer.",` +
	`"parameters":{"type":"object","properties":{"minutes":{"type":"number"}}}}`

// TestOpenAIRealtimeInABrowser opens the guide's page in Chromium, with OpenAI's library: it connects to the emulated
// model, talks, is interrupted, hands over twice and more, and lets the app's server answer a tool. Nothing of that is
// tampering.
func TestOpenAIRealtimeInABrowser(t *testing.T) {
	t.Parallel()
	bundle := realtimeBundle(t)
	onNode(t, func(t *testing.T, p *servertest.Process) {
		c := &caller{p: p, token: grant(t, p, "5", "").AccessToken}
		app := http.NewServeMux()
		serve := func(path, kind string, text []byte) {
			app.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", kind)
				_, _ = w.Write(text) // the tab says if it did not come
			})
		}
		serve("/{$}", "text/html", []byte(openAIVoice(t, "html")))
		serve("/agents-realtime.js", "text/javascript", bundle)
		app.HandleFunc("POST /voice", func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"id": c.id, "client": c.browser}) // as above
		})
		app.HandleFunc("POST /voice/{id}/alive", func(http.ResponseWriter, *http.Request) {})
		end := sync.OnceFunc(func() { c.end(p, session.Immediate) }) // a tab that is closed says it again
		app.HandleFunc("POST /voice/{id}/end", func(http.ResponseWriter, *http.Request) { end() })
		page := httptest.NewServer(app)
		t.Cleanup(page.Close)
		c.tab = newTab(t, page.URL, p.BaseURL)
		c.create(`"tools":[`+setTimer+`],"client_updatable":["instructions","voice"]`, "words=30 fast=4")
		c.open(page.URL)
		inPage[bool](c.tab, microphone)
		run(c.tab, chromedp.Click("#call"))
		c.listen(p)
		run(c.tab, chromedp.WaitEnabled("#cook"))

		c.word()
		c.told("svc.response.settled")
		if energy := inPage[float64](c.tab, "energy()"); energy == 0 {
			t.Error("nothing was to be heard")
		}
		for range 4 {
			run(c.tab, chromedp.Click("#cook"))
		}
		c.tells(`{"type":"conversation.item.create","item":{"type":"message","role":"user","content":[` +
			`{"type":"input_text","text":"!call set_timer {\"minutes\":5}"}]}}`)
		c.tells(`{"type":"response.create"}`)
		asked := c.told("response.function_call_arguments.done")
		c.tells(fmt.Sprintf(`{"type":"conversation.item.create","item":{"type":"function_call_output","call_id":%q,`+
			`"output":"It is set."}}`, asked["call_id"]))
		c.tells(`{"type":"response.create"}`)
		c.told("response.output_audio_transcript.done")
		c.word()
		c.told("response.created")
		run(c.tab, chromedp.Click("#stop"))
		c.told("svc.response.settled")
		run(c.tab, chromedp.Click("#end"))
		if ended := c.told("svc.session.ended"); ended["reason"] != session.AppEnded {
			t.Errorf("ended: %v", ended)
		}
	}, "--providers=emulator")
}
