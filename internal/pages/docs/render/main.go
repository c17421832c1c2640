// Command render renders the guides of docs/guide to the folder that it is given. The folder is a part of the binary,
// so that the server needs no renderer of Markdown. Examples get their colours here, too.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/purserhq/purser/docs/guide"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: render FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// write writes the files of all guides, and removes those of guides that are gone.
func write(folder string) error {
	files, err := renderAll(guide.Files)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if _, ok := files[filepath.Base(file)]; !ok {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// renderAll returns the files of all guides, by name.
func renderAll(guides fs.FS) (files map[string][]byte, err error) {
	names, err := fs.Glob(guides, "*.md")
	if err != nil {
		return nil, err
	}
	files = map[string][]byte{}
	for _, name := range names {
		source, err := fs.ReadFile(guides, name)
		if err != nil {
			return nil, err
		}
		g, err := renderGuide(string(source))
		if err == nil {
			err = g.Encode(strings.TrimSuffix(name, ".md"), files)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return files, nil
}
