package world

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/money"
)

// A purse is what the rows of the ledger come to for an account, added up here.
type purse struct {
	rows                int64
	available, reserved money.MC
	spent               money.MC // charged and not refunded
}

// A grant is the same of a connection.
type grant struct {
	id, appID, accountID string
	allocation, consumed money.MC
}

func (w *world) purseOf(accountID string) (p purse, err error) {
	err = w.Server.DB.QueryRowContext(context.Background(), `SELECT COUNT(*), COALESCE(SUM(available_delta_mc), 0),
			COALESCE(SUM(reserved_delta_mc), 0), COALESCE(SUM(user_charge_mc), 0)
		FROM ledger WHERE account_id = $1`, accountID).Scan(&p.rows, &p.available, &p.reserved, &p.spent)
	return p, err
}

func (w *world) grants() (list []grant, err error) {
	rows, err := w.Server.DB.QueryContext(context.Background(), `SELECT connection_id, MAX(app_id), MAX(account_id),
			SUM(allocation_delta_mc), SUM(consumed_delta_mc)
		FROM ledger WHERE connection_id IS NOT NULL GROUP BY connection_id ORDER BY connection_id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var g grant
		if err := rows.Scan(&g.id, &g.appID, &g.accountID, &g.allocation, &g.consumed); err != nil {
			return nil, err
		}
		list = append(list, g)
	}
	return list, rows.Err()
}

// checkTruth compares what everybody is told of money with the rows of the ledger: by the API, by pages, by files, by
// events and by emails.
func (w *world) checkTruth() error {
	list, err := w.grants()
	if err != nil {
		return err
	}
	for _, person := range names {
		is, err := w.person(person)
		if err != nil {
			return err
		}
		p, err := w.purseOf(w.money.People[person])
		if err == nil {
			err = w.checkOperatorsView(person, p, list)
		}
		if err == nil && !is.isClosed && !is.isSuspended {
			err = errors.Join(w.checkPages(person, p, list), w.checkFiles(person, p))
		}
		if err != nil {
			return fmt.Errorf("truth: %s: %w", person, err)
		}
	}
	return errors.Join(w.checkApps(list), w.checkEvents(list), w.checkMails())
}

// A connectionView is a connection as the API shows it.
type connectionView struct {
	ID         string   `json:"id"`
	Reserved   money.MC `json:"reserved_allocation_mc"`
	Allocation money.MC `json:"allocation_mc"`
	Display    string   `json:"allocation_display"`
	Consumed   money.MC `json:"consumed_mc"`
	Held       money.MC `json:"held_mc"`
	Remaining  money.MC `json:"allocation_remaining_mc"`
	Status     string   `json:"status"`
}

// check compares a connection with its rows.
func (v connectionView) check(where string, list []grant) error {
	i := slices.IndexFunc(list, func(g grant) bool { return g.id == v.ID })
	var g grant // of a cap of nothing there is no row
	if i >= 0 {
		g = list[i]
	}
	if v.Allocation != g.allocation || v.Reserved != g.allocation || v.Consumed != g.consumed ||
		v.Remaining != g.allocation-g.consumed-v.Held || v.Display != v.Allocation.Display() {
		return fmt.Errorf("%s says %+v, and the ledger %+v", where, v, g)
	}
	return nil
}

// ask sends a request to the API, and reads what it answers.
func (w *world) ask(path string, into any, headers ...string) (status int, err error) {
	a, err := w.send(context.Background(), nil, "GET", path, "", headers...)
	for a.Status == http.StatusTooManyRequests && err == nil {
		w.Pass(time.Minute)
		a, err = w.send(context.Background(), nil, "GET", path, "", headers...)
	}
	if err == nil && a.Status == http.StatusOK {
		err = json.Unmarshal([]byte(a.Body), into)
	}
	return a.Status, err
}

// checkOperatorsView compares what an operator reads.
func (w *world) checkOperatorsView(person string, p purse, list []grant) error {
	var v struct {
		Available   money.MC         `json:"available_mc"`
		Shown       string           `json:"available_display"`
		Reserved    money.MC         `json:"reserved_mc"`
		Connections []connectionView `json:"connections"`
	}
	path := "/v1/operator/accounts/" + w.money.People[person]
	if status, err := w.ask(path, &v, "Authorization", "Bearer "+operatorToken); err != nil ||
		status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("%s is answered by %d", path, status))
	}
	if v.Available != p.available || v.Reserved != p.reserved || v.Shown != p.available.Display() {
		return fmt.Errorf("an operator reads %+v, and the ledger says %+v", v, p)
	}
	for _, c := range v.Connections {
		if err := c.check("an operator's page", list); err != nil {
			return err
		}
	}
	return nil
}

// exact is an amount of a page with the micro-cents that are shown on demand.
var exact = regexp.MustCompile(`title="[^"]* exactly, (-?[0-9]+) micro-cents">([^<]*)<`)

// amountsAfter returns the first amounts after a text of a page, n of them.
func amountsAfter(page, text string, n int) (list []money.MC, err error) {
	_, rest, ok := strings.Cut(page, text)
	found := exact.FindAllStringSubmatch(rest, n)
	if !ok || len(found) < n {
		return nil, fmt.Errorf("after %q are %d amounts: %.200s", text, len(found), rest)
	}
	for _, m := range found {
		mc, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, money.MC(mc))
	}
	return list, nil
}

