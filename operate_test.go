package purser_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/config"
)

// TestEverySettingIsDocumented holds the table of docs/operate/configuration.md against the settings. It prints the
// table that the document should have.
func TestEverySettingIsDocumented(t *testing.T) {
	t.Parallel()
	_, got, _ := strings.Cut(readText(t, "docs/operate/configuration.md"), "\n## Every setting\n")
	_, got, _ = strings.Cut(got, "|---|---|\n")
	got, _, _ = strings.Cut(got, "\n\n")
	var want strings.Builder
	for _, k := range config.Keys() {
		fmt.Fprintf(&want, "| `%s` | %s |\n", k.Name, k.Help)
	}
	if got+"\n" != want.String() {
		t.Errorf("the table of all settings should be:\n%s", want.String())
	}
}

// operatorTexts returns the documents for operators, in one text.
func operatorTexts(t *testing.T) string {
	t.Helper()
	names, err := filepath.Glob("docs/operate/*.md")
	if err != nil || len(names) < 10 {
		t.Fatalf("%d documents, %v", len(names), err)
	}
	var all strings.Builder
	for _, name := range names {
		all.WriteString(strings.Join(strings.Fields(readText(t, name)), " "))
	}
	return all.String()
}

var (
	alarmLabel = regexp.MustCompile(`purser_alarms_total\{alarm="([^"]+)"`)
	alarmRow   = regexp.MustCompile("(?m)^\\| ((?:`[a-z_]+`(?:, )?)+) \\|")
	codeSpan   = regexp.MustCompile("`([^`]+)`")
)

// TestEveryAlarmIsDocumented holds the names of alarms in the code against the documents for operators: each is in one
// of them, and each that a document names is raised.
func TestEveryAlarmIsDocumented(t *testing.T) {
	t.Parallel()
	raised, texts := alarmsInCode(t), operatorTexts(t)
	if len(raised) < 40 {
		t.Errorf("only %d alarms were found in the code", len(raised))
	}
	for _, name := range slices.Sorted(maps.Keys(raised)) {
		if !strings.Contains(texts, "`"+name+"`") && !strings.Contains(texts, `alarm="`+name+`"`) {
			t.Errorf("no document of docs/operate names the alarm %q of %s", name, raised[name])
		}
	}
	for _, m := range alarmLabel.FindAllStringSubmatch(texts, -1) {
		if raised[m[1]] == "" {
			t.Errorf("docs/operate names the alarm %q, which nothing raises", m[1])
		}
	}
	_, table, _ := strings.Cut(readText(t, "docs/operate/operating.md"), "\n| alarm | |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := alarmRow.FindAllStringSubmatch(table, -1)
	for _, row := range rows {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			if raised[m[1]] == "" {
				t.Errorf("operating.md has a row for the alarm %q, which nothing raises", m[1])
			}
		}
	}
	if len(rows) < 5 {
		t.Errorf("the table of alarms has %d rows", len(rows))
	}
}

// alarmsInCode returns where each alarm is named: as an argument of RaiseAlarm or NewAccountError, in a constant or a
// table that is named after alarms, or in a field Alarm.
func alarmsInCode(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir("internal", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			for _, text := range alarmTexts(n) {
				found[text] = set.Position(n.Pos()).String()
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// alarmTexts returns the names of alarms of a node of a program.
func alarmTexts(n ast.Node) (list []string) {
	literal := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil && text != "" {
				list = append(list, text)
			}
		}
	}
	isNamed := func(e ast.Expr) bool {
		if s, ok := e.(*ast.SelectorExpr); ok {
			e = s.Sel
		}
		id, ok := e.(*ast.Ident)
		return ok && (id.Name == "alarm" || id.Name == "Alarm")
	}
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		if s, ok := n.Fun.(*ast.SelectorExpr); ok {
			name = s.Sel.Name
		} else if id, ok := n.Fun.(*ast.Ident); ok {
			name = id.Name
		}
		if name == "RaiseAlarm" && len(n.Args) == 2 {
			literal(n.Args[0])
		}
		if name == "NewAccountError" && len(n.Args) == 2 {
			literal(n.Args[1])
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			if isNamed(left) && len(n.Rhs) == len(n.Lhs) {
				literal(n.Rhs[i])
			}
		}
	case *ast.KeyValueExpr:
		if isNamed(n.Key) {
			literal(n.Value)
		}
	case *ast.ValueSpec:
		for i, name := range n.Names {
			if i >= len(n.Values) || !strings.HasPrefix(name.Name, "alarm") {
				continue
			}
			literal(n.Values[i])
			if table, ok := n.Values[i].(*ast.CompositeLit); ok {
				for _, e := range table.Elts {
					if pair, ok := e.(*ast.KeyValueExpr); ok {
						literal(pair.Value)
					}
				}
			}
		}
	}
	return list
}
