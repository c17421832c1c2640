package commands

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
)

// contractVersion is the version of the contract that this binary serves.
const contractVersion = "0.1.0"

type versionCmd struct {
	JSON bool `name:"json" help:"Print one line of JSON."`
}

// Help is shown by purser version --help.
func (versionCmd) Help() string { return "Example:\n  purser version --json" }

// Run prints the version of the build and of the contract that it serves.
func (c versionCmd) Run(p *program) error {
	b := readBuild()
	if c.JSON {
		return json.NewEncoder(p.out).Encode(b)
	}
	_, err := fmt.Fprintln(p.out, b)
	return err
}

// A build is what a binary was built from.
type build struct {
	// Version is the module's, from go install, or the tag of the checkout; between two tags it is a
	// pseudo-version, and "development" without either.
	Version  string `json:"version"`
	Commit   string `json:"commit"`       // "" = not built in a checkout
	Date     string `json:"committed_at"` // of the commit
	Modified bool   `json:"modified"`     // the checkout had local changes
	Contract string `json:"contract"`
}

func readBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return newBuild(info)
}

func newBuild(info *debug.BuildInfo) build {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	b := build{
		Version:  info.Main.Version,
		Commit:   settings["vcs.revision"],
		Date:     settings["vcs.time"],
		Modified: settings["vcs.modified"] == "true",
		Contract: contractVersion,
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "development"
	}
	return b
}

// String is the line of purser version.
func (b build) String() string {
	text := "purser " + b.Version
	if b.Commit != "" {
		text += ", commit " + b.Commit[:min(len(b.Commit), 12)] + " of " + b.Date
	}
	if b.Modified {
		text += " with local changes"
	}
	return text + ", contract " + b.Contract
}
