// Package purser_test holds the rules of the architecture that a compiler does
// not know: which package may import which, what the rules of the money may
// touch, and who writes a table.
package purser_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is how import paths of this module begin.
const module = "github.com/purserhq/purser/"

// A group is a folder of internal/ with its packages, in their order.
type group struct {
	name     string
	packages []string
}

// groups is the one list: a package imports only packages before it, of its own
// group or of a group before.
var groups = []group{
	{"base", []string{"", "money", "id", "retry", "ticks", "dial", "shared", "shares", "memory", "apierr", "timestamp",
		"filelock", "rowfile", "db", "settings", "seal", "telemetry", "web", "ui", "stripe"}},
	{"models", []string{
		"", "conversation", "provider", "conversation/completions", "provider/upstream",
		"provider/openai", "provider/anthropic", "provider/google", "provider/mock",
		"tokens", "images", "catalog", "pricing", "estimates/calibration", "estimates", "metrics",
	}},
	{"ledger", []string{
		"", "limits", "tiers", "rules", "statements", "store", "audit", "bills", "proofs", "summary",
		"journal",
	}},
	{"people", []string{"", "mail", "accounts", "identity", "stripeapi", "topups"}},
	{"apps", []string{
		"", "apps", "members", "usage", "notices", "features", "golive", "providerkeys", "sandbox", "connections",
		"payouts", "oauth/verdict", "oauth", "webhooks", "domains", "watch/rules", "watch",
	}},
	{"gateway", []string{
		"", "callers", "failures", "feed", "policy", "policies", "receipts", "inference/plan",
		"shapes", "shapes/responses", "shapes/embeddings", "shapes/messages", "shapes/contents",
		"inference", "holds", "children",
		"voice/session", "voice/mock", "voice",
	}},
	{"pages", []string{
		"", "papers", "console", "dashboard", "privacy", "status", "operator", "operatorpages", "docs", "palette",
	}},
	{"backup", []string{""}},
	{"config", []string{""}},
	{"server", []string{""}},
	{"emulator", []string{"script", "exchange", "openai", "anthropic", "google", "realtime", "stripe", "oidc", ""}},
	{"dev", []string{"sample", "history", ""}},
	{"commands", []string{""}},
}

// outside are the packages that do not stand in internal/, before and after the groups.
var before, after = []string{"api", "examples", "docs/guide"}, []string{"cmd/purser"}

// order is groups as one list of paths below internal/ or of the module.
var order = func() []string {
	all := slices.Clone(before)
	for _, g := range groups {
		for _, p := range g.packages {
			all = append(all, path.Join(g.name, p))
		}
	}
	return append(all, after...)
}()

// helpers are for tests, benchmarks and what is generated: no package of the list may import them.
var helpers = []string{
	"testkit", "testkit/dbtest", "testkit/dbtest/pg", "testkit/faulttest", "testkit/apitest", "testkit/oidctest",
	"testkit/nodetest", "testkit/servertest", "testkit/apptest", "testkit/calltest", "testkit/bank", "testkit/mutants",
	"testkit/shapetest",
	"bench", "release", "pages/docs/render", "sdk/generate", "emulator/facts",
}

// pure are the packages of rules and values: they do no I/O, and know the time only as
// an argument.
var pure = []string{
	"base/money", "base/id", "base/apierr", "base/timestamp",
	"models/conversation", "models/conversation/completions", "models/pricing", "models/estimates/calibration",
	"ledger/limits", "ledger/tiers", "ledger/rules", "ledger/statements", "ledger/summary", "ledger/journal",
	"apps/oauth/verdict", "apps/watch/rules",
	"gateway/policy", "gateway/inference/plan", "gateway/voice/session",
	"gateway/shapes", "gateway/shapes/responses", "gateway/shapes/embeddings",
	"gateway/shapes/messages", "gateway/shapes/contents",
}

// impure are the imports that do I/O.
var impure = []string{"net/http", "database/sql", "net", "os"}

