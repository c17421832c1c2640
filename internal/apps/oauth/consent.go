package oauth

import (
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// A Role is how somebody who is signed in may connect to an app.
type Role int

// Sandbox apps connect to test accounts of their developer, live apps to
// everybody else, and the two never meet (spec §5, Sandbox; I29).
const (
	Self              Role = iota // connects as the account itself
	Chooser                       // the developer of a sandbox app: chooses a test account
	Tester                        // on the allow-list of a sandbox app: has one test account, and sees no other
	StrangerToSandbox             // neither of them, nor one of the test accounts
	TestAccountOnLive             // a test account on a live app
)

// stands reports whether somebody in the role connects as a test account in
// place of the own one.
func (r Role) stands() bool { return r == Chooser || r == Tester }

// RoleOf returns how a may connect to app.
func RoleOf(app apps.App, a accounts.Account) Role {
	switch sandbox := app.Tier == apps.Sandbox; {
	case !sandbox && a.Sandbox:
		return TestAccountOnLive
	case !sandbox:
		return Self
	case a.Sandbox && a.OwnerID == app.OwnerID && !a.Deactivated:
		return Self
	case a.ID == app.OwnerID:
		return Chooser
	case app.MayTest(a):
		return Tester
	}
	return StrangerToSandbox
}

// Names of the consent form's fields, and of the choice that makes a new account.
const (
	fieldCap     = "spend_cap"
	fieldDaily   = "daily_limit"
	fieldAccount = "test_account"
	newAccount   = "new"
)

// A Form is the consent form as typed.
type Form struct {
	Cap, Daily, TestAccount string
}

// ReadForm takes the form's fields from the body of a POST.
func ReadForm(body url.Values) Form {
	return Form{Cap: body.Get(fieldCap), Daily: body.Get(fieldDaily), TestAccount: body.Get(fieldAccount)}
}

// Terms are what a person approves.
type Terms struct {
	CapMC      money.MC
	VelocityMC *money.MC // spend per 24 hours; nil = no limit
}

// Terms reads the amounts, of which the cap is at most maxMC, and names every
// field that is wrong.
func (f Form) Terms(maxMC money.MC) (Terms, []ui.Problem) {
	var t Terms
	var problems []ui.Problem
	wrong := func(field, text string) { problems = append(problems, ui.Problem{Field: field, Text: text}) }
	var problem string
	switch t.CapMC, problem = ui.ReadCap(f.Cap); {
	case problem != "":
		wrong(fieldCap, problem)
	case t.CapMC == 0:
		wrong(fieldCap, "The spend cap must be more than zero. To decline, choose Deny.")
	case t.CapMC > maxMC:
		wrong(fieldCap, "The spend cap can be at most "+dollars(maxMC)+" for this app.")
	}
	if t.VelocityMC, problem = ui.ReadDailyLimit(f.Daily); problem != "" {
		wrong(fieldDaily, problem)
	}
	return t, problems
}

// maxCap is the highest cap that an app's tier allows.
func maxCap(app apps.App) money.MC { return tiers.Of(app.Tier).MaxCapMC }

// proposedCap pre-fills the spend cap: what the app asks for, else the cap that
// is there, else the default; never more than its tier allows.
func proposedCap(app apps.App, requestedMC, currentMC money.MC) money.MC {
	switch {
	case requestedMC > 0:
		return min(requestedMC, maxCap(app))
	case currentMC > 0:
		return min(currentMC, maxCap(app))
	}
	return tiers.Of(app.Tier).DefaultCapMC
}

// Amounts as pages write them.
var dollars, typed = ui.Dollars, ui.Typed

// percent writes a rate for people: "15%".
func percent(rate money.PPM) string { return (rate * 100).String() + "%" }
