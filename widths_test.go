package purser_test

import (
	"bufio"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	goColumns    = 120 // a tab counts as 4
	proseColumns = 100
)

// exactWidths is set by make check, so that a number that has fallen is written down before long.
var exactWidths = flag.Bool("exact-widths", false, "fail also when fewer lines are too long than overlong says")

// overlong has the number of lines that are too long, by the first two levels of their folder. A number
// may only fall. A blank line between two entries keeps changes of both from a merge conflict.
var overlong = map[string]int{

	".": 1,

	"bench": 4,

	"e2e": 29,

	"internal/apps": 13,

	"internal/base": 7,

	"internal/commands": 28,

	"internal/gateway": 1,

	"internal/ledger": 115,

	"internal/models": 164,

	"internal/pages": 43,

	"internal/people": 1,
}

// linkTarget matches what a line of Markdown cannot break: the address of a link.
var linkTarget = regexp.MustCompile(`\]\([^)]*\)|<https?://[^>]*>|https?://[^ )]*`)

// TestLineWidths counts Go lines over 120 columns, and lines of Markdown paragraphs over 100. Code blocks,
// tables and addresses of links may be longer.
func TestLineWidths(t *testing.T) {
	t.Parallel()
	found := map[string][]string{} // file:line (columns), by folder
	for _, name := range widthFiles(t) {
		folder := firstTwoLevels(name)
		found[folder] = append(found[folder], overlongLines(t, name)...)
	}
	folders := slices.Sorted(maps.Keys(found))
	for folder := range overlong {
		if _, ok := found[folder]; !ok {
			folders = append(folders, folder)
		}
	}
	for _, folder := range folders {
		lines, allowed := found[folder], overlong[folder]
		switch {
		case len(lines) > allowed:
			t.Errorf("%s has %d lines that are too long, %d are allowed. git diff shows yours; among all:\n\t%s",
				folder, len(lines), allowed, strings.Join(lines[:min(len(lines), 20)], "\n\t"))
		case len(lines) == allowed || !*exactWidths:
		case len(lines) == 0:
			t.Errorf("%s has no line that is too long any more: delete its entry in overlong of widths_test.go", folder)
		default:
			t.Errorf("%s has fewer lines that are too long: write %q: %d, in overlong of widths_test.go",
				folder, folder, len(lines))
		}
	}
}

// widthFiles returns the Go and Markdown files of the repository, except test data.
func widthFiles(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case isForeignFolder(name, d) || d.IsDir() && d.Name() == "testdata":
			return fs.SkipDir
		case !d.IsDir() && slices.Contains([]string{".go", ".md"}, filepath.Ext(name)):
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// firstTwoLevels returns the folder that a file's lines are counted for, such as internal/apps.
func firstTwoLevels(name string) string {
	levels := strings.Split(filepath.ToSlash(filepath.Dir(name)), "/")
	return strings.Join(levels[:min(len(levels), 2)], "/")
}

func overlongLines(t *testing.T, name string) []string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var places []string
	code := false // within a block of code in Markdown
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line, most := lines.Text(), goColumns
		if filepath.Ext(name) == ".md" {
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			if code || strings.HasPrefix(text, "|") {
				continue
			}
			line, most = linkTarget.ReplaceAllString(line, ""), proseColumns
		}
		if columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); columns > most {
			places = append(places, fmt.Sprintf("%s:%d (%d columns)", filepath.ToSlash(name), n, columns))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return places
}
