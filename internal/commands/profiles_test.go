package commands

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// An appWorld is a running node, and a folder from which commands find its data folder.
type appWorld struct {
	t      *testing.T
	node   *servertest.Process
	binary string
	folder string // above the data folder
	config string // XDG_CONFIG_HOME
}

func newAppWorld(t *testing.T) *appWorld {
	t.Helper()
	folder := t.TempDir()
	data := filepath.Join(folder, devFolder)
	if err := os.MkdirAll(filepath.Join(folder, "shop"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &appWorld{
		t:      t,
		node:   servertest.Start(t, "sqlite:"+filepath.Join(data, "purser.db")),
		binary: servertest.Binary(t),
		folder: folder,
		config: t.TempDir(),
	}
}

// command runs in a folder next to the data folder, with variables given as NAME=value.
func (w *appWorld) command(environ []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), w.binary, args...)
	cmd.Dir = filepath.Join(w.folder, "shop")
	cmd.Env = append(append(os.Environ(), "XDG_CONFIG_HOME="+w.config), environ...)
	return cmd
}

// run runs a command and returns its outputs. It expects an exit code.
func (w *appWorld) run(want int, stdin string, environ []string, args ...string) (out, stderr string) {
	w.t.Helper()
	cmd := w.command(environ, args...)
	var o, e bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &o, &e
	if err := cmd.Run(); cmd.ProcessState == nil {
		w.t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		w.t.Errorf("purser %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, &o, &e)
	}
	return o.String(), e.String()
}

func (w *appWorld) call(body string, headers ...string) (requestID string) {
	w.t.Helper()
	resp := w.node.Call("POST", "/v1/ai/gpt-6-luna", body, headers...)
	_ = resp.Body.Close()
	return resp.Header.Get("X-Request-Id")
}

const helloBody = `{"messages":[{"role":"user","content":"Hello"}]}`

// TestDevProfile runs the commands of an app next to purser dev, without a word about the app.
func TestDevProfile(t *testing.T) {
	t.Parallel()
	w := newAppWorld(t)
	if info, err := os.Stat(filepath.Join(w.folder, devFolder, devFile)); err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	out, _ := w.run(exitOK, "", nil, "trigger", "connection.revoked")
	var event struct{ ID, Type string }
	if err := json.Unmarshal([]byte(out), &event); err != nil || event.Type != "connection.revoked" {
		t.Fatalf("%s: %v", out, err)
	}
	c, err := appFlags{}.newClient(&program{folder: w.folder})
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, c, 2) // the seeded connection's creation and the triggered event are in the log
	if out, _ := w.run(exitOK, "", nil, "events"); !strings.Contains(out, event.ID) ||
		!strings.Contains(out, "connection.created") {
		t.Errorf("events:\n%s", out)
	}
	billed, refused := w.call(helloBody, "X-Svc-Feature: chat"), w.call(`{"messages":[]}`)
	w.checkLogs(billed, refused)
	out, _ = w.run(exitOK, "", nil, "apps")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 2 ||
		!strings.HasPrefix(lines[1], "dev      "+w.node.App.ID+"  Sample app  sandbox") {
		t.Errorf("apps:\n%s", out)
	}
	var f appFigures
	out, _ = w.run(exitOK, "", nil, "apps", "list", "--json")
	if err := json.Unmarshal([]byte(out), &f); err != nil || f.Billed < 1 || f.Refused < 1 ||
		f.ActiveConnections < 1 || f.UserChargeMC <= 0 || f.Profile != devProfile {
		t.Errorf("%s: %v", out, err)
	}
	w.checkResend(event.ID)
}

func (w *appWorld) checkLogs(billed, refused string) {
	w.t.Helper()
	out, _ := w.run(exitOK, "", nil, "logs")
	if b, r := strings.Index(out, billed), strings.Index(out, refused); b < 0 || r < 0 ||
		!strings.Contains(out, "  400 invalid_request ") || !strings.Contains(out, "  200 settled ") {
		w.t.Errorf("logs:\n%s", out)
	}
	for filter, want := range map[string]string{
		"--status 4xx":                         refused,
		"--status=2xx --feature chat":          billed,
		"--model gpt-6-luna --since 1h":        billed,
		"--connection " + w.node.Connection.ID: billed,
		"--lines 1 --status 400":               refused,
	} {
		if out, _ := w.run(exitOK, "", nil,
			append([]string{"logs"}, strings.Fields(filter)...)...); !strings.Contains(out, want) {
			w.t.Errorf("logs %s:\n%s", filter, out)
		}
	}
	if out, _ := w.run(exitOK, "", nil, "logs", "--feature", "none"); out != "" {
		w.t.Errorf("logs of no feature:\n%s", out)
	}
	if _, stderr := w.run(exitUsage, "", nil, "logs", "--status", "teapot"); !strings.Contains(stderr,
		"--status: must be") {
		w.t.Error(stderr)
	}
	var row loggedRequest
	out, _ = w.run(exitOK, "", nil, "logs", "--json", "--status", "4xx", "-n1")
	if err := json.Unmarshal([]byte(out), &row); err != nil || row.ID != refused || *row.HTTPStatus != 400 {
		w.t.Errorf("logs --json: %s %v", out, err)
	}
	cmd := w.command(nil, "logs", "-f", "-n0", "--every", "20ms")
	follow, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	lines := make(chan string)
	go func() {
		for scan := bufio.NewScanner(follow); scan.Scan(); {
			lines <- scan.Text()
		}
	}()
	// The first calls may be made before it follows.
	var made []string
	late, tick := time.After(30*time.Second), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for followed := ""; followed == ""; {
		select {
		case followed = <-lines:
			if !slices.ContainsFunc(made, func(id string) bool { return strings.HasSuffix(followed, id) }) {
				w.t.Errorf("followed %q, made %v", followed, made)
			}
		case <-tick.C:
			made = append(made, w.call(helloBody))
		case <-late:
			w.t.Fatal("nothing follows")
		}
	}
	go func() {
		for range lines { // until it ends
		}
	}()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		w.t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		w.t.Errorf("logs -f ends with %v", err)
	}
}

