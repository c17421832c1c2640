package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
)

// TestVerifySinceACheckpoint verifies an empty database, then what is new, then one with a finding.
func TestVerifySinceACheckpoint(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	database, file := "sqlite:"+filepath.Join(folder, "purser.db"), filepath.Join(folder, "checkpoint")
	d, err := db.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	defer d.Close()
	verify := func(want int, flags ...string) (out, errText string) {
		t.Helper()
		code, out, errText := command(nil, append([]string{"ledger", "verify", "--database", database}, flags...)...)
		if code != want {
			t.Errorf("verify %q: exit %d, want %d\n%s%s", flags, code, want, out, errText)
		}
		return out, errText
	}
	if _, errText := verify(exitUsage, "--since-checkpoint"); !strings.Contains(errText, "--checkpoint FILE") {
		t.Errorf("without a file: %s", errText)
	}
	verify(exitOK)
	if _, err := os.Stat(file); err == nil {
		t.Error("a checkpoint was written that nobody asked for")
	}
	// Everything is new while there is no file.
	out, _ := verify(exitOK, "--checkpoint", file, "--since-checkpoint")
	if strings.Contains(out, "since the checkpoint") {
		t.Errorf("the first verification is not whole:\n%s", out)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the checkpoint: %v, %v", info, err)
	}
	out, _ = verify(exitOK, "--checkpoint", file, "--since-checkpoint")
	if !strings.Contains(out, "since the checkpoint of") || !strings.Contains(out, "checks, no findings") {
		t.Errorf("the second verification:\n%s", out)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.ExecContext(t.Context(), `INSERT INTO balances
		(account_id, sandbox, available_mc, reserved_mc, seq, head) VALUES ('wac_1', 0, 5, 0, 0, '')`)
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--checkpoint", file}, {"--checkpoint", file, "--since-checkpoint"}} {
		if out, _ := verify(exitFailed, flags...); !strings.Contains(out, "not clean") {
			t.Errorf("%q with money from nowhere:\n%s", flags, out)
		}
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(before) {
		t.Errorf("a verification with findings changed the checkpoint: %v", err)
	}
	changed := strings.Replace(string(before), `"rows":0`, `"rows":1`, 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errText := verify(exitUsage, "--checkpoint", file, "--since-checkpoint")
	if !strings.Contains(errText, "changed or damaged") {
		t.Errorf("a changed file: %s", errText)
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "checkpoint.") {
			t.Errorf("%s was left behind", e.Name())
		}
	}
}
