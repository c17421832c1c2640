package purser_test

import (
	"io/fs"
	"os"
	"path"
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
