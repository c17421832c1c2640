package main

type secretsCmd struct {
	operatorClient

	Reseal resealCmd `cmd:"" help:"Seal every secret in the database under the first envelope key."`
}

type resealCmd struct{}

// Help is shown by purser secrets reseal --help.
func (resealCmd) Help() string {
	return "For a change of the envelope key, while nodes run: give every node OLD,NEW as its envelope_key, then " +
		"NEW,OLD, then run this command, then give every node NEW alone. Run it again after an interruption. " +
		"\"unreadable\" counts what none of the node's keys opens.\n\n" +
		"The command calls the operator's API of a node, which needs the setting operator_token.\n\nExample:\n" +
		"  PURSER_OPERATOR_TOKEN=$(cat operator.token) purser secrets reseal"
}

// Run asks a node to do it.
func (resealCmd) Run(p *program, c *cli) error {
	return c.Secrets.callAPI(p, "POST", "secrets/reseal", nil)
}
