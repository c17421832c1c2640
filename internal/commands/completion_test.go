package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestCompletion asks a shell what it would complete, with the script that purser prints for it.
func TestCompletion(t *testing.T) {
	t.Parallel()
	binary := servertest.Binary(t)
	folder := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(folder, "purser")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line string // its last word is completed
		want string
	}{
		{"purser", "dev emulator new init doctor serve"},
		{"purser ledg", "ledger"},
		{"purser ledger ", "verify"},
		{"purser ledger verify --data", "--database"},
		{"purser serve --log-", "--log-level --log-format"},
		{"purser dev --providers e", "emulator"},
		{"purser dev --providers =", "mock emulator live"},
		{"purser dev --providers = l", "live"},
		{"purser trigger connection.rev", "connection.revoked"},
		{"purser trigger --url http://127.0.0.1 connection.rev", "connection.revoked"},
		{"purser completion ", "bash zsh fish"},
		{"purser operator grant person@example.com v", "viewer"},
		{"purser help led", "ledger"},
		{"purser complete", ""},
		{"purser nothing", ""},
	} {
		words := strings.Split(test.line, " ")
		if len(words) == 1 {
			words = append(words, "")
		}
		script := `eval "$(purser completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_purser; echo "${COMPREPLY[@]}"`
		cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-c", script, "bash"}, words...)...)
		cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || !strings.HasPrefix(got, test.want) ||
			test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q (%v)", test.line, got, test.want, err)
		}
	}
}

// TestCompletionScripts checks the scripts of the shells that are installed.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for shell, script := range completionScripts {
		if code, out, err := command(nil, "completion", shell); code != exitOK || out != script {
			t.Errorf("%s: exit %d, %q, %s", shell, code, out, err)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed: its script was not read", shell)
			continue
		}
		cmd := exec.CommandContext(t.Context(), path, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", shell, err, out)
		}
	}
}