// rounded is an amount as pages show a balance: rounded down to cents.
func rounded(mc money.MC) string {
	cents := int64(mc / money.Cent)
	if mc < 0 && mc%money.Cent != 0 {
		cents--
	}
	sign := ""
	if cents < 0 {
		sign, cents = "−", -cents
	}
	whole := strconv.FormatInt(cents/100, 10)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	return fmt.Sprintf("%s$%s.%02d", sign, whole, cents%100)
}

// checkPages compares what a person's pages show.
func (w *world) checkPages(person string, p purse, list []grant) error {
	text := func(path string) (string, error) {
		a, err := w.reader.Page(context.Background(), 0, person, "GET", path, nil)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("%s is answered by %d", path, a.Status)
		}
		return a.Body, err
	}
	page, err := text("/dashboard")
	if err != nil {
		return err
	}
	ready, err := amountsAfter(page, ">Ready to use<", 1)
	aside, failed := amountsAfter(page, ">Set aside<", 1)
	if err = errors.Join(err, failed); err != nil {
		return err
	} else if ready[0] != p.available || aside[0] != p.reserved {
		return fmt.Errorf("the dashboard says %s and %s aside, and the ledger %+v", ready[0].Display(),
			aside[0].Display(), p)
	}
	for _, path := range []string{"/top-up", "/top-up/refund"} {
		page, err := text(path)
		if err != nil {
			return err
		}
		if want := `Available in your balance</span> <strong class="num">` + rounded(p.available); !strings.Contains(
			page, want) {
			return fmt.Errorf("%s does not say %s", path, want)
		}
	}
	for _, g := range list {
		if g.accountID != w.money.People[person] {
			continue
		}
		page, err := text("/connections/" + g.id)
		if err != nil {
			return err
		}
		shown, err := amountsAfter(page, ">Used of ", 4) // the cap, used, held, remaining
		if err != nil {
			return err
		}
		if shown[0] != g.allocation || shown[1] != g.consumed || shown[3] != g.allocation-g.consumed-shown[2] {
			return fmt.Errorf("the page of %s says %v, and the ledger %+v", g.id, shown, g)
		}
	}
	return nil
}

// checkFiles compares what a person downloads: the activity, the month's statement, and all data.
func (w *world) checkFiles(person string, p purse) error {
	file := func(method, path string) (string, error) {
		for {
			a, err := w.reader.Page(context.Background(), 0, person, method, path, url.Values{})
			if err == nil && a.Status == http.StatusTooManyRequests {
				w.Pass(20 * time.Minute) // readers have downloaded it, too
				continue
			}
			if err == nil && a.Status != http.StatusOK {
				err = fmt.Errorf("%s is answered by %d", path, a.Status)
			}
			return a.Body, err
		}
	}
	text, err := file("GET", "/activity.csv")
	if err != nil {
		return err
	}
	rows, err := readCSV(text)
	if err != nil {
		return err
	}
	available, reserved, spent := sumOf(rows, "available_change_mc"), sumOf(rows, "reserved_change_mc"),
		sumOf(rows, "user_charge_mc")
	if int64(len(rows)) != p.rows || available != p.available || reserved != p.reserved || spent != p.spent {
		return fmt.Errorf("the activity has %d rows, %s, %s reserved, %s spent, and the ledger %+v", len(rows),
			available.Display(), reserved.Display(), spent.Display(), p)
	}
	month := w.Server.DB.Now().UTC().Format("2006-01")
	if text, err = file("GET", "/statements/"+month+".csv"); err != nil {
		return err
	}
	if rows, err = readCSV(text); err != nil || len(rows) < 2 {
		return errors.Join(err, fmt.Errorf("the statement has %d lines", len(rows)))
	}
	last := rows[len(rows)-1:]
	if sumOf(last, "amount_mc") != p.available+p.reserved ||
		sumOf(rows[:len(rows)-1], "amount_mc") != p.available+p.reserved {
		return fmt.Errorf("the statement ends with %v, and the ledger says %+v", last, p)
	}
	if text, err = file("POST", "/settings/data/export"); err != nil {
		return err
	}
	return checkExport(text, p)
}

