package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit"
)

// A beginning is a client as its documentation begins: base URL and key are where it looks for them, and nothing is set
// that a newcomer does not set, but that it reasons.
type beginning struct {
	name string
	at   string // its row in docs/guide/clients.md, "" = its name
	call string // of its tool, with what the tool should say as %s
	run  func(t *testing.T, at place) (said string)

	openAI  string // the model of OpenAI that it asks, "" = that of the others
	silent  string // why it does not ask Claude to reason, "" = it does; the others reason unasked
	refused string // how the message of its refused calls begins, "" = none is refused
}

const notOfOpenAI = "it asks for reasoning only models that it knows, which are those of OpenAI"

// A place is where a client does one task with one model.
type place struct {
	home, work  string // folders
	url, token  string
	model, task string
	row         string // of the client in docs/guide/clients.md
	stream      bool   // programs that can ask for streams or for whole answers ask for streams
}

// tellWeather is how the SDKs and frameworks are made to call their tool.
const tellWeather = `weather {"city":"%s"}`

var beginnings = []beginning{
	{
		name: "OpenAI's SDK by Responses",
		at:   "OpenAI's SDKs",
		call: tellWeather,
		run:  runDocumented("openai-responses.mjs"),
	},
	{
		name: "OpenAI's SDK by Chat Completions",
		at:   "OpenAI's SDKs",
		call: tellWeather,
		run:  runDocumented("openai-chat.mjs"),
	},
	{
		name: "OpenAI's Agents SDK",
		call: tellWeather,
		run:  runDocumented("agents.mjs"),
	},
	{
		name: "Anthropic's SDK with interleaved thinking",
		at:   "Anthropic's SDKs",
		call: tellWeather,
		run:  runDocumented("anthropic.mjs"),
	},
	{
		name:    "Anthropic's SDK with its loop for tools",
		at:      "Anthropic's SDKs",
		call:    tellWeather,
		run:     runDocumented("anthropic-runner.mjs"),
		refused: "thread: conversations are not kept here", // it goes on without
	},
	{
		name:   "AI SDK by Responses",
		at:     "AI SDK, `@ai-sdk/openai`",
		call:   tellWeather,
		run:    runDocumented("ai-openai.mjs"),
		silent: notOfOpenAI,
	},
	{
		name: "AI SDK by Messages",
		at:   "AI SDK, `@ai-sdk/anthropic`",
		call: tellWeather,
		run:  runDocumented("ai-anthropic.mjs"),
	},
	{
		name:   "Mastra by Responses",
		at:     "Mastra",
		call:   tellWeather,
		run:    runDocumented("mastra.mjs"),
		silent: notOfOpenAI,
	},
	{
		name:   "Mastra by Chat Completions",
		at:     "Mastra",
		call:   tellWeather,
		run:    runDocumented("mastra-compatible.mjs"),
		silent: "it has no such setting for a model of its own",
	},
	{
		name:   "LangChain by Chat Completions",
		at:     "LangChain, `ChatOpenAI`",
		call:   tellWeather,
		run:    runDocumented("langchain.mjs", "API=chat"),
		silent: notOfOpenAI,
	},
	{
		name:   "LangChain by Responses",
		at:     "LangChain, `ChatOpenAI`",
		call:   tellWeather,
		run:    runDocumented("langchain.mjs", "API=responses"),
		silent: notOfOpenAI,
	},
	{
		name: "LangChain by Messages",
		at:   "LangChain, `ChatAnthropic`",
		call: tellWeather,
		run:  runDocumented("langchain.mjs", "API=messages"),
	},
	{
		name: "LangChain by Google's API",
		at:   "LangChain, `ChatGoogleGenerativeAI`",
		call: tellWeather,
		run:  runDocumented("langchain.mjs", "API=contents"),
	},
	{
		name: "Google's SDK",
		at:   "Google's SDKs",
		call: tellWeather,
		run:  runDocumented("google.mjs"),
	},
	{
		name: "Google's SDK as a chat",
		at:   "Google's SDKs",
		call: tellWeather,
		run:  runDocumented("google-chat.mjs"),
	},
	{
		name: "AI SDK by Google's API",
		at:   "AI SDK, `@ai-sdk/google`",
		call: tellWeather,
		run:  runDocumented("ai-google.mjs"),
	},
	{
		name: "Google's SDK for Go",
		call: tellWeather,
		run:  runGenAIGoLoop,
	},
	{
		name: "Gemini CLI",
		call: `run_shell_command {"command":"echo %s","description":"Counts."}`,
		run:  runGeminiCLI,
	},
	{
		name: "pi by Google's API",
		call: `bash {"command":"echo %s"}`,
		run:  runPi("google-generative-ai", "/google/v1beta"),
	},
	{
		name:   "go-openai",
		call:   tellWeather,
		run:    runGoOpenAI,
		openAI: "gpt-5.4-mini", // it refuses tools for GPT-6
	},
	{
		name: "openai-go",
		call: tellWeather,
		run:  runOpenAIGoLoop,
	},
	{
		name: "anthropic-sdk-go",
		call: tellWeather,
		run:  runAnthropicGoLoop,
	},
	{
		name: "Claude Code",
		call: `Bash {"command":"echo %s","description":"Counts."}`,
		run:  runClaudeCode,
	},
	{
		name:   "Codex",
		call:   `exec_command {"cmd":"echo %s"}`,
		run:    runCodexDocumented,
		silent: notOfOpenAI,
	},
	{
		name: "opencode",
		call: `bash {"command":"echo %s","description":"Counts."}`,
		run:  runOpencodeDocumented,
	},
	{
		name:   "Qwen Code",
		call:   `run_shell_command {"command":"echo %s","is_background":false,"description":"Counts."}`,
		run:    runQwenCode,
		silent: "it asks for no effort",
	},
	{
		name: "pi by Chat Completions",
		call: `bash {"command":"echo %s"}`,
		run:  runPi("openai-completions", "/openai/v1"),
	},
	{
		name: "pi by Responses",
		call: `bash {"command":"echo %s"}`,
		run:  runPi("openai-responses", "/openai/v1"),
	},
	{
		name: "pi by Messages",
		call: `bash {"command":"echo %s"}`,
		run:  runPi("anthropic-messages", "/anthropic"),
	},
}

