package e2e

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
	purser "github.com/purserhq/purser/sdk/go"
)

// An example is a program of examples/.
type example struct {
	name string // its folder
	// build makes the program ready and returns its command.
	build func(t *testing.T, folder string) []string
	// drive uses the program as its user does, until an answer was billed.
	drive func(t *testing.T, p *servertest.Process, command []string)
	// long says why the usual run does without it; "" = it does not.
	long string
}

const firstAnswer = "TestFirstAnswer drives the chat in TypeScript"

// examples are the examples that are tested. A new one is a row here.
var examples = []example{
	{name: "go-chat", build: buildGoExample, drive: driveChat, long: firstAnswer},
	{name: "go-cli", build: buildGoExample, drive: driveCommandLine},
	{name: "go-webhook", build: buildGoExample, drive: driveWebhook},
	{name: "python-chat", build: buildPythonExample, drive: driveChat, long: firstAnswer},
	{name: "typescript-chat", build: buildTypeScriptExample, drive: driveChat, long: firstAnswer},
	{
		name:  "typescript-voice",
		build: buildTypeScriptExample,
		drive: driveVoice,
		long:  "TestTypeScriptVoice speaks by the SDK",
	},
}

const exampleFolder = "../examples"

// TestExamples runs every example against a node, as its README says.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			if e.long != "" && !testkit.IsLong() {
				t.Skip("only in make test-long: " + e.long)
			}
			t.Parallel()
			folder, err := filepath.Abs(filepath.Join(exampleFolder, e.name))
			if err != nil {
				t.Fatal(err)
			}
			command, p := e.build(t, folder), servertest.Start(t, "")
			e.drive(t, p, command)
			p.Verify()
		})
	}
}

func buildGoExample(t *testing.T, folder string) []string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), filepath.Base(folder))
	if out, err := exec.Command("go", "-C", folder, "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return []string{binary}
}

// buildTypeScriptExample checks the types of an example and bundles it, as npm start does.
func buildTypeScriptExample(t *testing.T, folder string) []string {
	t.Helper()
	if err := buildTypeScript(); err != nil {
		t.Fatal(err)
	}
	installNode(t, folder)
	compiler, err := filepath.Abs(typeScriptFolder + "/node_modules/.bin/tsc")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{compiler, "-p", "."}, {"npm", "run", "--silent", "bundle"}} {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = folder
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
	return []string{"node", filepath.Join(folder, "build", "app.mjs")}
}

// A runningExample is an example that was started.
type runningExample struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout chan string // lines, closed at the end
	stderr chan string
}

// startExample starts a command in a folder, with variables NAME=value. It is killed when the test ends.
func startExample(t *testing.T, folder string, command []string, variables ...string) *runningExample {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	e := &runningExample{t: t, cmd: exec.CommandContext(ctx, command[0], command[1:]...)}
	e.cmd.Dir = folder
	e.cmd.Env = append(os.Environ(), variables...)
	var err error
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	told, err := e.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e.stdout, e.stderr = readLines(out), readLines(told)
	t.Cleanup(func() {
		cancel()
		_ = e.cmd.Wait() // it was killed, or its end was checked
	})
	return e
}

// readLines sends the lines of a reader, which are few.
func readLines(r io.Reader) chan string {
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// awaitLine returns the next line that has a part, and fails the test at the end of the output.
func (e *runningExample) awaitLine(lines chan string, part string) string {
	e.t.Helper()
	limit := time.After(5 * time.Minute)
	var before []string
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				e.t.Fatalf("ended without %q:\n%s", part, strings.Join(before, "\n"))
			}
			if strings.Contains(line, part) {
				return line
			}
			before = append(before, line)
		case <-limit:
			e.t.Fatalf("never said %q:\n%s", part, strings.Join(before, "\n"))
		}
	}
}

// freePort returns a port that nothing listens on, below those that the system gives to whoever asks for any: between
// here and the program that is to listen on it, another test may ask.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(20_000 + rand.IntN(12_000))
		if l, err := net.Listen("tcp", "localhost:"+port); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// awaitServer waits until an address answers.
func awaitServer(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; {
		response, err := http.Get(address)
		if err == nil {
			_ = response.Body.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond) // a program of any language says in its own way that it listens
	}
}

// ownClient is the sample app of a node, by the SDK.
func ownClient(p *servertest.Process) *purser.Client {
	return purser.New(purser.Options{
		BaseURL:      p.BaseURL,
		ClientID:     p.App.ClientID,
		ClientSecret: p.App.ClientSecret,
	})
}

