package dashboard_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func TestApprove(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.Spend(w.conn, money.Dollar)
		w.Hold(w.conn, 2*money.Dollar)
		path := w.ask(w.conn, 12*money.Dollar, "Your report has 40 more <pages>.")
		b := w.signedIn("person")
		page := b.Get(path).Want(t, 200, "Live &lt;b&gt;App&lt;/b&gt;", "Your report has 40 more &lt;pages&gt;.",
			"person@example.com", "$5.00", "$12.00", "$1.00", "$2.00", "$15.00", "$8.00", "$7.00",
			"$2.00</strong> left", "$9.00</strong> left",
			`<rect class="whole" width="41"`,
			`<rect class="whole" width="100"`,
			`value="approve">Raise to $12.00</button>`, `value="deny">Keep $5.00</button>`, `action="`+path+`"`,
			"/connections/"+w.conn.ID+"/increase")
		page.Lacks(t, "<script>", "style=", "missing", "Sandbox")
		b.Post(path, decision("approve")).Leads(t, path)
		if c := w.Is(w.conn); c.AllocationMC != 12*money.Dollar {
			t.Errorf("the cap is %s", c.AllocationMC.Display())
		}
		b.Get(path).Want(t, 200, "You approved it", "The spend cap is now $12.00").Lacks(t, "<button type",
			"has changed")
		// A second answer says so, and changes nothing.
		before := w.everything()
		b.Post(path, decision("deny")).Want(t, 200, "You already answered", "You approved it")
		b.Post(path, decision("approve")).Want(t, 200, "You already answered")
		if after := w.everything(); after != before {
			t.Errorf("answered again: %s, before %s", after, before)
		}
	})
}

func TestDeny(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path := w.ask(w.conn, 12*money.Dollar, "")
		b := w.signedIn("person")
		b.Get(path).Want(t, 200, "No reason given")
		b.Post(path, decision("maybe")).Want(t, 400)
		b.Post(path, url.Values{}).Want(t, 400)
		b.Post(path, decision("deny")).Leads(t, path)
		b.Get(path).Want(t, 200, "You denied it", "The spend cap is now $5.00")
		if c := w.Is(w.conn); c.AllocationMC != 5*money.Dollar {
			t.Errorf("the cap is %s", c.AllocationMC.Display())
		}
	})
}

// With too little available the page says how much is missing, and offers no
// button that would fail; the request waits for a top-up.
func TestTooLittleAvailable(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path := w.ask(w.conn, 20*money.Dollar+1, "more")
		b := w.signedIn("person")
		page := b.Get(path).Want(t, 200, "Not enough balance", "short by $0.01",
			`<a href="/top-up">Top up your balance</a>`, `value="deny">Keep $5.00</button>`)
		page.Lacks(t, "Raise to $")
		b.Post(path, decision("approve")).Want(t, 422, `role="alert"`, "short by $0.00000001", `id="decision"`)
		w.Do(rules.TopUp{AccountID: w.conn.AccountID, AmountMC: 1})
		b.Get(path).Want(t, 200, "Raise to $").Lacks(t, "Not enough balance")
		b.Post(path, decision("approve")).Leads(t, path)
		if c := w.Is(w.conn); c.AllocationMC != 20*money.Dollar+1 {
			t.Errorf("the cap is %s", c.AllocationMC.Display())
		}
	})
}

// What the tier allows is that of the moment of the answer.
func TestTierMayForbidApproval(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.Do(rules.TopUp{AccountID: w.conn.AccountID, AmountMC: 100 * money.Dollar})
		path := w.ask(w.conn, 25*money.Dollar+1, "more")
		b := w.signedIn("person")
		b.Post(path, decision("approve")).Want(t, 422, "at most $25.00")
		if _, err := d.ExecContext(t.Context(), `UPDATE apps SET tier = 'full-live' WHERE id = $1`,
			w.app.ID); err != nil {
			t.Fatal(err)
		}
		b.Post(path, decision("approve")).Leads(t, path)
	})
}

// The links of requests that gave way lead straight to the newest (contract §3), however many there were in between:
// browsers follow at most 20 redirects.
func TestSupersededLeadsOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		first, second, third := w.ask(w.conn, 6*money.Dollar, ""), w.ask(w.conn, 7*money.Dollar, ""),
			w.ask(w.conn, 8*money.Dollar, "")
		b := w.signedIn("person")
		b.Get(first).Leads(t, third)
		b.Get(second).Leads(t, third)
		b.Post(first, decision("approve")).Leads(t, third)
		if c := w.Is(w.conn); c.AllocationMC != 5*money.Dollar {
			t.Errorf("approving what was superseded made the cap %s", c.AllocationMC.Display())
		}
		b.Get(third).Want(t, 200, "$8.00")
	})
}

