package commands

import (
	"encoding/json"
	"fmt"
)

type secretsCmd struct {
	operatorClient

	Reseal resealCmd `cmd:"" help:"Seal every secret in the database under the first envelope key."`
}

type resealCmd struct{}

// Help is shown by purser secrets reseal --help.
func (resealCmd) Help() string {
	return "For a change of the envelope key, while nodes run: give every node OLD,NEW as its envelope_key, then " +
		"NEW,OLD, then run this command, then give every node NEW alone. Run it again after an interruption. " +
		"\"unreadable\" counts what none of the node's keys opens: then the exit code is 1, and nodes do not start " +
		"without OLD.\n\n" +
		"The command calls the operator's API of a node, which needs the setting operator_token.\n\nExample:\n" +
		"  PURSER_OPERATOR_TOKEN=$(cat operator.token) purser secrets reseal"
}

// Run asks a node to do it.
func (resealCmd) Run(p *program, c *cli) error {
	ctx, stop := interruptContext()
	defer stop()
	text, _, err := c.Secrets.send(ctx, p, "POST", "secrets/reseal", nil)
	if err != nil {
		return err
	}
	if err := printJSON(p, text); err != nil {
		return err
	}
	var done struct{ Unreadable int64 }
	if err := json.Unmarshal(text, &done); err != nil {
		return err
	}
	if done.Unreadable > 0 {
		return fmt.Errorf("%d secrets open under none of the node's keys: keep the old key until they are replaced",
			done.Unreadable)
	}
	return nil
}