// driveChat uses a chat app with accounts: its user creates an account, connects, chats with and without JavaScript,
// reaches the spend cap, and disconnects.
func driveChat(t *testing.T, p *servertest.Process, command []string) {
	port := freePort(t)
	address := "http://localhost:" + port
	changes := purser.Changes{"redirect_uris": []string{p.App.RedirectURI, address + "/callback"}}
	if _, err := ownClient(p).Apps.Update(t.Context(), p.App.ID, changes); err != nil {
		t.Fatal(err)
	}
	startExample(t, t.TempDir(), command, "BASE_URL="+p.BaseURL, "AUTH_URL="+p.AuthURL, "CLIENT_ID="+p.App.ClientID,
		"CLIENT_SECRET="+p.App.ClientSecret, "PORT="+port)
	awaitServer(t, address)

	b := newTab(t, p.BaseURL, p.AuthURL, address)
	b.open(address)
	b.looksWell("signed out")
	b.fill("Name", "ada")
	b.fill("Password", "correct horse")
	b.press("button", "Create account")
	b.looksWell("not connected")
	b.press("link", "Connect Purser")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.fillCap("3")
	b.pressFirst("Allow")
	if at := b.at(); !strings.HasPrefix(at.String(), address) {
		t.Fatalf("approving leads to %s", at)
	}
	b.says("$3.00 left")

	send := func(message, answer string) {
		t.Helper()
		b.write("Message", message)
		run(b, chromedp.Click("Send", as("button", "Send")))
		b.shows(answer)
	}
	send("Hello", "charged")
	b.looksWell("answered")
	rows := 0
	for entry, err := range ownClient(p).Connections.List(t.Context(), purser.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if entry.AllocationMC == 300_000_000 && entry.ConsumedMC > 0 {
			rows++
		}
	}
	if rows != 1 {
		t.Errorf("%d connections have paid", rows)
	}
	send("!refuse 402 allocation_exhausted", "Raise it")
	b.withoutScripts()
	b.open(address)
	b.write("Message", "And now?")
	b.press("button", "Send")
	b.withScripts()
	b.says("And now?", "charged")

	b.press("button", "Disconnect")
	b.says("Disconnected", "Connect Purser")
	b.press("button", "Sign out")
	b.fill("Name", "ada")
	b.fill("Password", "wrong horse")
	b.press("button", "Sign in")
	b.says("Incorrect name or password")
}

// driveVoice uses a voice page: its user connects, speaks, hears a reply, sees what it cost, and hangs up.
func driveVoice(t *testing.T, p *servertest.Process, command []string) {
	port := freePort(t)
	address := "http://localhost:" + port
	changes := purser.Changes{"redirect_uris": []string{p.App.RedirectURI, address + "/callback"}}
	if _, err := ownClient(p).Apps.Update(t.Context(), p.App.ID, changes); err != nil {
		t.Fatal(err)
	}
	startExample(t, t.TempDir(), command, "BASE_URL="+p.BaseURL, "CLIENT_ID="+p.App.ClientID,
		"CLIENT_SECRET="+p.App.ClientSecret, "PORT="+port)
	awaitServer(t, address)

	b := newTab(t, p.BaseURL, p.AuthURL, address)
	b.open(address)
	b.shows("Connect Purser")
	b.looksWell("not connected")
	b.press("link", "Connect Purser")
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.fillCap("2")
	b.pressFirst("Allow")
	b.shows("$2.00 left")
	b.looksWell("connected")
	inPage[bool](b, microphone)
	run(b, chromedp.Click("Talk", as("button", "Talk")))
	inPage[bool](b, `(async () => {
		while (document.getElementById("end").disabled) await new Promise(resolve => setTimeout(resolve, 50))
		speak(true)
		await new Promise(resolve => setTimeout(resolve, 600))
		return speak(false), true
	})()`)
	b.shows("1 reply,")
	run(b, chromedp.Click("Hang up", as("button", "Hang up")))
	b.shows("charged")
}

// looksWell checks the page of an example in light on a phone, and in the long run in dark on a desk.
func (b *tab) looksWell(name string) {
	b.t.Helper()
	for scheme, width := range map[string]int64{"light": 390, "dark": 1440} {
		if scheme == "dark" && !testkit.IsLong() {
			continue
		}
		call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		run(b, chromedp.EmulateViewport(width, 844))
		if wide := run(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); wide > width {
			b.t.Errorf("%s is %d pixels wide", name, wide)
		}
		for _, f := range b.axe() {
			b.t.Errorf("%s, %s: %s: %+v", name, scheme, f.Help, f.Nodes)
		}
	}
}