// TestClientsInTheirDefaults gives each client a task of three steps with a tool, with reasoning, at a model of each
// provider. None of its calls is refused, and each has a row with the exact charge.
func TestClientsInTheirDefaults(t *testing.T) {
	testkit.Long(t, "installs and runs frameworks and coding agents; TestClients proves the routes that they use")
	t.Parallel()
	installNode(t, "defaults")
	installNode(t, "agents")
	for i, b := range beginnings {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			w := startEmulated(t, db.SQLite)
			for k, provider := range []string{"openai", "anthropic", "google"} {
				model := models[provider]
				if provider == "openai" && b.openAI != "" {
					model = b.openAI
				}
				w.begin(t, b, model, (i+k)%2 == 0)
			}
			w.Verify()
		})
	}
}

// begin has a client do its task, and holds what was charged against the provider's record.
func (w *emulatedNode) begin(t *testing.T, b beginning, model string, stream bool) {
	t.Helper()
	w.forgetExchanges(t)
	before := len(spends(t, w.Process, w.Connection.ID))
	var task strings.Builder
	fmt.Fprintf(&task, "Go to the end with %s, one step at a time.\n!emu thinking\n", model)
	for n := range 3 {
		fmt.Fprintf(&task, "!call "+b.call+"\n!step\n", fmt.Sprintf("step-%d", n))
	}
	said := b.run(t, place{
		home:   t.TempDir(),
		work:   t.TempDir(),
		url:    w.BaseURL,
		token:  w.Connection.AccessToken,
		model:  model,
		task:   task.String(),
		row:    cmp.Or(b.at, b.name),
		stream: stream,
	})
	settled(t, w.Process, w.Connection.AccessToken)
	if !strings.Contains(said, "The tools say") || !strings.Contains(said, "step-0") ||
		!strings.Contains(said, "step-1") || !strings.Contains(said, "step-2") {
		t.Errorf("%s with %s said %s", b.name, model, said)
	}
	var computed, charged []money.MC
	reasoned := 0
	for _, x := range w.listExchanges(t) {
		if x.Status != http.StatusOK || x.Usage == nil {
			t.Errorf("%s with %s: %s %s: %d", b.name, model, x.Method, x.Path, x.Status)
			continue
		}
		reasoned += x.Usage.Reasoning
		computed = append(computed, computeCharge(t, w.prices[model], countClasses(*x.Usage), 20).UserChargeMC)
	}
	rows := spends(t, w.Process, w.Connection.ID)
	for _, row := range rows[:len(rows)-before] {
		charged = append(charged, row.UserChargeMC)
		if row.Model != model {
			t.Errorf("%s with %s asked %s", b.name, model, row.Model)
		}
	}
	slices.Sort(computed) // an agent may ask for the title of its session at the same time
	slices.Sort(charged)
	if len(computed) < 4 || !slices.Equal(computed, charged) {
		t.Errorf("%s with %s: computed %v, the ledger has %v", b.name, model, computed, charged)
	}
	if asked := b.silent == "" || model != models["anthropic"]; asked != (reasoned > 0) {
		t.Errorf("%s with %s: %d tokens of reasoning", b.name, model, reasoned)
	}
	d, err := db.OpenReadOnly(t.Context(), w.DB)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	refusals, _, err := store.BrowseRefusals(t.Context(), d, store.CallFilter{AppID: w.App.ID}, "", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refusals {
		if b.refused == "" || !strings.HasPrefix(r.Message, b.refused) {
			t.Errorf("%s with %s: refused %+v", b.name, model, r)
		}
	}
}

// start runs a command in the work folder with an input, and with nothing in its environment but what it needs. It
// returns what was printed. Node.js is of a version that all clients support.
func (at place) start(t *testing.T, input, path string, args, env []string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = at.work
	cmd.Env = append([]string{
		"PATH=" + filepath.Dir(supportedNode(t)) + string(os.PathListSeparator) + os.Getenv("PATH"),
		"HOME=" + at.home,
		"PWD=" + at.work,
	}, env...)
	var out, told bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &told
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("%s with %s: %v: %s", filepath.Base(path), at.model, err, told.String())
	}
	return out.String()
}

