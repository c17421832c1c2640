package commands

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// appsCmd manages the profiles of apps.
type appsCmd struct {
	List   appsListCmd   `cmd:"" default:"1" help:"List the profiles with key figures of their apps."`
	Login  appsLoginCmd  `cmd:"" help:"Store the client credentials of an app as a profile."`
	Logout appsLogoutCmd `cmd:"" help:"Delete a profile from this machine."`
}

// Help is shown by purser apps --help.
func (appsCmd) Help() string {
	return "A profile is an app's access to the management API, for the commands logs, events, listen, trigger and " +
		"new. It is a file that only you can read, in $XDG_CONFIG_HOME/purser/apps or ~/.config/purser/apps. The " +
		"profile dev is that of purser dev, found in purser-data of this folder or one above " +
		"it.\n\nExample:\n  purser apps"
}

type appsListCmd struct {
	JSON bool `name:"json" help:"Print a line of JSON for each app."`
}

// Help is shown by purser apps list --help.
func (appsListCmd) Help() string {
	return "The figures are of the last 24 hours, and the connections of all time that are active." +
		"\n\nExample:\n  purser apps --json"
}

// appFigures are the key figures of an app.
type appFigures struct {
	Profile           string   `json:"profile"`
	Server            string   `json:"server"`
	App               string   `json:"app"`
	Name              string   `json:"name"`
	Tier              string   `json:"tier"`
	ProviderMode      string   `json:"provider_mode"`
	Suspended         bool     `json:"suspended"`
	ActiveConnections int      `json:"active_connections"`
	Billed            int      `json:"billed"`  // calls
	Refused           int      `json:"refused"` // calls
	UserChargeMC      money.MC `json:"user_charge_mc"`
	DevMarginMC       money.MC `json:"dev_margin_mc"`
	Partial           bool     `json:"partial"` // there were more requests than were read
	Error             string   `json:"error,omitempty"`
}

// maxFigurePages bounds how many pages of 100 requests the figures are made of.
const maxFigurePages = 10

// Run lists the profiles. One that cannot be read does not hide the others.
func (c *appsListCmd) Run(p *program) error {
	list, err := newProfileStore(p).list()
	if err != nil {
		return exitError{err, exitUsage}
	}
	if len(list) == 0 {
		return errors.New("there is no profile; run purser apps login, or start purser dev in this folder")
	}
	ctx, stop := interruptContext()
	defer stop()
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	if !c.JSON {
		fmt.Fprintln(table, "PROFILE\tAPP\tNAME\tTIER\tCONNECTIONS\tBILLED\tREFUSED\tCHARGED\tMARGIN\tSERVER")
	}
	failed := false
	for _, pr := range list {
		f, err := readFigures(ctx, pr)
		if err != nil {
			failed, f.Error = true, err.Error()
		}
		if c.JSON {
			err = json.NewEncoder(p.out).Encode(f)
		} else {
			_, err = fmt.Fprintln(table, f.line())
		}
		if err != nil {
			return err
		}
	}
	if err := table.Flush(); err != nil || !failed {
		return err
	}
	return exitError{nil, exitFailed} // the table says why
}

// line is the row of a table.
func (f appFigures) line() string {
	if f.Error != "" {
		return strings.Join([]string{f.Profile, f.App, f.Error}, "\t")
	}
	more := ""
	if f.Partial {
		more = "+"
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d%s\t%d%s\t%s%s\t%s%s\t%s", f.Profile, f.App, f.Name, f.Tier,
		f.ActiveConnections, f.Billed, more, f.Refused, more, f.UserChargeMC.Display(), more, f.DevMarginMC.Display(),
		more, f.Server)
}

// readFigures reads the key figures of the app of a profile.
func readFigures(ctx context.Context, pr profile) (f appFigures, err error) {
	f = appFigures{Profile: pr.Name, Server: pr.Server, App: pr.App}
	c := pr.newClient()
	if _, err := c.list(ctx, c.appPath, "app", &f); err != nil {
		return f, err
	}
	f.App = pr.App
	var connections []struct{ Status string }
	if _, err := c.list(ctx, "/v1/connections", "list of connections", &connections); err != nil {
		return f, err
	}
	for _, conn := range connections {
		if conn.Status == "active" {
			f.ActiveConnections++
		}
	}
	q := url.Values{"limit": {"100"}, "since": {time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)}}
	next := c.appPath + "/requests?" + q.Encode()
	for page := 0; next != ""; page++ {
		if page == maxFigurePages {
			f.Partial = true
			break
		}
		var rows []loggedRequest
		if next, err = c.list(ctx, next, "list of requests", &rows); err != nil {
			return f, err
		}
		for _, row := range rows {
			switch row.Status {
			case "refused":
				f.Refused++
			case "settled", "estimated":
				f.Billed++
			}
			f.UserChargeMC += row.UserChargeMC
			f.DevMarginMC += row.DevMarginMC
		}
	}
	return f, nil
}

