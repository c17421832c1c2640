package purser_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// unwanted are words that docs/glossary.md replaces, and turns of phrase that users stumbled over. They must not come
// back in texts for people.
var unwanted = regexp.MustCompile(`(?i)\b(lends?|lent|lending|anew|for good|stands? in|whoever|all the same|to the letter|` +
	`somebody|nobody|of its own|hold good|bring it back|e-mail|switched off|play money|people who|` +
	`what this link leads to|ordinary outcome|pace allowed|rest returned)\b|(^|[.>] *)So that `)

// withTexts are the packages whose string literals people read: on pages, in emails and in messages of errors.
var withTexts = []string{
	"internal/pages", "internal/people", "internal/apps", "internal/base/ui", "internal/base/web",
	"internal/base/apierr",
	"internal/gateway", "internal/ledger", "internal/dev", "internal/server", "cmd",
}

func TestTextsForPeopleArePlain(t *testing.T) {
	t.Parallel()
	texts := 0
	check := func(where, text string) {
		texts++
		if found := unwanted.FindString(text); found != "" {
			t.Errorf("%s: %q in %q; see docs/glossary.md", where, strings.TrimSpace(found), text)
		}
	}
	for _, folder := range withTexts {
		for _, name := range textFiles(t, folder) {
			if strings.HasSuffix(name, ".go") {
				checkLiterals(t, name, check)
				continue
			}
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(string(content), "\n") {
				if !strings.HasPrefix(strings.TrimSpace(line), "//") { // a comment of a script
					check(name+":"+strconv.Itoa(i+1), line)
				}
			}
		}
	}
	if texts < 5000 {
		t.Errorf("only %d texts were read: has a folder moved?", texts)
	}
}

// textFiles returns the templates, scripts and Go files below a folder, except tests and what is fetched.
func textFiles(t *testing.T, folder string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, ".min.js") ||
			strings.Contains(filepath.ToSlash(name), "/docs/rendered/") { // of docs/guide
			return err
		}
		switch filepath.Ext(name) {
		case ".go", ".html", ".js":
			names = append(names, name)
		case ".txt":
			if strings.Contains(filepath.ToSlash(name), "/templates/") {
				names = append(names, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func checkLiterals(t *testing.T, name string, check func(where, text string)) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		check(set.Position(literal.Pos()).String(), text)
		return true
	})
}
