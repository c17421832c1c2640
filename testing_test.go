package purser_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longTest finds a test that is left to the long run.
var longTest = regexp.MustCompile(`func (Test\w+)\(t \*testing\.T\) \{\n\ttestkit\.Long\(t, "([^"]*)"\)`)

// TestLongTestsAreListed checks that docs/internals/testing.md lists each test that
// only make test-long runs, with its reason, and no other.
func TestLongTestsAreListed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/internals/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, found []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `Test") {
			listed = append(listed, strings.TrimSpace(line))
		}
	}
	calls := 0
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || isForeignFolder(name, d) {
			return errOr(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "testing_test.go" {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		calls += strings.Count(string(source), "testkit.Long(")
		for _, m := range longTest.FindAllStringSubmatch(string(source), -1) {
			found = append(found, "| `"+m[1]+"` | `"+path.Dir(name)+"` | "+m[2]+" |")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(listed)
	slices.Sort(found)
	if !slices.Equal(listed, found) {
		t.Errorf("docs/internals/testing.md lists\n%s\nbut the tests are\n%s", strings.Join(listed, "\n"),
			strings.Join(found, "\n"))
	}
	if calls != len(found) {
		t.Errorf("%d calls of testkit.Long, but %d are the first statement of a test", calls, len(found))
	}
}

// processes are the packages whose tests start processes, and what for: a process costs a hundred times what a server
// within the test does.
var processes = map[string]string{
	".":                          "go list",
	"bench":                      "pprof",
	"e2e":                        "browsers, clients",
	"internal/base/db":           "kills, PgBouncer",
	"internal/base/ui":           "a shell",
	"internal/commands":          "commands",
	"internal/gateway/inference": "Python",
	"internal/ledger/audit":      "a seeded database",
	"internal/ledger/proofs":     "Python",
	"internal/models/metrics":    "promtool",
	"internal/server":            "commands, databases of releases",
	"internal/server/nodes":      "kills, signals, restarts",
	"internal/testkit/dbtest":    "PostgreSQL",
	"internal/testkit/faulttest": "PostgreSQL",
	"release":                    "installations",
}

// startsProcess matches what starts a process in a test.
var startsProcess = regexp.MustCompile(`\b(exec\.Command|os\.StartProcess|dbtest\.StartCluster|faulttest\.NewDisk|` +
	`servertest\.(Start|StartBy|TryStart|Binary|URL)\()`)

// TestProcessesAreListed holds that tests start processes in the packages of the list, and in no other.
func TestProcessesAreListed(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || isForeignFolder(name, d) {
			return errOr(err, fs.SkipDir)
		}
		if d.IsDir() || !strings.HasSuffix(name, "_test.go") || name == "testing_test.go" {
			return nil
		}
		source, err := os.ReadFile(name)
		if startsProcess.Match(source) {
			found[path.Dir(name)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for folder := range found {
		if processes[folder] == "" {
			t.Errorf("a test of %s starts a process: open a server within the test, or list the package", folder)
		}
	}
	for folder := range processes {
		if !found[folder] {
			t.Errorf("no test of %s starts a process: delete it from the list", folder)
		}
	}
}

// TestNodesLinkNoLeaf holds that the tests of processes are not linked with what a page or a provider changes, so that
// go test does not run them again for it.
func TestNodesLinkNoLeaf(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-test", "./internal/server/nodes").Output()
	if err != nil {
		t.Fatal(err)
	}
	leaf := regexp.MustCompile(`(?m)^` + module + `(docs|examples|internal/pages|internal/models/provider/(anthropic|` +
		`google|openai|mock)|internal/(server|commands|dev|testkit/apptest)$).*`)
	if found := leaf.FindAllString(string(out), -1); found != nil {
		t.Errorf("the tests of internal/server/nodes are linked with %q", found)
	}
}

// TestAreaChangesWithItsSources changes a copy of the product: the path of the binary for internal/server/nodes is
// another one after each change that its tests may reach, and the same after others.
func TestAreaChangesWithItsSources(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range strings.Fields(".ci api cmd docs/guide emulator examples internal go.mod go.sum") {
		copySources(t, root, name)
	}
	binary := filepath.Join(root, "binary")
	if err := os.WriteFile(binary, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	area := func() string {
		t.Helper()
		cmd := exec.Command(filepath.Join(root, ".ci", "area"), "nodes", binary)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	before := area()
	for name, reached := range map[string]bool{
		"cmd/purser/main.go":                          true,
		"internal/base/db/migrations/0001_people.sql": true,
		"internal/ledger/store/node.go":               true,
		"internal/models/provider/openai/openai.go":   true,
		"internal/pages/operator/operator.go":         true,
		"internal/models/provider/google/google.go":   false,
		"internal/pages/console/overview.go":          false,
		"docs/guide/calls.md":                         false,
	} {
		path := filepath.Join(root, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(slices.Clone(text), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		if changed := area() != before; changed != reached {
			t.Errorf("after a change of %s the path is another one: %t", name, changed)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// copySources copies a file or a folder, without tests.
func copySources(t *testing.T, root, name string) {
	t.Helper()
	err := filepath.WalkDir(name, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case isForeignFolder(name, d) || d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(root, name), 0o700)
		case strings.HasSuffix(name, "_test.go") || !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, text, 0o700)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOnlyTestsHashLightly holds that no program makes the hashes that guard nothing.
func TestOnlyTestsHashLightly(t *testing.T) {
	t.Parallel()
	calls := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || isForeignFolder(name, d) {
			return errOr(err, fs.SkipDir)
		}
		if d.IsDir() || path.Ext(name) != ".go" || strings.HasPrefix(name, "internal/testkit/") {
			return nil
		}
		source, err := os.ReadFile(name)
		if n := strings.Count(string(source), "HashLightly()"); strings.HasSuffix(name, "_test.go") {
			calls += n
		} else if n > 0 && name != "internal/people/accounts/password.go" {
			t.Errorf("%s hashes lightly", name)
		}
		return err
	})
	if err != nil || calls == 0 {
		t.Fatal(calls, err)
	}
}

// errOr returns err, or other if there is none.
func errOr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
