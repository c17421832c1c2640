// Package commands is the command line of purser, in packages beside its server: cmd/purser runs it with the streams
// and the environment of a process, and tests with their own.
package commands

import (
	"io"

	"github.com/alecthomas/kong"
)

// A Line is a command line with all that it reads and writes.
type Line struct {
	Args     []string  // without the name of the program
	In       io.Reader // nil = nothing
	Out, Err io.Writer
	Environ  []string // NAME=value
	Folder   string   // the working directory; "" = commands search none
}

// Run runs the command, and returns the exit code.
func (l Line) Run() int {
	p := program{in: l.In, out: l.Out, err: l.Err, environ: l.Environ, folder: l.Folder}
	return p.runCommand(l.Args)
}

// Names returns every command, such as "ledger verify".
func Names() (names []string) {
	parser, err := newParser(&cli{Serve: serveCmd{Plugins: kong.Plugins{newSettingFlags()}}})
	if err != nil {
		panic(err) // unreachable: every run makes it
	}
	for _, node := range parser.Model.Leaves(false) {
		name := node.Name
		for up := node.Parent; up.Parent != nil; up = up.Parent {
			name = up.Name + " " + name
		}
		names = append(names, name)
	}
	return names
}
