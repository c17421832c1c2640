package commands

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/pages/operator"
)

// operatorClient is a thin client of the operator's API of a running node.
type operatorClient struct {
	URL       string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"Where the API is (default: http://127.0.0.1:8080)."`
	TokenFile string `placeholder:"FILE" help:"File with the operator's token; otherwise it is taken from PURSER_OPERATOR_TOKEN."`
}

// operatorCmd has the operator's actions.
type operatorCmd struct {
	operatorClient

	Requests     requestsCmd     `cmd:"" help:"List the go-live requests to review, oldest first."`
	Approve      approveCmd      `cmd:"" help:"Approve a go-live request: the app moves to its next tier."`
	Refuse       refuseCmd       `cmd:"" help:"Reject a go-live request: the app keeps its tier and may ask again."`
	Apps         searchAppsCmd   `cmd:"" help:"List apps, newest first, or search them."`
	App          appCmd          `cmd:"" help:"Show an app."`
	Accounts     accountsCmd     `cmd:"" help:"List accounts, newest first, or search for one."`
	Account      accountCmd      `cmd:"" help:"Show an account, its balance and its connections."`
	Connections  connectionsCmd  `cmd:"" help:"List connections, newest first."`
	Charges      chargesCmd      `cmd:"" help:"List charges and refunds of an account or an app, newest first."`
	Charge       chargeCmd       `cmd:"" help:"Show a charge or another ledger row."`
	Suspended    suspendedCmd    `cmd:"" help:"List the suspended apps."`
	Suspend      suspendCmd      `cmd:"" help:"Suspend an app or an account."`
	Lift         liftCmd         `cmd:"" help:"Lift the suspension of an app or an account."`
	Reverse      reverseCmd      `cmd:"" help:"Refund a charge by a new ledger row."`
	Credit       creditCmd       `cmd:"" help:"Credit an account without a payment, as goodwill."`
	Close        closeAccountCmd `cmd:"" help:"Close an account, and refund what is left of its payments."`
	Settle       settleCmd       `cmd:"" help:"Record that a user was paid a balance otherwise than by a card."`
	Freeze       freezeCmd       `cmd:"" help:"Pause a connection."`
	Resume       resumeCmd       `cmd:"" help:"Resume a connection."`
	Revoke       revokeCmd       `cmd:"" help:"End a connection."`
	Invite       inviteCmd       `cmd:"" help:"Print a link by which the owner of an email address gets an account."`
	SignOut      signOutCmd      `cmd:"" help:"End all sessions of an account."`
	ResetTwoStep resetTwoStepCmd `cmd:"" help:"Remove the second factors of an account whose owner has lost them."`
	Mails        mailsCmd        `cmd:"" help:"List the mails of an account, newest first."`
	Resend       resendCmd       `cmd:"" help:"Send a mail again."`
	Reconcile    reconcileCmd    `cmd:"" help:"Compare the books with Stripe, and book what they do not have."`
	Grant        grantCmd        `cmd:"" help:"Give an account access to the operator's pages, or remove it."`
	Settings     settingsCmd     `cmd:"" help:"List what holds for all calls, such as the fee, and since when."`
	Set          setCmd          `cmd:"" help:"Change what holds for all calls, from a time on."`
	Withdraw     withdrawCmd     `cmd:"" help:"Withdraw a change of the settings that has not begun."`
	Log          logCmd          `cmd:"" help:"List the audit log, newest first."`
}

// Help is shown by purser operator --help.
func (operatorCmd) Help() string {
	return "Calls the operator's API of a node. The node needs the setting operator_token. Answers are JSON.\n\n" +
		"Example:\n  PURSER_OPERATOR_TOKEN=$(cat purser-data/operator.token) purser operator requests"
}

// callAPI sends one request and prints its answer.
func (c *operatorClient) callAPI(p *program, method, path string, body any) error {
	ctx, stop := interruptContext()
	defer stop()
	text, header, err := c.send(ctx, p, method, path, body)
	if err != nil {
		return err
	}
	if err := printJSON(p, text); err != nil {
		return err
	}
	if after := findNextPage(header.Get("Link")); after != "" {
		_, err = fmt.Fprintln(p.err, "There are more: add --after "+after)
	}
	return err
}

// printJSON prints an answer, indented.
func printJSON(p *program, text []byte) error {
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, bytes.TrimSpace(text), "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	_, err := fmt.Fprintln(p.out, pretty.String())
	return err
}

// send sends one request and returns its answer. An error answer becomes an error with its code and message.
func (c *operatorClient) send(ctx context.Context, p *program, method, path string, body any) ([]byte, http.Header,
	error) {
	token, err := c.readToken(p.environ)
	if err != nil {
		return nil, nil, exitError{err, exitUsage}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := newRequest(ctx, method, strings.TrimSuffix(c.URL, "/")+"/v1/operator/"+path, body)
	if err != nil {
		return nil, nil, exitError{err, exitUsage}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	// A redirect must not get the token.
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, describeRefusal(resp.StatusCode, text)
	}
	return text, resp.Header, nil
}

// findNextPage returns the starting_after of the next page in a Link header; "" = this is the last page.
func findNextPage(link string) string {
	target, rest, ok := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	if !ok || !strings.Contains(rest, `rel="next"`) {
		return ""
	}
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	return u.Query().Get("starting_after")
}

// paging selects a page of a list.
type paging struct {
	Limit int    `default:"20" placeholder:"N" help:"Rows at most, 1 to 100 (default: 20)."`
	After string `placeholder:"ID" help:"Continue after this row, the last one of the page before."`
}

// listPath returns the path of a page of a list with a filter, without what is empty in it.
func (g paging) listPath(path string, filter map[string]string) string {
	q := url.Values{"limit": {strconv.Itoa(g.Limit)}}
	if g.After != "" {
		q.Set("starting_after", g.After)
	}
	for name, value := range filter {
		if value != "" {
			q.Set(name, value)
		}
	}
	return path + "?" + q.Encode()
}

func newRequest(ctx context.Context, method, address string, body any) (*http.Request, error) {
	if body == nil {
		return http.NewRequestWithContext(ctx, method, address, http.NoBody)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(text))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// describeRefusal returns an error with the code and message of an error envelope.
func describeRefusal(status int, text []byte) error {
	var e struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(text, &e); err != nil || e.Error.Code == "" {
		return fmt.Errorf("answered %d; is this the address of Purser's API?", status)
	}
	if status == http.StatusNotFound && !strings.HasPrefix(e.Error.Message, "no such") {
		return errors.New("there is no operator's API at this address; its setting is operator_token")
	}
	return fmt.Errorf("%s: %s", e.Error.Code, e.Error.Message)
}

// readToken reads the operator's token from a file or the environment. It is never on the
// command line, which every user of the machine can read.
func (c *operatorClient) readToken(environ []string) (string, error) {
	if c.TokenFile != "" {
		text, err := os.ReadFile(c.TokenFile)
		_, token := operator.SplitToken(strings.TrimSpace(string(text)))
		return token, err
	}
	for _, pair := range environ {
		if token, ok := strings.CutPrefix(pair, "PURSER_OPERATOR_TOKEN="); ok && token != "" {
			first, _, _ := strings.Cut(token, ",") // a node may take several
			_, token = operator.SplitToken(strings.TrimSpace(first))
			return token, nil
		}
	}
	return "", errors.New("the operator's token is missing: set PURSER_OPERATOR_TOKEN, or give --token-file")
}

// reason is the reason of an action, for the audit log and for the affected users.
type reason struct {
	Reason string `required:"" placeholder:"TEXT" help:"Why; the affected users may read it."`
}

func (r reason) requestBody() any { return map[string]string{"reason": r.Reason} }

// exampleHelp returns a help text that is only an example.
func exampleHelp(command string) string { return "Example:\n  purser operator " + command }

type requestsCmd struct{}

// Help is shown by purser operator requests --help.
func (requestsCmd) Help() string { return exampleHelp("requests --url https://api.example.com") }

// Run lists the requests.
func (requestsCmd) Run(p *program, c *cli) error { return c.Operator.callAPI(p, "GET", "go-live", nil) }

type approveCmd struct {
	ID string `arg:"" help:"The request, glr_…"`
}

// Help is shown by purser operator approve --help.
func (approveCmd) Help() string { return exampleHelp("approve glr_06f2k8m3q5t7w9y1b3d5f7h9j1") }

// Run approves the request.
func (a *approveCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "go-live/"+url.PathEscape(a.ID)+"/approve", nil)
}

type refuseCmd struct {
	ID string `arg:"" help:"The request, glr_…"`
	reason
}

// Help is shown by purser operator refuse --help.
func (refuseCmd) Help() string {
	return exampleHelp("refuse glr_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason 'The features say too little.'")
}

// Run refuses the request.
func (a *refuseCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "go-live/"+url.PathEscape(a.ID)+"/refuse", a.requestBody())
}

type appCmd struct {
	ID string `arg:"" help:"The app, app_…"`
}

// Help is shown by purser operator app --help.
func (appCmd) Help() string { return exampleHelp("app app_06f2k8m3q5t7w9y1b3d5f7h9j1") }

// Run shows the app.
func (a *appCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", "apps/"+url.PathEscape(a.ID), nil)
}

type suspendedCmd struct{}

// Help is shown by purser operator suspended --help.
func (suspendedCmd) Help() string { return exampleHelp("suspended") }

// Run lists the apps.
func (suspendedCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "GET", "suspended-apps", nil)
}

// suspendablePath returns the path of an app, or of what else names an account.
func suspendablePath(name string) string {
	if strings.HasPrefix(name, "app_") {
		return "apps/" + url.PathEscape(name)
	}
	return accountPath(name)
}

type suspendCmd struct {
	ID string `arg:"" help:"The app, app_…, or the account, wac_… or its email address."`
	reason
}

// Help is shown by purser operator suspend --help.
func (suspendCmd) Help() string {
	return "A suspended app has no calls, no tokens and no new connections. A suspended account cannot sign in, and its " +
		"connections are paused; its balance stays.\n\n" +
		exampleHelp("suspend app_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason 'Its secret has leaked.'")
}

// Run suspends the app or the account.
func (a *suspendCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", suspendablePath(a.ID)+"/suspend", a.requestBody())
}

type liftCmd struct {
	ID string `arg:"" help:"The app, app_…, or the account, wac_… or its email address."`
}

// Help is shown by purser operator lift --help.
func (liftCmd) Help() string { return exampleHelp("lift app_06f2k8m3q5t7w9y1b3d5f7h9j1") }

// Run lifts the suspension.
func (a *liftCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", suspendablePath(a.ID)+"/lift", nil)
}

type reverseCmd struct {
	ID string `arg:"" help:"The charge, by its ledger row, led_…, or by its request, req_…"`
	reason
}

// Help is shown by purser operator reverse --help.
func (reverseCmd) Help() string {
	return "The money returns to the connection, or to the user's available balance if it is revoked. A charge can " +
		"be reversed once. Of a goodwill credit it takes back what is left and available.\n\n" +
		exampleHelp("reverse req_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason provider_error")
}

// Run reverses the charge.
func (a *reverseCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "ledger/"+url.PathEscape(a.ID)+"/reverse", a.requestBody())
}

type freezeCmd struct {
	ID string `arg:"" help:"The connection, conn_…"`
	reason
}

// Help is shown by purser operator freeze --help.
func (freezeCmd) Help() string {
	return exampleHelp("freeze conn_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason 'Asked for by its user.'")
}

// Run pauses the connection.
func (a *freezeCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "connections/"+url.PathEscape(a.ID)+"/freeze", a.requestBody())
}

type resumeCmd struct {
	ID     string `arg:"" help:"The connection, conn_…"`
	Reason string `placeholder:"TEXT" help:"Why, for the audit log. Required while a payment is disputed."`
}

// Help is shown by purser operator resume --help.
func (resumeCmd) Help() string {
	return "Ends the pauses by operators and by the risk layer. What the user has paused stays so, and what the " +
		"suspension of the account has paused goes on when it is lifted.\n\n" +
		exampleHelp("resume conn_06f2k8m3q5t7w9y1b3d5f7h9j1")
}

// Run resumes the connection.
func (a *resumeCmd) Run(p *program, c *cli) error {
	var body any
	if a.Reason != "" {
		body = map[string]string{"reason": a.Reason}
	}
	return c.Operator.callAPI(p, "POST", "connections/"+url.PathEscape(a.ID)+"/resume", body)
}

type revokeCmd struct {
	ID string `arg:"" help:"The connection, conn_…"`
	reason
}

// Help is shown by purser operator revoke --help.
func (revokeCmd) Help() string {
	return "Its calls end, what is left of its allocation returns to its user's balance, and the user gets an email " +
		"with the reason. This cannot be undone; the user can connect again.\n\n" +
		exampleHelp("revoke conn_06f2k8m3q5t7w9y1b3d5f7h9j1 --reason 'The developer has left.'")
}

// Run revokes the connection.
func (a *revokeCmd) Run(p *program, c *cli) error {
	return c.Operator.callAPI(p, "POST", "connections/"+url.PathEscape(a.ID)+"/revoke", a.requestBody())
}

type grantCmd struct {
	Email string `arg:"" help:"The email address of the account."`
	Role  string `arg:"" enum:"operator,viewer,none" help:"operator (full access), viewer (read-only) or none."`

	Reason string `placeholder:"TEXT" help:"Why, for the operator log."`
}

// Help is shown by purser operator grant --help.
func (grantCmd) Help() string {
	return "The account needs a confirmed email address, and two-step sign-in to open the pages.\n\n" +
		exampleHelp("grant person@example.com operator --reason 'Support, from December.'")
}

// Run grants the role.
func (g *grantCmd) Run(p *program, c *cli) error {
	body := map[string]string{"email": g.Email, "role": g.Role}
	if g.Reason != "" {
		body["reason"] = g.Reason
	}
	return c.Operator.callAPI(p, "POST", "roles", body)
}

type logCmd struct {
	Actor   string `placeholder:"ID" help:"Only what this account or IP address did."`
	Action  string `placeholder:"NAME" help:"Only this action, such as reverse."`
	Subject string `placeholder:"ID" help:"Only what was done to this app, account, connection or ledger row."`
	paging
}

// Help is shown by purser operator log --help.
func (logCmd) Help() string { return exampleHelp("log --action reverse --limit 50") }

// Run lists the log.
func (a *logCmd) Run(p *program, c *cli) error {
	filter := map[string]string{"actor": a.Actor, "action": a.Action, "subject": a.Subject}
	return c.Operator.callAPI(p, "GET", a.listPath("log", filter), nil)
}