// A source is one Go file that is not a test.
type source struct {
	pkg  string // as in order
	path string
	file *ast.File
}

func TestImportsPointUp(t *testing.T) {
	t.Parallel()
	rank := func(pkg string) int { return slices.Index(order, pkg) }
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.pkg] = true
		if slices.Contains(helpers, s.pkg) {
			continue
		}
		if rank(s.pkg) < 0 {
			t.Errorf("%s: package %s is not in the list; say where it stands", s.path, s.pkg)
			continue
		}
		for _, imported := range ours(s.file) {
			if slices.Contains(helpers, imported) {
				t.Errorf("%s imports %s, which is for tests", s.path, imported)
			} else if rank(imported) >= rank(s.pkg) || rank(imported) < 0 {
				t.Errorf("%s imports %s, which does not stand above %s", s.path, imported, s.pkg)
			}
		}
	}
	for _, pkg := range order {
		if !seen[pkg] {
			t.Errorf("the list names %s, which does not exist", pkg)
		}
	}
}

func TestRulesArePure(t *testing.T) {
	t.Parallel()
	all := sources(t)
	for _, entry := range pure {
		found := false
		for _, s := range all {
			if s.pkg != entry {
				continue
			}
			found = true
			for _, imported := range imports(s.file) {
				if slices.Contains(impure, imported) {
					t.Errorf("%s imports %s: a rule does no I/O", s.path, imported)
				}
			}
			if callsNow(s.file) {
				t.Errorf("%s calls time.Now: a rule takes the time as an argument", s.path)
			}
		}
		if !found {
			t.Errorf("there is no package %s", entry)
		}
	}
}

// callsNow reports whether a file mentions time.Now.
func callsNow(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.SelectorExpr); ok && c.Sel.Name == "Now" {
			x, ok := c.X.(*ast.Ident)
			found = found || ok && x.Name == "time"
		}
		return true
	})
	return found
}

// A binary for production, built with the tag serve, has no test doubles: no
// emulator, no emulated Stripe, no WebRTC, and nothing of package dev.
func TestServeHasNoTestDoubles(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-tags", "serve", "./cmd/purser").Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"internal/server") {
		t.Fatalf("purser does not import the server: %d packages", len(deps))
	}
	for _, dep := range deps {
		for _, double := range []string{module + "emulator", module + "internal/dev", module + "internal/testkit",
			"github.com/pion/"} {
			if strings.HasPrefix(dep, double) {
				t.Errorf("purser serve is built with %s", dep)
			}
		}
	}
}

var (
	changes = regexp.MustCompile(`(?m)^(CREATE|DROP) TABLE ([a-z_]+)`)
	writes  = regexp.MustCompile(`\b(?:INSERT INTO|UPDATE|DELETE FROM) ([a-z_]+)`)
)

// One package writes a table, so that there is one place to look for whoever
// changed a row.
func TestATableHasOneWriter(t *testing.T) {
	t.Parallel()
	writer := map[string]string{}
	for _, name := range migrations(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range changes.FindAllStringSubmatch(string(text), -1) {
			if writer[m[2]] = ""; m[1] == "DROP" {
				delete(writer, m[2])
			}
		}
	}
	for _, s := range sources(t) {
		if slices.Contains(helpers, s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			l, ok := n.(*ast.BasicLit)
			if !ok || l.Kind != token.STRING {
				return true
			}
			for _, m := range writes.FindAllStringSubmatch(l.Value, -1) {
				other, ok := writer[m[1]]
				if ok && other != "" && other != s.pkg {
					t.Errorf("table %s is written by %s and by %s", m[1], other, s.pkg)
				} else if ok {
					writer[m[1]] = s.pkg
				}
			}
			return true
		})
	}
	for table, pkg := range writer {
		if pkg == "" {
			t.Errorf("nobody writes table %s", table)
		}
	}
}

var reads = regexp.MustCompile(`\b(?:FROM|JOIN) ([a-z_]+)`)