func TestRequestOfARevokedConnection(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path := w.ask(w.conn, 6*money.Dollar, "more")
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b := w.signedIn("person")
		b.Get(path).Want(t, 200, "You revoked this connection").Lacks(t, "<button type=\"submit\" name")
		b.Post(path, decision("approve")).Want(t, 200, "You revoked this connection")
		b.Get("/connections").Want(t, 200, "Ended").Lacks(t, "Requested a higher cap")
	})
}

func TestIncrease(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.Spend(w.conn, money.Dollar)
		w.Hold(w.conn, 2*money.Dollar)
		path := "/connections/" + w.conn.ID + "/increase"
		b := w.signedIn("person")
		b.Get(path).Want(t, 200, `<label for="spend_cap">Spend cap (USD)</label>`,
			`<label for="daily_limit">Daily limit (USD, optional)</label>`, `value="5.00"`, `value=""`,
			"go below what is used and held, $3.00", "At most $25.00", "$15.00").Lacks(t, "requested a spend cap",
			"Paused", "Saved")
		request := w.ask(w.conn, 12*money.Dollar, "more")
		b.Get(path).Want(t, 200, "requested a spend cap of $12.00", `href="`+request+`"`)
		const arrow = "becomes"
		b.Get(path+"?spend_cap=10.00").Want(t, 200, "After saving", arrow, "$10.00", `value="10.00"`,
			`aria-current="true"`)
		b.Get(path+"?spend_cap=0&daily_limit=2").Want(t, 200, "After saving", arrow, "$3.00", "$17.00", "Daily limit")
		b.Get(path+"?spend_cap=21").Want(t, 200, "short by $1.00").Lacks(t, arrow)
		b.Get(path+"?spend_cap=26").Want(t, 200, "at most $25.00", `role="alert"`).Lacks(t, arrow)
		b.Get(path+"?spend_cap=lots").Want(t, 200, `value="lots"`, "Enter a spend cap in dollars").Lacks(t, arrow)
		if now := w.Is(w.conn); now.AllocationMC != 5*money.Dollar || now.VelocityLimitMC != nil {
			t.Errorf("a preview changed the limits: %+v", now)
		}
		for _, c := range []struct {
			cap, daily string
			says       string // "" = it works
			allocation money.MC
			velocity   money.MC
		}{
			{"20", "4.5", "", 20 * money.Dollar, 450 * money.Cent},
			{"20.00000001", "", "short by $0.00000001", 20 * money.Dollar, 450 * money.Cent},
			{"10", "", "", 10 * money.Dollar, 0},
			{"25.00000001", "1", "at most $25.00", 10 * money.Dollar, 0},
			{"a lot", "-1", "Enter a spend cap in dollars", 10 * money.Dollar, 0},
			{"", "", "Enter a spend cap", 10 * money.Dollar, 0},
			{"8", "0", "more than zero", 10 * money.Dollar, 0},
			{"3", "1", "", 3 * money.Dollar, money.Dollar},
			{"7", "1", "", 7 * money.Dollar, money.Dollar},
			{"0", "", "", 3 * money.Dollar, 0}, // never below consumed and held
		} {
			form := url.Values{"spend_cap": {c.cap}, "daily_limit": {c.daily}}
			if a := b.Post(path, form); c.says == "" {
				a.Leads(t, path+"?saved=1")
				b.Get(a.To).Want(t, 200, "Saved.")
			} else {
				a.Want(t, 422, `role="alert"`, c.says, `value="`+c.cap+`"`, `value="`+c.daily+`"`)
			}
			got := w.Is(w.conn)
			var velocity money.MC
			if got.VelocityLimitMC != nil {
				velocity = *got.VelocityLimitMC
			}
			if got.AllocationMC != c.allocation || velocity != c.velocity {
				t.Errorf("cap %q, daily %q: now %s and %s", c.cap, c.daily, got.AllocationMC.Display(),
					velocity.Display())
			}
		}
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		b.Get(path).Want(t, 200, "Paused", `href="/connections/`+w.conn.ID+`/review"`)
		w.Do(rules.Revoke{ConnectionID: w.conn.ID})
		b.Get(path).Want(t, 200, "You revoked this connection").Lacks(t, `<input id="spend_cap"`)
		b.Post(path, url.Values{"spend_cap": {"5"}}).Want(t, 422)
	})
}

