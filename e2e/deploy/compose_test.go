package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

const variables = `IMAGE=purser:1.2.3
POSTGRES_PASSWORD=secret-_0
PURSER_BASE_URL=https://api.example.com
PURSER_ENVELOPE_KEY=c2VhbA==
`

// TestComposeFile loads the Compose file with the variables that docs/operate/install.md makes.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	text, err := os.ReadFile("../../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "compose.yaml")
	for name, content := range map[string][]byte{path: text, filepath.Join(folder, ".env"): []byte(variables)} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options, err := cli.NewProjectOptions([]string{path}, cli.WithWorkingDirectory(folder), cli.WithEnvFiles(),
		cli.WithDotEnv)
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	node, err := project.GetService("purser")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"PURSER_DATABASE":     "postgres://purser:secret-_0@postgres/purser?sslmode=disable",
		"PURSER_BASE_URL":     "https://api.example.com",
		"PURSER_ENVELOPE_KEY": "c2VhbA==",
	} {
		if got := node.Environment[name]; got == nil || *got != want {
			t.Errorf("%s is %v, and not %s", name, got, want)
		}
	}
	if node.Image != "purser:1.2.3" || !node.ReadOnly || node.CapDrop[0] != "ALL" ||
		node.Ports[0].HostIP != "127.0.0.1" {
		t.Errorf("the node is %+v", node)
	}
	if database, err := project.GetService("postgres"); err != nil || len(database.Ports) != 0 {
		t.Errorf("PostgreSQL has ports %v, %v", database.Ports, err)
	}
}
