package purser_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A document is cited by number. heading matches each number that it has, and
// citation each place that cites one; both have the number as first group.
type document struct {
	name     string // a file, or a pattern of files whose names have the number
	heading  *regexp.Regexp
	citation *regexp.Regexp
}

var documents = []document{
	{
		name:     "docs/contract.md",
		heading:  regexp.MustCompile(`(?m)^#+ (\d(?:\.\d)?)\b`),
		citation: regexp.MustCompile(`(?i)\bcontract,? §(\d(?:\.\d)?)`),
	},
	{
		name:     "docs/decisions/*.md",
		heading:  regexp.MustCompile(`(?m)^# (\d{3}) · `),
		citation: regexp.MustCompile(`(?i)\bdecisions? (\d{3})\b`),
	},
	{
		name:     "docs/internals/failure-modes.md",
		heading:  regexp.MustCompile(`(?m)^- \*\*F-(\d+) `),
		citation: regexp.MustCompile(`\bF-(\d+)\b`),
	},
	{
		name:     "docs/internals/invariants.md",
		heading:  regexp.MustCompile(`(?m)^- \*\*([IO]-\d+) `),
		citation: regexp.MustCompile(`\b([IO]-\d+)\b`),
	},
	{
		name:     "docs/internals/providers.md",
		heading:  regexp.MustCompile(`(?m)^#+ ([A-H](?:\.\d+)?)\b`),
		citation: regexp.MustCompile(`\bprovider notes ([A-H](?:\.\d+)?)\b`),
	},
	{
		name:     "docs/internals/providers.md",
		heading:  regexp.MustCompile(`(?m)^(\d+)\. `),
		citation: regexp.MustCompile(`\b[Ee]dge case (\d+)\b`),
	},
}

// TestCitationsResolve looks up what comments and documents cite: a citation that
// no document answers helps no reader.
func TestCitationsResolve(t *testing.T) {
	t.Parallel()
	texts := repositoryTexts(t)
	for _, d := range documents {
		numbers := map[string]bool{}
		for name, text := range texts {
			if ok, err := path.Match(d.name, name); err != nil {
				t.Fatal(err)
			} else if ok {
				for _, m := range d.heading.FindAllStringSubmatch(text, -1) {
					numbers[m[1]] = true
				}
			}
		}
		if len(numbers) == 0 {
			t.Errorf("%s has no heading that matches %s", d.name, d.heading)
		}
		for name, text := range texts {
			for _, m := range d.citation.FindAllStringSubmatch(text, -1) {
				if !numbers[m[1]] {
					t.Errorf("%s cites %q, which %s does not have", name, m[0], d.name)
				}
			}
		}
	}
}

// outdated matches citations without a number, and of documents that are not here.
var outdated = regexp.MustCompile(
	`(?i)\bspec §|\bdecisions, [A-Z]|\(decisions[,)]|\breliability [FIO§]|\bwire [A-H]\.\d`)

// TestCitationsHaveNumbers finds citations that cannot be looked up.
func TestCitationsHaveNumbers(t *testing.T) {
	t.Parallel()
	for name, text := range repositoryTexts(t) {
		if name == "citations_test.go" {
			continue
		}
		for _, cited := range outdated.FindAllString(text, -1) {
			t.Errorf("%s cites %q; cite contract §N, decision NNN, F-N, I-N or provider notes X.N", name, cited)
		}
	}
}

var markdownLink = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)

// TestLinksResolve follows every link of a document to a file of the repository.
func TestLinksResolve(t *testing.T) {
	t.Parallel()
	for name, text := range repositoryTexts(t) {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range markdownLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	}
}

// repositoryTexts reads the files that people write.
func repositoryTexts(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case isForeignFolder(name, d):
			return fs.SkipDir
		case !slices.Contains([]string{".go", ".md", ".sql", ".txt", ".html", ".yaml", ".js"}, path.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		texts[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}
