package oauth

import (
	"maps"
	"net/url"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/apps/oauth/verdict"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/tiers"
	"github.com/purserhq/purser/internal/people/accounts"
)

// ruleApp returns what the rules need to know of app.
func ruleApp(app apps.App) verdict.App {
	return verdict.App{
		Name:               app.Name,
		RedirectURIs:       app.RedirectURIs,
		Public:             app.ClientType == apps.Public,
		Suspended:          app.Suspended,
		SuspendedByService: app.Suspension != nil,
	}
}

// decideRole returns how a may connect to app.
func decideRole(app apps.App, a accounts.Account) verdict.Role {
	return verdict.DecideRole(verdict.Standing{
		SandboxApp:     app.Tier == apps.Sandbox,
		TestAccount:    a.Sandbox,
		OwnTestAccount: a.Sandbox && a.OwnerID == app.OwnerID && !a.Deactivated,
		AppOwner:       a.ID == app.OwnerID,
		AllowedTester:  app.MayTest(a),
	})
}

// Names of the consent form's fields, and the choices that create a test account and read fieldCap.
const (
	fieldCap     = "spend_cap"
	fieldAmount  = "amount" // one of the offered amounts, or otherAmount
	fieldDaily   = "daily_limit"
	fieldAccount = "test_account"
	fieldOwnWork = "own_work"    // the screen says that the app charges for work of its own
	fieldHeard   = "transcripts" // the screen says that the app has what the user says written down
	fieldRates   = "rates"       // the margin rates that the screen showed
	newAccount   = "new"
	otherAmount  = "other"
)

// consentForm is the submitted consent form.
type consentForm struct {
	Cap, Daily, TestAccount string
	KeepCap, KeepDaily      bool // they are as the screen showed those of the live connection
	OwnWork                 bool
	Transcripts             bool
	Rates                   rates // nil = the form does not say which it showed
}

// readConsentForm reads the consent form from the body of a POST. An offered amount that is chosen
// counts, not what stands in the field for another one, which is hidden then.
func readConsentForm(body url.Values) consentForm {
	if amount := body.Get(fieldAmount); amount != "" && amount != otherAmount {
		body = maps.Clone(body)
		body.Set(fieldCap, amount)
	}
	typed := ui.TypedFields(body)
	return consentForm{
		Cap:         body.Get(fieldCap),
		Daily:       body.Get(fieldDaily),
		KeepCap:     body.Has(fieldCap) && !typed.Has(fieldCap),
		KeepDaily:   body.Has(fieldDaily) && !typed.Has(fieldDaily),
		TestAccount: body.Get(fieldAccount),
		OwnWork:     body.Get(fieldOwnWork) != "",
		Transcripts: body.Get(fieldHeard) != "",
		Rates:       readRates(body.Get(fieldRates)),
	}
}

// consentValues are the amounts that a user approves.
type consentValues struct {
	CapMC      money.MC
	VelocityMC *money.MC // spend per 24 hours; nil = no limit

	KeepCap, KeepVelocity bool // what the live connection has stays as it is
}

// parse reads the amounts and returns a problem for each invalid field. maxMC is the highest cap.
func (f consentForm) parse(maxMC money.MC) (consentValues, []ui.Problem) {
	t := consentValues{KeepCap: f.KeepCap, KeepVelocity: f.KeepDaily}
	var problems []ui.Problem
	wrong := func(field, text string) { problems = append(problems, ui.Problem{Field: field, Text: text}) }
	var problem string
	switch t.CapMC, problem = ui.ReadCap(f.Cap); {
	case problem != "":
		wrong(fieldCap, problem)
	case t.CapMC == 0:
		wrong(fieldCap, "The spend cap must be more than zero. To decline, choose “Not now”.")
	case t.CapMC > maxMC:
		wrong(fieldCap, "The spend cap can be at most "+dollars(maxMC)+" for this app.")
	}
	if t.VelocityMC, problem = ui.ReadDailyLimit(f.Daily); problem != "" {
		wrong(fieldDaily, problem)
	}
	return t, problems
}

// maxCap returns the highest cap that an app's tier allows.
func maxCap(app apps.App) money.MC { return tiers.PolicyOf(app.Tier).MaxCapMC }

// proposedCap returns the cap to pre-fill: the requested one, else the current one, else the default;
// at most what the tier allows.
func proposedCap(app apps.App, requestedMC, currentMC money.MC) money.MC {
	switch {
	case requestedMC > 0:
		return min(requestedMC, maxCap(app))
	case currentMC > 0:
		return min(currentMC, maxCap(app))
	}
	return tiers.PolicyOf(app.Tier).DefaultCapMC
}

// How pages write amounts.
var dollars, typed = ui.Dollars, ui.Typed

// percent formats a rate for pages: "15%".
func percent(rate money.PPM) string { return (rate * 100).String() + "%" }
