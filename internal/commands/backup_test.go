package commands

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestBackupCommands makes an encrypted backup of each engine, verifies it, restores it, and copies the result into
// the other engine.
func TestBackupCommands(t *testing.T) {
	t.Parallel()
	for _, e := range []db.Engine{db.SQLite, db.Postgres} {
		t.Run(string(e), func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			run := func(want string, args ...string) string {
				t.Helper()
				code, out, err := command(nil, args...)
				if strings.HasPrefix(err, "database: ") {
					_, err, _ = strings.Cut(err, "\n")
				}
				isProgress := strings.Contains(err, " % · ") // of a check that takes long
				if code != exitOK || err != "" && !isProgress || !strings.Contains(out, want) {
					t.Fatalf("%v: exit %d\n%s%s", args, code, out, err)
				}
				return out
			}
			key, file := filepath.Join(folder, "key"), filepath.Join(folder, "a.backup")
			recipient := strings.TrimSpace(run("age1", "backup", "key", key))
			run("chain heads:", "backup", file, "--database", dbtest.URL(t, e), "--recipient", recipient)
			run("clean: ", "backup", "verify", file, "--identity", key)
			if code, _, err := command(nil, "backup", "verify", file); code != exitFailed ||
				!strings.Contains(err, "it is encrypted") {
				t.Errorf("without a key: exit %d, %s", code, err)
			}
			restored, copied := "sqlite:"+filepath.Join(folder, "restored.db"), dbtest.EmptyURL(t)
			run("clean: ", "restore", file, "--database", restored, "--identity", key)
			run("audit of to:    clean: ", "db", "copy", "--from", restored, "--to", copied)
			run("clean: ", "ledger", "verify", "--database", copied)
		})
	}
}
