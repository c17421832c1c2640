// Package examples holds the example apps as templates for purser new. They are packed into templates.zip, each with
// its SDK, because an app in Go is a module of its own, which Go does not embed. After a change of an example or of an
// SDK: go test ./examples -update.
package examples

import (
	"archive/zip"
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed templates.zip
var packed []byte

// sdkFolders are the SDKs by the first word of a template's name: where one is in the archive, and where a new app has
// it.
var sdkFolders = map[string]struct{ packed, copied string }{
	"go":         {"sdk/go", "purser-sdk"},
	"python":     {"sdk/python", "."},
	"typescript": {"sdk/typescript", "purser-sdk"},
}

// replacements are paths of the clone, and what a new app has instead.
var replacements = [][2]string{
	{"PYTHONPATH=../../sdk/python ", ""},
	{"../../sdk/go", "./purser-sdk"},
	{"../../sdk/typescript/src", "./purser-sdk"},
	{"../../sdk/typescript/node_modules", "./node_modules"},
}

// A Template is an example app that can be copied.
type Template struct {
	Name  string
	Title string // the first line of its README
	Start string // the command that starts it, in its folder
}

// IsPublic reports whether the app runs on users' devices, and has no secret.
func (t Template) IsPublic() bool { return strings.HasSuffix(t.Name, "-cli") }

// ReceivesWebhooks reports whether the app has a webhook endpoint and no users.
func (t Template) ReceivesWebhooks() bool { return strings.HasSuffix(t.Name, "-webhook") }

// HasPages reports whether the app has pages, to which users return from the consent screen.
func (t Template) HasPages() bool {
	return strings.HasSuffix(t.Name, "-chat") || strings.HasSuffix(t.Name, "-voice")
}

// List returns all templates, in the order of their names.
func List() (list []Template, err error) {
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, fmt.Errorf("examples: %w", err)
	}
	for _, f := range archive.File {
		name, found := strings.CutSuffix(f.Name, "/README.md")
		if !found || strings.Contains(name, "/") {
			continue
		}
		text, err := read(archive, f.Name)
		if err != nil {
			return nil, err
		}
		title, _, _ := strings.Cut(strings.TrimPrefix(string(text), "# "), "\n")
		list = append(list, Template{Name: name, Title: title, Start: findStart(name, string(text))})
	}
	slices.SortFunc(list, func(a, b Template) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// findStart returns the first command of a README, without what purser new writes into .env or copies.
func findStart(name, readme string) string {
	_, block, _ := strings.Cut(readme, "\n```")
	_, block, _ = strings.Cut(block, "\n")
	line, _, _ := strings.Cut(block, "\n")
	line, _, _ = strings.Cut(line, "  #")
	words := strings.Split(line, " ")
	for len(words) > 1 && strings.Contains(words[0], "=") {
		words = words[1:]
	}
	if start := strings.TrimSpace(strings.Join(words, " ")); start != "" {
		return start
	}
	return map[string]string{"go": "go run ."}[language(name)]
}

// language is the first word of a template's name.
func language(name string) string {
	word, _, _ := strings.Cut(name, "-")
	return word
}

// Files returns the files of a new app by their paths: those of the template, and its SDK.
func (t Template) Files() (map[string][]byte, error) {
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, fmt.Errorf("examples: %w", err)
	}
	files, sdk := map[string][]byte{}, sdkFolders[language(t.Name)]
	for _, f := range archive.File {
		at := ""
		if rest, ok := strings.CutPrefix(f.Name, t.Name+"/"); ok {
			at = rest
		} else if rest, ok := strings.CutPrefix(f.Name, sdk.packed+"/"); ok && sdk.packed != "" {
			at = path.Join(sdk.copied, rest)
		}
		if at == "" {
			continue
		}
		if !fs.ValidPath(at) {
			return nil, fmt.Errorf("examples: %s is no path", f.Name)
		}
		text, err := read(archive, f.Name)
		if err != nil {
			return nil, err
		}
		// The clone has the SDKs elsewhere.
		for _, r := range replacements {
			text = bytes.ReplaceAll(text, []byte(r[0]), []byte(r[1]))
		}
		files[at] = text
	}
	return files, nil
}

func read(archive *zip.Reader, name string) ([]byte, error) {
	f, err := archive.Open(name)
	if err != nil {
		return nil, fmt.Errorf("examples: %w", err)
	}
	defer f.Close()
	return io.ReadAll(f)
}
