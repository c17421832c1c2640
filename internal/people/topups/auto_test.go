package topups_test

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/people/accounts"
	"github.com/purserhq/purser/internal/people/mail"
	"github.com/purserhq/purser/internal/people/topups"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// saves pays and has the card kept, which from then on behaves as it says.
func (p *person) saves(amount, card string) {
	p.t.Helper()
	a := p.Post("/top-up/auto/card", url.Values{
		"token": {p.Get("/top-up/auto").Found(p.t, tokenField)},
		"first": {amount},
		"agree": {"yes"},
	})
	if a.Status != http.StatusSeeOther || !strings.Contains(a.To, "/pay/cs_test_") {
		p.t.Fatalf("%d to %q\n%s", a.Status, a.To, a.Body)
	}
	p.do(a.To[strings.LastIndexByte(a.To, '/')+1:], "pay", "card", card)
	p.deliver(p.fresh(), http.StatusOK)
}

// wishes switches automatic top-ups on.
func (p *person) wishes(below, add, most string) {
	p.t.Helper()
	if a := p.Post("/top-up/auto", url.Values{
		"below": {below},
		"add":   {add},
		"most":  {most},
	}); a.Status != http.StatusSeeOther || a.To != "/top-up/auto?done=on" {
		p.t.Fatalf("%d to %q\n%s", a.Status, a.To, a.Body)
	}
}

// auto is the page of automatic top-ups, which shall say these.
func (p *person) auto(says ...string) {
	p.t.Helper()
	p.Get("/top-up/auto").Want(p.t, http.StatusOK, says...)
}

// charged checks what Stripe took automatically.
func (p *person) charged(cents int64, payments int) {
	p.t.Helper()
	if c, n := p.stripe.Charged(p.ID); c != cents || n != payments {
		p.t.Errorf("%d cents in %d automatic payments, want %d in %d", c, n, cents, payments)
	}
}

// mails are what was written to the person, newest first.
func (p *person) mails() []mail.Mail {
	p.t.Helper()
	all, err := p.store.Mails.ListNewest(p.t.Context(), 100)
	if err != nil {
		p.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(m mail.Mail) bool { return m.AccountID != p.ID })
}

// told checks how many mails there are, and the newest.
func (p *person) told(n int, subject string, says ...string) {
	p.t.Helper()
	all := p.mails()
	if len(all) != n || n > 0 && (!strings.Contains(all[0].Subject, subject) || all[0].To != p.Email) {
		p.t.Fatalf("%d mails, want %d: %+v", len(all), n, all)
	}
	for _, part := range says {
		if !strings.Contains(all[0].Text, part) || !strings.Contains(all[0].HTML, strings.Split(part, "\n")[0]) {
			p.t.Errorf("%q is not in\n%s", part, all[0].Text)
		}
	}
}