// checkExport compares the archive of all data.
func checkExport(text string, p purse) error {
	archive, err := zip.NewReader(strings.NewReader(text), int64(len(text)))
	if err != nil {
		return err
	}
	read := func(name string, each func(line []byte) error) {
		if err != nil {
			return
		}
		var f io.ReadCloser
		if f, err = archive.Open("purser-data/" + name + ".jsonl"); err != nil {
			return
		}
		var body []byte
		body, err = io.ReadAll(f)
		err = errors.Join(err, f.Close())
		for line := range bytes.Lines(body) {
			err = errors.Join(err, each(line))
		}
	}
	var account struct {
		Available money.MC `json:"available_mc"`
		Reserved  money.MC `json:"reserved_mc"`
	}
	var is purse
	read("account", func(line []byte) error { return json.Unmarshal(line, &account) })
	read("ledger", func(line []byte) error {
		var e struct {
			Available money.MC `json:"available_change_mc"`
			Reserved  money.MC `json:"reserved_change_mc"`
			Charge    money.MC `json:"user_charge_mc"`
		}
		err := json.Unmarshal(line, &e)
		is.rows, is.available, is.reserved, is.spent = is.rows+1, is.available+e.Available, is.reserved+e.Reserved,
			is.spent+e.Charge
		return err
	})
	if err == nil && (is.rows != p.rows || is.available != p.available || is.reserved != p.reserved ||
		is.spent != p.spent || account.Available != p.available || account.Reserved != p.reserved) {
		err = fmt.Errorf("all data have %+v and %+v, and the ledger %+v", account, is, p)
	}
	return err
}

// readCSV reads rows by the names of their columns.
func readCSV(text string) (list []map[string]string, err error) {
	all, err := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\ufeff"))).ReadAll()
	if err != nil || len(all) == 0 {
		return nil, errors.Join(err, errors.New("a file without a head"))
	}
	for _, fields := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = fields[i]
		}
		list = append(list, row)
	}
	return list, nil
}

// sumOf adds up a column of micro-cents. What is no number counts as a lot.
func sumOf(rows []map[string]string, column string) (sum money.MC) {
	for _, row := range rows {
		n, err := strconv.ParseInt(row[column], 10, 64)
		if err != nil {
			return money.Max
		}
		sum += money.MC(n)
	}
	return sum
}

// checkApps compares what apps and their developers are told: connections, usage, and margins.
func (w *world) checkApps(list []grant) error {
	for _, app := range w.money.Apps {
		client := w.api.apps[app.ID]
		var views []connectionView
		status, err := w.ask("/v1/connections?limit=100", &views, "Authorization", client.basic())
		if err != nil || status != http.StatusOK { // a reader has replaced the secret, or the developer has left
			if status == http.StatusUnauthorized {
				continue
			}
			return errors.Join(err, fmt.Errorf("truth: connections of %s are answered by %d", app.ID, status))
		}
		for _, v := range views {
			if err := v.check("the API", list); err != nil {
				return fmt.Errorf("truth: %w", err)
			}
		}
		if err := w.checkUsage(app.ID, client); err != nil {
			return fmt.Errorf("truth: app %s: %w", app.ID, err)
		}
	}
	for i, t := range w.api.tokens {
		var v connectionView
		status, err := w.ask("/v1/connection", &v, "Authorization", "Bearer "+t.text)
		if err == nil && status == http.StatusOK {
			err = v.check(fmt.Sprint("token ", i), list)
		}
		if err != nil {
			return fmt.Errorf("truth: %w", err)
		}
	}
	for _, developer := range names {
		if is, err := w.person(developer); err != nil {
			return err
		} else if is.isClosed || is.isSuspended {
			continue
		}
		if err := w.checkMargins(developer); err != nil {
			return fmt.Errorf("truth: margins of %s: %w", developer, err)
		}
	}
	return nil
}

