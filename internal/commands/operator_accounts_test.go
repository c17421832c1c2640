package commands

import (
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/apptest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/nodetest"
)

// TestOperatorActsOnAccounts runs each command that acts on an account against a node, in the order of an account's
// life, with what it prints and what its owner sees of it.
func TestOperatorActsOnAccounts(t *testing.T) {
	t.Parallel()
	dbtest.InTurn(t, func(t *testing.T, e db.Engine) {
		operateAccounts(t, apptest.Start(t, apptest.URL(t, e)).Node)
	})
}

func operateAccounts(t *testing.T, node *nodetest.Node) {
	const email = "new@example.com"
	token, err := os.ReadFile(node.OperatorFile)
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"PURSER_OPERATOR_TOKEN=" + strings.TrimSpace(string(token))}
	operate := func(args ...string) (int, string, string) {
		return command(environ, append([]string{"operator", "--url", node.BaseURL}, args...)...)
	}
	code, out, text := operate("invite", email)
	var invitation struct{ URL string }
	if err := json.Unmarshal([]byte(out), &invitation); code != exitOK || err != nil {
		t.Fatalf("invite: exit %d, %v\n%s%s", code, err, out, text)
	}
	link, err := url.Parse(invitation.URL)
	if err != nil {
		t.Fatal(err)
	}
	owner := apitest.NewBrowser(t, link.Scheme+"://"+link.Host)
	owner.Post(link.RequestURI(), url.Values{"password": {apitest.Password}}).Leads(t, "/")
	signIn := func(status int, texts ...string) {
		t.Helper()
		owner.Post("/sign-in", url.Values{"email": {email}, "password": {apitest.Password}}).Want(t, status, texts...)
	}
	var mail string
	for _, step := range []struct {
		args string // words; the reason is added to what takes one
		why  string
		want string // a part of the answer, or of the message if the command fails
		code int
		then func() // what is true afterwards
	}{
		{args: "account " + email, want: `"available_mc": 0`},
		{args: "credit " + email + " five", why: "Sorry.", want: "AMOUNT", code: exitUsage},
		{args: "credit " + email + " 1000.01", why: "Sorry.", want: "to repeat this credit", code: exitFailed},
		{args: "credit " + email + " 1.50", why: "Sorry for the outage.", want: `"amount_mc": 150000000`, then: func() {
			owner.Get("/activity").Want(t, http.StatusOK, "Goodwill credit", "$1.50")
		}},
		{args: "account " + email, want: `"available_mc": 150000000`},
		{args: "mails " + email, want: `"subject": "`, then: func() {
			_, out, _ := operate("mails", email)
			if mail = regexp.MustCompile(`mail_\w{26}`).FindString(out); mail == "" {
				t.Fatalf("no mail in\n%s", out)
			}
		}},
		{args: "resend MAIL", want: `"status": "pending"`},
		{args: "resend mail_06f2k8m3q5t7w9y1b3d5f7h9j1", want: "not_found", code: exitFailed},
		{args: "sign-out " + email, why: "Lost a laptop.", want: `"status": "active"`, then: func() {
			owner.Get("/activity").Leads(t, "/sign-in?next=%2Factivity")
		}},
		{args: "reset-two-step " + email, why: "Lost the phone.", want: "has no two-step", code: exitFailed},
		{args: "suspend " + email, why: "Asked for by its user.", want: `"status": "suspended"`, then: func() {
			signIn(http.StatusUnauthorized, "This account is suspended")
		}},
		{args: "settle " + email + " 0.25", why: "Paid in cash.", want: "is no payment", code: exitFailed},
		{args: "lift " + email, want: `"status": "active"`, then: func() { signIn(http.StatusSeeOther) }},
		{args: "settle " + email + " 0.25", why: "Paid in cash.", want: "suspended or closed", code: exitFailed},
		{args: "settle " + email + " some", why: "Paid in cash.", want: "AMOUNT", code: exitUsage},
		{args: "revoke conn_06f2k8m3q5t7w9y1b3d5f7h9j1", why: "None.", want: "not_found", code: exitFailed},
		{args: "close " + email, why: "Asked for by its user.", want: `"withdrawn_mc": 150000000`, then: func() {
			signIn(http.StatusUnauthorized, "Incorrect email or password")
		}},
		{args: "account " + email, want: "not_found", code: exitFailed},
		{args: "close " + node.Operator.Email, why: "A mistake.", want: "take its role first", code: exitFailed},
		{args: "suspend " + node.App.ID, why: "Its secret has leaked.", want: node.App.ID},
		{args: "charges " + node.App.ID, want: "["},
		{args: "charges " + node.Operator.Email, want: "["},
		{args: "charges --app " + node.App.ID, want: "["},
		{args: "charges", want: "give an account or an app", code: exitUsage},
		{args: "charges " + node.App.ID + " --account " + node.Operator.Email, want: "give an account or an app",
			code: exitUsage},
		{args: "connections " + node.App.ID + " --status active", want: `"conn_`},
		{args: "connections " + node.Operator.Email + " --account x", want: "given twice", code: exitUsage},
		{args: "grant " + node.Operator.Email + " viewer", why: "Left the team.", want: `"role": "viewer"`},
		{args: "lift " + node.App.ID, want: node.App.ID},
	} {
		args := strings.Fields(strings.Replace(step.args, "MAIL", mail, 1))
		if step.why != "" {
			args = append(args, "--reason", step.why)
		}
		code, out, text := operate(args...)
		answer := out
		if step.code != exitOK {
			answer = text
		}
		if code != step.code || !strings.Contains(answer, step.want) {
			t.Errorf("%s: exit %d, should be %d with %s\n%s%s", step.args, code, step.code, step.want, out, text)
		} else if step.then != nil {
			step.then()
		}
	}
	_, log, _ := operate("log", "--limit", "100")
	if !strings.Contains(log, "Left the team.") {
		t.Errorf("the audit log lacks the reason of a role\n%s", log)
	}
	for _, action := range []string{"invite", "goodwill", "resend", "sign_out", "suspend", "lift", "close"} {
		if !strings.Contains(log, `"action": "`+action+`"`) {
			t.Errorf("the audit log lacks %s\n%s", action, log)
		}
	}
	node.Verify()
}

// On a terminal a closing asks for the account's name, which the operator may have mistaken.
func TestAskToClose(t *testing.T) {
	t.Parallel()
	account := []byte(`{"id":"wac_1","email":"a@example.com","available_display":"$5.00"}`)
	for typed, want := range map[string]bool{
		"wac_1\n": true, "a@example.com": true, "": false, "\n": false, "y\n": false,
	} {
		var asked strings.Builder
		err := askToClose(&program{in: strings.NewReader(typed), err: &asked}, account)
		if (err == nil) != want || !strings.Contains(asked.String(), "wac_1 (a@example.com), which has $5.00") {
			t.Errorf("%q: %v, asked %s", typed, err, &asked)
		}
	}
}
