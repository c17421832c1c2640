package privacy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/people/topups"
)

// A Fate is what becomes of a row when its account is closed.
type Fate string

// The fates.
const (
	Blocks   Fate = "blocks"   // the account stays open until the row is gone
	Returned Fate = "returned" // the operator's closing returns it to the card; what cannot be returned blocks
	Ends     Fate = "ends"     // closing ends it
	GoesOn   Fate = "goes on"  // it goes on after the closing, by itself
)

// An Item is a row as people read it, with the way out.
type Item struct {
	Fate Fate
	Text string // "" = nothing to read
	Link *ui.Link
}

// obstacles is the error of a closing that something blocks.
type obstacles struct{ rows []row }

func (o *obstacles) Error() string {
	var kinds []string
	for _, r := range o.rows {
		kinds = append(kinds, string(r.kind))
	}
	return "privacy: the account cannot be closed yet: " + strings.Join(kinds, ", ")
}

// ownObstacles returns the rows that keep the user from closing the account.
func (st standing) ownObstacles() (list []row) {
	for _, r := range st.rows {
		if r.own().Fate == Blocks {
			list = append(list, r)
		}
	}
	return list
}

// operatorObstacles returns the rows that keep an operator from closing the account; of what its closing returns, all
// that is left.
func (st standing) operatorObstacles() (list []row) {
	for _, r := range st.rows {
		if f := r.operator().Fate; f == Blocks || f == Returned {
			list = append(list, r)
		}
	}
	return list
}

// own says what becomes of a row when the user closes the account, in words for the user.
func (r row) own() Item {
	amount := ui.Dollars(r.amountMC)
	item := func(f Fate, link *ui.Link, format string, args ...any) Item {
		return Item{Fate: f, Text: fmt.Sprintf(format, args...), Link: link}
	}
	switch r.kind {
	case runningCalls:
		return item(Blocks, &ui.Link{Href: "/connections", Text: "Your connections"},
			"A call is still in progress, or its charge is pending. This takes a few minutes at most, or longer "+
				"if an app holds money for its own work. Pause or revoke the connection to prevent new calls.")
	case topUps:
		return item(Blocks, &ui.Link{Href: "/top-ups", Text: "Your top-ups"},
			"A top-up of %s is in progress. A payment from a bank account can take 7 business days. If you don’t pay "+
				"for it, it expires within a day.", amount)
	case unpaidTopUps:
		return Item{Fate: Ends}
	case returns:
		return item(Blocks, &ui.Link{Href: topups.RefundPage, Text: "Your refunds"},
			"%s is on its way back to your card. Most banks accept it within a day. Close your account then, because "+
				"a refund that your bank rejects comes back to your balance.", amount)
	case debt:
		return item(Blocks, nil, "Your balance is -%s, because a payment was reversed after it was spent. Contact "+
			"support.", amount)
	case balance:
		return r.ownBalance()
	case users:
		return item(Blocks, &ui.Link{Href: "/developer", Text: "Your apps"},
			"Users are connected to your live apps, over %s. Revoke those first: your app can, by POST "+
				"/v1/connections/{id}/revoke.", r.countConnections())
	case sharedApps:
		return item(Ends, nil, "Other people work on %s. Because your account created %s, it ends with your account. "+
			"We tell them by email.", r.nameApps(), map[bool]string{true: "it", false: "each of them"}[r.count == 1])
	case payoutsBegun:
		return item(GoesOn, nil, "A payout of %s is on its way to your account at Stripe, and arrives there also "+
			"after you close this account.", amount)
	case margin:
		return item(GoesOn, nil, "Your apps earned %s that is not paid yet. We pay it to your account at Stripe, the "+
			"last of it after %s, also when this account is closed. Keep your account at Stripe until then.", amount,
			ui.Date(r.fromUS))
	case marginUnnamed:
		return item(Blocks, &ui.Link{Href: "/developer/payouts", Text: "Set up payouts"},
			"Your apps earned %s that is not paid yet. Say whom we pay it to first. It is then paid after %s, also "+
				"when this account is closed.", amount, ui.Date(r.fromUS))
	case marginLapsing:
		return item(GoesOn, &ui.Link{Href: "/developer/payouts", Text: "Your payouts"},
			"Your apps earned %s that is not paid yet. Payouts are not set up for you, so it is not paid once this "+
				"account is closed.", amount)
	case marginHeld:
		return item(GoesOn, nil, "Your apps earned %s that is not paid while %s is suspended. Contact support about "+
			"it.", amount, r.nameApps())
	}
	return Item{Fate: GoesOn} // what the developer owes is not collected
}

// key names what a row takes from the user, or from others, when the user closes the account; "" = it takes nothing.
func (r row) key() string {
	switch r.kind {
	case marginLapsing, marginHeld:
		return fmt.Sprintf("%s:%d", strings.ReplaceAll(string(r.kind), " ", "-"), r.amountMC)
	case sharedApps:
		return fmt.Sprintf("shared-apps:%d", r.count)
	}
	return ""
}

// operatorKey names a row that an operator's closing does something about, with its amount and count; "" = it blocks.
func (r row) operatorKey() string {
	if r.operator().Fate == Blocks {
		return ""
	}
	return fmt.Sprintf("%s:%d:%d", strings.ReplaceAll(string(r.kind), " ", "-"), r.amountMC, r.count)
}