// checkUsage compares the sums of an app's usage.
func (w *world) checkUsage(appID string, client credentials) error {
	now := w.Server.DB.Now().UTC()
	var sums []struct {
		Cost   money.MC `json:"cost_mc"`
		Margin money.MC `json:"margin_mc"`
		Charge money.MC `json:"charge_mc"`
	}
	path := "/v1/apps/" + appID + "/usage?interval=month&from=" + began.Format(time.DateOnly) + "&to=" +
		now.Format(time.DateOnly)
	if status, err := w.ask(path, &sums, "Authorization", client.basic()); err != nil || status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("the usage is answered by %d", status))
	}
	var told, is [3]money.MC
	for _, s := range sums {
		told[0], told[1], told[2] = told[0]+s.Cost, told[1]+s.Margin, told[2]+s.Charge
	}
	err := w.Server.DB.QueryRowContext(context.Background(), `SELECT COALESCE(SUM(provider_cost_mc * sign), 0),
			COALESCE(SUM(dev_margin_mc * sign), 0), COALESCE(SUM(user_charge_mc * sign), 0)
		FROM (SELECT l.*, CASE status WHEN 'reversed' THEN -1 ELSE 1 END AS sign FROM ledger l
			WHERE app_id = $1 AND type = 'spend') l`, appID).Scan(&is[0], &is[1], &is[2])
	if err == nil && is != told {
		err = fmt.Errorf("the usage is %v, and the ledger says %v", told, is)
	}
	return err
}

// checkMargins compares what a developer is told of margins by the page of payouts and by the month's statement.
func (w *world) checkMargins(developer string) error {
	a, err := w.reader.Page(context.Background(), 0, developer, "GET", "/developer/payouts", nil)
	if err != nil || a.Status == http.StatusNotFound || a.Status == http.StatusForbidden {
		return err // no developer
	}
	var all money.MC
	for _, app := range w.money.Apps {
		if app.Developer != developer {
			continue
		}
		var earned, taken, disputed money.MC
		for query, sum := range map[string]*money.MC{
			`SELECT COALESCE(SUM(CASE l.status WHEN 'reversed' THEN -l.dev_margin_mc ELSE l.dev_margin_mc END), 0)
				FROM ledger l JOIN balances b ON b.account_id = l.account_id WHERE l.app_id = $1
				AND l.type = 'spend' AND b.sandbox = 0 AND l.paid_by = 'wallet'`: &earned,
			`SELECT COALESCE(SUM(amount_mc), 0) FROM margin_records WHERE app_id = $1`:                       &taken,
			`SELECT COALESCE(SUM(amount_mc), 0) FROM margin_records WHERE app_id = $1 AND kind = 'disputed'`: &disputed,
		} {
			if err := w.Server.DB.QueryRowContext(context.Background(), query, app.ID).Scan(sum); err != nil {
				return err
			}
		}
		var used money.MC
		if err := w.Server.DB.QueryRowContext(context.Background(), `SELECT COALESCE(SUM(c.margin_mc - l.dev_margin_mc),
			0) FROM call_refunds c JOIN ledger l ON l.id = c.entry_id WHERE c.app_id = $1 AND c.sandbox = 0`, app.ID).
			Scan(&used); err != nil {
			return err
		}
		all += earned - used - taken
		_, row, ok := strings.Cut(a.Body, `<a href="/developer/apps/`+app.ID+`">`)
		if row, _, _ = strings.Cut(row, "</tr>"); !ok {
			if earned-used != 0 {
				return fmt.Errorf("the page has no margin of %s, and the ledger %s", app.ID, (earned - used).Display())
			}
			continue
		}
		for _, want := range []string{rounded(earned - used), rounded(taken - disputed), rounded(disputed)} {
			if !strings.Contains(html.UnescapeString(row), ">"+want+"<") {
				return fmt.Errorf("the page of %s does not say %s: %s", app.ID, want, row)
			}
		}
	}
	month := w.Server.DB.Now().UTC().Format("2006-01")
	a, err = w.reader.Page(context.Background(), 0, developer, "GET", "/developer/statements/"+month+".csv", nil)
	if err != nil || a.Status != http.StatusOK {
		return errors.Join(err, fmt.Errorf("the statement is answered by %d", a.Status))
	}
	rows, err := readCSV(a.Body)
	if err == nil && (len(rows) < 2 || sumOf(rows[len(rows)-1:], "margin_mc") != all ||
		sumOf(rows[:len(rows)-1], "margin_mc") != all) {
		err = fmt.Errorf("the statement says %v, and the ledger %s", rows, all.Display())
	}
	return err
}

