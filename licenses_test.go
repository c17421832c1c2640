package purser_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write THIRD_PARTY_LICENSES instead of comparing it")

const licensesFile = "THIRD_PARTY_LICENSES"

// platforms are those of a release. The linked modules differ between them.
var platforms = [][2]string{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
}

// licenseKinds finds the kind of a licence by a phrase that only its text has. The first match wins.
var licenseKinds = []struct{ name, phrase string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"ISC", "distribute this software for any purpose with or without fee is hereby granted, provided"},
	{"BSD-3-Clause", "endorse or promote products derived from this software without specific prior"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
}

// licenseFileName matches the files of a module that its licence asks to pass on.
var licenseFileName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)([-.].*)?$`)

// A licenseText is one distinct text and the files that have it, as module/path.
type licenseText struct {
	text  string
	files []string
}

// TestThirdPartyLicenses compares THIRD_PARTY_LICENSES with the modules that are linked into purser.
// It fails for a module without a known licence: read that licence before you depend on the module.
func TestThirdPartyLicenses(t *testing.T) {
	t.Parallel()
	want := renderLicenses(t, linkedFolders(t))
	if *update {
		if err := os.WriteFile(licensesFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(licensesFile); err != nil {
		t.Fatal(err)
	} else if string(got) != want {
		t.Errorf("%s does not list what is linked: run make notices", licensesFile)
	}
}

// linkedFolders returns, for each linked module, its root folder and the folders of its linked packages.
func linkedFolders(t *testing.T) map[string][]string {
	t.Helper()
	const format = `{{with .Module}}{{if not .Main}}{{.Path}}|{{.Dir}}|{{$.Dir}}{{end}}{{end}}`
	folders := map[string][]string{}
	for _, p := range platforms {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/purser")
		list.Env = append(os.Environ(), "GOOS="+p[0], "GOARCH="+p[1], "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list for %s/%s: %v", p[0], p[1], err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Split(strings.TrimSpace(line), "|")
			module, root, folder := fields[0], fields[1], fields[2]
			// A licence file holds for its folder and those below, so the ones above a package count too.
			for ; len(folder) >= len(root); folder = filepath.Dir(folder) {
				if !slices.Contains(folders[module], folder) {
					folders[module] = append(folders[module], folder)
				}
			}
		}
	}
	for module := range folders {
		slices.Sort(folders[module]) // the root first
	}
	return folders
}

// renderLicenses lists the modules with the kinds of their licences, then each distinct text once.
func renderLicenses(t *testing.T, folders map[string][]string) string {
	t.Helper()
	modules := make([]string, 0, len(folders))
	for module := range folders {
		modules = append(modules, module)
	}
	slices.Sort(modules)
	var table strings.Builder
	var texts []*licenseText
	for _, module := range modules {
		var kinds []string
		for _, name := range licenseFiles(t, folders[module]) {
			text := readLicense(t, name)
			kind := licenseKind(text)
			if kind == "" && filepath.Base(filepath.Dir(name)) == reuseFolder {
				continue // of the module's pictures and settings, which are not linked
			}
			if kind != "" && !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
			relative := strings.TrimPrefix(name, folders[module][0])
			texts = addLicense(texts, module+filepath.ToSlash(relative), text)
		}
		if len(kinds) == 0 {
			t.Errorf("%s has no licence that licenseKinds knows", module)
		}
		fmt.Fprintf(&table, "%-50s %s\n", module, strings.Join(kinds, ", "))
	}
	var b strings.Builder
	b.WriteString("Go modules that are linked into purser, and their licences. Written by make notices.\n" +
		"The Go standard library has the licence of golang.org/x/sys. go.mod has the versions.\n\n" + table.String())
	for _, l := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("-", 80), strings.Join(l.files, "\n"), l.text)
	}
	return b.String()
}

// reuseFolder has a module's licences where it follows the REUSE specification.
const reuseFolder = "LICENSES"

// licenseFiles returns the licence files of a module's folders.
func licenseFiles(t *testing.T, folders []string) []string {
	t.Helper()
	var names []string
	for _, folder := range append(slices.Clone(folders), filepath.Join(folders[0], reuseFolder)) {
		entries, err := os.ReadDir(folder)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !e.IsDir() && (licenseFileName.MatchString(e.Name()) || filepath.Base(folder) == reuseFolder) {
				names = append(names, filepath.Join(folder, e.Name()))
			}
		}
	}
	return names
}

// readLicense returns a text without carriage returns, trailing spaces and blank lines around it.
func readLicense(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(raw), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\r")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// licenseKind returns the kind of a licence, or "" for a text that is none or not known.
func licenseKind(text string) string {
	words := strings.Join(strings.Fields(strings.ReplaceAll(text, "//", "")), " ")
	for _, kind := range licenseKinds {
		if strings.Contains(words, kind.phrase) {
			return kind.name
		}
	}
	return ""
}

// addLicense adds a file to the text it has.
func addLicense(texts []*licenseText, file, text string) []*licenseText {
	for _, l := range texts {
		if l.text == text {
			l.files = append(l.files, file)
			return texts
		}
	}
	return append(texts, &licenseText{text, []string{file}})
}
