// Package guide holds the guides for app developers as Markdown, and the order in which pages show
// them. Package pages/docs renders them.
package guide

import "embed"

// Files holds the guides: NAME.md for each name of Groups. The first line of a guide is its title,
// the first paragraph its summary.
//
//go:embed *.md
var Files embed.FS

// A Group is a part of the navigation: guides under a heading.
type Group struct {
	Title string
	Pages []string // names of files, without .md
}

// Groups returns the guides in the order of the navigation. The first one is the front page.
func Groups() []Group {
	return []Group{
		{"Start", []string{"quickstart", "connect", "calls", "budgets", "retries", "migration"}},
		{"Build", []string{
			"features", "tools", "own-work", "children", "caching", "embeddings", "live-spend", "components", "voice",
			"voice-openai", "webhooks", "command-line", "clients", "oauth",
		}},
		{"Test and go live", []string{"sandbox", "going-live"}},
		{"Look up", []string{"errors", "limits", "proofs"}},
	}
}
