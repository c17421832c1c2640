package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A guideBlock is one fenced block of a page.
type guideBlock struct {
	page     string // path from the repository's root
	line     int    // of its first line of code
	language string // "" = none
	code     string
	example  int // of the page; blocks of one show the same in different languages

	// Attributes of the info string, such as stop="data:".
	skip    string // why it is not run
	expect  string // text that its output must have; a refused curl is then no failure
	stop    string // text of its output after which it is ended
	trigger string // type of the test event that it gets at WEBHOOK_URL when it listens
}

// programLanguages are the languages of blocks that are run.
var programLanguages = []string{"sh", "ts", "python", "go"}

// otherLanguages are the languages of blocks that are not run. JSON is only parsed.
var otherLanguages = []string{"json", "text", "http", "html", "yaml"}

// name names the block in test results.
func (b *guideBlock) name() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// isProgram reports whether the block is run.
func (b *guideBlock) isProgram() bool {
	return b.skip == "" && slices.Contains(programLanguages, b.language)
}

// guidePages returns the pages whose blocks are run: the README and the guides.
func guidePages(t *testing.T) []string {
	t.Helper()
	guides, err := filepath.Glob("../docs/guide/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("no guides: %v", err)
	}
	pages := []string{"README.md"}
	for _, g := range guides {
		pages = append(pages, strings.TrimPrefix(g, "../"))
	}
	return pages
}

// readGuideBlocks returns the fenced blocks of a page. It reports each fence that it cannot read as an error of the
// test, with file and line.
func readGuideBlocks(t *testing.T, page string) (list []*guideBlock) {
	t.Helper()
	text, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	var open *guideBlock
	fence := ""
	number := 0
	var tabs []string // the languages of the blocks that follow each other directly
	example := 0
	for line := range strings.Lines(string(text)) {
		number++
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			fence = trimmed[:len(trimmed)-len(strings.TrimLeft(trimmed, "`"))]
			open = &guideBlock{page: page, line: number + 1}
			if err := open.readInfo(strings.TrimPrefix(trimmed, fence)); err != nil {
				t.Errorf("%s:%d: %v", page, number, err)
			}
		case open != nil && trimmed == fence:
			if slices.Contains(tabs, open.language) {
				tabs = nil
			}
			if len(tabs) == 0 {
				example++
			}
			open.example, tabs = example, append(tabs, open.language)
			list, open = append(list, open), nil
		case open != nil:
			open.code += line
		case trimmed != "":
			tabs = nil
		}
	}
	if open != nil {
		t.Errorf("%s: the block is not closed", open.name())
	}
	return list
}

// chooseTabs returns one program of each example, in a language that rotates.
func chooseTabs(programs []*guideBlock) (chosen []*guideBlock) {
	for n := 0; len(programs) > 0; n++ {
		tabs := slices.IndexFunc(programs, func(b *guideBlock) bool {
			return b.page != programs[0].page || b.example != programs[0].example
		})
		if tabs < 0 {
			tabs = len(programs)
		}
		chosen = append(chosen, programs[n%tabs])
		programs = programs[tabs:]
	}
	return chosen
}

var attribute = regexp.MustCompile(`^\s+(\w+)=("(?:[^"\\]|\\.)*")`)

// readInfo reads the info string of a fence: a language and attributes.
func (b *guideBlock) readInfo(info string) error {
	n := strings.IndexByte(info, ' ')
	if n < 0 {
		n = len(info)
	}
	b.language = info[:n]
	if b.language != "" && !slices.Contains(programLanguages, b.language) &&
		!slices.Contains(otherLanguages, b.language) {
		return fmt.Errorf("the language %q is not one of %s, %s", b.language, strings.Join(programLanguages, ", "),
			strings.Join(otherLanguages, ", "))
	}
	for rest := info[n:]; strings.TrimSpace(rest) != ""; {
		m := attribute.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("%q is no attribute such as skip=\"why\"", strings.TrimSpace(rest))
		}
		value, err := strconv.Unquote(m[2])
		if err != nil || value == "" {
			return fmt.Errorf("%s: %s is no text", m[1], m[2])
		}
		set, ok := map[string]*string{
			"skip":    &b.skip,
			"expect":  &b.expect,
			"stop":    &b.stop,
			"trigger": &b.trigger,
		}[m[1]]
		if !ok {
			return fmt.Errorf("the attribute %s is not one of skip, expect, stop, trigger", m[1])
		}
		*set, rest = value, rest[len(m[0]):]
	}
	if b.trigger != "" && b.stop == "" {
		return errors.New("trigger needs stop: what the program prints when it has handled the event")
	}
	return nil
}

// checkJSON parses a block that has one JSON value or several.
func (b *guideBlock) checkJSON() error {
	decoder := json.NewDecoder(strings.NewReader(b.code))
	for n := 0; ; n++ {
		var v any
		switch err := decoder.Decode(&v); {
		case errors.Is(err, io.EOF) && n > 0:
			return nil
		case err != nil:
			return fmt.Errorf("after %d bytes: %w", decoder.InputOffset(), err)
		}
	}
}
