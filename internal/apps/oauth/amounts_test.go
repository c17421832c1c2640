package oauth

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/apps/usage"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// centsOf reads an amount that a page shows.
func centsOf(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.NewReplacer("$", "", ",", "", ".", "").Replace(text), 10, 64)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return n
}

// What a choice shows adds up to the balance that the page shows, to the cent, however odd the balance is.
func TestWhatStaysFreeAddsUp(t *testing.T) {
	t.Parallel()
	for _, available := range []money.MC{
		1, money.Cent - 1, money.Cent, 3 * money.Dollar, 5 * money.Dollar, 5*money.Dollar + 1,
		50 * money.Dollar, 50*money.Dollar + money.Cent - 1, 123_456_789_012, 9_999_999 * money.Dollar,
	} {
		own := standing{balance: rules.Balance{AvailableMC: available}}
		caps := []money.MC{5 * money.Dollar, 25 * money.Dollar, 100 * money.Dollar}
		for _, c := range makeAmounts(caps, &own, usage.CallSize{}) {
			mc, problem := money.Parse(c.Value)
			if problem != nil {
				t.Fatal(problem)
			}
			shown := centsOf(t, dollars(available))
			switch {
			case c.Free != "":
				if got := centsOf(t, c.Full) + centsOf(t, c.Free); got != shown || mc > available {
					t.Errorf("%s of %s: %s and %s stay", c.Text, dollars(available), c.Full, c.Free)
				}
			case c.All != "":
				if centsOf(t, c.All) != shown || available-mc >= money.Cent {
					t.Errorf("%s of %s: “all of your %s”", c.Text, dollars(available), c.All)
				}
			case available >= money.Cent:
				t.Errorf("%s of %s: neither what stays free nor all of it", c.Text, dollars(available))
			}
		}
	}
}

// A cap that is approved again moves the difference alone, and never below what is spent, as rules.Connect has it.
func TestAfterFollowsTheLedger(t *testing.T) {
	t.Parallel()
	live := &rules.Connection{AllocationMC: 10 * money.Dollar, ConsumedMC: 4 * money.Dollar, HeldMC: money.Dollar}
	s := standing{balance: rules.Balance{AvailableMC: 7 * money.Dollar}, live: live}
	for _, c := range []struct{ cap, want, free, spend money.MC }{
		{2, 5, 12, 0}, {5, 5, 12, 0}, {10, 10, 7, 5}, {12, 12, 5, 7}, {17, 17, 0, 12}, {30, 17, 0, 12},
	} {
		want := aftermath{c.want * money.Dollar, c.free * money.Dollar, c.spend * money.Dollar}
		if got := s.after(c.cap * money.Dollar); got != want {
			t.Errorf("after %d: %+v, want %+v", c.cap, got, want)
		}
	}
	below := standing{balance: rules.Balance{AvailableMC: -money.Dollar}}
	if got := below.after(5 * money.Dollar); got != (aftermath{0, -money.Dollar, 0}) {
		t.Errorf("below zero: %+v", got)
	}
}

