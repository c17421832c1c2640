package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// guidePrograms makes commands of blocks. What a language needs is prepared with its first program.
type guidePrograms struct {
	folder string // for programs of ts and go
	blocks []*guideBlock
	node   func() error
	build  func() error           // of all Go programs
	failed map[*guideBlock]string // Go programs that do not compile, with the compiler's output
}

// newGuidePrograms returns what makes the commands of the blocks.
func newGuidePrograms(t *testing.T, blocks []*guideBlock) *guidePrograms {
	t.Helper()
	g := &guidePrograms{folder: t.TempDir(), blocks: blocks, failed: map[*guideBlock]string{}}
	g.node, g.build = sync.OnceValue(g.prepareNode), sync.OnceValue(g.buildGo)
	return g
}

// command returns the command that runs a program in an empty folder. It needs the variables of Env beside those of
// every program.
func (g *guidePrograms) command(t *testing.T, b *guideBlock) *exec.Cmd {
	t.Helper()
	var c *exec.Cmd
	var err error
	switch b.language {
	case "sh":
		c = exec.Command("bash", "-euo", "pipefail", "-c", b.code)
	case "ts":
		c, err = g.commandNode(b)
	case "python":
		c, err = g.commandPython(b)
	case "go":
		c, err = g.commandGo(b)
	}
	if err != nil {
		t.Fatalf("%s (%s): %v\n%s", b.name(), b.language, err, b.numberedCode())
	}
	c.Dir = t.TempDir()
	return c
}

// write writes the program into a file that is named like its page, so that errors name page and line.
func (g *guidePrograms) write(b *guideBlock) (name string, err error) {
	name = filepath.Join(g.folder, strconv.Itoa(slices.Index(g.blocks, b)), filepath.Base(b.page))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	return name, os.WriteFile(name, []byte(strings.Repeat("\n", b.line-1)+b.code), 0o600)
}

// prepareNode builds the SDK for TypeScript, and puts it where the programs find it as @purser/sdk.
func (g *guidePrograms) prepareNode() error {
	if err := buildTypeScript(); err != nil {
		return err
	}
	sdk, err := filepath.Abs(sdkFolder + "/typescript")
	if err != nil {
		return err
	}
	scope := filepath.Join(g.folder, "node_modules", "@purser")
	return errors.Join(os.MkdirAll(scope, 0o700), os.Symlink(sdk, filepath.Join(scope, "sdk")))
}

// commandNode removes the types of a program.
func (g *guidePrograms) commandNode(b *guideBlock) (*exec.Cmd, error) {
	if err := g.node(); err != nil {
		return nil, err
	}
	name, err := g.write(b)
	if err != nil {
		return nil, err
	}
	out := name + ".mjs"
	esbuild := exec.Command(sdkFolder+"/typescript/node_modules/.bin/esbuild", name, "--loader:.md=ts", "--format=esm",
		"--target=node20", "--sourcemap=inline", "--log-level=warning", "--outfile="+out)
	if said, err := esbuild.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("esbuild: %w\n%s", err, said)
	}
	return exec.Command("node", "--enable-source-maps", out), nil
}

// commandPython runs a program by the Python that Debian's httpx belongs to.
func (g *guidePrograms) commandPython(b *guideBlock) (*exec.Cmd, error) {
	name, err := g.write(b)
	if err != nil {
		return nil, err
	}
	sdk, err := filepath.Abs(sdkFolder + "/python")
	c := exec.Command("/usr/bin/python3", "-B", "-u", name)
	c.Env = []string{"PYTHONPATH=" + sdk}
	return c, err
}

// programEnv names the program that the binary of all Go programs runs.
const programEnv = "GUIDE_PROGRAM"

// commandGo runs a program of the binary that has all Go programs, which are linked once.
func (g *guidePrograms) commandGo(b *guideBlock) (*exec.Cmd, error) {
	if err := g.build(); err != nil {
		return nil, err
	}
	if said := g.failed[b]; said != "" {
		return nil, errors.New(said)
	}
	c := exec.Command(filepath.Join(g.folder, "go", "all"))
	c.Env = []string{programEnv + "=" + g.packageOf(b)}
	return c, nil
}

// packageOf returns the name of a program's Go package.
func (g *guidePrograms) packageOf(b *guideBlock) string {
	return fmt.Sprintf("program%d", slices.Index(g.blocks, b))
}

// buildGo builds all Go programs as packages of one binary. A program that does not compile is left
// out, with its error.
func (g *guidePrograms) buildGo() error {
	sdk, err := filepath.Abs(sdkFolder + "/go")
	if err != nil {
		return err
	}
	folder := filepath.Join(g.folder, "go")
	module := "module guide\n\ngo 1.26\n\nrequire github.com/purserhq/purser/sdk/go v0.0.0\n\n" +
		"replace github.com/purserhq/purser/sdk/go => " + sdk + "\n"
	if err := errors.Join(os.MkdirAll(folder, 0o700), writeProgram(folder, "go.mod", module)); err != nil {
		return err
	}
	var list []*guideBlock
	for _, b := range g.blocks {
		if b.language != "go" {
			continue
		}
		code := strings.Replace(b.code, "package main\n", "package "+g.packageOf(b)+"\n", 1)
		code = strings.Replace(code, "\nfunc main() {", "\nfunc Main() {", 1)
		if code == b.code || !strings.Contains(code, "\nfunc Main() {") {
			g.failed[b] = "it has no package main or no func main"
			continue
		}
		code = fmt.Sprintf("//line %s:%d\n%s", b.page, b.line, code)
		if err := writeProgram(filepath.Join(folder, g.packageOf(b)), "main.go", code); err != nil {
			return err
		}
		list = append(list, b)
	}
	if said, err := g.linkGo(folder, list); err == nil {
		return nil
	} else if len(list) == 0 {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	list = slices.DeleteFunc(list, func(b *guideBlock) bool {
		said, err := buildFolder(folder, os.DevNull, "./"+g.packageOf(b))
		if err != nil {
			g.failed[b] = "go build: " + said
		}
		return err != nil
	})
	if said, err := g.linkGo(folder, list); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, said)
	}
	return nil
}

// linkGo builds the binary of some programs.
func (g *guidePrograms) linkGo(folder string, list []*guideBlock) (said string, err error) {
	var imports, cases strings.Builder
	for _, b := range list {
		fmt.Fprintf(&imports, "\t%q\n", "guide/"+g.packageOf(b))
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%[1]s.Main()\n", g.packageOf(b))
	}
	main := "package main\n\nimport (\n\t\"os\"\n\n" + imports.String() + ")\n\nfunc main() {\n\tswitch os.Getenv(\"" +
		programEnv + "\") {\n" + cases.String() + "\t}\n}\n"
	if err := writeProgram(folder, "main.go", main); err != nil {
		return "", err
	}
	return buildFolder(folder, "all", ".")
}

func buildFolder(folder, out, name string) (said string, err error) {
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", out, name)
	c.Dir = folder
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod -buildvcs=false", "GOWORK=off")
	text, err := c.CombinedOutput()
	return string(text), err
}

func writeProgram(folder, name, text string) error {
	return errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
}