// foreignReaders are the packages that read tables of another package: read models,
// which join what several packages own. Whoever changes a column looks here.
var foreignReaders = map[string][]string{
	"apps/apps":     {"app_members"},
	"apps/features": {"apps"},
	"apps/golive":   {"accounts", "balances", "connections", "features"},
	"apps/members":  {"accounts", "apps"},
	"apps/notices":  {"connections"},
	"apps/sandbox":  {"connections"},
	"apps/usage":    {"balances", "daily_totals", "ledger", "refusals"},
	"apps/watch":    {"accounts", "connections", "ledger"},
	"apps/webhooks": {"apps", "balances", "connections"},
	"ledger/bills":  {"ledger"},
	"ledger/proofs": {"balances", "ledger"},
	"ledger/store":  {"apps"},
	"backup":        {"balances", "ledger"},
	"gateway/voice": {"apps", "children", "connections", "ledger", "stops"},
	"pages/console": {"balances", "connections", "daily_totals", "holds", "ledger", "refusals"},
	"pages/operatorpages": {"accounts", "apps", "balances", "connections", "counters", "daily_totals", "deliveries",
		"disputes", "events", "golive_requests", "incidents", "ledger", "mails", "nodes", "operator_log",
		"payment_records"},
	"pages/privacy": {"app_members", "apps", "connections", "holds", "notices"},
	"people/mail":   {"accounts"},
	"people/topups": {"balances", "connections", "open_disputes", "payment_records"},
}

// A table is read by the package that writes it, by the audit, and by the packages
// that foreignReaders lists.
func TestForeignReadersAreListed(t *testing.T) {
	t.Parallel()
	writer, readers := map[string]string{}, map[string]map[string]bool{} // by table; by package
	for _, s := range productSources(t) {
		for _, text := range stringLiterals(s.file) {
			for _, m := range writes.FindAllStringSubmatch(text, -1) {
				writer[m[1]] = s.pkg
			}
			for _, m := range reads.FindAllStringSubmatch(text, -1) {
				if readers[s.pkg] == nil {
					readers[s.pkg] = map[string]bool{}
				}
				readers[s.pkg][m[1]] = true
			}
		}
	}
	for pkg, tables := range readers {
		if pkg == "ledger/audit" { // it checks all of them
			continue
		}
		var foreign []string
		for table := range tables {
			if owner, ok := writer[table]; ok && owner != pkg {
				foreign = append(foreign, table)
			}
		}
		slices.Sort(foreign)
		if !slices.Equal(foreign, foreignReaders[pkg]) {
			t.Errorf("foreignReaders lists for %s %q, but it reads %q", pkg, foreignReaders[pkg], foreign)
		}
	}
	for pkg := range foreignReaders {
		if readers[pkg] == nil {
			t.Errorf("foreignReaders lists %s, which reads no table", pkg)
		}
	}
}

var statement = regexp.MustCompile(`^\s*(?:SELECT .*|INSERT INTO .*|UPDATE .* SET|DELETE FROM .*|WITH .*)`)

// sqlElsewhere are the files whose statements have not moved to an sql.go yet. The
// list may only shrink.
var sqlElsewhere = []string{}

// SQL stands in files of its own, so that whoever changes a table finds the
// statements. The stores of the ledger, and what differs between engines in db,
// consist of little else.
func TestSQLStandsInItsFiles(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]bool{}
	for _, s := range productSources(t) {
		name := path.Base(s.path)
		if name == "sql.go" || strings.HasSuffix(name, "_sql.go") ||
			slices.Contains([]string{"ledger/store", "ledger/audit", "base/db", "base/settings"}, s.pkg) {
			continue
		}
		for _, text := range stringLiterals(s.file) {
			if !statement.MatchString(text) {
				continue
			}
			elsewhere[s.path] = true
			if !slices.Contains(sqlElsewhere, s.path) {
				t.Errorf("%s holds SQL: %.60q", s.path, text)
			}
		}
	}
	for _, name := range sqlElsewhere {
		if !elsewhere[name] {
			t.Errorf("%s holds no SQL any more: take it out of sqlElsewhere", name)
		}
	}
}