// TestAuto follows it from the card to the month's maximum, and into the next month.
func TestAuto(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.auto("First, save a card")
		p.saves("25", "works")
		p.auto("Visa ending in 4242", "expires 04/2030", "Turn on")
		w.once()
		p.charged(0, 0) // a card is no consent to any amount
		p.wishes("30", "50", "100")
		w.once()
		p.wants(75*dollars, rules.PaymentSettled)
		p.charged(5000, 1)
		p.told(1, "We added $50.00", "charged $50.00 to your Visa ending in 4242",
			"https://purser.example.com/top-ups/"+p.payment().ID)
		w.deliver(w.fresh(), http.StatusOK)
		w.once()
		p.wants(75*dollars, rules.PaymentSettled)
		p.allocate(45 * dollars) // 30 is not less than 30
		w.once()
		p.charged(5000, 1)
		p.allocate(1 * dollars)
		w.once()
		p.wants(79*dollars, rules.PaymentSettled)
		p.allocate(60 * dollars)
		w.once()
		p.wants(19*dollars, rules.PaymentSettled)
		p.charged(10000, 2)
		p.auto("$100.00", "$0.00", "You’ve reached your monthly maximum", "Credited")
		w.once()
		p.charged(10000, 2)
		const full = "Automatic top-up is paused until next month"
		p.told(3, full, "below $30.00", "$100.00 of your maximum of $100.00",
			"before 1 "+w.now().UTC().AddDate(0, 1, 1-w.now().UTC().Day()).Format("January 2006"),
			"https://purser.example.com/top-up\n")
		w.later(time.Hour)
		w.once()
		p.wishes("30", "50", "120") // which is not enough for another one
		w.once()
		p.charged(10000, 2)
		p.told(3, full)
		p.Get("/top-ups/"+p.payment().ID).Want(t, http.StatusOK, ", automatically", `href="/top-up/auto"`)
		p.Get("/top-up").Want(t, http.StatusOK, "On. When your balance is below $30.00, we charge $50.00")
		now := w.now().UTC()
		w.later(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 1, 0, time.UTC).Sub(now))
		w.once()
		p.wants(69*dollars, rules.PaymentSettled)
		p.charged(15000, 3)
		p.told(4, "We added $50.00")
		p.allocate(60 * dollars)
		w.once()
		p.allocate(30 * dollars)
		w.once()
		p.told(6, full) // of another month
		p.charged(20000, 4)
	})
}

// TestAutoForm: what may be set, and that none of it is set without a card, or by
// halves.
func TestAutoForm(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		set := func(below, add, most string) apitest.Page {
			return p.Post("/top-up/auto", url.Values{"below": {below}, "add": {add}, "most": {most}})
		}
		set("10", "25", "100").Want(t, http.StatusSeeOther)
		p.auto("First, save a card")
		token := strings.Repeat("x", 43)
		for _, form := range []url.Values{
			{"first": {"25"}},
			{"first": {"25"}, "agree": {"no"}},
			{"first": {"4"}, "agree": {"yes"}},
			{"agree": {"yes"}},
		} {
			form.Set("token", token)
			p.Post("/top-up/auto/card", form).Want(t, http.StatusUnprocessableEntity, "There’s a problem")
		}
		p.Post("/top-up/auto/card", url.Values{"first": {"25"}, "agree": {"yes"}}).Want(t, http.StatusBadRequest)
		p.saves("25", "works")
		for _, bad := range [][4]string{
			{"0.99", "25", "100", "from $1.00 to $500.00"}, {"501", "501", "1000", "from $1.00 to $500.00"},
			{"", "25", "100", "in dollars and cents"},
			{"10", "4.99", "100", "from $5.00 to $500.00"}, {"10", "500.01", "1000", "from $5.00 to $500.00"},
			{"30", "25", "100", "Add at least $30.00"},
			{"10", "25", "24.99", "allow at least one top-up of $25.00"},
			{"10", "25", "5000.01", "from $5.00 to $5,000.00"}, {"10", "25", "-1", "in dollars and cents"},
			{"1e2", "25", "100", "in dollars and cents"},
		} {
			set(bad[0], bad[1], bad[2]).Want(t, http.StatusUnprocessableEntity, bad[3], `value="`+bad[1]+`"`)
		}
		p.auto("Turn on")
		p.wishes("500", "500", "5000")
		p.wishes("1", "5", "5")
		p.auto("Change settings", "$5.00")
		if a := p.Post("/top-up/auto/off", nil); a.To != "/top-up/auto?done=off" {
			t.Error(a.Status, a.To)
		}
		p.auto("Turn on", `value="5"`)
		p.wishes("1", "5", "5")
		if a := p.Post("/top-up/auto/card/remove", nil); a.To != "/top-up/auto?done=removed" {
			t.Error(a.Status, a.To)
		}
		p.auto("First, save a card")
		w.do("", "lose", "lose", "100", "method", "POST")
		w.once()
		w.do("", "lose", "lose", "0")
		w.later(time.Hour)
		w.once()
		if left := w.stripe.SavedCards(); len(left) != 0 {
			t.Error("Stripe keeps", left)
		}
		for range 2 { // once more there is nothing to do
			p.Post("/top-up/auto/card/remove", nil).Want(t, http.StatusSeeOther)
		}
		developer := w.person(accounts.NewAccount{Developer: true})
		tester := w.person(accounts.NewAccount{Sandbox: true, OwnerID: developer.ID})
		for _, path := range []string{"", "/off", "/card", "/card/remove"} {
			tester.Post("/top-up/auto"+path, url.Values{
				"token": {token},
				"first": {"25"},
				"agree": {"yes"},
			}).Want(t, http.StatusNotFound)
		}
		tester.Get("/top-up/auto").Want(t, http.StatusNotFound)
	})
}

