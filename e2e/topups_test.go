package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"purser/internal/db"
	"purser/internal/db/dbtest"
	"purser/internal/server/servertest"
)

// TestTopUp pays as a person does, at the Checkout of the emulator that dev brings
// along: the browser goes there by our form, and back, and the events do the rest.
func TestTopUp(t *testing.T) {
	t.Parallel()
	p := servertest.Start(t, dbtest.URL(t, db.SQLite))
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
	b.says("You came back without paying")
	b.look("receipt-cancelled")
	b.press("link", "Pay $25.00")
	b.press("button", "Pay $25.00")
	for strings.Contains(run(b, chromedp.Text(chromedp.CSS("body"))), "Look again") { // the event is on its way
		b.press("link", "Look again")
	}
	b.says("$25.00 is in your balance", "pi_")
	b.look("receipt")
	b.open(p.BaseURL + "/top-up")
	b.says("$25.00", "Latest top-ups", "Credited")
	b.look("top-up")
	b.press("link", "All top-ups")
	b.look("top-ups")
}
