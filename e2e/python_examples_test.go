package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// pythonExample is a program of examples/ that runs with the SDK of this repository. Its data is in a folder of
// the test.
func pythonExample(t *testing.T, p *servertest.Process, folder, name string, variables ...string) *exec.Cmd {
	t.Helper()
	var paths [2]string
	for i, path := range []string{"../examples/" + name, "../sdk/python"} {
		full, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		paths[i] = full
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-B", paths[0])
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "PYTHONPATH="+paths[1], "BASE_URL="+p.BaseURL, "AUTH_URL="+p.AuthURL,
		"CLIENT_ID="+p.App.ClientID, "CLIENT_SECRET="+p.App.ClientSecret)
	cmd.Env = append(cmd.Env, variables...)
	return cmd
}

// TestPythonChat uses the chat in Python without JavaScript and by the stream of its page: its user creates an account,
// connects, gets a billed answer, meets a 402, and disconnects.
func TestPythonChat(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close() // the example listens there
	address := fmt.Sprintf("http://localhost:%d", port)
	register(t, p, address+"/callback")
	startPythonExample(t, pythonExample(t, p, t.TempDir(), "python-chat/app.py", "PORT="+strconv.Itoa(port)))

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	visit := func(path string, form url.Values, wants ...string) string {
		t.Helper()
		var resp *http.Response
		var err error
		if form == nil {
			resp, err = browser.Get(address + path)
		} else {
			resp, err = browser.PostForm(address+path, form)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s lacks %q: %s", path, want, page)
			}
		}
		return string(page)
	}
	visit("/", nil, "Create account")
	account := url.Values{"name": {"ada"}, "password": {"correct horse"}}
	visit("/sign-in", account, "Incorrect name or password")
	visit("/sign-up", account, "Connect Purser")

	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := browser.Get(address + "/connect")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	user := &driver{t: t, node: p}
	consent, err := user.consent(resp.Header.Get("Location"), map[string]any{"spend_cap": "3", "account": "new"})
	if err != nil {
		t.Fatal(err)
	}
	browser.CheckRedirect = nil
	callback := consent.(map[string]any)["callback_url"].(string)
	visit(strings.TrimPrefix(callback, address), nil, "$3.00</b> left", "Disconnect")

	visit("/messages", url.Values{"text": {"Hello"}}, "Hello", "charged", "left")
	req, err := http.NewRequest("POST", address+"/messages", strings.NewReader("text=And+now"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err = browser.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(lines), `"text"`) < 2 || !strings.Contains(string(lines), `"cost": "$0.0`) {
		t.Errorf("%v: %s", err, lines)
	}
	visit("/messages", url.Values{"text": {"!refuse 402 allocation_exhausted"}}, "cap is too low", "Raise it")
	visit("/disconnect", url.Values{}, "Disconnected", "Connect Purser")
	visit("/sign-out", url.Values{}, "Create account")
	p.Verify()
}

// startPythonExample starts a server and returns when it has printed its first line.
func startPythonExample(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(told.String())
		}
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
}

// TestPythonAgent connects the agent in Python by a code, and ends its runs by an answer, by its own budget, and by
// 402.
func TestPythonAgent(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, "")
	folder := t.TempDir()
	user := &driver{t: t, node: p}
	run := func(code int, variables []string, wants ...string) {
		t.Helper()
		cmd := pythonExample(t, p, folder, "python-agent/agent.py", variables...)
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			line := scanner.Text()
			fmt.Fprintln(&said, line)
			if address, ok := strings.CutPrefix(line, "Open "); ok {
				page, query, _ := strings.Cut(address, "?user_code=")
				args := map[string]any{"spend_cap": "0.01", "account": "new"}
				if err := user.decideDevice(page, query, args); err != nil {
					t.Error(err)
				}
			}
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("exit code %d, want %d: %s", got, code, told.String())
		}
		for _, want := range wants {
			if !strings.Contains(said.String(), want) {
				t.Errorf("the agent does not say %q:\n%s", want, said.String())
			}
		}
	}
	run(0, nil, "Open ", "tool today: 20", "spent $0.0")
	run(3, []string{"BUDGET_USD=0.00001"}, "stopped: the next call may cost")
	run(3, []string{"BUDGET_USD=5", "MODEL=gpt-6.2-astra"}, "refused (allocation_exhausted)", "raise the spend cap at ")
	p.Verify()
}
