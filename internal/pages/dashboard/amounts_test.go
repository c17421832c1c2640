package dashboard_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// markup is what stands between the texts of a page.
var markup = regexp.MustCompile(`(?s)<[^>]*>|\s+`)

// Each amount of a connection stands under its own name: all of them differ here, so that no two can be swapped.
func TestAmountsOfAConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.Spend(w.conn, 80*money.Cent)
	w.Hold(w.conn, 130*money.Cent)
	b, path := w.signedIn("person"), "/connections/"+w.conn.ID
	for page, wants := range map[string][]string{
		path:               {"Used of $5.00 $0.80", "Held now $1.30", "Remaining $2.90"},
		path + "/live":     {"Used of $5.00 $0.80", "Held now $1.30", "Remaining $2.90"},
		path + "/increase": {"Spend cap $5.00", "Used $0.80", "Held $1.30", "Remaining $2.90"},
		path + "/review":   {"Spend cap $5.00", "Used $0.80", "Held $1.30", "Remaining $2.90"},
		path + "/revoke":   {"Spend cap $5.00", "Used $0.80", "Held $1.30", "Remaining $2.90"},
		"/connections":     {"$0.80 of $5.00 used, $1.30 held"},
	} {
		text := html.UnescapeString(markup.ReplaceAllString(b.Get(page).Want(t, 200).Body, " "))
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range wants {
			if !strings.Contains(strings.ReplaceAll(text, " ,", ","), want) {
				t.Errorf("%s lacks %q:\n%s", page, want, text)
			}
		}
	}
}

// U7: amounts with fractions of a cent: the parts of a spend cap add up on every page, what remains is rounded down,
// and a single call has four decimals.
func TestAmountsAddUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	w.Spend(w.conn, 33_412_345)
	w.Hold(w.conn, 1_234_567)
	b, path := w.signedIn("person"), "/connections/"+w.conn.ID
	for page, wants := range map[string][]string{
		path:               {"Used of $5.00 $0.34", "Held now $0.01", "Remaining $4.65", "−$0.3341"},
		path + "/live":     {"Used of $5.00 $0.34", "Held now $0.01", "Remaining $4.65"},
		path + "/increase": {"Spend cap $5.00", "Used $0.34", "Held $0.01", "Remaining $4.65"},
		path + "/review":   {"Spend cap $5.00", "Used $0.34", "Held $0.01", "Remaining $4.65", "$0.3341"},
		path + "/revoke":   {"Spend cap $5.00", "Used $0.34", "Held $0.01", "Remaining $4.65"},
		"/connections":     {"$0.34 of $5.00 used, $0.01 held"},
		"/activity":        {"−$0.3341"},
		"/dashboard":       {"Spent, last 30 days $0.33", "−$0.3341"},
	} {
		text := html.UnescapeString(markup.ReplaceAllString(b.Get(page).Want(t, 200).Body, " "))
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range wants {
			if !strings.Contains(strings.ReplaceAll(text, " ,", ","), want) {
				t.Errorf("%s lacks %q:\n%s", page, want, text)
			}
		}
	}
}
