package world

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/purserhq/purser/internal/commands"
)

// commandScenarios are what people do by the program purser.
var commandScenarios = []scenario{
	{"an app's commands", []row{
		{"app POST /v1/apps/{app}/webhooks", `{"url":"https://app.example.com/in"}`, ""},
		{"app do run", "logs -n 5", ""},
		{"app do run", "trigger connection.revoked", "event=~(evt_[0-9a-z]+)"},
		{"app do run", "events list", ""},
		{"app do run", "events resend {event}", ""},
		{"app do run", "open docs --print", ""},
		{"app do run", "new {dir}/chat-{n} --template python-chat", ""},
		{"nobody do write", ".config/purser/apps/shop.json {}", ""},
		{"nobody do run", "apps logout shop", ""},
		{"nobody do run", "version", ""},
		{"nobody do run", "help ledger verify", ""},
		{"nobody do run", "completion bash", ""},
		{"nobody do run", "complete-words led", ""},
	}},
	{"commands of who keeps the database", []row{
		{"nobody do run", "ledger verify --database {database}", ""},
		{"nobody do run", "ledger journal --database {database} --month 2026-11", ""},
		{"nobody do run", "backup create {dir}/{n}.backup --database {database}", ""},
		{"nobody do run", "backup verify {dir}/{n}.backup", ""},
		{"nobody do run", "backup key {dir}/{n}.key", ""},
		{"nobody do run", "restore {dir}/{n}.backup --database sqlite:{dir}/{n}.db", ""},
		{"nobody do run", "ledger verify --database sqlite:{dir}/{n}.db", ""},
		{"nobody do run", "db copy --from sqlite:{dir}/{n}.db --to sqlite:{dir}/{n}-copy.db", ""},
		{"nobody do run", "db accept-loss --database sqlite:{dir}/{n}-copy.db", ""},
		{"nobody do run", "prices check {prices}", ""},
		{"nobody do run", "init {dir}/{n}", ""},
		{"nobody 401 do run", "doctor --config {dir}/{n}/purser.yaml", ""}, // it is not filled in
		{"token POST /v1/chat/completions", chatBody, "request=@X-Request-Id"},
		{"operator GET /v1/operator/ledger/{request}", "", "entry=id"},
		{"nobody do sleep", "1m", ""},
		{"{person} GET /activity/{entry}/proof.json", "", ""},
		{"nobody do save", "proof-{n}.json", ""},
		{"nobody do run", "receipt verify {dir}/proof-{n}.json", ""},
		{"nobody do write", "bill-{n}.csv date,model,cost\n2026-11-02,gpt-6-luna,0.00\n", ""},
		{"nobody do run", "prices bill {dir}/bill-{n}.csv --month 2026-11 --database {database}", ""},
	}},
	{"an operator's commands", []row{
		{"operator do run", "operator requests", ""},
		{"operator do run", "operator apps", ""},
		{"operator do run", "operator app {app}", ""},
		{"operator do run", "operator accounts", ""},
		{"operator do run", "operator connections", ""},
		{"operator do run", "operator charges --app {app}", ""},
		{"operator do run", "operator suspended", ""},
		{"operator do run", "operator suspend {sketch} --reason Leaked.", ""},
		{"operator do run", "operator lift {sketch}", ""},
		{"token POST /v1/chat/completions", chatBody, "request=@X-Request-Id"},
		{"operator do run", "operator charge {request}", ""},
		{"operator do run", "operator reverse {request} --reason provider_error", ""},
		{"operator do run", "operator freeze {conn} --reason Asked.", ""},
		{"operator do run", "operator resume {conn} --reason Asked.", ""},
		{"operator do run", "operator revoke {conn} --reason Asked.", ""},
		{"operator do run", "operator invite wim{n}@example.com", "link=~(/sign-up/invited/[\\w-]+)"},
		{"nobody POST {link}", password, ""},
		{"operator do run", "operator account wim{n}@example.com", "wim=id"},
		{"operator do run", "operator credit {wim} 5 --reason Sorry.", ""},
		{"operator do run", "operator sign-out {wim} --reason Lost.", ""},
		{"wim{n} form /settings/two-step", "", ""},
		{"wim{n} GET /settings/two-step/setup", "", "seed=~Key</span>\\s<code>([^<]+)"},
		{"wim{n} do code", "", ""},
		{"wim{n} form /settings/two-step/setup", "code={code}", ""},
		{"operator do run", "operator reset-two-step {wim} --reason Lost.", ""},
		{"operator do run", "operator grant eve@example.com viewer", ""},
		{"operator do run", "operator grant eve@example.com none", ""},
		{"operator do run", "operator mails {wim}", "mail=0.id"},
		{"operator do run", "operator resend {mail}", ""},
		{"operator do run", "operator suspend {wim} --reason Asked.", ""},
		{"operator do run", "operator close {wim} --yes --reason Asked.", ""},
		{"operator do run", "operator reconcile", ""},
		{"operator do run", "operator settings", ""},
		{"operator do run", "operator set fee_rate=0.07 --from 2027-11-01T00:00:00Z --reason Announced.", "version=id"},
		{"operator do run", "operator withdraw {version} --reason Early.", ""},
		{"operator do run", "operator log", ""},
		{"operator do run", "secrets reseal", ""},
		{"nobody do app", "", ""},
		{"fresh PATCH /v1/apps/{fresh}", readyApp, ""},
		{"fresh POST /v1/apps/{fresh}/features", readyFeature, ""},
		{"fresh POST /v1/apps/{fresh}/go-live", "", ""},
		{"operator do run", "operator requests", "review=0.id"},
		{"operator do run", "operator refuse {review} --reason Unclear.", ""},
		{"fresh POST /v1/apps/{fresh}/go-live", "", ""},
		{"operator do run", "operator requests", "review=0.id"},
		{"operator do run", "operator approve {review}", ""},
	}},
}

// run runs a command of purser, and remembers as an answer what it prints: 400 and the exit code if it fails.
func (c *cast) run(who, line string) error {
	args := strings.Fields(line)
	what := ""
	for _, name := range commands.Names() {
		if strings.HasPrefix(line+" ", name+" ") && len(name) > len(what) {
			what = name
		}
	}
	environ := []string{"HOME=" + c.known["dir"], "PURSER_OPERATOR_TOKEN=" + operatorToken}
	if client, ok := c.clients[who]; ok {
		environ = append(environ, "PURSER_APP="+c.known[who], "PURSER_CLIENT_ID="+client.clientID,
			"PURSER_CLIENT_SECRET="+client.secret)
	}
	if who != "nobody" && what != "" {
		words := strings.Count(what, " ") + 1
		args = append(append(args[:words:words], "--url", c.URL(purserHost)), args[words:]...)
	}
	c.act()
	var out, problem bytes.Buffer
	code := commands.Line{Args: args, Out: &out, Err: &problem, Environ: environ, Folder: c.known["dir"]}.Run()
	c.coverage.count("purser "+what, code == 0)
	c.answer.Status, c.answer.Body = http.StatusOK, out.String()
	if code != 0 {
		c.answer.Status, c.answer.Body = http.StatusBadRequest+code, out.String()+problem.String()
	}
	if strings.Contains(problem.String(), "panic") {
		return fmt.Errorf("purser %s: %s", line, problem.String())
	}
	return nil
}

// write writes a file that a command reads.
func (c *cast) write(_, with string) error {
	name, text, _ := strings.Cut(with, " ")
	path := filepath.Join(c.known["dir"], name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}
