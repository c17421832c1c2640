package console_test

import (
	"net/url"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// The console stores who is behind an app, and says how to verify the domain.
func TestProfilePage(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("developer")
		form := url.Values{
			"developer_name":     {"Example <Works>"},
			"website_url":        {"https://example.com/"},
			"privacy_policy_url": {"https://example.com/privacy"},
			"support":            {"help@example.com"},
			"domain":             {"Example.invalid"},
		}
		b.Post(w.mine("/profile"), form).Leads(t, w.mine("/settings?done=profile"))
		b.Get(w.mine("/settings?done=profile")).Want(t, 200, "Saved.", "Example &lt;Works&gt;", "help@example.com",
			"Not verified", "https://example.invalid/.well-known/purser-domain", "purser-domain=app_")
		b.Post(w.mine("/domain"), nil).Want(t, 422, "neither the file nor the TXT record was found")
		form.Set("website_url", "javascript:alert(1)")
		b.Post(w.mine("/profile"), form).Want(t, 422, "must be an https URL", `aria-invalid="true"`)
		w.exec(`UPDATE apps SET domain_verified_us = 1 WHERE domain = 'example.invalid'`)
		b.Get(w.mine("/settings")).Want(t, 200, ">Verified<", "Check again")
		form.Set("website_url", "")
		form.Set("domain", "other.invalid")
		b.Post(w.mine("/profile"), form).Leads(t, w.mine("/settings?done=profile"))
		b.Get(w.mine("/settings")).Want(t, 200, "Not verified").Lacks(t, ">Verified<")
	})
}
