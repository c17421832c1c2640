//go:build !serve

package commands

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/examples"
	"github.com/purserhq/purser/internal/testkit"
)

// TestNew copies every example next to purser dev: outside the clone it builds, with the client of the sample app.
func TestNew(t *testing.T) {
	t.Parallel()
	list, err := examples.List()
	if err != nil {
		t.Fatal(err)
	}
	if _, _, stderr := command(nil, "new", "x", "--template", "none"); !strings.Contains(stderr,
		"--template: must be one of") {
		t.Error(stderr)
	}
	if len(list) == 0 {
		return // no example is packed
	}
	w := newAppWorld(t)
	for _, template := range list {
		out, _ := w.run(exitOK, "", nil, "new", template.Name, "--template", template.Name, "--port", "3210")
		if !strings.Contains(out, "cd "+template.Name+" && "+template.Start+"\n") {
			t.Errorf("%s:\n%s", template.Name, out)
		}
		w.checkNewApp(template)
	}
	if _, stderr := w.run(exitFailed, "", nil, "new", list[0].Name, "--template",
		list[0].Name); !strings.Contains(stderr, "is there already") {
		t.Error(stderr)
	}
	var app struct {
		RedirectURIs []string `json:"redirect_uris"`
	}
	c, err := appFlags{}.newClient(&program{folder: w.folder})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.list(t.Context(), c.appPath, "app", &app); err != nil {
		t.Fatal(err)
	}
	hasPages := slices.ContainsFunc(list, examples.Template.HasPages)
	if slices.Contains(app.RedirectURIs, "http://localhost:3210/callback") != hasPages ||
		!slices.ContainsFunc(app.RedirectURIs, func(uri string) bool {
			return strings.HasSuffix(uri, "/dev/callback")
		}) {
		t.Errorf("redirect URIs: %v", app.RedirectURIs)
	}
	out, _ := w.run(exitOK, "", nil, "new", "again", "--template", list[0].Name, "--json")
	var made struct{ Dir, Start, URL string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || made.Dir != "again" || made.Start == "" {
		t.Errorf("%s: %v", out, err)
	}
}

// checkNewApp checks the settings of a new app, and that it builds there.
func (w *appWorld) checkNewApp(template examples.Template) {
	w.t.Helper()
	folder := filepath.Join(w.folder, "shop", template.Name)
	env := filepath.Join(folder, ".env")
	if info, err := os.Stat(env); err != nil || info.Mode() != 0o600 {
		w.t.Errorf("%s: %v, %v", env, info, err)
	}
	text, err := os.ReadFile(env)
	if err != nil {
		w.t.Fatal(err)
	}
	want := []string{"BASE_URL=" + w.node.BaseURL, "AUTH_URL=" + w.node.AuthURL, "PORT=3210"}
	if template.IsPublic() {
		want = append(want, "CLIENT_ID="+w.node.PublicApp.ClientID)
	} else {
		want = append(want, "CLIENT_ID="+w.node.App.ClientID, "CLIENT_SECRET="+w.node.App.ClientSecret)
	}
	lines := strings.Split(string(text), "\n")
	for _, line := range want {
		if !slices.Contains(lines, line) {
			w.t.Errorf("%s lacks %s", env, line)
		}
	}
	build := []string{"python3", "-m", "compileall", "-q", "."}
	if strings.HasPrefix(template.Name, "go-") {
		// Each is vetted in its own folder, too. Here one says that what they import is found.
		if !testkit.IsLong() && template.Name != "go-chat" {
			return
		}
		build = []string{"go", "vet", "."}
	}
	cmd := exec.CommandContext(w.t.Context(), build[0], build[1:]...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Errorf("%s does not build outside the clone: %v\n%s", template.Name, err, out)
	}
}