// The consent screen offers amounts, says what each leaves and pays for, and takes the chosen one.
func TestConsentOffersAmounts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		b := w.signedIn("person@example.com")
		page := b.Get(authorizePath(w.live, "requested_allocation_mc=700000000")).Body
		has(t, page, `wants to spend up to <span class="num">$7.00</span> of your <span class="num">$20.00</span>`,
			`value="7.00" checked><span>$7</span>`, `value="5.00"><span>$5</span>`, `value="10.00"><span>$10</span>`,
			`<strong class="num">$13.00</strong> stays free.`, `<strong class="num">$15.00</strong> stays free.`,
			`<strong class="num">$10.00</strong> stays free.`, `data-cap="2000"`)
		lacks(t, page, `value="25.00"`) // more than the balance
		lacks(t, page, "usual size")    // no calls yet

		rollup := func(connection, day string, calls int, charge money.MC) {
			w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
				input_tokens,
				output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ($1, $2, '', 'm', $3, 'wac_x', $4, 0, 0, 0, 0, 0, $5)`, day, connection, w.live.ID, calls,
				charge)
		}
		rollup("conn_old", "2026-10-22", 1_000_000, 1) // longer ago than thirty days
		rollup("conn_a", "2026-10-23", 10, 10*money.Cent)
		rollup("conn_a", "2026-11-21", 9, 9*money.Cent)
		lacks(t, b.Get(authorizePath(w.live)).Body, "usual size") // too few
		rollup("conn_b", "2026-11-20", 1, money.Cent)
		page = b.Get(authorizePath(w.live)).Body
		has(t, page, `<span class="num">$5.00</span> pays for about <strong class="num">500</strong> answers`,
			`<span class="num">$10.00</span> pays for about <strong class="num">1,000</strong> answers`)

		// A chosen amount counts, whatever stands in the hidden field.
		form := approval("19", "amount", "5.00")
		code := b.Post(authorizePath(w.live), form)
		if n := w.count(`SELECT COUNT(*) FROM oauth_codes WHERE allocation_mc = 500000000`); n != 1 {
			t.Errorf("%d codes of $5.00\n%s", n, code.Body)
		}
		b.Post(authorizePath(w.live), approval("6", "amount", "other"))
		if n := w.count(`SELECT COUNT(*) FROM oauth_codes WHERE allocation_mc = 600000000`); n != 1 {
			t.Errorf("%d codes of $6.00", n)
		}
		for _, hostile := range []string{"<b>", "-5", "1e3", "99999999999"} {
			b.Post(authorizePath(w.live), approval("6", "amount", hostile)).Want(t, 422)
		}
		b.Post(authorizePath(w.live), url.Values{"decision": {"approve"}, "amount": {"other"}}).Want(t, 422)
	})
}

// TestUsualSizeIsBounded reads the newest totals of an app with more than are read.
func TestUsualSizeIsBounded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newWorld(t, d)
		for i := range 30 {
			w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
				input_tokens,
				output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc)
				VALUES ($1, 'conn_x', '', 'm', $2, 'wac_x', 1, 0, 0, 0, 0, 0, $3)`,
				fmt.Sprintf("2026-11-%02d", i+1), w.live.ID, i+1)
		}
		calls, charge, err := store.SumRecentCalls(t.Context(), d, w.live.ID, "2026-11-01", 3)
		if err != nil || calls != 3 || charge != 30+29+28 {
			t.Errorf("%d calls, %d, %v", calls, charge, err)
		}
		plan := `EXPLAIN QUERY PLAN `
		if d.Engine == db.Postgres {
			plan = `EXPLAIN `
		}
		rows, err := d.QueryContext(t.Context(), plan+`SELECT calls FROM daily_totals
			WHERE app_id = 'app' AND day >= '2026-11-01' ORDER BY day DESC LIMIT 5000`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for rows.Next() {
			cells, to := make([]any, len(columns)), make([]any, len(columns))
			for i := range cells {
				to[i] = &cells[i]
			}
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&text, cells...)
		}
		if err := rows.Err(); err != nil || !regexp.MustCompile(`daily_totals_app`).MatchString(text.String()) {
			t.Errorf("the query does not use its index: %v\n%s", err, text.String())
		}
	})
}

// The consent screen says who is behind the app; a domain only once it is verified.
func TestConsentSaysWhoIsBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, dbtest.Open(t, db.SQLite))
	b := w.signedIn("person@example.com")
	lacks(t, b.Get(authorizePath(w.live)).Body, `class="behind"`)
	w.exec(`UPDATE apps SET developer_name = 'A <b>', domain = 'example.com', support = 'help@example.com',
		privacy_policy_url = 'https://example.com/privacy' WHERE id = $1`, w.live.ID)
	page := b.Get(authorizePath(w.live)).Body
	has(t, page, `by <strong>A &lt;b&gt;</strong>`, `href="mailto:help@example.com"`,
		`href="https://example.com/privacy"`,
		`rel="noopener noreferrer nofollow"`)
	lacks(t, page, "verified domain")
	w.exec(`UPDATE apps SET domain_verified_us = 1 WHERE id = $1`, w.live.ID)
	has(t, b.Get(authorizePath(w.live)).Body, `example.com<span class="hidden"> is a verified domain</span>`)
}
