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

// shownNumbers are the times and amounts that templates write out, by template: each is a constant of the code and no
// setting, and is in the source of a file. What an operator can set is printed from the setting.
var shownNumbers = map[string][][3]string{ // what the template says, the file, what is in it
	"developer/app.html": {
		{"30 days", "internal/pages/console/apps.go", "overviewDays = 30"},
		{"60 seconds", "internal/apps/oauth/verdict/verdict.go", "CodeTTL         = 60 * time.Second"},
	},
	"dev/callback.html": {
		{"60 seconds", "internal/apps/oauth/verdict/verdict.go", "CodeTTL         = 60 * time.Second"},
	},
	"developer/test-accounts.html": {
		{"$1,000.00", "internal/apps/sandbox/store.go", "StartingBalance = 1000 * money.Dollar"},
	},
	"developer/voice.html": {
		{"$0.00", "internal/base/ui/templates/developer/voice.html", `id="spent">$0.00<`}, // before the first reply
	},
	"developer/apps.html": {
		{"30 days", "internal/pages/console/apps.go", "overviewDays = 30"},
	},
	"developer/endpoint.html": {
		{"14 days", "internal/pages/console/deliveries.go", "shownDays    = 14"},
	},
	"developer/settings.html": {
		{"24 hours", "internal/apps/apps/store.go", "SecretOverlap = 24 * time.Hour"},
	},
	"layout/developer.html": {
		{"14 days", "internal/pages/console/deliveries.go", "shownDays    = 14"},
	},
	"layout/user.html": {
		{"7 days", "internal/pages/dashboard/list.go", "weekDays  = 7"},
	},
	"status/status.html": {
		{"14 days", "internal/pages/status/http.go", "shownFor = 14 * 24 * time.Hour"},
	},
	"dashboard/review.html": {
		{"24 hours", "internal/ledger/tiers/tiers.go", "DailyWindow = 24 * time.Hour"},
	},
	"dashboard/connection.html": {
		{"24 hours", "internal/ledger/tiers/tiers.go", "DailyWindow = 24 * time.Hour"},
	},
	"dashboard/pause.html": {
		{"ten minutes", "internal/gateway/policy/work.go", "WorkLifetime = 10 * time.Minute"},
	},
	"site/home.html": { // an example of a call
		{"$0.0300", "internal/base/ui/templates/site/home.html", "$0.0300"},
		{"$0.0200", "internal/base/ui/templates/site/home.html", "$0.0200"},
		{"$0.0030", "internal/base/ui/templates/site/home.html", "$0.0030"},
		{"$0.0230", "internal/base/ui/templates/site/home.html", "$0.0230"},
		{"$0.0070", "internal/base/ui/templates/site/home.html", "$0.0070"},
	},
	"oauth/consent.html": {
		{"ten minutes", "internal/gateway/policy/work.go", "WorkLifetime = 10 * time.Minute"},
	},
}

var (
	templateAction = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
	timeOrAmount   = regexp.MustCompile(`\$\d[\d.,]*|` +
		`\b(\d[\d,]*|two|three|five|six|seven|ten|twelve|fifteen|thirty|sixty) ` +
		`(seconds?|minutes?|hours?|days?|weeks?|months?|years?|dollars?|cents?)\b`)
)

// TestTemplatesHaveNoNumbersOfSettings finds times and amounts in templates, which an operator might have set, or which
// would stay when a constant changes.
func TestTemplatesHaveNoNumbersOfSettings(t *testing.T) {
	t.Parallel()
	const folder = "internal/base/ui/templates/"
	seen := map[string]bool{}
	for _, name := range textFiles(t, folder) {
		template := strings.TrimPrefix(filepath.ToSlash(name), folder)
		text := templateAction.ReplaceAllString(readText(t, name), "")
		for _, found := range timeOrAmount.FindAllString(text, -1) {
			known := false
			for _, n := range shownNumbers[template] {
				if n[0] != found {
					continue
				}
				known, seen[template+found] = true, true
				if !strings.Contains(readText(t, n[1]), n[2]) {
					t.Errorf("%s does not have %q: is %q of %s still true?", n[1], n[2], found, template)
				}
			}
			if !known {
				t.Errorf("%s says %q: print it from what sets it, or name its constant in shownNumbers", template,
					found)
			}
		}
	}
	for template, list := range shownNumbers {
		for _, n := range list {
			if !seen[template+n[0]] {
				t.Errorf("%s does not say %q", template, n[0])
			}
		}
	}
}
