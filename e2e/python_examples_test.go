package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// buildPythonExample returns the command of an example, which runs with the SDK of this repository.
func buildPythonExample(t *testing.T, folder string) []string {
	t.Helper()
	sdk, err := filepath.Abs(sdkFolder + "/python")
	if err != nil {
		t.Fatal(err)
	}
	return []string{"env", "PYTHONPATH=" + sdk, "/usr/bin/python3", "-B", folder + "/app.py"}
}

// TestPythonAgent connects the agent in Python by a code, and ends its runs by an answer, by its own budget, and by
// 402.
func TestPythonAgent(t *testing.T) {
	t.Parallel()
	p := sharedNode(t)
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
}