// TestAutoDeclined: three failures, ever further apart, and it is off. Nothing was
// charged, and nothing can be later.
func TestAutoDeclined(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "declined")
		card := w.stripe.SavedCards()[0]
		p.wishes("30", "50", "100")
		for i, x := range []struct {
			card, why string
			pause     time.Duration
		}{
			{"poor", "insufficient funds", time.Hour}, {"expired", "has expired", 24 * time.Hour},
			{"authenticate", "requires you to confirm payments with this card", 24 * time.Hour},
		} {
			p.told(0, "")
			w.do(card, "card", "card", x.card)
			w.once()
			w.once()
			p.wants(25*dollars, rules.PaymentFailed)
			if list, err := store.PaymentsOfAccount(t.Context(), w.d, p.ID, 10); err != nil || len(list) != i+2 {
				t.Fatal(len(list), err)
			}
			p.SignIn(p.Email)
			if p.auto(x.why, "Not charged"); i < 2 {
				p.auto("We’ll try again after", "$0.00")
			}
			w.deliver(w.fresh(), http.StatusOK) // they tell of what is over
			w.later(x.pause - time.Minute)
			w.once()
			if list, err := store.PaymentsOfAccount(t.Context(), w.d, p.ID, 10); err != nil || len(list) != i+2 {
				t.Fatal("too soon:", len(list), err)
			}
			w.later(2 * time.Minute)
		}
		w.once()
		p.charged(0, 0)
		p.told(1, "is off: your card was declined", "three times", "requires you to confirm payments with this card",
			"https://purser.example.com/top-up\n")
		p.SignIn(p.Email)
		p.auto("Turned off.", "declined three times. Your bank requires you")
		if n := bytes.Count(bytes.Join(w.stripe.Events(), nil), []byte(`"payment_intent.canceled"`)); n != 3 {
			t.Error(n, "payments were cancelled")
		}
		p.wishes("30", "50", "100")
		w.do(card, "card", "card", "works")
		w.once()
		p.wants(75*dollars, rules.PaymentSettled)
		p.auto("$50.00</span> of <span", "Change settings")
	})
}