func TestReview(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path := "/connections/" + w.conn.ID + "/review"
		b := w.signedIn("person")
		b.Get(path).Want(t, 200, "not paused", "No calls yet", "Revoke</a>").Lacks(t, "Resume</button>")
		row := w.Spend(w.conn, money.Dollar)
		w.Spend(w.conn, 2*money.Dollar)
		w.Do(rules.Reverse{EntryID: row.ID, AccountID: row.AccountID, Reason: "provider_error"})
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		b.Get(path).Want(t, 200, "is paused", "$2.00", "gpt-5.6-terra", "summaries", "$1.0000 refunded",
			"Resume</button>", "Revoke</a>", timestamp.Format(row.CreatedUS), `<th scope="col">`,
			"Usual speed", "Up to 2× faster", "Up to 3× faster", `value="1" checked`)
		b.Get(path+"?done=resume").Lacks(t, "Resumed.")
		b.Post(path, decision("both")).Want(t, 400)
		b.Post(path, url.Values{"decision": {"resume"}, "speed": {"4"}}).Want(t, 400)
		b.Post(path, url.Values{"decision": {"resume"}, "speed": {"0"}}).Want(t, 400)
		b.Post(path, url.Values{"decision": {"resume"}, "speed": {"2"}}).Leads(t, path+"?done=resume")
		if c := w.Is(w.conn); c.Status != rules.Active || c.FasterSpend != 2 {
			t.Errorf("resumed, and it is %s, %d times as fast", c.Status, c.FasterSpend)
		}
		b.Get(path+"?done=resume").Want(t, 200, "Resumed.", "not paused").Lacks(t, "Resume</button>")
		b.Post(path, decision("revoke")).Leads(t, path+"?done=revoke")
		if c := w.Is(w.conn); c.Status != rules.Revoked {
			t.Errorf("revoked, and it is %s", c.Status)
		}
		b.Get(path).Want(t, 200, "is disconnected").Lacks(t, "Revoke</a>", "Resume</button>")
		b.Post(path, decision("resume")).Want(t, 303) // to the page that says that it is over
		if c := w.Is(w.conn); c.Status != rules.Revoked {
			t.Errorf("it came back as %s", c.Status)
		}
	})
}