// checkEvents compares what events have told apps of connections with the rows of each: there was a moment at which it
// was so.
func (w *world) checkEvents(list []grant) error {
	rows, err := w.Server.DB.QueryContext(context.Background(), `SELECT id, connection_id, data FROM events
		WHERE connection_id IS NOT NULL`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id, connectionID, data string
		if err := rows.Scan(&id, &connectionID, &data); err != nil {
			return err
		}
		var told struct {
			Connection *connectionView `json:"connection"`
		}
		if err := json.Unmarshal([]byte(data), &told); err != nil {
			return err
		}
		if c := told.Connection; c != nil && c.ID != "" {
			ever, err := w.wasEver(c.ID, c.Allocation, c.Consumed)
			if err != nil {
				return err
			} else if !ever {
				return fmt.Errorf("truth: event %s says %+v, which was never so", id, *c)
			}
		}
	}
	return rows.Err()
}

// wasEver reports whether a connection ever had an allocation of which so much was consumed.
func (w *world) wasEver(connectionID string, allocation, consumed money.MC) (bool, error) {
	rows, err := w.Server.DB.QueryContext(context.Background(), `SELECT allocation_delta_mc, consumed_delta_mc
		FROM ledger WHERE connection_id = $1 ORDER BY seq`, connectionID)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var a, c money.MC
	ever := a == allocation && c == consumed
	for rows.Next() {
		var da, dc money.MC
		if err := rows.Scan(&da, &dc); err != nil {
			return false, err
		}
		a, c = a+da, c+dc
		ever = ever || a == allocation && c == consumed
	}
	return ever, rows.Err()
}

// subjects are emails about an amount, and the amounts of the books that each can be about, by account.
var subjects = []struct {
	pattern *regexp.Regexp
	query   string // of cents
}{
	{regexp.MustCompile(`^We (?:did return|returned|couldn’t return) (\S+) to your card$`),
		`SELECT cents FROM refunds WHERE account_id = $1`},
	{regexp.MustCompile(`^(\S+) is on its way to your card after all$`),
		`SELECT cents FROM refunds WHERE account_id = $1`},
	{regexp.MustCompile(`^We added (\S+) to your balance$`), `SELECT cents FROM checkouts WHERE account_id = $1
		UNION ALL SELECT amount_mc / 1000000 FROM goodwill_records WHERE account_id = $1 AND kind = 'given'`},
	{regexp.MustCompile(`^A top-up of (\S+) was paid twice$`), `SELECT cents FROM checkouts WHERE account_id = $1`},
	{regexp.MustCompile(`^We (?:paid you|couldn’t pay you) (\S+)$`), `SELECT amount_mc / 1000000 FROM margin_records
		WHERE developer_id = $1 AND kind = 'begun'`},
}

// used are the sentences of emails about a spend cap: what is used of it, and what it is.
var used = regexp.MustCompile(`has used \$([0-9,.]+) of its \$([0-9,.]+) spend cap\.`)

// checkMails compares the amounts in emails with the books.
func (w *world) checkMails() error {
	rows, err := w.texts(`SELECT account_id || ' ' || subject || '. ' || text FROM mails WHERE text <> ''`)
	if err != nil {
		return err
	}
	for _, mail := range rows {
		accountID, text, _ := strings.Cut(mail, " ")
		subject, text, _ := strings.Cut(text, ". ")
		for _, s := range subjects {
			m := s.pattern.FindStringSubmatch(subject)
			if m == nil {
				continue
			}
			known, err := w.texts(s.query, accountID)
			if err != nil {
				return err
			}
			isKnown := slices.ContainsFunc(known, func(cents string) bool {
				n, err := strconv.ParseInt(cents, 10, 64)
				return err == nil && rounded(money.MC(n)*money.Cent) == m[1]
			})
			if !isKnown {
				return fmt.Errorf("truth: an email to %s says %q, and the books %s", accountID, subject, known)
			}
		}
		if m := used.FindStringSubmatch(strings.Join(strings.Fields(text), " ")); m != nil {
			if err := w.checkUsed(accountID, m[1], m[2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUsed checks that a connection of an account ever had used so much of such a cap.
func (w *world) checkUsed(accountID, consumed, allocation string) error {
	c, err := money.Parse(consumed)
	a, failed := money.Parse(allocation)
	list, other := w.texts(`SELECT id FROM connections WHERE account_id = $1`, accountID)
	if err = errors.Join(err, failed, other); err != nil {
		return err
	}
	for _, connectionID := range list {
		if ever, err := w.wasEver(connectionID, a, c); err != nil || ever {
			return err
		}
	}
	return fmt.Errorf("truth: an email to %s says that $%s of $%s are used, which was never so", accountID, consumed,
		allocation)
}
