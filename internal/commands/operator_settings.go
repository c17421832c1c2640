package commands

import (
	"errors"
	"net/url"
	"strings"
)

type settingsCmd struct{}

// Help is shown by purser operator settings --help.
func (settingsCmd) Help() string {
	return "Lists what holds for all calls on every node: fee, free credit, bounds of sandboxes, thresholds of risk. " +
		"The newest version is the first; purser operator set makes another one.\n\n" + exampleHelp("settings")
}

// Run lists the versions of the settings.
func (settingsCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", "settings", nil)
}

type setCmd struct {
	Settings []string `arg:"" name:"NAME=VALUE" help:"Settings by their names in purser.yaml, such as fee_rate=0.04."`
	From     string   `placeholder:"TIME" help:"When it begins, such as 2027-01-01T00:00:00Z (default: in 10 s)."`
	reason
}

// Help is shown by purser operator set --help.
func (setCmd) Help() string {
	return "Calls that have begun keep their terms.\n\n" +
		exampleHelp("set fee_rate=0.04 --from 2027-01-01T00:00:00Z --reason 'New prices, announced in November.'")
}

// Run changes the settings.
func (s *setCmd) Run(p *program, c *cli) error {
	values := map[string]string{}
	for _, pair := range s.Settings {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return exitError{errors.New("a setting is NAME=VALUE, such as fee_rate=0.04"), exitUsage}
		}
		values[name] = value
	}
	body := map[string]any{"settings": values, "reason": s.Reason}
	if s.From != "" {
		body["from"] = s.From
	}
	return c.Operator.callAPI(p, "POST", "settings", body)
}

type withdrawCmd struct {
	ID string `arg:"" help:"The version of the settings, pol_…"`
	reason
}

// Help is shown by purser operator withdraw --help.
func (withdrawCmd) Help() string {
	return exampleHelp("withdraw pol_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason 'Announced too late.'")
}

// Run withdraws the change.
func (w *withdrawCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "settings/"+url.PathEscape(w.ID)+"/withdraw", w.requestBody())
}