// settings returns the environment that docs/guide/clients.md says for a client.
func (at place) settings(t *testing.T, client string) []string {
	t.Helper()
	for line := range strings.Lines(at.guide(t)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 && strings.TrimSpace(cells[1]) == client {
			return strings.Split(strings.Trim(strings.TrimSpace(cells[2]), "`"), "` `")
		}
	}
	t.Fatalf("docs/guide/clients.md has no row of %s", client)
	return nil
}

// writeSettings writes the file that docs/guide/clients.md has for a client, with some of it replaced.
func (at place) writeSettings(t *testing.T, client string, replaced ...string) {
	t.Helper()
	_, file, _ := strings.Cut(at.guide(t), "\n"+client+", `")
	name, file, _ := strings.Cut(file, "`")
	_, file, _ = strings.Cut(file, "\n```")
	_, file, ok := strings.Cut(file, "\n")
	if !ok {
		t.Fatalf("docs/guide/clients.md has no file of %s", client)
	}
	file, _, _ = strings.Cut(file, "\n```\n")
	path := filepath.Join(at.work, name)
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		path = filepath.Join(at.home, rest)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, strings.NewReplacer(replaced...).Replace(file))
}

// guide returns docs/guide/clients.md with what is its own of each reader.
func (at place) guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/guide/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("{base_url}", at.url, "{access_token}", at.token, "{model}", at.model).
		Replace(string(text))
}

// runDocumented runs a program of the folder defaults.
func runDocumented(program string, env ...string) func(*testing.T, place) string {
	return func(t *testing.T, at place) string {
		t.Helper()
		if at.stream {
			env = append(slices.Clone(env), "STREAM=1")
		}
		return at.start(t, "", supportedNode(t), []string{absolute(t, "defaults/"+program), at.task},
			append(append(at.settings(t, at.row), "MODEL="+at.model, "BASE_URL="+at.url), env...))
	}
}

func runClaudeCode(t *testing.T, at place) string {
	t.Helper()
	return at.start(t, "", agentProgram(t, "claude"),
		[]string{"-p", "--model", at.model, "--allowedTools", "Bash", "--", at.task}, at.settings(t, at.row))
}

// filed is the row of those that have a file of settings.
const filed = "Codex, opencode, pi"

func runCodexDocumented(t *testing.T, at place) string {
	t.Helper()
	at.writeSettings(t, "Codex")
	return at.start(t, "", agentProgram(t, "codex"), // its sandbox needs user namespaces
		[]string{"exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", at.task}, at.settings(t, filed))
}

func runOpencodeDocumented(t *testing.T, at place) string {
	t.Helper()
	at.writeSettings(t, "opencode")
	return at.start(t, at.task, absolute(t, "agents/node_modules/opencode-linux-x64/bin/opencode"),
		[]string{"run", "--model", "purser/" + at.model}, at.settings(t, filed))
}

func runQwenCode(t *testing.T, at place) string {
	t.Helper()
	return at.start(t, "", agentProgram(t, "qwen"), []string{"--yolo", at.task}, at.settings(t, at.row))
}

// runGeminiCLI goes on with its session once, for which it sends each response of a function twice.
func runGeminiCLI(t *testing.T, at place) string {
	t.Helper()
	at.writeSettings(t, "Gemini CLI")
	args := []string{"--skip-trust", "--yolo", "--model", at.model, "--prompt", at.task}
	_ = at.start(t, "", agentProgram(t, "gemini"), args, at.settings(t, at.row)) // the second says as much
	return at.start(t, "", agentProgram(t, "gemini"), append(args, "--resume", "latest"), at.settings(t, at.row))
}

func runPi(api, base string) func(*testing.T, place) string {
	return func(t *testing.T, at place) string {
		t.Helper()
		at.writeSettings(t, "pi", `"openai-responses"`, strconv.Quote(api), "/openai/v1", base)
		return at.start(t, "", agentProgram(t, "pi"), []string{"-p", "--model", "purser/" + at.model, at.task},
			at.settings(t, filed))
	}
}

func agentProgram(t *testing.T, name string) string {
	t.Helper()
	return absolute(t, "agents/node_modules/.bin/"+name)
}