// answerNames are what package stripe calls the errors of Stripe, and what only they say.
var answerNames = []string{"stripe.Error", "DeclineCode", "LastPaymentError", "Replayed"}

// One package sorts Stripe's answers: whoever reads a status or a code elsewhere takes a refusal of our key for one of
// a bank sooner or later.
func TestOnePackageSortsStripesAnswers(t *testing.T) {
	t.Parallel()
	for _, s := range productSources(t) {
		if s.pkg == "people/stripeapi" || !slices.ContainsFunc(imports(s.file), func(name string) bool {
			return name == module+"internal/base/stripe"
		}) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := c.Sel.Name
			if x, _ := c.X.(*ast.Ident); x != nil && x.Name == "stripe" {
				name = "stripe." + name
			}
			if slices.Contains(answerNames, name) {
				t.Errorf("%s reads %s: ask stripeapi.Sort", s.path, c.Sel.Name)
			}
			return true
		})
	}
}

// A type of a foreign module with type arguments, as a field, is compiled again in each package that knows the struct:
// the cache of a rate limiter was half a second in each of 35 packages (docs/internals/modules.md). The field is an
// interface instead.
func TestNoFieldsOfForeignGenerics(t *testing.T) {
	t.Parallel()
	for _, s := range productSources(t) {
		foreign := map[string]bool{}
		for _, spec := range s.file.Imports {
			path, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
			name := versionSuffix.ReplaceAllString(path, "")
			name = name[strings.LastIndexByte(name, '/')+1:]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			host, _, _ := strings.Cut(path, "/")
			foreign[name] = strings.Contains(host, ".") && !strings.HasPrefix(path, module)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			f, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range f.Fields.List {
				ast.Inspect(field.Type, func(n ast.Node) bool {
					var generic ast.Expr
					switch n := n.(type) {
					case *ast.IndexExpr:
						generic = n.X
					case *ast.IndexListExpr:
						generic = n.X
					}
					if of, ok := generic.(*ast.SelectorExpr); ok {
						if x, _ := of.X.(*ast.Ident); x != nil && foreign[x.Name] {
							t.Errorf("%s: a field is a %s.%s with type arguments", s.path, x.Name, of.Sel.Name)
						}
					}
					return true
				})
			}
			return true
		})
	}
}

// versionSuffix ends the path of a module from its second major version on.
var versionSuffix = regexp.MustCompile(`/v[0-9]+$`)

// productSources are sources without the helpers of tests.
func productSources(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(sources(t), func(s source) bool { return slices.Contains(helpers, s.pkg) })
}

// stringLiterals are the values of a file's string literals.
func stringLiterals(file *ast.File) (list []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if text, err := strconv.Unquote(l.Value); err == nil { // the parser has checked it
				list = append(list, text)
			}
		}
		return true
	})
	return list
}

func migrations(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("internal/base/db/migrations/*.sql")
	if err != nil || len(names) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	return names
}

// sources parses every Go file of the module that is not a test.
func sources(t *testing.T) (all []source) {
	t.Helper()
	set := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case isForeignFolder(name, d):
			return fs.SkipDir
		case d.IsDir():
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || isModule(name)) {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slash := filepath.ToSlash(name)
		all = append(all, source{strings.TrimPrefix(path.Dir(slash), "internal/"), slash, file})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// isModule reports whether a folder is a module of its own, such as e2e and the SDK.
func isModule(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	return err == nil
}

func imports(file *ast.File) (list []string) {
	for _, i := range file.Imports {
		if name, err := strconv.Unquote(i.Path.Value); err == nil { // the parser has checked it
			list = append(list, name)
		}
	}
	return list
}

// ours are the imports from this module, named as in order.
func ours(file *ast.File) (list []string) {
	for _, name := range imports(file) {
		if rest, ok := strings.CutPrefix(name, module); ok {
			list = append(list, strings.TrimPrefix(rest, "internal/"))
		}
	}
	return list
}