// checkResend sends an event again to an endpoint that gets it.
func (w *appWorld) checkResend(triggered string) {
	w.t.Helper()
	_, stderr := w.run(exitFailed, "", nil, "events", "resend", triggered)
	if !strings.Contains(stderr, "is not among the latest 50 deliveries") {
		w.t.Errorf("resend without an endpoint: %s", stderr)
	}
	arrived := make(chan string, 9)
	mine := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("Webhook-Id")
	}))
	defer mine.Close()
	redeliver(w.t, w.node.Node, mine.URL) // makes an endpoint with deliveries, and disables it
	out, _ := w.run(exitOK, "", nil, "events", "list", "--json", "-n1")
	var e struct{ ID string }
	if err := json.Unmarshal([]byte(out), &e); err != nil {
		w.t.Fatalf("%s: %v", out, err)
	}
	if out, _ := w.run(exitOK, "", nil, "events", "resend", e.ID); !strings.Contains(out,
		e.ID+" is sent again to "+mine.URL) {
		w.t.Errorf("resend: %s", out)
	}
}

// TestProfiles stores the credentials of an app, and chooses between profiles, flags and environment.
func TestProfiles(t *testing.T) {
	t.Parallel()
	w := newAppWorld(t)
	app := w.node.App
	login := []string{"apps", "login", "shop", "--server", w.node.BaseURL, "--app", app.ID, "--client-id", app.ClientID}
	if _, stderr := w.run(exitFailed, "wrong\n", nil, login...); !strings.Contains(stderr,
		"does not accept this client_id") {
		t.Error(stderr)
	}
	if _, stderr := w.run(exitUsage, "", nil, login...); !strings.Contains(stderr,
		"client_secret of "+app.ClientID+": is missing") {
		t.Error(stderr)
	}
	foreign := append([]string{}, login...)
	foreign[6] = "app_x"
	if _, stderr := w.run(exitFailed, app.ClientSecret, nil, foreign...); !strings.Contains(stderr,
		"--app: app_x is not") {
		t.Error(stderr)
	}
	out, stderr := w.run(exitOK, app.ClientSecret+"\n", nil, login...)
	if !strings.Contains(out, "Stored as profile shop: Sample app (sandbox)") ||
		strings.Contains(out+stderr, app.ClientSecret) {
		t.Error(out, stderr)
	}
	path := filepath.Join(w.config, "purser", "apps", "shop.json")
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%s: %v, %v", path, info, err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v", info, err)
	}
	if _, stderr := w.run(exitUsage, "", nil, "logs"); !strings.Contains(stderr, "several profiles") {
		t.Error(stderr)
	}
	w.run(exitOK, "", nil, "logs", "--profile", "shop")
	w.run(exitOK, "", nil, "logs", "--profile=dev")
	w.run(exitOK, "", []string{"PURSER_PROFILE=shop"}, "logs")
	if _, stderr := w.run(exitUsage, "", nil, "logs", "--profile", "none"); !strings.Contains(stderr,
		"no profile none") {
		t.Error(stderr)
	}
	environ := []string{"PURSER_APP=" + app.ID, "PURSER_CLIENT_ID=" + app.ClientID,
		"PURSER_CLIENT_SECRET=" + app.ClientSecret}
	w.run(exitOK, "", environ, "logs", "--url", w.node.BaseURL)
	environ[2] = "PURSER_CLIENT_SECRET=wrong"
	if _, stderr := w.run(exitFailed, "", environ, "logs", "--url", w.node.BaseURL); !strings.Contains(stderr, "401") {
		t.Error("the environment does not go before the profile: ", stderr)
	}
	if _, stderr := w.run(exitUsage, "", environ[:2], "logs"); !strings.Contains(stderr,
		"PURSER_CLIENT_SECRET: required") {
		t.Error("a profile's secret goes to an app of the environment: ", stderr)
	}
	if _, stderr := w.run(exitUsage, "", nil, "logs", "--profile", "shop", "--app", "app_x"); !strings.Contains(stderr,
		"--profile: has") {
		t.Error(stderr)
	}
	if _, stderr := w.run(exitUsage, "", nil, "logs", "--profile", "shop", "--url",
		"http://127.0.0.1:1"); !strings.Contains(stderr, "no profile shop") {
		t.Error("a profile's secret goes to another service: ", stderr)
	}
	w.run(exitOK, "", nil, "apps", "logout", "shop")
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s: %v", path, err)
	}
	if _, stderr := w.run(exitFailed, "", nil, "apps", "logout", "shop"); !strings.Contains(stderr, "no profile shop") {
		t.Error(stderr)
	}
	dev := filepath.Join(w.folder, devFolder, devFile)
	if err := os.Chmod(dev, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr := w.run(exitUsage, "", nil, "logs"); !strings.Contains(stderr, "no app is known") {
		t.Error("a file that others can read is used: ", stderr)
	}
}
