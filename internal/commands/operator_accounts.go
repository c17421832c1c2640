package commands

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
)

// accountPath returns the path of an account, which may be named by its id, its email address, its
// safety identifier, or by a connection or a request of it.
func accountPath(name string) string { return "accounts/" + url.PathEscape(name) }

// namedAccount is the account that a command is about.
type namedAccount struct {
	Account string `arg:"" help:"The account: wac_…, its email address, its safety identifier, or a conn_… or req_… of it."`
}

func (a namedAccount) path() string { return accountPath(a.Account) }

type searchAppsCmd struct {
	Search string `arg:"" optional:"" help:"Part of the name, the id or the client id."`
	paging
}

// Help is shown by purser operator apps --help.
func (searchAppsCmd) Help() string { return exampleHelp("apps reader") }

// Run lists the apps.
func (a *searchAppsCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", a.listPath("apps", map[string]string{"search": a.Search}), nil)
}

type accountsCmd struct {
	Search string `arg:"" optional:"" help:"An email address, a safety identifier, or the id of an account, connection, ledger row or request."`
	paging
}

// Help is shown by purser operator accounts --help.
func (accountsCmd) Help() string { return exampleHelp("accounts person@example.com") }

// Run lists the accounts.
func (a *accountsCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", a.listPath("accounts", map[string]string{"search": a.Search}), nil)
}

type accountCmd struct{ namedAccount }

// Help is shown by purser operator account --help.
func (accountCmd) Help() string {
	return "Shows the account with its connections, which purser operator freeze pauses.\n\n" +
		exampleHelp("account person@example.com")
}

// Run shows the account.
func (a *accountCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", a.path(), nil)
}

// ofFlags name an account or an app, of which a list is.
type ofFlags struct {
	Of      string `arg:"" optional:"" help:"The account, wac_… or its email address, or the app, app_…"`
	Account string `placeholder:"ACCOUNT" help:"Of this account: wac_… or its email address."`
	App     string `placeholder:"ID" help:"Of this app, app_…"`
}

// filter returns the parameters of the list. The argument and a flag that says the same are an error.
func (f *ofFlags) filter() (map[string]string, error) {
	account, app := f.Account, f.App
	if at := &account; f.Of != "" {
		if strings.HasPrefix(f.Of, "app_") {
			at = &app
		}
		if *at != "" {
			return nil, exitError{fmt.Errorf("%s: given twice", f.Of), exitUsage}
		}
		*at = f.Of
	}
	return map[string]string{"account": account, "app": app}, nil
}

type connectionsCmd struct {
	ofFlags
	Status string `enum:",active,frozen,revoked" default:"" placeholder:"STATUS" help:"Only those that are active, frozen or revoked."`
	paging
}

// Help is shown by purser operator connections --help.
func (connectionsCmd) Help() string { return exampleHelp("connections person@example.com") }

// Run lists the connections.
func (a *connectionsCmd) Run(p *program, c *cli) error {
	filter, err := a.filter()
	if err != nil {
		return err
	}
	filter["status"] = a.Status
	return c.Operator.callAPI(p, "GET", a.listPath("connections", filter), nil)
}

type chargesCmd struct {
	ofFlags
	paging
}

// Help is shown by purser operator charges --help.
func (chargesCmd) Help() string {
	return exampleHelp("charges person@example.com --limit 50")
}

// Run lists the charges.
func (a *chargesCmd) Run(p *program, c *cli) error {
	filter, err := a.filter()
	if err != nil {
		return err
	}
	if (filter["account"] == "") == (filter["app"] == "") {
		return exitError{errors.New("give an account or an app"), exitUsage}
	}
	return c.Operator.callAPI(p, "GET", a.listPath("charges", filter), nil)
}

type chargeCmd struct {
	ID string `arg:"" help:"The ledger row, led_…, or the request, req_…"`
}

// Help is shown by purser operator charge --help.
func (chargeCmd) Help() string { return exampleHelp("charge req_06f2k8m3q5t7w9y1b3d5f7h9j1") }

// Run shows the ledger row.
func (a *chargeCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", "ledger/"+url.PathEscape(a.ID), nil)
}

type inviteCmd struct {
	Email string `arg:"" help:"The email address of the new account."`
}

// Help is shown by purser operator invite --help.
func (inviteCmd) Help() string {
	return "The link works once, for seven days. Hand it over yourself: no email is sent, so that it works before mail is " +
		"set up.\n\n" + exampleHelp("invite person@example.com")
}

// Run prints the invitation.
func (a *inviteCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "invitations", map[string]string{"email": a.Email})
}

type creditCmd struct {
	namedAccount
	Amount string `arg:"" help:"In dollars, such as 5 or 0.50; at most 1000."`
	ID     string `name:"id" placeholder:"ID" help:"Repeat a command whose answer was lost: the id that it printed, gwc_…"`
	reason
}

// Help is shown by purser operator credit --help.
func (creditCmd) Help() string {
	return "The user gets an email with the reason. purser operator reverse takes back what is left of a credit.\n\n" +
		exampleHelp("credit person@example.com 5 --reason 'Sorry for the outage.'")
}

