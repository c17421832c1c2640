package notices

import (
	"fmt"

	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// A kind is a kind of notice: its text, and whether users can turn it off.
type kind struct {
	optional bool
	write    func(links web.Links, app string, n rules.Notice, d data) ui.Email
}

// kinds are the notices that the ledger writes.
var kinds = map[string]kind{
	rules.NoticeAllocation50:      {true, usedEmail("half of its spend cap")},
	rules.NoticeAllocation80:      {true, usedEmail("80% of its spend cap")},
	rules.NoticeAllocation100:     {true, exhaustedEmail},
	rules.NoticeFrozen:            {false, frozenEmail},
	rules.NoticeFrozenPayment:     {false, paymentReversedEmail},
	rules.NoticeFrozenOperator:    {false, frozenByOperatorEmail},
	rules.NoticeAllocationRequest: {true, allocationRequestEmail},
}

// quoted quotes a name that an app's developer chose.
func quoted(app string) string { return "“" + app + "”" }

// capAmounts are the parts of a spend cap, which add up to it. What remains is rounded down.
func capAmounts(c rules.ConnectionResource) []ui.EmailAmount {
	parts := ui.SplitDollars(c.AllocationRemainingMC, c.HeldMC, c.ConsumedMC)
	list := []ui.EmailAmount{{Name: "Used", Amount: parts[2].Text}}
	if c.HeldMC != 0 {
		list = append(list, ui.EmailAmount{Name: "Held for running calls", Amount: parts[1].Text})
	}
	return append(list,
		ui.EmailAmount{Name: "Remaining", Amount: parts[0].Text},
		ui.EmailAmount{Name: "Spend cap", Amount: ui.Dollars(c.AllocationMC), Total: true})
}

func usedEmail(share string) func(web.Links, string, rules.Notice, data) ui.Email {
	return func(links web.Links, app string, n rules.Notice, d data) ui.Email {
		c := d.Connection
		return ui.Email{
			Subject: quoted(app) + " has used " + share,
			Paragraphs: []string{
				fmt.Sprintf("%s has used %s of its %s spend cap. %s is left.", quoted(app), c.ConsumedMC.Display(),
					c.AllocationMC.Display(), c.AllocationRemainingMC.Display()),
				"You don’t need to do anything. The app can’t spend more than its cap, and only you can raise it.",
			},
			Amounts: capAmounts(c),
			Action:  &ui.Link{Href: links.Increase(n.ConnectionID), Text: "Raise spend cap"},
		}
	}
}

func exhaustedEmail(links web.Links, app string, n rules.Notice, d data) ui.Email {
	return ui.Email{
		Subject: quoted(app) + " has used all of its spend cap",
		Paragraphs: []string{
			fmt.Sprintf("%s has used its %s spend cap. It can’t make more calls unless you raise the cap.", quoted(app),
				d.Connection.AllocationMC.Display()),
			"If you’re done with the app, you don’t need to do anything.",
		},
		Amounts: capAmounts(d.Connection),
		Action:  &ui.Link{Href: links.Increase(n.ConnectionID), Text: "Raise spend cap"},
	}
}

// appendWork adds what an app can still charge although it is paused (decision 109).
func appendWork(paragraphs []string, app string, d data) []string {
	if d.WorkMC == 0 {
		return paragraphs
	}
	return append(paragraphs, fmt.Sprintf("%s can still charge up to %s that it holds for its own work, within ten "+
		"minutes.", quoted(app), d.WorkMC.Display()))
}

func frozenEmail(links web.Links, app string, n rules.Notice, d data) ui.Email {
	return ui.Email{
		Subject: "We paused " + quoted(app) + ": please review its spending",
		Paragraphs: appendWork([]string{
			fmt.Sprintf("%s suddenly spent much more of your balance than usual, so we paused it. It can’t make "+
				"calls until you decide.",
				quoted(app)),
			fmt.Sprintf("It has used %s of its %s spend cap.", d.Connection.ConsumedMC.Display(),
				d.Connection.AllocationMC.Display()),
			"Review its calls, then resume the app or revoke its access.",
		}, app, d),
		Amounts: capAmounts(d.Connection),
		Action:  &ui.Link{Href: links.Review(n.ConnectionID), Text: "Review"},
	}
}

func paymentReversedEmail(links web.Links, app string, n rules.Notice, d data) ui.Email {
	return ui.Email{
		Subject: "We paused " + quoted(app) + ": a payment was reversed",
		Paragraphs: appendWork([]string{
			"One of your payments was reversed or disputed by your bank. Until this is resolved, your connected apps " +
				"are paused, and you can’t connect others.",
			fmt.Sprintf("If the payment is disputed, %s goes on by itself once your bank has decided. If your balance "+
				"is below zero, top it up, then resume the app.", quoted(app)),
		}, app, d),
		Action: &ui.Link{Href: links.Review(n.ConnectionID), Text: "Review"},
	}
}

func frozenByOperatorEmail(links web.Links, app string, n rules.Notice, d data) ui.Email {
	paragraphs := []string{fmt.Sprintf("We paused %s. It can’t make calls until it is resumed.", quoted(app))}
	if f := d.Connection.Freeze; f != nil && f.Reason != nil {
		paragraphs = append(paragraphs, "The reason: "+*f.Reason)
	}
	return ui.Email{
		Subject: "We paused " + quoted(app),
		Paragraphs: append(appendWork(paragraphs, app, d),
			fmt.Sprintf("It has used %s of its %s spend cap. The rest of the cap stays reserved.",
				d.Connection.ConsumedMC.Display(), d.Connection.AllocationMC.Display()),
			"You can review its calls, and revoke its access. To resume it, contact support."),
		Amounts: capAmounts(d.Connection),
		Action:  &ui.Link{Href: links.Review(n.ConnectionID), Text: "Review"},
	}
}

// allocationRequestEmail does not repeat the app's reason: text that an app wrote belongs on our page, where it is
// marked as such, and not in our email.
func allocationRequestEmail(links web.Links, app string, _ rules.Notice, d data) ui.Email {
	return ui.Email{
		Subject: quoted(app) + " requested a higher spend cap",
		Paragraphs: []string{
			fmt.Sprintf("%s asks you to raise its spend cap from %s to %s.", quoted(app), d.Request.CurrentMC.Display(),
				d.Request.TargetMC.Display()),
			"Nothing changes unless you approve it.",
		},
		Amounts: []ui.EmailAmount{
			{Name: "Current spend cap", Amount: ui.Dollars(d.Request.CurrentMC)},
			{Name: "Requested", Amount: ui.Dollars(d.Request.TargetMC), Total: true},
		},
		Action: &ui.Link{Href: links.Approval(d.Request.ID), Text: "Review request"},
	}
}
