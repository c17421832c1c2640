//go:build !serve

package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/examples"
)

type newCmd struct {
	Dir      string `arg:"" help:"Folder of the new app, which must not exist."`
	Template string `required:"" predict:"template" placeholder:"NAME" help:"The example to copy."`
	Port     int    `default:"3000" placeholder:"PORT" help:"Port of the app (default: 3000)."`
	JSON     bool   `name:"json" help:"Print a line of JSON."`
	appFlags
}

func init() {
	predictors["template"] = func(*program) (names []string) {
		list, err := examples.List()
		if err != nil {
			return nil
		}
		for _, t := range list {
			names = append(names, t.Name)
		}
		return names
	}
}

// Help is shown by purser new --help.
func (newCmd) Help() string {
	var b strings.Builder
	list, _ := examples.List() // the archive is tested
	for _, t := range list {
		fmt.Fprintf(&b, "  %-16s %s\n", t.Name, t.Title)
	}
	return "Copies an example into a new folder, with its SDK, and writes the app's client into .env there, which " +
		"only you can read. In the sandbox of a local service it also registers the redirect URI of the new app.\n\n" +
		"Templates:\n" + b.String() + "\n" + appHelp + "\n\nExample:\n  purser new chat --template python-chat"
}

// Run makes the folder.
func (c *newCmd) Run(p *program) error {
	t, err := findTemplate(c.Template)
	if err != nil {
		return exitError{err, exitUsage}
	}
	pr, err := c.choose(p)
	if err != nil {
		return err
	}
	files, err := t.Files()
	if err != nil {
		return err
	}
	env, err := c.environment(t, pr)
	if err != nil {
		return err
	}
	files[".env"] = []byte(env)
	if err := os.Mkdir(c.Dir, 0o755); errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s: is there already, and was not changed", c.Dir)
	} else if err != nil {
		return err
	}
	if err := writeFiles(c.Dir, files); err != nil {
		return err
	}
	ctx, stop := interruptContext()
	defer stop()
	note := ""
	if t.HasPages() {
		if note, err = registerRedirect(ctx, pr, c.redirectURI()); err != nil {
			return fmt.Errorf("the app is in %s, but its redirect URI %s is not registered: %w", c.Dir, c.redirectURI(),
				err)
		}
	}
	return c.report(p, t, note)
}

func findTemplate(name string) (examples.Template, error) {
	list, err := examples.List()
	if err != nil {
		return examples.Template{}, err
	}
	var names []string
	for _, t := range list {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return examples.Template{}, fmt.Errorf("--template: must be one of %s", strings.Join(names, ", "))
}

func (c *newCmd) redirectURI() string {
	return "http://localhost:" + strconv.Itoa(c.Port) + "/callback"
}

// environment returns the text of .env.
func (c *newCmd) environment(t examples.Template, pr profile) (string, error) {
	listening, err := deriveSigningSecret(pr.ClientSecret)
	if err != nil {
		return "", err
	}
	clientID, secret := pr.ClientID, pr.ClientSecret
	if t.IsPublic() {
		clientID, secret = pr.PublicClientID, ""
		if clientID == "" {
			clientID = pr.ClientID
		}
	}
	var b strings.Builder
	b.WriteString("# Written by purser new. Keep this file out of version control.\n")
	for _, v := range [][2]string{
		{"BASE_URL", pr.Server}, {"AUTH_URL", pr.AuthURL}, {"APP_ID", pr.App}, {"CLIENT_ID", clientID},
		{"CLIENT_SECRET", secret}, {"PORT", strconv.Itoa(c.Port)}, {"REDIRECT_URI", c.redirectURI()},
		{"WEBHOOK_SECRET", listening}, // purser listen signs with it
	} {
		if v[1] != "" {
			fmt.Fprintf(&b, "%s=%s\n", v[0], v[1])
		}
	}
	return b.String(), nil
}

// writeFiles writes files below a folder. Only the owner can read .env.
func writeFiles(folder string, files map[string][]byte) error {
	for name, text := range files {
		at := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if name == ".env" {
			mode = 0o600
		}
		if err := os.WriteFile(at, text, mode); err != nil {
			return err
		}
	}
	return nil
}

// registerRedirect adds a redirect URI to an app in the sandbox of a service on this machine. Elsewhere it changes
// nothing, and says what to do.
func registerRedirect(ctx context.Context, pr profile, uri string) (note string, err error) {
	manually := "Register " + uri + " as a redirect URI in your console."
	u, err := url.Parse(pr.Server)
	if err != nil || u.Hostname() != "localhost" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return manually, err
	}
	client := pr.newClient()
	var app struct {
		Tier         string
		RedirectURIs []string `json:"redirect_uris"`
	}
	if _, err := client.list(ctx, client.appPath, "app", &app); err != nil {
		return "", err
	}
	if app.Tier != "sandbox" {
		return manually, nil
	}
	if slices.Contains(app.RedirectURIs, uri) {
		return "", nil
	}
	body, err := json.Marshal(map[string]any{"redirect_uris": append(app.RedirectURIs, uri)})
	if err != nil {
		return "", err
	}
	_, _, err = client.callAPI(ctx, http.MethodPatch, client.appPath, body)
	return "", err
}

// report prints the one command that starts the app.
func (c *newCmd) report(p *program, t examples.Template, note string) error {
	start := "cd " + c.Dir + " && " + t.Start
	if c.JSON {
		return json.NewEncoder(p.out).Encode(map[string]string{
			"dir":   c.Dir,
			"start": start,
			"url":   "http://localhost:" + strconv.Itoa(c.Port),
			"note":  note,
		})
	}
	if note != "" {
		note += "\n"
	}
	text := fmt.Sprintf("%s is ready: %s.\n%s\n  %s\n", c.Dir, t.Title, note, start)
	if t.ReceivesWebhooks() {
		text += fmt.Sprintf("\nIn another terminal:\n\n  purser listen --forward-to http://localhost:%d/webhooks\n",
			c.Port)
	}
	_, err := fmt.Fprint(p.out, text)
	return err
}