// TestReviewSaysWhoPaused shows each cause of a freeze. Only a freeze for its speed offers speeds, and below zero the
// page says what helps instead of offering a button that cannot work.
func TestReviewSaysWhoPaused(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		path := "/connections/" + w.conn.ID + "/review"
		b := w.signedIn("person")
		for by, want := range map[rules.FreezeCause]string{
			rules.FrozenByRisk:     "suddenly spent much faster",
			rules.FrozenByUser:     "You paused it.",
			rules.FrozenByPayment:  "your balance fell below zero",
			rules.FrozenByOperator: "The reason: “leaked &lt;b&gt;secret”.",
		} {
			freeze, resume := rules.Freeze{ConnectionID: w.conn.ID, By: by}, rules.Resume{ConnectionID: w.conn.ID}
			button := "Resume</button>"
			switch by {
			case rules.FrozenByPayment:
				freeze.Subject = rules.BelowZero
			case rules.FrozenByOperator:
				freeze.Reason, resume.By, button = "leaked <b>secret", by, "To resume it, contact support."
			}
			w.Do(freeze)
			page := b.Get(path).Want(t, 200, want, button).Lacks(t, "Either you")
			if by == rules.FrozenByOperator {
				page.Lacks(t, "Resume</button>")
				b.Post(path, decision("resume")).Want(t, 422, "We paused this app. Please contact support.")
			}
			if by == rules.FrozenByRisk {
				page.Want(t, 200, "Usual speed")
			} else {
				page.Lacks(t, "Usual speed")
				b.Post(path, url.Values{"decision": {"resume"}, "speed": {"3"}}).Want(t, 422)
				if c := w.Is(w.conn); c.Status != rules.Frozen || c.FasterSpend != 1 {
					t.Errorf("paused by %s, and it is %s, %d times as fast", by, c.Status, c.FasterSpend)
				}
			}
			b.Get("/connections/"+w.conn.ID+"/increase").Want(t, 200, want)
			w.Do(resume)
		}
		// A page that was open while another cause came resumes what it showed alone.
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser})
		stale := decision("resume")
		stale.Set("causes", b.Get(path).Found(t, `name="causes" value="([^"]*)"`))
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		b.Post(path, stale).Want(t, 303)
		b.Get(path).Want(t, 200, "suddenly spent much faster").Lacks(t, "You paused it.")
		b.Post(path, stale).Want(t, 422, "Look again before you resume it")
		w.Do(rules.Resume{ConnectionID: w.conn.ID})
		for _, c := range []rules.Command{
			rules.OpenPayment{PaymentID: "top_1", AccountID: w.conn.AccountID, AmountMC: 300 * money.Dollar},
			rules.MarkPaymentPaid{PaymentID: "top_1", PaymentIntent: "pi_1"},
			rules.SettlePayment{PaymentID: "top_1"},
		} {
			w.Do(c)
		}
		balance, err := store.GetBalance(t.Context(), d, w.conn.AccountID)
		if err != nil {
			t.Fatal(err)
		}
		w.Do(rules.ChangeCap{ConnectionID: w.conn.ID, TargetMC: w.conn.AllocationMC + balance.AvailableMC})
		// Two causes: both are named, and the dispute leaves nothing to resume.
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByUser})
		w.Do(rules.DisputePayment{PaymentID: "top_1", DisputeID: "du_1"})
		b.Get(path).Want(t, 200, "One of your payments is disputed.", "You paused it.").Lacks(t, "Resume</button>")
		b.Post("/connections/"+w.conn.ID+"/increase", url.Values{"spend_cap": {"1000"}}).Want(t, 422)
		w.Do(rules.Resume{ConnectionID: w.conn.ID})
		b.Post(path, decision("resume")).Want(t, 422, "stays paused until your bank has decided")
		w.Do(rules.EndDispute{PaymentID: "top_1", DisputeID: "du_1"})
		b.Get(path).Want(t, 200, "This connection is not paused")
		w.Do(rules.ReversePayment{PaymentID: "top_1", Reason: "refunded", TotalMC: 300 * money.Dollar})
		b.Get(path).Want(t, 200, "your balance fell below zero", "$300.00 below zero", `href="/top-up"`).
			Lacks(t, "Resume</button>")
		b.Post(path, decision("resume")).Want(t, 422, `role="alert"`, "Top up first", `href="/top-up"`)
	})
}

func TestList(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		w.signedIn("stranger").Get("/connections").Want(t, 200, "No connections yet").Lacks(t, w.conn.ID)
		b := w.signedIn("person")
		w.Spend(w.conn, money.Dollar)
		request := w.ask(w.conn, 6*money.Dollar, "")
		b.Get("/connections").Want(t, 200, "Live &lt;b&gt;App&lt;/b&gt;", "$1.00", "$5.00", "Active",
			`href="`+request+`"`, `href="/connections/`+w.conn.ID+`/increase"`).Lacks(t, w.test.ID, "held for calls")
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		b.Get("/connections").Want(t, 200, "Paused")
	})
}

// paths are the pages of a connection.
func (w *world) paths(c rules.Connection) []string {
	return []string{w.ask(c, 6*money.Dollar, "more"), "/connections/" + c.ID + "/increase",
		"/connections/" + c.ID + "/review"}
}

// posts are forms that would change something.
var posts = []url.Values{
	{"decision": {"approve"}}, {"decision": {"deny"}}, {"decision": {"resume"}, "speed": {"3"}},
	{"decision": {"revoke"}}, {"spend_cap": {"1"}, "daily_limit": {"1"}},
}

var requestIDs = regexp.MustCompile(`req_[0-9a-z]{26}`)

// Somebody else's links are answered like those of nothing, to the byte, and do
// nothing.
func TestForeignLinks(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		paths := append(w.paths(w.conn), w.paths(w.test)...)
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		absent := regexp.MustCompile(`(conn|acr)_[0-9a-z]{26}`)
		before := w.everything()
		stranger := w.signedIn("stranger")
		same := func(path, method string, foreign, none apitest.Page) {
			t.Helper()
			if foreign.Status != 404 ||
				requestIDs.ReplaceAllString(foreign.Body, "") != requestIDs.ReplaceAllString(none.Body, "") {
				t.Errorf("%s %s: %d differs from %d\n%s\n%s", method, path, foreign.Status, none.Status, foreign.Body,
					none.Body)
			}
		}
		for _, path := range paths {
			none := absent.ReplaceAllString(path, "${1}_00000000000000000000000000")
			same(path, "GET", stranger.Get(path), stranger.Get(none))
			for _, form := range posts {
				same(path, "POST", stranger.Post(path, form), stranger.Post(none, form))
			}
		}
		// Test accounts see their own only, also among each other's developers.
		for _, path := range paths[:3] {
			w.signedIn("tester").Get(path).Want(t, 404)
			w.signedIn("developer").Get(path).Want(t, 404) // the app's developer is not its user
		}
		if after := w.everything(); after != before {
			t.Errorf("strangers changed %s to %s", before, after)
		}
	})
}

