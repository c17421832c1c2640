package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// An agent is a coding agent from the npm registry, which pays by a connection.
type agent struct {
	name, model, base string
	run               func(t *testing.T, a agent, at agentFolders, url string) *exec.Cmd
	tool              string // a call of its shell tool, with the command as %s
	spendCap          string // that stops it, in dollars: one cent, or more if its first call would not fit
}

// agentFolders are the folders of one agent: its configuration, its work, and that of purser login.
type agentFolders struct{ home, work, login string }

// environ is an environment in the work folder where purser is signed in.
func (at agentFolders) environ() []string {
	return append(os.Environ(), "PWD="+at.work, "XDG_CONFIG_HOME="+at.login)
}

var agents = []agent{
	{
		name:     "opencode by Chat Completions",
		model:    "gpt-6-luna",
		base:     "/v1",
		run:      runOpencode("@ai-sdk/openai-compatible"),
		tool:     `bash {"command":"%s","description":"Counts."}`,
		spendCap: "0.01",
	},
	{
		name:     "opencode by Messages",
		model:    "claude-haiku-4-5",
		base:     "/anthropic/v1",
		run:      runOpencode("@ai-sdk/anthropic"),
		tool:     `bash {"command":"%s","description":"Counts."}`,
		spendCap: "0.03",
	},
	{
		name:     "codex by Responses",
		model:    "gemini-2.5-flash-lite",
		base:     "/openai/v1",
		run:      runCodex,
		tool:     `exec_command {"cmd":"%s"}`,
		spendCap: "0.01",
	},
	{
		name:     "codex by Responses with custom tools", // which it offers only to models that it knows
		model:    "gpt-6-luna",
		base:     "/openai/v1",
		run:      runCodex,
		tool:     `functions__exec {"input":"text(await tools.exec_command({cmd: '%s'}))"}`,
		spendCap: "0.01",
	},
}

// runCodex runs Codex with purser token as the command that gives it keys.
func runCodex(t *testing.T, a agent, at agentFolders, url string) *exec.Cmd {
	t.Helper()
	writeFile(t, filepath.Join(at.home, "config.toml"), fmt.Sprintf(`
model = %q
model_provider = "purser"
approval_policy = "never"
sandbox_mode = "danger-full-access"
web_search = "disabled"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.purser]
name = "Purser"
base_url = %q
wire_api = "responses"
http_headers = { "X-Svc-Fit" = "1" }

[model_providers.purser.auth]
command = %q
args = ["token"]
`, a.model, url+a.base, servertest.Binary(t)))
	cmd := exec.Command(absolute(t, "agents/node_modules/.bin/codex"), "exec", "--skip-git-repo-check", "-")
	cmd.Env = append(at.environ(), "CODEX_HOME="+at.home)
	return cmd
}