type appsLoginCmd struct {
	Name     string `arg:"" optional:"" help:"Name of the profile (default: default)."`
	Server   string `default:"${defaultServer}" placeholder:"URL" help:"The service (default: ${default})."`
	App      string `required:"" placeholder:"ID" help:"The app's id."`
	ClientID string `name:"client-id" required:"" placeholder:"ID" help:"The app's client_id."`
}

// Help is shown by purser apps login --help.
func (appsLoginCmd) Help() string {
	return "Asks for the client_secret of the app, or reads it from standard input, checks it, and stores it in a " +
		"file that only you can read. Your console shows all three in the settings of the app.\n\nExample:\n" +
		"  purser apps login shop --server https://purser.example.com --app app_… --client-id cid_… < secret.txt"
}

// Run stores a profile whose credentials the service accepts.
func (c *appsLoginCmd) Run(p *program) error {
	name := cmp.Or(c.Name, "default")
	store := newProfileStore(p)
	server, err := parseServer(c.Server)
	switch {
	case err != nil:
		return exitError{fmt.Errorf("--server: %w", err), exitUsage}
	case store.folder == "":
		return exitError{errors.New("HOME or XDG_CONFIG_HOME: required, for the file with the secret"), exitUsage}
	case !profileName.MatchString(name):
		return exitError{errors.New("the name of a profile has letters, digits, dots and dashes"), exitUsage}
	}
	ctx, stop := interruptContext()
	defer stop()
	secret, err := p.readSecret(ctx, "client_secret of "+c.ClientID)
	if err != nil {
		return exitError{err, exitUsage}
	}
	found, err := newOAuthClient().discoverFrom(ctx, server)
	if err != nil {
		return err
	}
	pr := profile{
		Name:         name,
		Server:       strings.TrimSuffix(found.TokenEndpoint, "/oauth/token"),
		AuthURL:      found.Issuer,
		App:          c.App,
		ClientID:     c.ClientID,
		ClientSecret: secret,
	}
	client := pr.newClient()
	var app struct{ Name, Tier string }
	_, err = client.list(ctx, client.appPath, "app", &app)
	if refusal, ok := errors.AsType[apiError](err); ok && refusal.status == http.StatusUnauthorized {
		return errors.New("the service does not accept this client_id with this client_secret")
	} else if ok && refusal.status == http.StatusNotFound {
		return fmt.Errorf("--app: %s is not the app of this client_id", c.App)
	} else if err != nil {
		return err
	}
	if err := store.write(pr); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "Stored as profile %s: %s (%s) at %s.\n", name, app.Name, app.Tier, pr.Server)
	return err
}

// discoverFrom reads the metadata of a service at its base URL or at its issuer.
func (o *oauthClient) discoverFrom(ctx context.Context, server string) (service, error) {
	s, err := o.readMetadata(ctx, server)
	if err != nil {
		return service{}, err
	}
	if _, err := parseServer(s.Issuer); err != nil || !strings.HasSuffix(s.TokenEndpoint, "/oauth/token") {
		return service{}, errors.New("--server: is this the address of a Purser service?")
	}
	if server != s.Issuer && server != strings.TrimSuffix(s.TokenEndpoint, "/oauth/token") {
		return service{}, exitError{fmt.Errorf("--server: the service calls itself %q; use that address", s.Issuer),
			exitUsage}
	}
	return s, nil
}

// readSecret asks for a secret on a terminal, without an echo, or reads one line.
func (p *program) readSecret(ctx context.Context, what string) (string, error) {
	if p.in == nil {
		return "", fmt.Errorf("%s: give it on standard input", what)
	}
	if f, ok := p.in.(*os.File); ok && isTerminal(f) {
		fmt.Fprintf(p.err, "%s: ", what)
		setEcho := func(mode string) {
			stty := exec.Command("stty", mode)
			stty.Stdin = f
			_ = stty.Run() // without stty the secret is shown to its owner
		}
		setEcho("-echo")
		defer func() { setEcho("echo"); fmt.Fprintln(p.err) }()
	}
	type line struct {
		text string
		err  error
	}
	read := make(chan line, 1)
	go func() { // a read of a terminal cannot be interrupted
		text, err := bufio.NewReader(io.LimitReader(p.in, 4096)).ReadString('\n')
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		secret := strings.TrimSpace(l.text)
		if l.err != nil && !errors.Is(l.err, io.EOF) {
			return "", l.err
		} else if secret == "" {
			return "", fmt.Errorf("%s: is missing; give it on standard input", what)
		}
		return secret, nil
	case <-ctx.Done():
		return "", errors.New("interrupted")
	}
}

type appsLogoutCmd struct {
	Name string `arg:"" predict:"profile" help:"Name of the profile."`
}

// Help is shown by purser apps logout --help.
func (appsLogoutCmd) Help() string {
	return "The client_secret stays valid: rotate it in your console if others may have seen it.\n\n" +
		"Example:\n  purser apps logout shop"
}

// Run deletes a profile.
func (c *appsLogoutCmd) Run(p *program) error {
	err := newProfileStore(p).remove(c.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no profile %s on this machine", c.Name)
	} else if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out, "Deleted profile %s. Its client_secret stays valid.\n", c.Name)
	return err
}