// TestAutoCrashes is F-66 and F-62: whatever is lost on the way, and whoever tells
// of it first, the card is charged once and the money comes in once.
func TestAutoCrashes(t *testing.T) {
	t.Parallel()
	crashes := map[string]func(w *world, p *person){
		"the answer is lost": func(w *world, p *person) {
			w.do("", "lose", "lose", "100", "method", "POST")
			w.once()
			p.charged(5000, 1)
			w.do("", "lose", "lose", "0")
		},
		"the request is lost": func(w *world, p *person) {
			w.do("", "down", "down", "100")
			w.once()
			p.charged(0, 0)
			w.do("", "down", "down", "0")
		},
		"the answer is lost, an event tells": func(w *world, p *person) {
			w.fresh()
			w.do("", "lose", "lose", "100", "method", "POST")
			w.once()
			w.do("", "lose", "lose", "0")
			e := w.fresh()
			w.deliver(e, http.StatusOK)
			p.wants(75*dollars, rules.PaymentSettled)
			w.deliver(e, http.StatusOK)
			w.deliver([][]byte{bytes.Replace(e[0], []byte(`"evt_`), []byte(`"evt_x`), 1)}, http.StatusOK)
		},
		"the answer is lost, and Stripe has forgotten the key": func(w *world, p *person) {
			w.do("", "lose", "lose", "100", "method", "POST")
			w.once()
			w.later(11 * time.Hour)
			w.do("", "down", "down", "100")
			w.once()
			w.later(14 * time.Hour)
			w.do("", "lose", "lose", "0")
			w.do("", "down", "down", "0")
			w.do("", "forget")
		},
		"the answer is lost, and the card is removed": func(w *world, p *person) {
			w.do("", "lose", "lose", "100", "method", "POST")
			w.once()
			w.do("", "lose", "lose", "0")
			p.Post("/top-up/auto/card/remove", nil)
		},
		"what follows is not recorded": func(w *world, p *person) {
			broken, mended := `CREATE TRIGGER boom BEFORE UPDATE ON auto_topups BEGIN SELECT RAISE(ABORT,
					'boom'); END`, `DROP TRIGGER boom`
			if w.d.Engine == db.Postgres {
				broken, mended = `ALTER TABLE payment_records ADD CONSTRAINT boom CHECK (kind <> 'settled') NOT VALID`,
					`ALTER TABLE payment_records DROP CONSTRAINT boom`
			}
			w.exec(broken)
			w.once()
			p.charged(5000, 1)
			w.exec(mended)
		},
	}
	each(t, func(w *world) {
		for name, crash := range crashes {
			t.Log(name)
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("30", "50", "100")
			crash(w, p)
			w.later(6 * time.Minute) // the claim ends
			w.once()
			p.charged(5000, 1)
			p.wants(75*dollars, rules.PaymentSettled)
			w.once()
			w.deliver(w.fresh(), http.StatusOK)
			p.wants(75*dollars, rules.PaymentSettled)
			p.charged(5000, 1)
			p.told(1, "We added $50.00")
		}
	})
}

// TestAutoNeverMade: Stripe was never reached, and then the person changed their
// mind: the attempt ends, and takes nothing of the month. One that is still wanted goes on half a day later.
func TestAutoNeverMade(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "50")
		w.do("", "down", "down", "100")
		w.once()
		p.wants(25*dollars, rules.PaymentPending)
		p.auto("In progress")
		w.do("", "down", "down", "0")
		p.Post("/top-up/auto/off", nil)
		w.later(6 * time.Minute)
		w.once()
		p.wants(25*dollars, rules.PaymentFailed)
		p.auto("stopped before your bank was asked")
		w.once()
		p.charged(0, 0)
		p.wishes("30", "50", "50") // the whole month is there
		w.do("", "down", "down", "100")
		w.once()
		w.do("", "down", "down", "0")
		w.later(13 * time.Hour)
		w.do("", "forget")
		w.once()
		p.charged(5000, 1)
		p.wants(75*dollars, rules.PaymentSettled)
		p.told(1, "We added $50.00")
	})
}

