package topups_test

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// Nothing is opened by a form of another site, by a GET, by nobody or by a test
// account; no page may be framed, and none tells of another person's payments or
// leads anybody elsewhere.
func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, db.SQLite)
	p, stranger := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{})
	developer := w.person(accounts.NewAccount{Developer: true})
	tester, nobody := w.person(accounts.NewAccount{Sandbox: true, OwnerID: developer.ID}), apitest.NewBrowser(t, w.URL)
	p.begin("25")
	receipt := "/top-ups/" + p.payment().ID
	form := url.Values{"token": {p.Get("/top-up").Found(t, tokenField)}, "amount": {"50"}}
	for _, forged := range [][]string{
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
		{"Origin", "https://evil.example.com"},
		{"Origin", "null"},
	} {
		p.Post("/top-up", form, forged...).Want(t, http.StatusForbidden).WantSecurityHeaders(t)
	}
	p.Get("/top-up?"+form.Encode()).Want(t, http.StatusOK)
	p.Post("/top-up?"+form.Encode(), nil).Want(t, http.StatusBadRequest)
	tester.Post("/top-up", form).Want(t, http.StatusNotFound)
	nobody.Post("/top-up", form).Want(t, http.StatusSeeOther).WantLocalRedirect(t)

	requests := regexp.MustCompile(`req_[0-9a-z]{26}`)
	none := requests.ReplaceAllString(stranger.Get("/top-ups/top_00000000000000000000000000").Want(t,
		http.StatusNotFound).Body, "")
	for _, path := range []string{receipt, receipt + "?back=paid"} {
		if a := stranger.Get(path).Want(t, http.StatusNotFound); requests.ReplaceAllString(a.Body, "") != none {
			t.Errorf("%s tells a stranger more than nothing:\n%s", path, a.Body)
		}
	}
	for _, path := range []string{"/top-up", "/top-up/refund", "/top-ups", receipt} {
		p.Get(path).Want(t, http.StatusOK).WantSecurityHeaders(t)
		nobody.Get(path).Want(t, http.StatusSeeOther).WantLocalRedirect(t)
		for _, elsewhere := range []string{"//evil.example.com" + path, path + "//evil.example.com",
			path + "?back=https://evil.example.com/", path + `?back=%22%3E%3Cscript%3Ealert(1)%3C/script%3E`,
			path + "?next=//evil.example.com"} {
			p.Get(elsewhere).WantLocalRedirect(t).Lacks(t, "<script>", "evil.example.com\"")
			nobody.Get(elsewhere).WantLocalRedirect(t)
		}
	}
	if list, err := store.PaymentsOfAccount(t.Context(), w.d, p.ID, 10); err != nil || len(list) != 1 {
		t.Errorf("%d payments, %v", len(list), err)
	}
}
