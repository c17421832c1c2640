package commands

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/purserhq/purser/internal/config"
)

type openCmd struct {
	Page    string `arg:"" default:"console" enum:"console,dashboard,docs,reference,mail,operator" help:"${openPages}"`
	Profile string `predict:"profile" placeholder:"NAME" help:"Profile of purser apps; or PURSER_PROFILE."`
	URL     string `name:"url" placeholder:"URL" help:"The service (default: the profile's)."`
	Print   bool   `help:"Print the address, and open nothing."`
}

// openPages is the help of the pages.
const openPages = "console (default), dashboard, docs, reference, mail (purser dev's) or operator."

// pagePaths are where the pages are: those of people at the authorization URL, the documentation at the API's.
var pagePaths = map[string]string{
	"console":   "/developer",
	"dashboard": "/dashboard",
	"docs":      "/docs",
	"reference": "/reference",
	"mail":      "/dev/mail",
	"operator":  "/operator",
}

// Help is shown by purser open --help.
func (openCmd) Help() string {
	return "Opens a page of the profile's service, or of purser dev at " + defaultServer +
		", by $BROWSER, xdg-open or " +
		"open. It prints the address, too.\n\nExample:\n  purser open docs"
}

// Run opens the page. Without a browser the printed address is enough.
func (c *openCmd) Run(p *program) error {
	flags := appFlags{Profile: c.Profile, URL: c.URL}
	service := profile{Server: strings.TrimSuffix(cmp.Or(c.URL, defaultServer), "/")}
	service.AuthURL = service.Server
	isChosen := c.Profile != "" || environmentVariable(p.environ, config.ProfileVariable) != ""
	if list, err := newProfileStore(p).list(); isChosen || c.URL == "" && err == nil && len(list) > 0 {
		if service, err = flags.chooseProfile(p); err != nil {
			return err
		}
	}
	base := service.AuthURL
	if c.Page == "docs" || c.Page == "reference" {
		base = service.Server
	}
	address := cmp.Or(base, service.Server) + pagePaths[c.Page]
	if _, err := fmt.Fprintln(p.out, address); err != nil || c.Print {
		return err
	}
	browser := findBrowser(p.environ)
	if browser == nil {
		return nil
	}
	cmd := exec.Command(browser[0], append(browser[1:], address)...)
	cmd.Env = p.environ
	cmd.Stderr = p.err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w; open the address yourself", browser[0], err)
	}
	return nil
}

// findBrowser returns the command that opens an address; nil = there is none.
func findBrowser(environ []string) []string {
	if list := environmentVariable(environ, "BROWSER"); list != "" {
		first, _, _ := strings.Cut(list, string(os.PathListSeparator))
		if words := strings.Fields(first); len(words) > 0 {
			return words
		}
	}
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	} else if environmentVariable(environ, "DISPLAY")+environmentVariable(environ, "WAYLAND_DISPLAY") == "" {
		return nil // xdg-open would start a browser of the terminal
	}
	if path, err := exec.LookPath(name); err == nil {
		return []string{path}
	}
	return nil
}