// TestAutoStops: who has something to look at first is not charged, and who wanted
// money back is not charged again.
func TestAutoStops(t *testing.T) {
	t.Parallel()
	ready := func(w *world) (*person, string) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("20", "50", "100")
		return p, p.allocate(10 * dollars)
	}
	stops := map[string]func(t *testing.T, w *world){
		"a paused connection": func(t *testing.T, w *world) {
			p, connection := ready(w)
			if _, err := w.ledger.Do(t.Context(),
				rules.Freeze{ConnectionID: connection, By: rules.FrozenByRisk}); err != nil {
				t.Fatal(err)
			}
			w.once()
			p.charged(0, 0)
			p.auto("until you review your paused connection")
			if _, err := w.ledger.Do(t.Context(), rules.Resume{ConnectionID: connection}); err != nil {
				t.Fatal(err)
			}
			w.later(11 * time.Minute)
			w.once()
			p.charged(5000, 1)
		},
		"a dispute of what was paid by hand": func(t *testing.T, w *world) {
			p, connection := ready(w)
			w.do(w.session(p), "dispute")
			w.deliver(w.fresh(), http.StatusOK)
			if _, err := w.ledger.Do(t.Context(), rules.Resume{
				ConnectionID:   connection,
				By:             rules.FrozenByOperator,
				DespiteDispute: true,
			}); err != nil {
				t.Fatal(err)
			}
			w.later(time.Hour)
			w.once()
			p.charged(0, 0)
			p.auto("refunded or disputed")
			p.told(1, "a payment was reversed")
		},
		"a refund of what was charged": func(t *testing.T, w *world) {
			p, _ := ready(w)
			w.once()
			p.wants(65*dollars, rules.PaymentSettled)
			w.do(p.payment().PaymentIntent, "refund")
			w.deliver(w.fresh(), http.StatusOK)
			p.wants(15*dollars, rules.PaymentSettled)
			w.later(time.Hour)
			w.once()
			p.charged(5000, 1)
			p.auto("refunded or disputed", "Returned")
		},
		"a lost dispute of what was charged and spent": func(t *testing.T, w *world) {
			p, _ := ready(w)
			w.once()
			p.allocate(60 * dollars)
			intent := p.payment().PaymentIntent
			w.do(intent, "dispute")
			w.do(intent, "lost")
			events := w.fresh()
			slices.Reverse(events)
			w.deliver(events, http.StatusOK)
			p.wants(-45*dollars, rules.PaymentSettled)
			p.wishes("20", "50", "100") // even if they ask for it
			w.once()
			p.charged(5000, 1)
			p.auto("below zero")
		},
		"a closed account": func(t *testing.T, w *world) {
			p, _ := ready(w)
			w.exec(`UPDATE accounts SET unconfirmed = 1 WHERE id = '` + p.ID + `'`)
			w.once()
			p.charged(0, 0)
			w.exec(`UPDATE accounts SET unconfirmed = 0 WHERE id = '` + p.ID + `'`)
			w.later(time.Hour)
			w.once()
			p.charged(0, 0) // it was switched off for good
			p.auto("can’t be topped up")
		},
		"a test account whose month is full": func(t *testing.T, w *world) {
			p, _ := ready(w)
			p.wishes("20", "50", "50")
			w.once()
			p.allocate(60 * dollars)
			w.exec(`UPDATE accounts SET sandbox = 1, owner_id = '` + w.person(accounts.NewAccount{}).ID + `'
				WHERE id = '` + p.ID + `'`)
			w.once()
			p.told(1, "We added $50.00")
			w.exec(`UPDATE accounts SET sandbox = 0, owner_id = NULL WHERE id = '` + p.ID + `'`)
		},
		"a card that Stripe has lost": func(t *testing.T, w *world) {
			p, _ := ready(w)
			w.exec(`UPDATE auto_topups SET payment_method = 'pm_gone' WHERE account_id = '` + p.ID + `'`)
			w.once()
			p.wants(15*dollars, rules.PaymentFailed)
			p.auto("Stripe no longer has your saved card")
			p.told(1, "save your card again")
			p.charged(0, 0)
		},
		"switched off": func(t *testing.T, w *world) {
			p, _ := ready(w)
			p.Post("/top-up/auto/off", nil)
			w.once()
			p.charged(0, 0)
		},
		"the card is removed": func(t *testing.T, w *world) {
			p, _ := ready(w)
			p.Post("/top-up/auto/card/remove", nil)
			w.once()
			p.charged(0, 0)
		},
	}
	each(t, func(w *world) {
		for name, stop := range stops {
			t.Log(name)
			stop(w.t, w)
			w.verify()
		}
	})
}

// session is the Checkout session of the newest top-up by hand.
func (w *world) session(p *person) (session string) {
	w.t.Helper()
	if err := w.d.QueryRowContext(w.t.Context(), `SELECT session_id FROM checkouts
		WHERE account_id = $1 AND session_id IS NOT NULL ORDER BY id DESC LIMIT 1`, p.ID).Scan(&session); err != nil {
		w.t.Fatal(err)
	}
	return session
}

