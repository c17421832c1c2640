// Generate writes the types of the SDKs for Go and Python from api/openapi.yaml:
//
//	go run ./sdk/generate
//
// Methods, and types that the API does not have, are written by hand. The SDK for TypeScript makes its types by
// sdk/typescript/generate.mjs.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/purserhq/purser/api"
)

// outputs are the written files by the functions that return them.
var outputs = map[string]func(*spec) ([]byte, error){
	"go/types.go":             writeGo,
	"python/purser/_types.py": writePython,
}

func main() {
	if err := generate("sdk"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// generate writes the files below a folder.
func generate(folder string) error {
	s, err := readSpec(api.Spec)
	if err != nil {
		return err
	}
	for name, write := range outputs {
		text, err := write(s)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
