package commands

import (
	"fmt"
	"os"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/proofs"
)

type receiptCmd struct {
	Verify verifyReceiptCmd `cmd:"" help:"Verify a receipt, or a whole history, that was downloaded with its proof."`
}

type verifyReceiptCmd struct {
	File string `arg:"" help:"The file with the proof."`
	Key  string `placeholder:"KEY" help:"The log's key. Default: the one in the file."`
}

// Help is shown by purser receipt verify --help.
func (verifyReceiptCmd) Help() string {
	return "Needs neither a server nor a database. It computes the hash of the row from its columns, and shows by " +
		"the proof that the signed log has a leaf which commits to it. Without --key it trusts the key in the file: " +
		"compare it with the one that you know, or that GET /v1/log tells.\n\n" +
		"Exits with 0 if the proof is right, 1 if not, 2 if the file cannot be read.\n\n" +
		"Example:\n  purser receipt verify purser-receipt-led_….json"
}

// Run verifies the file.
func (c *verifyReceiptCmd) Run(p *program) error {
	text, err := os.ReadFile(c.File)
	if err != nil {
		return exitError{err, exitUsage}
	}
	receipt, history, err := proofs.Parse(text)
	if err != nil {
		return exitError{err, exitUsage}
	}
	var key string
	var checkpoint proofs.Checkpoint
	if receipt != nil {
		key = receipt.Proof.Key
		if c.Key != "" {
			key = c.Key
		}
		if checkpoint, err = receipt.Verify(key); err == nil {
			_, err = fmt.Fprintln(p.out, describeRow(&receipt.Row))
		}
	} else {
		key = history.Proof.Key
		if c.Key != "" {
			key = c.Key
		}
		if checkpoint, err = history.Verify(key); err == nil {
			_, err = fmt.Fprintf(p.out, "account   %s: %d rows, none missing or changed\nlast row  %s\n",
				history.AccountID, len(history.Rows), describeRow(&history.Rows[len(history.Rows)-1]))
		}
	}
	if err != nil {
		return exitError{err, exitFailed}
	}
	_, err = fmt.Fprintf(p.out, "proved by %s, %d leaves\nkey       %s\n", checkpoint.Origin, checkpoint.Tree.N, key)
	if err == nil && c.Key == "" {
		_, err = fmt.Fprintln(p.out, "The key is the one in the file. Compare it with the key that you know.")
	}
	return err
}

// describeRow says in a line what a row is.
func describeRow(r *proofs.Row) string {
	at := time.UnixMicro(r.Integer("created_us")).UTC().Format(time.RFC3339)
	amount := money.MC(r.Integer("user_charge_mc"))
	if r.Text("type") != "spend" {
		amount = money.MC(r.Integer("available_delta_mc"))
	}
	return fmt.Sprintf("%s  %s %s of %s (%d micro-cents) at %s", r.Text("id"), r.Text("status"), r.Text("type"),
		amount.Display(), amount, at)
}
