package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpen starts $BROWSER with the page, and prints the address without one.
func TestOpen(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	script, opened := filepath.Join(folder, "browser"), filepath.Join(folder, "opened")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$@\" > "+opened+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	environ := []string{"BROWSER=" + script + " --new:other", "PATH=" + os.Getenv("PATH")}
	for args, want := range map[string]string{
		"open":                                  "http://127.0.0.1:8080/developer",
		"open reference":                        "http://127.0.0.1:8080/reference",
		"open mail --url http://localhost:9000": "http://localhost:9000/dev/mail",
		"open operator --url https://example.com/": "https://example.com/operator",
	} {
		code, out, stderr := command(environ, strings.Fields(args)...)
		if code != exitOK || out != want+"\n" || stderr != "" {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, stderr)
		}
		if text, err := os.ReadFile(opened); err != nil || string(text) != "--new "+want+"\n" {
			t.Errorf("%s: the browser got %q, %v", args, text, err)
		}
	}
	if code, out, stderr := command(nil, "open", "dashboard"); code != exitOK ||
		out != "http://127.0.0.1:8080/dashboard\n" ||
		stderr != "" {
		t.Errorf("without a browser: exit %d\n%s%s", code, out, stderr)
	}
	if code, _, stderr := command([]string{"BROWSER=false", "PATH=" + os.Getenv("PATH")}, "open"); code != exitFailed ||
		!strings.Contains(stderr, "open the address yourself") {
		t.Errorf("a browser that fails: exit %d\n%s", code, stderr)
	}
	if code, _, _ := command(nil, "open", "sesame"); code != exitUsage {
		t.Errorf("an unknown page: exit %d", code)
	}
	store := profileStore{folder: filepath.Join(folder, "purser", "apps")}
	if err := store.write(profile{
		Name:    "shop",
		Server:  "https://api.example.com",
		AuthURL: "https://auth.example.com",
	}); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"console": "https://auth.example.com/developer",
		"docs":    "https://api.example.com/docs",
	} {
		if code, out, stderr := command([]string{"XDG_CONFIG_HOME=" + folder}, "open", page); code != exitOK ||
			out != want+"\n" {
			t.Errorf("%s of a profile: exit %d\n%s%s", page, code, out, stderr)
		}
	}
}
