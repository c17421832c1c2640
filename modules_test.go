package purser_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modulesFile has the table of what is linked.
const modulesFile = "docs/internals/modules.md"

// moduleRow is a row of the table: module, packages in purser, packages with the tag serve.
var moduleRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9]+) \\| ([0-9]+) \\|")

// TestLinkedModules compares the modules that are linked with the table that says what each costs, and is for. A new
// one is seen in review, and so is one that grows: measure it (the table says how), and write the row.
func TestLinkedModules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(modulesFile)
	if err != nil {
		t.Fatal(err)
	}
	all, serve := countPackages(t, ""), countPackages(t, "serve")
	var missing []string
	missing = append(missing, slices.Sorted(maps.Keys(all))...)
	for _, row := range moduleRow.FindAllStringSubmatch(string(text), -1) {
		name := row[1]
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
		for i, n := range []int{all[name], serve[name]} {
			most, err := strconv.Atoi(row[2+i])
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case n > most:
				t.Errorf("%s: %d packages of %s are linked, more than %d", modulesFile, n, name, most)
			case (n == 0) != (most == 0):
				t.Errorf("%s: %s is not linked any more: correct its row", modulesFile, name)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("%s has no rows for %v, which are linked", modulesFile, missing)
	}
}

// countPackages counts the linked packages of each module, for Linux on amd64.
func countPackages(t *testing.T, tags string) map[string]int {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, "-f",
		"{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", "./cmd/purser")
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	out, err := list.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("go list: %w", err))
	}
	n := map[string]int{}
	for _, m := range strings.Fields(string(out)) {
		n[m]++
	}
	return n
}