// Run gives the goodwill credit.
func (a *creditCmd) Run(p *program, c *cli) error {
	amount, err := money.Parse(a.Amount)
	if err != nil {
		return exitError{fmt.Errorf("AMOUNT: %w", err), exitUsage}
	}
	if a.ID == "" {
		a.ID = id.New(id.Goodwill, time.Now())
	}
	body := map[string]any{"id": a.ID, "amount_mc": int64(amount), "reason": a.Reason}
	if err := c.Operator.callAPI(p, "POST", a.path()+"/goodwill", body); err != nil {
		return fmt.Errorf("%w; to repeat this credit and no other, add --id %s", err, a.ID)
	}
	return nil
}

type closeAccountCmd struct {
	namedAccount
	Yes bool `help:"Do not ask before, on a terminal."`
	reason
}

// Help is shown by purser operator close --help.
func (closeAccountCmd) Help() string {
	return "Suspends the account, revokes its connections, refunds what is left of its payments at Stripe, takes back what " +
		"is left of goodwill credits, and erases its personal data. The ledger stays. While a call runs, a payment " +
		"or a refund is pending, or users are connected to its apps, it stops in between and says so: repeat it " +
		"then. This cannot be undone. Of an account that is closed it returns what came back to it since, such as " +
		"a refund that the bank rejected.\n\n" +
		exampleHelp("close person@example.com --reason 'Asked for by its user.'")
}

// Run closes the account.
func (a *closeAccountCmd) Run(p *program, c *cli) error {
	if f, ok := p.in.(*os.File); ok && isTerminal(f) && !a.Yes {
		ctx, stop := interruptContext()
		text, _, err := c.Operator.send(ctx, p, "GET", a.path(), nil)
		stop()
		if err == nil {
			err = askToClose(p, text)
		}
		if err != nil {
			return err
		}
	}
	return c.Operator.callAPI(p, "POST", a.path()+"/close", a.requestBody())
}

// askToClose shows which account is meant, and returns an error unless its id or its email address is typed.
func askToClose(p *program, account []byte) error {
	var shown struct {
		ID, Email string
		Available string `json:"available_display"`
	}
	if err := json.Unmarshal(account, &shown); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(p.err, "Close %s (%s), which has %s? This can't be undone. Type its id or email "+
		"address to go on: ", shown.ID, shown.Email, shown.Available); err != nil {
		return err
	}
	typed, err := bufio.NewReader(io.LimitReader(p.in, 4096)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if typed = strings.TrimSpace(typed); typed == "" || typed != shown.ID && typed != shown.Email {
		return errors.New("nothing was closed")
	}
	return nil
}

type settleCmd struct {
	namedAccount
	Amount string `arg:"" help:"In dollars, such as 20 or 0.50."`
	ID     string `name:"id" placeholder:"ID" help:"Repeat a command: the id that it printed."`
	reason
}

// Help is shown by purser operator settle --help.
func (settleCmd) Help() string {
	return "For money of a suspended or closed account that no card takes back: pay the user otherwise, such as by " +
		"bank transfer, and record it. The amount leaves the balance; no money moves by this.\n\n" +
		exampleHelp("settle person@example.com 20 --reason 'Paid by bank transfer.'")
}

// Run records the payment.
func (a *settleCmd) Run(p *program, c *cli) error {
	amount, err := money.Parse(a.Amount)
	if err != nil {
		return exitError{fmt.Errorf("AMOUNT: %w", err), exitUsage}
	}
	if a.ID == "" {
		a.ID = id.New(id.Settlement, time.Now())
	}
	body := map[string]any{"id": a.ID, "amount_mc": int64(amount), "reason": a.Reason}
	if err := c.Operator.callAPI(p, "POST", a.path()+"/settle", body); err != nil {
		return fmt.Errorf("%w; to repeat this settlement and no other, add --id %s", err, a.ID)
	}
	return nil
}

type mailsCmd struct {
	namedAccount
	paging
}

// Help is shown by purser operator mails --help.
func (mailsCmd) Help() string { return exampleHelp("mails person@example.com") }

// Run lists the mails.
func (a *mailsCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", a.listPath("mails", map[string]string{"account": a.Account}), nil)
}

type resendCmd struct {
	ID string `arg:"" help:"The mail, mail_…"`
}

// Help is shown by purser operator resend --help.
func (resendCmd) Help() string {
	return "Sends a mail again that was sent or given up within the last seven days, or one that waits now. Links in it " +
		"may have expired: the user can request another.\n\n" +
		exampleHelp("resend mail_06f2k8m3q5t7w9y1b3d5f7h9j1")
}

// Run has the mail sent.
func (a *resendCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "mails/"+url.PathEscape(a.ID)+"/resend", nil)
}

type signOutCmd struct {
	namedAccount
	reason
}

// Help is shown by purser operator sign-out --help.
func (signOutCmd) Help() string {
	return "Links in emails stop working, too. Connections to apps stay.\n\n" +
		exampleHelp("sign-out person@example.com --reason 'Lost a laptop.'")
}

// Run ends the sessions.
func (a *signOutCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", a.path()+"/sign-out", a.requestBody())
}

type resetTwoStepCmd struct {
	namedAccount
	reason
}

// Help is shown by purser operator reset-two-step --help.
func (resetTwoStepCmd) Help() string {
	return "Removes passkeys, authenticator app and recovery codes, and ends all sessions. Make sure that you talk to the " +
		"owner of the account: afterwards the password alone signs in.\n\n" +
		exampleHelp("reset-two-step person@example.com --reason 'Lost the phone; verified by a call.'")
}

// Run removes the second factors.
func (a *resetTwoStepCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", a.path()+"/reset-two-step", a.requestBody())
}
