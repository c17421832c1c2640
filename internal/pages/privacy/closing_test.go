package privacy

import (
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/money"
)

// TestEachKindHasAWayOut goes through the kinds of things that an account may owe or be owed: what becomes of each when
// its user, and when an operator, closes the account, and what the user, the operator and the last email say.
func TestEachKindHasAWayOut(t *testing.T) {
	t.Parallel()
	const usd, until = 20 * money.Dollar, 1_795_000_000_000_000 // 18 November 2026
	for _, c := range []struct {
		row           row
		own, operator Fate
		ownSays       string // with the address of its link
		operatorSays  string
		mail          string
	}{
		{row{kind: runningCalls, count: 1}, Blocks, Blocks,
			"A call is still in progress /connections", "repeat in a few minutes", ""},
		{row{kind: topUps, amountMC: usd}, Blocks, Blocks,
			"A top-up of $20.00 is in progress. A payment from a bank account can take 7 business days /top-ups",
			"a top-up of $20.00 is being cleared or charged", ""},
		{row{kind: unpaidTopUps, amountMC: usd}, Ends, Ends, "", "a checkout of $20.00 is not paid", ""},
		{row{kind: returns, amountMC: usd}, Blocks, Returned,
			"$20.00 is on its way back to your card /top-up/refund", "a refund of $20.00 is pending", ""},
		{row{kind: debt, amountMC: usd}, Blocks, Blocks, "Your balance is -$20.00 Contact support", "below zero", ""},
		{row{kind: balance, amountMC: usd, returnableMC: usd}, Blocks, Returned,
			"You still have $20.00. Return it to your card, or spend it /top-up/refund", "$20.00 cannot be refunded",
			""},
		{row{kind: balance, amountMC: usd, returnableMC: 5 * money.Dollar}, Blocks, Returned,
			"$5.00 of it can go back to your card. Spend the rest, or contact support /top-up/refund", "$20.00", ""},
		{row{kind: balance, amountMC: usd}, Blocks, Returned,
			"It can’t go back to a card now. Spend it, or contact support", "$20.00", ""},
		{row{kind: balance, amountMC: usd, reservedMC: 5 * money.Dollar}, Blocks, Returned,
			"$15.00 ready to use and $5.00 reserved Revoke their connections /connections", "$20.00", ""},
		{row{kind: users, count: 3, names: []string{"conn_1", "conn_2"}}, Blocks, Blocks,
			"over 3 connections. Revoke those first: your app can, by POST /v1/connections/{id}/revoke /developer",
			"purser operator revoke conn_1, conn_2 and 1 more", ""},
		{row{kind: sharedApps, count: 1, names: []string{"Reader"}}, Ends, Ends,
			"Other people work on “Reader” it ends with your account tell them by email", "they get an email", ""},
		{row{kind: payoutsBegun, amountMC: usd}, GoesOn, GoesOn,
			"A payout of $20.00 is on its way", "a payout of $20.00", "A payout of $20.00"},
		{row{kind: margin, amountMC: usd, fromUS: until}, GoesOn, GoesOn,
			"Your apps earned $20.00 that is not paid yet the last of it after 18 November 2026 also when this " +
				"account is closed", "is paid by itself 18 November 2026", "Your apps earned $20.00 18 November 2026"},
		{row{kind: marginUnnamed, amountMC: usd, fromUS: until}, Blocks, GoesOn,
			"Your apps earned $20.00 Say whom we pay it to first 18 November 2026 /developer/payouts",
			"has not said whom to pay", "Your apps earned $20.00 Contact support"},
		{row{kind: marginLapsing, amountMC: usd}, GoesOn, GoesOn,
			"Your apps earned $20.00 so it is not paid once this account is closed /developer/payouts",
			"has not said whom to pay", "Your apps earned $20.00 Contact support"},
		{row{kind: marginHeld, amountMC: usd, count: 1, names: []string{"Reader"}}, GoesOn, GoesOn,
			"Your apps earned $20.00 that is not paid while “Reader” is suspended Contact support",
			"not paid while “Reader” is suspended purser operator lift", "“Reader” is suspended"},
		{row{kind: marginDebt, amountMC: usd}, GoesOn, GoesOn, "", "$20.00 of margin was paid", ""},
	} {
		own, op := c.row.own(), c.row.operator()
		if own.Fate != c.own || op.Fate != c.operator {
			t.Errorf("%s: %q and %q, want %q and %q", c.row.kind, own.Fate, op.Fate, c.own, c.operator)
		}
		text := own.Text
		if own.Link != nil {
			text += " " + own.Link.Href
		}
		says(t, c.row.kind, text, c.ownSays)
		says(t, c.row.kind, op.Text, c.operatorSays)
		says(t, c.row.kind, strings.Join(standing{rows: []row{c.row}}.farewell(), " "), c.mail)
		if c.own == Blocks && own.Text == "" || c.operator == Blocks && op.Text == "" {
			t.Errorf("%s blocks without a reason", c.row.kind)
		}
	}
}

// says reports an error unless the text has the words in their order; nothing must be said if there are none.
func says(t *testing.T, k kind, text, words string) {
	t.Helper()
	if (words == "") != (text == "") {
		t.Errorf("%s: %q, want %q", k, text, words)
	}
	rest := text
	for word := range strings.FieldsSeq(words) {
		_, after, ok := strings.Cut(rest, word)
		if !ok {
			t.Errorf("%s: %q lacks %q of %q", k, text, word, words)
			return
		}
		rest = after
	}
}

// Users are counted as far as they are read.
func TestUsersAreCountedUpToABound(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]string{
		1: "over 1 connection.", 2: "over 2 connections.", maxUsers: "over 1000 connections or more.",
	} {
		if text := (row{kind: users, count: count}).own().Text; !strings.Contains(text, want) {
			t.Errorf("%d: %s", count, text)
		}
	}
}