// sumShown returns what an operator's closing returns or withdraws at most by the keys that its form carries.
func sumShown(seen string) (sum money.MC) {
	for key := range strings.FieldsSeq(seen) {
		parts := strings.Split(key, ":")
		if k := kind(parts[0]); len(parts) == 3 && (k == balance || k == returns) {
			amount, _ := strconv.ParseInt(parts[1], 10, 64) // another form's key is 0, and refused
			sum += money.MC(max(amount, 0))
		}
	}
	return sum
}

// seen names what the page shows that closing does, for its form.
func (st standing) seen(keyOf func(row) string) string {
	var keys []string
	for _, r := range st.rows {
		if key := keyOf(r); key != "" {
			keys = append(keys, key)
		}
	}
	return strings.Join(keys, " ")
}

// findUnseen returns the rows by which closing does what the form's page did not show, or showed otherwise.
func (st standing) findUnseen(seen string, keyOf func(row) string) (list []row) {
	keys := strings.Fields(seen)
	for _, r := range st.rows {
		if key := keyOf(r); key != "" && !slices.Contains(keys, key) {
			list = append(list, r)
		}
	}
	return list
}

// unseen is the error of a closing that would take what its form's page has not shown.
type unseen struct{ rows []row }

func (u *unseen) Error() string { return "privacy: the page of closing has changed" }

// farewell says what of a standing goes on after an account was closed, for the last email to its user.
func (st standing) farewell() (paragraphs []string) {
	for _, r := range st.rows {
		switch r.kind {
		case payoutsBegun, margin, marginHeld:
			paragraphs = append(paragraphs, r.own().Text)
		case marginUnnamed, marginLapsing:
			paragraphs = append(paragraphs, fmt.Sprintf("Your apps earned %s that is not paid, because payouts are "+
				"not set up for you. Contact support about it.", ui.Dollars(r.amountMC)))
		}
	}
	return paragraphs
}

func (r row) ownBalance() Item {
	item := Item{Fate: Blocks, Text: "You still have " + ui.Dollars(r.amountMC)}
	available := r.amountMC - r.reservedMC
	switch {
	case r.reservedMC > 0:
		item.Text += fmt.Sprintf(": %s ready to use and %s reserved for apps. Revoke their connections first. Then "+
			"return the money to your card.", ui.Dollars(available), ui.Dollars(r.reservedMC))
		item.Link = &ui.Link{Href: "/connections", Text: "Your connections"}
	case ui.Dollars(r.returnableMC) == ui.Dollars(available):
		item.Text += ". Return it to your card, or spend it."
		item.Link = &ui.Link{Href: topups.RefundPage, Text: "Return money"}
	case r.returnableMC > 0:
		item.Text += fmt.Sprintf(". %s of it can go back to your card. Spend the rest, or contact support.",
			ui.Dollars(r.returnableMC))
		item.Link = &ui.Link{Href: topups.RefundPage, Text: "Return money"}
	default:
		item.Text += ". It can’t go back to a card now. Spend it, or contact support."
	}
	return item
}

// operator says what becomes of a row when an operator closes the account, in words for the operator.
func (r row) operator() Item {
	amount := r.amountMC.Display()
	item := func(f Fate, format string, args ...any) Item {
		return Item{Fate: f, Text: fmt.Sprintf(format, args...)}
	}
	switch r.kind {
	case runningCalls:
		return item(Blocks, "a call still ends, or its charge is pending; repeat in a few minutes")
	case topUps:
		return item(Blocks, "a top-up of %s is being cleared or charged, which takes days from a bank account; repeat "+
			"when it has settled or failed", amount)
	case unpaidTopUps:
		return item(Ends, "a checkout of %s is not paid, and ends", amount)
	case returns:
		return item(Returned, "a refund of %s is pending at Stripe; repeat when the card has it", amount)
	case debt:
		return item(Blocks, "the balance is %s below zero; the account stays suspended", amount)
	case balance:
		return item(Returned, "%s cannot be refunded to a payment; the account stays suspended", amount)
	case users:
		return item(Blocks, "users are connected to live apps of this account, over %s; revoke them first, by purser "+
			"operator revoke or on their pages: %s", r.countConnections(), r.nameAll())
	case sharedApps:
		return item(Ends, "other people work on %s, which ends; they get an email", r.nameApps())
	case payoutsBegun:
		return item(GoesOn, "a payout of %s is on its way, and is finished", amount)
	case margin:
		return item(GoesOn, "margin of %s is not paid yet, and is paid by itself, the last of it after %s", amount,
			ui.Date(r.fromUS))
	case marginUnnamed, marginLapsing:
		return item(GoesOn, "margin of %s is not paid, and the developer has not said whom to pay", amount)
	case marginHeld:
		return item(GoesOn, "margin of %s is not paid while %s is suspended; it is after purser operator lift", amount,
			r.nameApps())
	}
	return item(GoesOn, "%s of margin was paid to the developer and returned to users since", amount)
}

// nameAll names the first of what a row counts.
func (r row) nameAll() string {
	text := strings.Join(r.names, ", ")
	if more := r.count - len(r.names); r.kind == users && r.count == maxUsers {
		text += " and more"
	} else if more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// nameApps is nameAll for names that people chose.
func (r row) nameApps() string {
	quoted := r
	quoted.names = nil
	for _, name := range r.names {
		quoted.names = append(quoted.names, "“"+name+"”")
	}
	return quoted.nameAll()
}

// countConnections says of how many connections a row is.
func (r row) countConnections() string {
	switch r.count {
	case 1:
		return "1 connection"
	case maxUsers:
		return fmt.Sprintf("%d connections or more", r.count)
	}
	return fmt.Sprintf("%d connections", r.count)
}
