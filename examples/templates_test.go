package examples

import (
	"archive/zip"
	"bytes"
	"flag"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "pack the examples and the SDKs anew")

// TestArchive compares the archive with the examples and the SDKs, file by file.
func TestArchive(t *testing.T) {
	want := sourceFiles(t)
	if *update {
		pack(t, want)
		return
	}
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]byte{}
	for _, f := range archive.File {
		text, err := read(archive, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		got[f.Name] = text
	}
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s is not packed as it is; run go test ./examples -update", name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is packed and gone; run go test ./examples -update", name)
		}
	}
	if len(packed) > 1<<20 {
		t.Errorf("the archive has %d bytes", len(packed))
	}
}

// sourceFiles returns the files of the examples, and those of the SDKs that apps need.
func sourceFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	readmes, err := filepath.Glob("*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, readme := range readmes {
		name := filepath.Dir(readme)
		if _, ok := sdkFolders[language(name)]; ok {
			add(t, files, name, name, func(string) bool { return true })
		}
	}
	add(t, files, "../sdk/go", "sdk/go", func(name string) bool {
		return !strings.HasSuffix(name, "_test.go") && (strings.HasSuffix(name, ".go") || name == "go.mod" ||
			name == "go.sum") &&
			!strings.HasPrefix(name, "conformance/")
	})
	add(t, files, "../sdk/typescript/src", "sdk/typescript", func(name string) bool {
		return name != "generated/api.ts" // types alone, which a build of the SDK writes
	})
	add(t, files, "../sdk/python", "sdk/python", func(name string) bool { return strings.HasPrefix(name, "purser/") })
	return files
}

// add reads the files of a folder that are wanted, without what building and running leaves there.
func add(t *testing.T, files map[string][]byte, folder, prefix string, wanted func(name string) bool) {
	t.Helper()
	err := filepath.WalkDir(folder, func(at string, e fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) {
				return fs.SkipAll
			}
			return err
		}
		if e.IsDir() {
			built := []string{"node_modules", "build", "dist", "data", "tokens", "__pycache__"}
			left := slices.Contains(built, e.Name())
			if at != folder && (left || strings.HasPrefix(e.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(folder, at)
		if name = filepath.ToSlash(name); err != nil || !wanted(name) ||
			strings.HasPrefix(e.Name(), ".") && e.Name() != ".gitignore" {
			return err
		}
		text, err := os.ReadFile(at)
		files[path.Join(prefix, name)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pack writes the archive: the same bytes for the same files.
func pack(t *testing.T, files map[string][]byte) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate})
		if err == nil {
			_, err = io.Copy(w, bytes.NewReader(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("templates.zip", b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTemplates copies no path of the clone, and knows how each app starts.
func TestTemplates(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, template := range list {
		files, err := template.Files()
		if err != nil || template.Title == "" || template.Start == "" || files["README.md"] == nil {
			t.Errorf("%+v: %d files, %v", template, len(files), err)
		}
		for name, text := range files {
			if bytes.Contains(text, []byte("../../sdk")) {
				t.Errorf("%s: %s names a folder of the clone", template.Name, name)
			}
		}
	}
}

// TestFindStart leaves out variables and comments.
func TestFindStart(t *testing.T) {
	for readme, want := range map[string]string{
		"# A\n\n```text\nCLIENT_ID=… go run .    # then open it\n```\n":            "go run .",
		"# A\n\n```sh\nPYTHONPATH=../../sdk/python /usr/bin/python3 app.py\n```\n": "/usr/bin/python3 app.py",
		"# A\n\n```text\nCLIENT_ID=… go run . \"Why?\"\ngo run .\n```\n":           `go run . "Why?"`,
		"# A\n\nNothing.\n": "go run .",
	} {
		if got := findStart("go-x", readme); got != want {
			t.Errorf("%q: %q, want %q", readme, got, want)
		}
	}
}