// TestAutoClearance: what is paid and waits to clear counts as coming, also by hand.
func TestAutoClearance(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.store.Config.Clearance = 72 * time.Hour
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("20", "50", "100")
		w.once()
		p.charged(0, 0)
		p.auto("until your last payment clears")
		w.later(73 * time.Hour)
		w.once()
		p.wants(25*dollars, rules.PaymentSettled)
		p.allocate(10 * dollars)
		w.once()
		p.wants(15*dollars, rules.PaymentPending)
		p.charged(5000, 1)
		w.later(71 * time.Hour)
		w.once()
		p.wants(15*dollars, rules.PaymentPending)
		w.later(2 * time.Hour)
		w.once()
		p.wants(65*dollars, rules.PaymentSettled)
		p.charged(5000, 1)
	})
}

// TestAutoForged is F-65: what Stripe says of the payment is not what was asked.
func TestAutoForged(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		p.wishes("30", "50", "100")
		w.do("", "lose", "lose", "100", "method", "POST")
		w.once()
		w.do("", "lose", "lose", "0")
		e := w.fresh()[0]
		for _, lie := range [][2]string{
			{`"amount":5000`, `"amount":500000`}, {`"currency":"usd"`, `"currency":"jpy"`},
			{`"customer":"cus_`, `"customer":"cus_x`}, {`"livemode":false`, `"livemode":true`}, {p.ID, "wac_x"},
		} {
			if !bytes.Contains(e, []byte(lie[0])) {
				t.Fatalf("%s has no %s", e, lie[0])
			}
			w.deliver([][]byte{bytes.ReplaceAll(e, []byte(lie[0]), []byte(lie[1]))}, http.StatusBadRequest)
		}
		p.wants(25*dollars, rules.PaymentPending)
		intent := string(e[bytes.Index(e, []byte(`"pi_`))+1:][:27])
		for _, wrong := range [][2]string{
			{"amount", "5001"},
			{"currency", "eur"},
			{"customer", "cus_other"},
			{"account_id", "wac_other"},
			{"livemode", "true"},
		} {
			w.do(intent, "tamper", wrong[0], wrong[1])
			w.later(6 * time.Minute)
			w.once() // it is looked at, and alarmed of
			p.wants(25*dollars, rules.PaymentPending)
			right := map[string]string{
				"amount":     "5000",
				"currency":   "usd",
				"account_id": p.ID,
				"livemode":   "false",
			}[wrong[0]]
			if wrong[0] == "customer" {
				if err := w.d.QueryRowContext(t.Context(),
					`SELECT customer FROM auto_topups`).Scan(&right); err != nil {
					t.Fatal(err)
				}
			}
			w.do(intent, "tamper", wrong[0], right)
		}
		w.later(6 * time.Minute)
		w.once()
		p.wants(75*dollars, rules.PaymentSettled)
		p.charged(5000, 1)
	})
}