// A developer speaks for the test accounts, which nobody can sign in as.
func TestDeveloperDecidesForTestAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	for _, name := range []string{"tester", "developer"} {
		w.signedIn(name).Get(w.ask(w.test, 6*money.Dollar, "more")).Want(t, 200, "Sandbox", "$6.00")
	}
	path := w.ask(w.test, 7*money.Dollar, "more")
	b := w.signedIn("developer")
	b.Get(path).Want(t, 200, "for your test account", "tester@example.com")
	b.Post(path, decision("approve")).Leads(t, path)
	if c := w.Is(w.test); c.AllocationMC != 7*money.Dollar {
		t.Errorf("the cap is %s", c.AllocationMC.Display())
	}
}

// No page does anything by being opened, whatever its address says, nor by a form
// of another site, nor without somebody who is signed in.
func TestNothingHappensByItself(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		paths := w.paths(w.conn)
		w.Do(rules.Freeze{ConnectionID: w.conn.ID, By: rules.FrozenByRisk})
		before := w.everything()
		b, nobody := w.signedIn("person"), w.browser()
		for _, path := range paths {
			for _, form := range posts {
				b.Get(path+"?"+form.Encode()).Want(t, 200)
				for _, forged := range [][]string{
					{"Sec-Fetch-Site", "cross-site"},
					{"Origin", "https://evil.example.com"},
					{"Origin", "null"},
				} {
					b.Post(path, form, forged...).Want(t, 403)
				}
				nobody.Post(path, form).Leads(t, "/sign-in?next="+url.QueryEscape(path))
			}
			nobody.Get(path).Leads(t, "/sign-in?next="+url.QueryEscape(path))
			a := b.Get(path)
			policy := a.Header.Get("Content-Security-Policy")
			if !strings.Contains(policy, "frame-ancestors 'none'") ||
				!strings.HasSuffix(policy, "form-action 'self'") || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: headers %v", path, a.Header)
			}
			b.Post(path, decision("approve"), "Content-Type", "application/json").Want(t, http.StatusBadRequest)
			b.Do(http.NewRequest("POST", w.URL+path+"?decision=deny&decision=revoke", nil)).Want(t,
				http.StatusBadRequest)
		}
		nobody.Get("/connections").Leads(t, "/sign-in?next=%2Fconnections")
		if after := w.everything(); after != before {
			t.Errorf("%s has become %s", before, after)
		}
	})
}

// A test account has nothing to top up, and is told who gives it money.
func TestPlayMoneyIsNotToppedUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	const where = `under <a href="/developer/test-accounts">test accounts</a>`
	path, lacking := "/connections/"+w.test.ID+"/increase", w.ask(w.test, 2000*money.Dollar, "")
	tester, developer := w.signedIn("tester"), w.signedIn("developer")
	for _, page := range []string{path, lacking} {
		tester.Get(page).Want(t, 200, "Its developer can add more", "under “Test accounts”").Lacks(t, "/top-up",
			"/developer")
		developer.Get(page).Want(t, 200, "Its developer can add more", where).Lacks(t, "Top up your balance")
	}
	for _, page := range []string{"/dashboard", "/activity?model=none"} {
		tester.Get(page).Want(t, 200).Lacks(t, "/top-up")
	}
	if _, err := w.d.ExecContext(t.Context(),
		`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us) SELECT 'wac_new', 'new@example.com', password_hash, 1, owner_id, 1 FROM accounts WHERE sandbox = 1`); err != nil {
		t.Fatal(err)
	}
	b := w.signedIn("new")
	b.Get("/dashboard").Want(t, 200, "their developer adds test money").Lacks(t, "/top-up")
	b.Get("/activity").Want(t, 200, "No activity yet").Lacks(t, "/top-up")
	w.signedIn("person").Get("/connections/"+w.conn.ID+"/increase").Want(t, 200,
		`<a href="/top-up">Top up your balance</a>`)
}