// runOpencode runs opencode with a provider of the Vercel AI SDK, which it contains.
func runOpencode(provider string) func(*testing.T, agent, agentFolders, string) *exec.Cmd {
	return func(t *testing.T, a agent, at agentFolders, url string) *exec.Cmd {
		t.Helper()
		config := map[string]any{
			"$schema":           "https://opencode.ai/config.json",
			"autoupdate":        false,
			"share":             "disabled",
			"enabled_providers": []string{"purser"},
			"model":             "purser/" + a.model,
			"small_model":       "purser/" + a.model, // it writes the title of the session
			"permission":        map[string]string{"edit": "allow", "bash": "allow"},
			"provider": map[string]any{"purser": map[string]any{
				"name": "Purser",
				"npm":  provider,
				"options": map[string]any{
					"baseURL": url + a.base,
					"apiKey":  "{env:ACCESS_TOKEN}", // it has no command for keys
					"headers": map[string]string{"X-Svc-Fit": "1"},
				},
				"models": map[string]any{a.model: map[string]any{
					"tool_call": true,
					"limit":     map[string]int{"context": 200_000, "output": 1_000},
				}},
			}},
		}
		text, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(at.work, "opencode.json"), string(text))
		cmd := exec.Command(absolute(t, "agents/node_modules/opencode-linux-x64/bin/opencode"), "run")
		cmd.Env = append(os.Environ(), "PWD="+at.work, "ACCESS_TOKEN="+at.token(t),
			"XDG_CONFIG_HOME="+filepath.Join(at.home, "config"), "XDG_DATA_HOME="+filepath.Join(at.home, "data"),
			"XDG_CACHE_HOME="+filepath.Join(at.home, "cache"), "XDG_STATE_HOME="+filepath.Join(at.home, "state"),
			"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS=1")
		return cmd
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var shownCode = regexp.MustCompile(`(?m)^ +([B-Z]{4}-[B-Z]{4})$`)

// signIn signs in by the device flow: purser login shows a code, which a new test account approves with a spend cap.
func (at agentFolders) signIn(t *testing.T, w *emulatedNode, spendCap string) {
	t.Helper()
	login := exec.CommandContext(soon(t), servertest.Binary(t), "login", "--server", w.AuthURL,
		"--client", w.PublicApp.ClientID)
	login.Env = at.environ()
	out, err := login.StdoutPipe()
	if err == nil {
		err = login.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, said, approved := bufio.NewScanner(out), "", false
	for lines.Scan() {
		said += lines.Text() + "\n"
		if code := shownCode.FindStringSubmatch(said); code != nil && !approved {
			approved = true
			approveDevice(t, w, code[1], spendCap)
		}
	}
	if err := login.Wait(); err != nil || !approved {
		t.Fatalf("purser login: %v: %s", err, said)
	}
}

// approveDevice approves a code in a browser's place.
func approveDevice(t *testing.T, w *emulatedNode, code, spendCap string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	user := http.Client{Jar: jar}
	for _, form := range []struct {
		path   string
		values url.Values
	}{
		{"/sign-in", url.Values{"email": {w.Developer.Email}, "password": {w.Developer.Password}}},
		{"/device", url.Values{"user_code": {code}}},
		{"/device", url.Values{
			"user_code":    {code},
			"decision":     {"approve"},
			"test_account": {"new"},
			"spend_cap":    {spendCap},
		}},
	} {
		resp, err := user.PostForm(w.AuthURL+form.path, form.values)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // purser login tells what came of it
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("POST %s: %d", form.path, resp.StatusCode)
		}
	}
}

// token returns an access token of purser token.
func (at agentFolders) token(t *testing.T) string {
	t.Helper()
	token := exec.CommandContext(soon(t), servertest.Binary(t), "token")
	token.Env, token.Stderr = at.environ(), os.Stderr
	out, err := token.Output()
	if err != nil {
		t.Fatalf("purser token: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// work signs an agent in with a spend cap, and gives it a task of so many calls of its shell tool, one after the other.
// It returns what the agent printed, how many of the calls it made, and its connection.
func (a agent) work(t *testing.T, w *emulatedNode, spendCap string, calls int) (said string, made int,
	c agentConnection) {
	t.Helper()
	at := agentFolders{home: t.TempDir(), work: t.TempDir(), login: t.TempDir()}
	at.signIn(t, w, spendCap)
	if out, err := exec.Command("git", "init", "--quiet", at.work).CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	var task strings.Builder
	task.WriteString("Count to the end, one step at a time.\n")
	for n := range calls {
		fmt.Fprintf(&task, "!call "+a.tool+"\n!step\n", fmt.Sprintf("echo %d >> steps.txt", n))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := a.run(t, a, at, w.BaseURL)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = at.work, strings.NewReader(task.String()), &out, &out
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !stop() {
		t.Fatalf("%s: not ready in time: %s", a.name, out.String())
	}
	t.Logf("%s: %v", a.name, err)
	token := at.token(t)
	settled(t, w.Process, token)
	if status := send(t, w.Process, "GET", "/v1/connection", "", "Bearer "+token, &c); status != http.StatusOK {
		t.Fatalf("GET /v1/connection: %d", status)
	}
	steps, err := os.ReadFile(filepath.Join(at.work, "steps.txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out.String(), strings.Count(string(steps), "\n"), c
}

// An agentConnection is the connection of an agent after its work.
type agentConnection struct {
	ID         string
	Allocation int64 `json:"reserved_allocation_mc"`
	Consumed   int64 `json:"consumed_mc"`
	Held       int64 `json:"held_mc"`
}

// TestAgents gives real coding agents a task of ten calls of tools, with every call billed to the micro-cent, and a
// longer one that a spend cap of one cent ends. They sign in by the device flow, and ask for calls that fit.
func TestAgents(t *testing.T) {
	testkit.Long(t, "installs and runs coding agents; TestClients proves the routes that they use")
	t.Parallel()
	installNode(t, "agents")
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			w := startEmulated(t, db.SQLite)
			said, made, c := a.work(t, w, "5", 10)
			if made != 10 || !strings.Contains(said, "The tools say") {
				t.Errorf("made %d calls, and said %s", made, said)
			}
			w.checkAgent(t, a, c)

			w.forgetExchanges(t)
			said, made, c = a.work(t, w, a.spendCap, 100)
			if made == 0 || made == 100 || !strings.Contains(said, "request a higher cap") {
				t.Errorf("made %d calls for $%s, and said %s", made, a.spendCap, said)
			}
			w.checkAgent(t, a, c)
			w.checkStop(t, a, c)
			w.Verify()
		})
	}
}

// checkAgent holds all charges of an agent against the provider's record. Their order is not known: an agent asks for
// the title of its session at the same time.
func (w *emulatedNode) checkAgent(t *testing.T, a agent, c agentConnection) {
	t.Helper()
	var computed, charged []money.MC
	for _, u := range w.listUsage(t) {
		computed = append(computed, computeCharge(t, w.prices[a.model], countClasses(u), 0).UserChargeMC)
	}
	for _, row := range spends(t, w.Process, c.ID) {
		charged = append(charged, row.UserChargeMC)
	}
	slices.Sort(computed)
	slices.Sort(charged)
	if len(computed) == 0 || !slices.Equal(computed, charged) {
		t.Errorf("%s: computed %v, the ledger has %v", a.name, computed, charged)
	}
}

// checkStop checks that an agent was stopped exactly at its cap: not beyond it, and by a call of which not even the
// shortest answer would have fit.
func (w *emulatedNode) checkStop(t *testing.T, a agent, c agentConnection) {
	t.Helper()
	if c.Consumed > c.Allocation || c.Consumed == 0 || c.Held != 0 {
		t.Errorf("%s: the connection is %+v", a.name, c)
	}
	d, err := db.OpenReadOnly(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	refusals, _, err := store.BrowseRefusals(t.Context(), d, store.CallFilter{AppID: w.PublicApp.ID}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		var why struct {
			Required int64  `json:"required_mc"`
			Fits     *int64 `json:"max_tokens_that_fit"`
		}
		if err := json.Unmarshal([]byte(r.Details), &why); err != nil {
			t.Errorf("%s: refused with %s: %v", a.name, r.Details, err)
		}
		if r.ConnectionID != c.ID || r.Code != "allocation_exhausted" ||
			why.Required <= c.Allocation-c.Consumed ||
			why.Fits == nil || *why.Fits >= 256 {
			t.Errorf("%s: %d mc of %d consumed; refused by %s with %s", a.name, c.Consumed, c.Allocation, r.Code,
				r.Details)
		}
	}
	if len(refusals) == 0 {
		t.Errorf("%s: nothing was refused", a.name)
	}
}
