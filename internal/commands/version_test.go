package commands

import (
	"runtime/debug"
	"testing"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	commit := []debug.BuildSetting{
		{Key: "vcs", Value: "git"},
		{Key: "vcs.revision", Value: "b8eb904d8fd268f11196d24eb0c1d8c747b6bc2e"},
		{Key: "vcs.time", Value: "2026-11-22T12:11:50Z"},
	}
	for _, test := range []struct {
		name     string
		version  string
		settings []debug.BuildSetting
		modified string
		want     string
	}{
		{name: "no build information", want: "development"},
		{name: "go run", version: "(devel)", want: "development"},
		{name: "go install of a version", version: "v0.1.0", want: "v0.1.0"},
		{
			name:     "make build at a tag",
			version:  "v0.1.0",
			settings: commit,
			modified: "false",
			want:     "v0.1.0, commit b8eb904d8fd2 of 2026-11-22T12:11:50Z",
		},
		{
			name:     "make build with local changes",
			version:  "v0.1.0+dirty",
			settings: commit,
			modified: "true",
			want:     "v0.1.0+dirty, commit b8eb904d8fd2 of 2026-11-22T12:11:50Z with local changes",
		},
		{
			name:    "a short revision",
			version: "(devel)",
			settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "12"},
				{Key: "vcs.time", Value: "2026-11-22T12:11:50Z"},
			},
			want: "development, commit 12 of 2026-11-22T12:11:50Z",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			info := &debug.BuildInfo{Main: debug.Module{Version: test.version}, Settings: test.settings}
			if test.modified != "" {
				info.Settings = append(info.Settings[:len(info.Settings):len(info.Settings)],
					debug.BuildSetting{Key: "vcs.modified", Value: test.modified})
			}
			if got, want := newBuild(info).String(), "purser "+test.want+", contract 0.1.0"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}
