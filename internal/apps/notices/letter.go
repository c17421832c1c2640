package notices

import (
	"fmt"
	html "html/template"
	"strings"
	text "text/template"

	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger"
)

// A letter is a mail before it is written out.
type letter struct {
	Subject    string
	Lines      []string
	Link, Does string // where it leads, and what one does there
	Settings   string // "" = the mail cannot be stopped
	Stop       string
}

// A kind of notice: what it says, and whether people may stop it.
type kind struct {
	stoppable bool
	write     func(links web.Links, app string, n ledger.Notice, d data) letter
}

// kinds are the notices that the ledger writes.
var kinds = map[string]kind{
	ledger.Allocation50:  {true, used("half of its cap")},
	ledger.Allocation80:  {true, used("80 % of its cap")},
	ledger.Allocation100: {true, usedUp},
	ledger.FrozenNotice:  {false, frozen},
	ledger.PaymentNotice: {false, unpaid},
	ledger.AskedNotice:   {true, asked},
}

// named sets off a name that somebody else chose from what we say.
func named(app string) string { return "“" + app + "”" }

func used(share string) func(web.Links, string, ledger.Notice, data) letter {
	return func(links web.Links, app string, n ledger.Notice, d data) letter {
		c := d.Connection
		return letter{
			Subject: named(app) + " has used " + share,
			Lines: []string{
				fmt.Sprintf("%s has used %s of the %s that you let it spend. %s is left.", named(app), c.ConsumedMC.Display(), c.AllocationMC.Display(), c.AllocationRemainingMC.Display()),
				"Nothing needs to be done. It cannot spend more than its cap, which only you can raise.",
			},
			Link: links.Increase(n.ConnectionID), Does: "Raise the cap",
		}
	}
}

func usedUp(links web.Links, app string, n ledger.Notice, d data) letter {
	return letter{
		Subject: named(app) + " has used all of its cap",
		Lines: []string{
			fmt.Sprintf("%s has used the %s that you let it spend. Its calls stop until you raise the cap.", named(app), d.Connection.AllocationMC.Display()),
			"If it has done what you wanted it for, nothing needs to be done.",
		},
		Link: links.Increase(n.ConnectionID), Does: "Raise the cap",
	}
}

func frozen(links web.Links, app string, n ledger.Notice, d data) letter {
	return letter{
		Subject: named(app) + " is paused: please look at what it spends",
		Lines: []string{
			fmt.Sprintf("%s suddenly spent far more of your money than it usually does, so we have paused it. Its calls are refused until you decide.", named(app)),
			fmt.Sprintf("It has used %s of the %s that you let it spend.", d.Connection.ConsumedMC.Display(), d.Connection.AllocationMC.Display()),
			"Look at its calls, then let it go on or end the connection.",
		},
		Link: links.Review(n.ConnectionID), Does: "Review",
	}
}

func unpaid(links web.Links, app string, n ledger.Notice, _ data) letter {
	return letter{
		Subject: named(app) + " is paused: a payment of yours was taken back",
		Lines: []string{
			"A payment that you made to your balance was taken back, or your bank disputes it. Until that is settled, what you lent to apps rests.",
			fmt.Sprintf("%s is paused. Its calls are refused until you let it go on, which you can when your balance is not below zero.", named(app)),
		},
		Link: links.Review(n.ConnectionID), Does: "Review",
	}
}

// asked does not repeat the app's reason: what an app writes stands on our page,
// beside what it is, and not in our mail.
func asked(links web.Links, app string, _ ledger.Notice, d data) letter {
	return letter{
		Subject: named(app) + " asks to spend more",
		Lines: []string{
			fmt.Sprintf("%s asks you to raise its cap from %s to %s.", named(app), d.Request.CurrentMC.Display(), d.Request.TargetMC.Display()),
			"It is your choice: nothing changes unless you approve it.",
		},
		Link: links.Approval(d.Request.ID), Does: "Decide",
	}
}

var plain = text.Must(text.New("text").Parse(`{{range .Lines}}{{.}}

{{end}}{{.Does}}: {{.Link}}

-- 
Purser
{{if .Stop}}Which mail you get: {{.Settings}}
No more of these: {{.Stop}}
{{else}}You get this mail because it is about your money. It cannot be turned off.
{{end}}`))

var rich = html.Must(html.New("html").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>{{.Subject}}</title></head>
<body style="font: 16px/1.5 sans-serif; max-width: 36em; margin: 1.5em auto; padding: 0 1em">
{{range .Lines}}<p>{{.}}</p>
{{end}}<p><a href="{{.Link}}" style="font-weight: bold">{{.Does}}</a></p>
<p style="font-size: 13px; color: #777">Purser · {{if .Stop}}<a href="{{.Settings}}" style="color: inherit">which mail you get</a> · <a href="{{.Stop}}" style="color: inherit">no more of these</a>{{else}}You get this mail because it is about your money. It cannot be turned off.{{end}}</p>
</body></html>
`))

// render writes the letter as text and as HTML.
func (l letter) render() (string, string, error) {
	var asText, asHTML strings.Builder
	if err := plain.Execute(&asText, l); err != nil {
		return "", "", fmt.Errorf("notices: text: %w", err)
	}
	if err := rich.Execute(&asHTML, l); err != nil {
		return "", "", fmt.Errorf("notices: HTML: %w", err)
	}
	return asText.String(), asHTML.String(), nil
}