// TestAutoRace: many workers of two nodes, and people who spend as fast as it comes.
// No card is charged above the monthly maximum, or twice for one crossing of the threshold.
func TestAutoRace(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		second := w.store
		if w.d.Engine == db.Postgres {
			second = w.another()
		}
		var people []*person
		for range 3 {
			p := w.person(accounts.NewAccount{})
			p.saves("25", "works")
			p.wishes("20", "30", "100")
			people = append(people, p)
		}
		var workers sync.WaitGroup
		job := db.ForJob(t.Context()) // as on a node: all of them wait for one another
		for i := range 32 {
			workers.Go(func() {
				store := []*topups.Store{w.store, second}[i%2]
				for range 3 {
					for _, p := range people {
						if i%16 == 0 {
							p.allocate(50 * dollars) // all that there is
						}
					}
					if err := store.RunDue(job); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		for range 4 {
			for _, p := range people {
				p.allocate(50 * dollars)
			}
			w.once()
		}
		w.deliver(w.fresh(), http.StatusOK)
		for _, p := range people {
			p.charged(9000, 3)
			var settled money.MC
			list, err := store.PaymentsOfAccount(t.Context(), w.d, p.ID, 100)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range list {
				if x.Status != rules.PaymentSettled {
					t.Errorf("%s is %s", x.ID, x.Status)
				}
				settled += x.AmountMC
			}
			if settled != 115*dollars {
				t.Errorf("%s was credited %s", p.ID, settled.Display())
			}
		}
		w.verify()
	})
}

// TestStalePlan: a tab that was open while another one lowered the amounts changes what was typed in it, and one that
// was open while automatic top-up was turned off does not turn it on.
func TestStalePlan(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		p := w.person(accounts.NewAccount{})
		p.saves("25", "works")
		set := func(shown, below, add, most string) apitest.Page {
			return p.Post("/top-up/auto", url.Values{"shown": {shown}, "below": {below}, "add": {add}, "most": {most}})
		}
		set(p.Get("/top-up/auto").Shown(t, "/top-up/auto"), "10", "25", "100").Want(t, http.StatusSeeOther)
		stale := p.Get("/top-up/auto").Shown(t, "/top-up/auto")
		set(stale, "10", "20", "50").Want(t, http.StatusSeeOther)
		set(stale, "5", "25", "100").Want(t, http.StatusSeeOther)
		p.auto("Change settings", `value="5"`, `value="20"`, `value="50"`)
		p.Post("/top-up/auto/off", nil).Want(t, http.StatusSeeOther)
		set(stale, "10", "25", "90").Want(t, http.StatusUnprocessableEntity, "turned off after you opened this page")
		p.auto("Turn on</h2>")
		set(p.Get("/top-up/auto").Shown(t, "/top-up/auto"), "5", "20", "50").Want(t, http.StatusSeeOther)
		p.auto("Change settings")
	})
}

// TestClosedCustomerIsDeleted deletes the customer of a closed account at Stripe, once no payment of it is under way.
func TestClosedCustomerIsDeleted(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		customerOf := func(p *person) (customer string) {
			if err := w.d.QueryRowContext(t.Context(), `SELECT customer FROM auto_topups WHERE account_id = $1`,
				p.ID).Scan(&customer); err != nil {
				t.Fatal(err)
			}
			return customer
		}
		done, waiting, gone := w.person(accounts.NewAccount{}), w.person(accounts.NewAccount{}),
			w.person(accounts.NewAccount{})
		done.saves("25", "works")
		gone.saves("25", "works")
		// One has a payment that is not decided yet, and one was deleted in Stripe's dashboard.
		a := waiting.Post("/top-up/auto/card", url.Values{
			"token": {waiting.Get("/top-up/auto").Found(t, tokenField)},
			"first": {"10"},
			"agree": {"yes"},
		})
		session := a.To[strings.LastIndexByte(a.To, '/')+1:]
		first, second, third := customerOf(done), customerOf(waiting), customerOf(gone)
		w.do(third, "vanish")
		w.do("", "lose", "lose", "1", "method", "DELETE")
		for _, p := range []*person{done, waiting, gone} {
			w.deletePlan(p)
		}
		for range 3 {
			w.once()
			w.later(10 * time.Minute)
		}
		if w.stripe.HasCustomer(first) || !w.stripe.HasCustomer(second) || len(w.stripe.SavedCards()) != 0 {
			t.Errorf("Stripe has the customers %t, %t and %d cards", w.stripe.HasCustomer(first),
				w.stripe.HasCustomer(second), len(w.stripe.SavedCards()))
		}
		w.do(session, "expire")
		w.deliver(w.fresh(), http.StatusOK)
		w.once()
		var left int
		if err := w.d.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM customer_removals`).Scan(&left); err != nil ||
			left != 0 || w.stripe.HasCustomer(second) {
			t.Errorf("%d customers are left to delete (%v), the second is kept: %t", left, err,
				w.stripe.HasCustomer(second))
		}
	})
}
