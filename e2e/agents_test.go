package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
)

// An agent is a coding agent from the npm registry, which pays by a connection.
type agent struct {
	name, model, base string
	run               func(ctx context.Context, a agent, at agentFolders, url string) *exec.Cmd
	tool              string // a call of its shell tool, with the command as %s
}

// agentFolders are the folders of one agent: its configuration, its work, and the file with its access token.
type agentFolders struct{ home, work, token string }

var agents = []agent{
	{
		name:  "opencode by Chat Completions",
		model: "gpt-6-luna",
		base:  "/v1",
		run:   runOpencode("@ai-sdk/openai-compatible"),
		tool:  `bash {"command":"%s","description":"Counts."}`,
	},
	{
		name:  "codex by Responses",
		model: "gemini-2.5-flash-lite",
		base:  "/openai/v1",
		run:   runCodex,
		tool:  `exec_command {"cmd":"%s"}`,
	},
}

// runCodex runs Codex with a command that gives it each access token.
func runCodex(ctx context.Context, a agent, at agentFolders, url string) *exec.Cmd {
	config := fmt.Sprintf(`
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

[model_providers.purser.auth]
command = "cat"
args = [%q]
`, a.model, url+a.base, at.token)
	if err := os.WriteFile(filepath.Join(at.home, "config.toml"), []byte(config), 0o600); err != nil {
		panic(err)
	}
	cmd := exec.CommandContext(ctx, mustAbs("agents/node_modules/.bin/codex"), "exec", "--skip-git-repo-check", "-")
	cmd.Env = append(os.Environ(), "PWD="+at.work, "CODEX_HOME="+at.home)
	return cmd
}

// runOpencode runs opencode with a provider of the Vercel AI SDK, which it contains.
func runOpencode(provider string) func(context.Context, agent, agentFolders, string) *exec.Cmd {
	return func(ctx context.Context, a agent, at agentFolders, url string) *exec.Cmd {
		config := map[string]any{
			"$schema":           "https://opencode.ai/config.json",
			"autoupdate":        false,
			"share":             "disabled",
			"enabled_providers": []string{"purser"},
			"model":             "purser/" + a.model,
			"small_model":       "purser/" + a.model, // it writes the title of the session
			"permission":        map[string]string{"edit": "allow", "bash": "allow"},
			"provider": map[string]any{"purser": map[string]any{
				"name":    "Purser",
				"npm":     provider,
				"options": map[string]string{"baseURL": url + a.base, "apiKey": "{file:" + at.token + "}"},
				"models": map[string]any{a.model: map[string]any{
					"tool_call": true,
					"limit":     map[string]int{"context": 200_000, "output": 1_000},
				}},
			}},
		}
		writeJSON(filepath.Join(at.work, "opencode.json"), config)
		cmd := exec.CommandContext(ctx, mustAbs("agents/node_modules/opencode-linux-x64/bin/opencode"), "run")
		cmd.Env = append(os.Environ(), "PWD="+at.work,
			"XDG_CONFIG_HOME="+filepath.Join(at.home, "config"), "XDG_DATA_HOME="+filepath.Join(at.home, "data"),
			"XDG_CACHE_HOME="+filepath.Join(at.home, "cache"), "XDG_STATE_HOME="+filepath.Join(at.home, "state"),
			"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS=1")
		return cmd
	}
}

// writeJSON writes a configuration. It panics on an error, which only the test's own folders can cause.
func writeJSON(path string, v any) {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		panic(err)
	}
}

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err)
	}
	return abs
}

// work gives an agent a task of so many calls of its shell tool, one after the other. It returns what the agent
// printed, and how many of the calls it made.
func (a agent) work(t *testing.T, w *emulatedNode, token string, calls int) (said string, made int) {
	t.Helper()
	at := agentFolders{home: t.TempDir(), work: t.TempDir(), token: filepath.Join(t.TempDir(), "token")}
	if err := os.WriteFile(at.token, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
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
	cmd := a.run(ctx, a, at, w.BaseURL)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = at.work, strings.NewReader(task.String()), &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: not ready in time: %s", a.name, out.String())
	}
	t.Logf("%s: %v", a.name, err)
	steps, err := os.ReadFile(filepath.Join(at.work, "steps.txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return out.String(), strings.Count(string(steps), "\n")
}

// TestAgents gives real coding agents a task of ten calls of tools, with every call billed to the micro-cent, and a
// longer one that a spend cap of one cent ends.
func TestAgents(t *testing.T) {
	testkit.Long(t, "installs and runs coding agents; TestClients proves the routes that they use")
	t.Parallel()
	installNode(t, "agents")
	for _, a := range agents {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			w := startEmulated(t, db.SQLite)
			administer(t, w.Process, "PATCH", "/v1/apps/"+w.App.ID, `{"fit":true}`)
			rich, poor := grant(t, w.Process, "5", ""), grant(t, w.Process, "0.01", "")

			said, made := a.work(t, w, rich.AccessToken, 10)
			settled(t, w.Process, rich.AccessToken)
			if made != 10 || !strings.Contains(said, "The tools say") {
				t.Errorf("made %d calls, and said %s", made, said)
			}
			w.checkAgent(t, a, rich.Extra("connection_id").(string))

			w.forgetExchanges(t)
			said, made = a.work(t, w, poor.AccessToken, 100)
			settled(t, w.Process, poor.AccessToken)
			if made == 0 || made == 100 || !strings.Contains(said, "request a higher cap") {
				t.Errorf("made %d calls for a cent, and said %s", made, said)
			}
			w.checkAgent(t, a, poor.Extra("connection_id").(string))
			w.checkStop(t, a, poor.AccessToken, poor.Extra("connection_id").(string))
			w.Verify()
		})
	}
}

// checkAgent holds all charges of an agent against the provider's record. Their order is not known: an agent asks for
// the title of its session at the same time.
func (w *emulatedNode) checkAgent(t *testing.T, a agent, connectionID string) {
	t.Helper()
	var computed, charged []money.MC
	for _, u := range w.listUsage(t) {
		computed = append(computed, computeCharge(t, w.prices[a.model], countClasses(u)).UserChargeMC)
	}
	for _, row := range spends(t, w.Process, connectionID) {
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
func (w *emulatedNode) checkStop(t *testing.T, a agent, token, connectionID string) {
	t.Helper()
	var c struct {
		Allocation int64 `json:"reserved_allocation_mc"`
		Consumed   int64 `json:"consumed_mc"`
		Held       int64 `json:"held_mc"`
	}
	if status := send(t, w.Process, "GET", "/v1/connection", "", "Bearer "+token, &c); status != http.StatusOK {
		t.Fatalf("GET /v1/connection: %d", status)
	}
	if c.Consumed > c.Allocation || c.Consumed == 0 || c.Held != 0 {
		t.Errorf("%s: the connection is %+v", a.name, c)
	}
	d, err := db.OpenReadOnly(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	refusals, err := store.RefusalsOfApp(t.Context(), d, w.App.ID, "", 100)
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
		if r.ConnectionID != connectionID || r.Code != "allocation_exhausted" ||
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
