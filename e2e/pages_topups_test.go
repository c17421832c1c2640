package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestTopUp pays as a person does, at the Checkout of the emulator that dev brings
// along: the browser goes there by our form, and back, and the events do the rest.
func TestTopUp(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; TestPersonFromNothing pays at the same Checkout")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	b.open(p.BaseURL + "/top-up")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.says("Top up", "$0.00", "From $5.00 to $1,000.00")
	b.look("top-up-empty")
	b.fill("Or another amount (USD)", "4")
	b.expect("422")
	if status := b.press("button", "Continue to payment"); status != http.StatusUnprocessableEntity {
		t.Errorf("$4: %d", status)
	}
	b.says("The amount must be from $5.00 to $1,000.00.")
	b.look("top-up-error")
	b.expect("/pay/cs_test_") // the one foreign page that a person goes to
	b.press("button", "$25")
	b.says("Emulated checkout", "$25.00")
	b.press("button", "Cancel and go back")
	b.says("Not paid yet")
	b.look("receipt-cancelled")
	b.press("link", "Pay $25.00")
	b.press("button", "Pay $25.00")
	for strings.Contains(b.text(), "Refresh") { // the event is on its way
		b.press("link", "Refresh")
	}
	b.says("$25.00 was added to your balance", "pi_")
	b.look("receipt")
	b.open(p.BaseURL + "/top-up")
	b.says("$25.00", "Latest top-ups", "Credited")
	b.look("top-up")
	b.press("link", "All top-ups")
	b.look("top-ups")
}

// TestAutoTopUp saves a card at the emulator's Checkout, has it charged when the
// balance is low, and removes it; and does the same with one that is declined.
func TestAutoTopUp(t *testing.T) {
	testkit.Long(t, "axe and pictures of its pages; package topups proves automatic top-ups with the emulated Stripe")
	t.Parallel()
	p := servertest.Start(t, servertest.URL(t, db.SQLite))
	b := newTab(t, p.BaseURL)
	b.withoutScripts()
	b.open(p.BaseURL + "/top-up")
	b.signIn(p.Developer.Email, p.Developer.Password)
	b.says("Save a card once")
	b.press("link", "Set up")
	b.look("auto-empty")
	b.expect("422")
	if status := b.press("button", "Continue to payment"); status != http.StatusUnprocessableEntity {
		t.Errorf("without consent: %d", status)
	}
	b.says("Check the box to save your card.")
	b.look("auto-slip")
	b.saveCard("Visa ending in 4242")
	b.look("auto-card")
	b.fill("When balance is below (USD)", "30")
	b.expect("422")
	b.press("button", "Turn on")
	b.says("Add at least $30.00")
	b.fill("Add (USD)", "50")
	b.press("button", "Turn on")
	b.says("Automatic top-up is on.",
		"When your balance is below $30.00, we charge $50.00 to your Visa ending in 4242.")
	b.waitFor("/top-up/auto", "Credited")
	b.says("$50.00 of $100.00 charged, $50.00 left")
	b.look("auto-on")
	b.open(p.BaseURL + "/top-up")
	b.says("$75.00", "On. When your balance is below $30.00")
	b.open(p.BaseURL + "/dev/mail")
	b.says("We added $50.00 to your balance")
	b.open(p.BaseURL + "/top-up/auto")
	b.press("button", "Turn off")
	b.says("Automatic top-up is off. Your card is still saved.")
	b.press("button", "Remove card")
	b.says("Card removed", "First, save a card")
	b.open(p.BaseURL + "/top-up/refund")
	b.says("Up to $75.00")
	b.look("refund-to-card")
	b.open(p.BaseURL + "/top-up/auto")

	b.saveCard("Visa ending in 0341")
	b.fill("When balance is below (USD)", "200")
	b.fill("Add (USD)", "200")
	b.fill("Monthly maximum (USD)", "400")
	b.press("button", "Turn on")
	b.waitFor("/top-up/auto", "We’ll try again after")
	b.says("Your card was declined.", "Not charged")
	b.look("auto-declined")
	b.press("link", "$200.00")
	b.says("Not paid. Your card was declined. Nothing was credited.", "Top up yourself")
	b.look("receipt-auto-declined")
	p.Verify()
}

// saveCard goes from the page of automatic top-ups to Checkout, and back to it.
func (b *tab) saveCard(card string) {
	b.t.Helper()
	b.tick("Save my card for automatic top-ups that I turn on. It can be charged when I’m not present. I can remove it at any time.")
	b.expect("/pay/cs_test_")
	b.press("button", "Continue to payment")
	b.says("Emulated checkout", "Card to save")
	b.choose(card)
	b.shoot("checkout-save-card")
	b.press("button", "Pay $25.00")
	for strings.Contains(b.text(), "Refresh") { // the event is on its way
		b.press("link", "Refresh")
	}
	b.press("link", "Automatic top-up")
	b.says(card, "Turn on")
}

// waitFor opens a page until it says something: a job of the node is at it.
func (b *tab) waitFor(path, text string) {
	b.t.Helper()
	address := "http://" + b.at().Host + path
	for b.open(address); !strings.Contains(b.text(), text); {
		b.open(address)
	}
}