// driveCommandLine signs in to a command line in a browser, asks by arguments and by standard input, and signs out.
func driveCommandLine(t *testing.T, p *servertest.Process, command []string) {
	folder := t.TempDir()
	settings := "# made for this test\nBASE_URL=" + p.BaseURL + "\nAUTH_URL=" + p.AuthURL + "\nCLIENT_ID=" +
		p.PublicApp.ClientID + "\n"
	if err := os.WriteFile(filepath.Join(folder, ".env"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	begin := func(args ...string) *runningExample {
		t.Helper()
		return startExample(t, folder, append(slices.Clone(command), args...))
	}
	e := begin("Hello")
	line := e.awaitLine(e.stderr, "http")
	address := line[strings.Index(line, "http"):]
	address, _, _ = strings.Cut(address, " ")
	b := newTab(t, p.BaseURL, p.AuthURL)
	b.open(address)
	b.signIn(p.TestAccount.Email, p.TestAccount.Password)
	b.press("button", "Continue")
	b.pressFirst("Allow")
	first := e.awaitLine(e.stdout, "")
	if first == "" {
		t.Error("no answer")
	}
	e.awaitLine(e.stderr, "charged")

	e = begin()
	for range 2 {
		if _, err := io.WriteString(e.stdin, "Hello again\n"); err != nil {
			t.Fatal(err)
		}
		e.awaitLine(e.stdout, "")
		e.awaitLine(e.stderr, "charged")
	}
	if err := e.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	e.awaitEnd(0)

	e = begin("!refuse 402 allocation_exhausted")
	e.awaitLine(e.stderr, "Raise it: "+p.DashboardURL)
	e.awaitEnd(1)
	begin("sign-out").awaitEnd(0)
	e = begin("Hello")
	e.awaitLine(e.stderr, "http") // it asks to sign in again
}

// awaitEnd reads the output to its end and checks the exit code.
func (e *runningExample) awaitEnd(code int) {
	e.t.Helper()
	var told []string
	for line := range e.stderr {
		told = append(told, line)
	}
	for range e.stdout {
		continue
	}
	_ = e.cmd.Wait()
	if got := e.cmd.ProcessState.ExitCode(); got != code {
		e.t.Errorf("ended with %d, want %d: %s", got, code, strings.Join(told, "\n"))
	}
}

// driveWebhook sends events to a receiver: one twice, and a forged one. It prints each once.
func driveWebhook(t *testing.T, p *servertest.Process, command []string) {
	port, client := freePort(t), ownClient(p)
	address := "http://localhost:" + port + "/webhooks"
	endpoint, err := client.Webhooks.Create(t.Context(), p.App.ID, purser.NewWebhook{URL: address})
	if err != nil {
		t.Fatal(err)
	}
	e := startExample(t, t.TempDir(), command, "WEBHOOK_SECRET=whsec_old,"+endpoint.Secret, "PORT="+port)
	awaitServer(t, address)
	forged, err := http.Post(address, "application/json", strings.NewReader(`{"id":"evt_forged"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = forged.Body.Close()
	if forged.StatusCode != http.StatusBadRequest {
		t.Errorf("a forged event gets %d", forged.StatusCode)
	}
	delivery, err := client.Webhooks.Test(t.Context(), p.App.ID, endpoint.ID, purser.EventConnectionRevoked)
	if err != nil {
		t.Fatal(err)
	}
	e.awaitLine(e.stdout, delivery.EventID+" connection.revoked")
	if _, err := client.Webhooks.Redeliver(t.Context(), p.App.ID, endpoint.ID, delivery.ID); err != nil {
		t.Fatal(err)
	}
	awaitDelivered(t, client, p.App.ID, endpoint.ID, delivery.ID)
	sample, err := client.Events.Trigger(t.Context(), p.App.ID, purser.EventRequestSettled)
	if err != nil {
		t.Fatal(err)
	}
	// The creation of the seeded connection may come between: its event can wait for longer than the endpoint needs.
	for line := ""; !strings.HasPrefix(line, sample.ID+" request.settled"); {
		if line = e.awaitLine(e.stdout, ""); strings.HasPrefix(line, delivery.EventID) {
			t.Errorf("the second delivery is printed too: %q", line)
		}
	}
}

// awaitDelivered waits until a delivery has reached its endpoint again.
func awaitDelivered(t *testing.T, client *purser.Client, appID, webhookID, deliveryID string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		deliveries, err := client.Webhooks.Deliveries(t.Context(), appID, webhookID)
		i := slices.IndexFunc(deliveries, func(d purser.Delivery) bool { return d.ID == deliveryID })
		if err == nil && i >= 0 && deliveries[i].Status == "delivered" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(cmp.Or(err, context.DeadlineExceeded))
		}
	}
}
