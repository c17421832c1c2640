package audit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/base/db"
	ids "github.com/purserhq/purser/internal/base/id"
)

// noon is when the fixture is looked at.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// Prices of the fixture, [above_input, input, cached, cache_write, output] in
// micro-cents per million tokens, and what calls at them cost: computed by hand.
const (
	steps = `[[0,200000000,20000000,250000000,800000000],[200000,400000000,40000000,500000000,1200000000]]`
	odd   = `[[0,12500000,12500000,15000000,50000001]]`
)

// call is a call with its price.
type call struct {
	terms, usage, settlement        string
	input, output                   int64
	cached, saved                   int64 // as cache_saved_mc in usage has them counted
	hold, cost, fee, margin, charge int64
	free                            bool // paid by free credit
	last                            bool // it uses up its child's budget
}

func termsOf(steps string, input, most int64) string {
	return fmt.Sprintf(
		`{"rates":{"book":"2026-11-21","mc_per_million":%s},"margin_ppm":150000,"fee_ppm":50000,"input_tokens":%d,`+
			`"max_tokens":%d}`, steps, input, most)
}

func usageOf(input, cached, output int64) string {
	return fmt.Sprintf(`{"input":%d,"cached":%d,"cache_write":0,"output":%d,"reasoning":0}`, input, cached, output)
}

var (
	plain = call{
		terms:      termsOf(steps, 1000, 1000),
		usage:      usageOf(1000, 0, 500),
		settlement: "settled",
		input:      1000,
		output:     500,
		hold:       1_323_000,
		cost:       600_000,
		fee:        30_000,
		margin:     90_000,
		charge:     720_000,
	}
	long = call{ // 150,000 + 50,001 input tokens reach the second step
		terms:      termsOf(steps, 200_001, 100),
		usage:      strings.TrimSuffix(usageOf(150_000, 50_001, 10), "}") + `,"cache_saved_mc":21600432}`,
		cached:     50_001,
		saved:      21_600_432, // 50,001 × 360, with margin and fee
		settlement: "settled",
		input:      200_001,
		output:     10,
		hold:       126_151_830,
		cost:       62_012_040,
		fee:        3_100_602,
		margin:     9_301_806,
		charge:     74_414_448,
	}
	edge = call{ // at the threshold: the hold counts with the second step, the charge not yet
		terms:      termsOf(steps, 200_000, 1),
		usage:      usageOf(200_000, 0, 0),
		settlement: "settled",
		input:      200_000,
		output:     0,
		hold:       126_001_512,
		cost:       40_000_000,
		fee:        2_000_000,
		margin:     6_000_000,
		charge:     48_000_000,
	}
	capped = call{ // 45,013 without the hold: the fee takes the shortfall
		terms: termsOf(odd, 1001, 400), usage: usageOf(1001, 0, 500), settlement: "estimated", input: 1001, output: 500,
		hold: 44_120, cost: 37_512, fee: 982, margin: 5_626, charge: 44_120,
	}
	estimate = call{ // each part is rounded down
		terms: termsOf(odd, 1001, 400), usage: usageOf(1001, 0, 333), settlement: "estimated", input: 1001, output: 333,
		hold: 44_120, cost: 29_162, fee: 1_458, margin: 4_374, charge: 34_994,
	}
	overrun = call{ // 2,160,000 without the cap: the fee takes the shortfall
		terms:      termsOf(steps, 1000, 1000),
		usage:      usageOf(1000, 0, 2000),
		settlement: "settled",
		input:      1000,
		output:     2000,
		hold:       1_323_000,
		cost:       1_800_000,
		fee:        -70_000,
		margin:     270_000,
		charge:     2_000_000,
	}
	spoken = call{ // 8 × 4.00 + 4 × 0.40 + 7 × 32.00 + 1 × 0.40 + 3 × 24.00 + 7 × 64.00 dollars a million
		terms: `{"rates":{"book":"2026-11-21","mc_per_million":[[0,400000000,40000000,400000000,2400000000]],` +
			`"voice_mc_per_million":[3200000000,40000000,6400000000,500000000,50000000]},` +
			`"margin_ppm":150000,"fee_ppm":50000,"input_tokens":100,"audio_tokens":310,` +
			`"cached_text_tokens":10,"cached_audio_tokens":20,"max_tokens":1024,"mock":true}`,
		usage: `{"input":8,"cached":4,"audio_input":7,"audio_cached":1,"image_input":0,"image_cached":0,` +
			`"output":3,"audio_output":7}`,
		settlement: "settled",
		input:      20,
		output:     10,
		hold:       9_559_368,
		cost:       77_800,
		fee:        3_890,
		margin:     11_670,
		charge:     93_360,
	}
	hushed = call{ // of which nothing was heard: 60 × 0.40 dollars a million
		terms: spoken.terms,
		usage: `{"input":0,"cached":60,"audio_input":0,"audio_cached":0,"image_input":0,"image_cached":0,` +
			`"output":0,"audio_output":0,"waived":"empty_answer"}`,
		settlement: "estimated",
		input:      60,
		hold:       spoken.hold,
		cost:       2400,
		fee:        -2400,
	}
	work = call{ // of the app itself; a fee of 3.05, rounded up, is a part of the charge
		terms:      `{"own_work":{"amount_mc":100000,"description":"A search"},"fee_ppm":50000}`,
		usage:      `{"captured_mc":61}`,
		settlement: "settled",
		hold:       100_000,
		fee:        4,
		margin:     57,
		charge:     61,
	}
	empty = call{ // which the service pays
		terms:      termsOf(steps, 100, 100),
		usage:      strings.TrimSuffix(usageOf(100, 0, 2), "}") + `,"waived":"empty_answer"}`,
		settlement: "settled",
		input:      100,
		output:     2,
		hold:       132_300,
		cost:       21_600,
		fee:        -21_600,
	}
	gift = call{
		terms: giftTerms, usage: usageOf(1000, 0, 500), settlement: "settled", input: 1000, output: 500, free: true,
		hold: 1_102_500, cost: 600_000, charge: 600_000,
	}
	smallGift = call{
		terms: giftTermsOf("app_3", 100), usage: usageOf(100, 0, 2), settlement: "settled", input: 100, output: 2,
		free: true, hold: 110_250, cost: 21_600, charge: 21_600,
	}
	lastGift = call{ // of which the budget has 20,000
		terms: giftTermsOf("app_3", 100), usage: usageOf(100, 0, 2), settlement: "settled", input: 100, output: 2,
		free: true, last: true, hold: 110_250, cost: 21_600, fee: -1_600, charge: 20_000,
	}
)

var giftTerms = giftTermsOf("app_2", 1000)

func giftTermsOf(app string, tokens int64) string {
	return strings.TrimSuffix(strings.NewReplacer("margin_ppm\":150000", "margin_ppm\":0", "fee_ppm\":50000",
		"fee_ppm\":0").Replace(termsOf(steps, tokens, tokens)), "}") + `,"pool":"free/` + app + `/2026-11"}`
}

// counts is what a hold says that it holds of counters.
func (c call) counts(app, account string) []string {
	if c.free {
		return []string{"free/" + app + "/2026-11", "free/" + app + "/" + account, "free/" + account}
	}
	return []string{"spend/" + app, "spend/" + app + "/" + account, "live/wac_dev", "live/*"}
}

// counter is a row of windows: what is held, and what was settled in each bucket.
type counter struct {
	held    int64
	settled map[int64]int64
	told    int
}

func (c *counter) buckets() string {
	var words []string
	for _, index := range slices.Sorted(maps.Keys(c.settled)) {
		words = append(words, fmt.Sprintf("%d:%d", index, c.settled[index]))
	}
	return strings.Join(words, " ")
}

// counter returns the counter of a subject, or a connection's own.
func (w *writer) counter(subject string) *counter {
	if w.counters[subject] == nil {
		w.counters[subject] = &counter{settled: map[int64]int64{}}
	}
	return w.counters[subject]
}

// writer fills a database by plain SQL and keeps the sums that its rows make.
type writer struct {
	testing.TB
	ctx         context.Context
	tx          *db.Tx
	balances    map[string]*balance
	connections map[string]*connection
	dailyTotals map[[6]any][9]int64
	counters    map[string]*counter
	bucketOf    map[string]int64 // where the charge of a key was counted
	clock       time.Time
	steps       int           // of connections that began
	onStep      func(int)     // is told the number of each before it begins
	timedIDs    bool          // calls have ids that rise with time
	begun       time.Duration // how long before its row a call with such an id began
}

// begin begins a step of a connection.
func (w *writer) begin() {
	if w.steps++; w.onStep != nil {
		w.onStep(w.steps)
	}
}

// checkpoint returns a checkpoint of everything that was written.
func (w *writer) checkpoint() *Checkpoint {
	w.Helper()
	w.finish()
	a := &verification{Tx: w.tx, now: w.clock, logRoot: (&logTree{}).root()}
	query := `SELECT id, created_us FROM ledger WHERE type = 'spend' AND status = 'settled'`
	err := a.forEachRow(w.ctx, query, func(scan func(...any) error) error {
		var r lateRow
		err := scan(&r.ID, &r.CreatedUS)
		a.noteLate(r.ID, r.CreatedUS)
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	c, err := a.takeCheckpoint(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	for _, table := range []string{"balances", "connections", "counters", "daily_totals"} {
		w.exec(`DELETE FROM ` + table)
	}
	return c
}

// verifiedRows returns the rows of history that a checkpoint has verified, as texts.
func (w *writer) verifiedRows(c *Checkpoint) (list []string) {
	w.Helper()
	if c == nil {
		return nil
	}
	a := &verification{Tx: w.tx, since: c, lists: map[string]string{}}
	for name, rows := range map[string]any{"verified accounts": c.Accounts, "verified connections": c.Connections} {
		text, err := json.Marshal(rows)
		if err != nil {
			w.Fatal(err)
		}
		a.lists[name] = string(text)
	}
	for _, query := range []string{
		`SELECT l.* FROM ledger l JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq
			ORDER BY l.account_id, l.seq`,
		`SELECT e.* FROM events e JOIN {verified connections} AS v
			ON v.connection_id = e.connection_id AND e.seq <= v.event_seq ORDER BY e.connection_id, e.seq`,
		// what was written with a row
		`SELECT p.* FROM payment_records p JOIN ledger l ON l.id = p.entry_id
			JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq ORDER BY p.entry_id`,
		`SELECT g.* FROM goodwill_records g JOIN ledger l ON l.id = g.entry_id
			JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq ORDER BY g.entry_id`,
		`SELECT f.* FROM call_refunds f JOIN ledger l ON l.id = f.debit_id
			JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq ORDER BY f.debit_id`,
		`SELECT r.request_id, r.reply_id, s.* FROM realtime_replies r JOIN realtime_sessions s ON s.id = r.session_id
			JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
			JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq ORDER BY r.request_id`,
		`SELECT r.request_id, w.* FROM realtime_replies r JOIN counters w ON w.subject = 'voice/' || r.session_id
			JOIN ledger l ON l.id = 'led_' || substr(r.request_id, 5)
			JOIN {verified accounts} AS v ON v.account_id = l.account_id AND l.seq <= v.seq ORDER BY r.request_id`,
	} {
		if err := a.formatRows(w.ctx, query, nil, func(row string) { list = append(list, row) }); err != nil {
			w.Fatal(err)
		}
	}
	return list
}

type balance struct {
	available, reserved, seq int64
	head                     string
	disputed                 int
}

type connection struct {
	app, account                         string
	allocation, consumed, held, eventSeq int64
	delegated, childHeld                 int64
	revokedUS                            any
}

func (w *writer) exec(text string, args ...any) {
	w.Helper()
	if _, err := w.tx.ExecContext(w.ctx, text, args...); err != nil {
		w.Fatalf("%s: %v", text, err)
	}
}

// insert writes one row of a table.
func (w *writer) insert(table string, values map[string]any) {
	w.Helper()
	var names, marks []string
	var args []any
	for _, name := range slices.Sorted(maps.Keys(values)) { // one order, one prepared statement
		names, args = append(names, name), append(args, values[name])
		marks = append(marks, fmt.Sprintf("$%d", len(args)))
	}
	w.exec("INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", args...)
}

// addLedgerRow appends a row with the account's next seq and hash, a second later.
func (w *writer) addLedgerRow(account string, m movement, values map[string]any) {
	w.Helper()
	b := w.balances[account]
	if b == nil {
		b = &balance{}
		w.balances[account] = b
	}
	b.seq++
	b.available += m.available
	b.reserved += m.reserved
	w.clock = w.clock.Add(time.Second)
	given := map[string]any{
		"id":                  fmt.Sprintf("led_y%s%d", account, b.seq),
		"account_id":          account,
		"seq":                 b.seq,
		"status":              "settled",
		"created_us":          w.clock.UnixMicro(),
		"available_delta_mc":  m.available,
		"reserved_delta_mc":   m.reserved,
		"allocation_delta_mc": m.allocation,
		"consumed_delta_mc":   m.consumed,
	}
	for name, value := range values {
		if n, ok := value.(int); ok {
			value = int64(n) // as it is read back
		}
		given[name] = value
	}
	list := make([]any, 0, ledgerColumnCount)
	for _, name := range strings.Split(strings.Join(strings.Fields(ledgerColumns), ""), ",")[:ledgerColumnCount-1] {
		list = append(list, given[name])
	}
	b.head = chainHash(b.head, list)
	given["hash"] = b.head
	w.insert("ledger", given)
}

// move writes a row of a connection and folds it in.
func (w *writer) move(id string, m movement, values map[string]any) {
	w.Helper()
	c := w.connections[id]
	c.allocation += m.allocation
	c.consumed += m.consumed
	values["connection_id"], values["app_id"] = id, c.app
	w.addLedgerRow(c.account, m, values)
}

func allocate(mc int64) movement {
	return movement{available: -mc, reserved: mc, allocation: mc}
}

func (w *writer) connect(id, app, account string, mc int64) {
	w.Helper()
	w.begin()
	w.connections[id] = &connection{app: app, account: account}
	w.move(id, allocate(mc), map[string]any{"type": "connect"})
	w.event(id, "connection.created")
}

// hold opens a hold for a call.
func (w *writer) hold(id, key, state string, c call) {
	w.Helper()
	at := w.connections[id]
	counts, paidBy := []string(nil), "wallet"
	for _, subject := range c.counts(at.app, at.account) {
		amount, kind := c.hold, "s|86400"
		switch {
		case c.free:
			kind = "s|0"
		case strings.HasPrefix(subject, "live/"):
			amount, kind = c.cost, "c|86400"
		}
		counts = append(counts, fmt.Sprintf("%s|%s|%d", subject, kind, amount))
		if state != "failed" {
			w.counter(subject).held += amount
		}
	}
	if c.free {
		paidBy = "free_credit"
	} else if state != "failed" {
		at.held += c.hold
	}
	if state == "pending" {
		w.insert("deferrals", map[string]any{
			"request_id":    "req_z" + key,
			"connection_id": id,
			"key":           key,
			"provider":      "openai",
			"record":        "chatcmpl-1",
			"tries":         1,
			"since_us":      noon.Add(-time.Minute).UnixMicro(),
			"next_us":       noon.UnixMicro(),
		})
		w.insert("stored_responses", map[string]any{
			"request_id": "req_z" + key,
			"encoding":   "raw",
			"body":       []byte("{}"),
			"created_us": w.clock.UnixMicro(),
		})
	}
	w.insert("holds", map[string]any{
		"connection_id": id,
		"key":           key,
		"request_id":    "req_z" + key,
		"fingerprint":   "f" + key,
		"state":         state,
		"attempt":       1,
		"node_id":       "node_1",
		"claim":         "req_z" + key,
		"amount_mc":     c.hold,
		"account_id":    at.account,
		"app_id":        at.app,
		"model":         "model-1",
		"terms":         c.terms,
		"created_us":    w.clock.UnixMicro(),
		"paid_by":       paidBy,
		"reservations":  strings.Join(counts, " "),
	})
}

// unbilled counts an attempt that was accepted and released.
func (w *writer) unbilled(id, key string, cost int64) {
	w.Helper()
	at := w.connections[id]
	w.insert("unbilled_attempts", map[string]any{
		"request_id":       "req_z" + key,
		"attempt":          1,
		"connection_id":    id,
		"app_id":           at.app,
		"account_id":       at.account,
		"model":            "model-1",
		"provider_cost_mc": cost,
		"created_us":       w.clock.UnixMicro(),
	})
	for _, subject := range []string{"unbilled/" + at.app + "/" + at.account, "live/wac_dev", "live/*"} {
		w.counter(subject).settled[w.clock.Unix()/600] += cost
	}
}

// spend bills a call, with the hold of its key if it has one open.
func (w *writer) spend(id, key, bucket string, c call) {
	w.Helper()
	w.begin()
	at := w.connections[id]
	m := movement{reserved: -c.charge, consumed: c.charge}
	if at.revokedUS != nil {
		freed := c.hold - c.charge
		m.available, m.reserved, m.allocation = freed, m.reserved-freed, -freed
		w.unhold(id, c)
		w.exec(`DELETE FROM holds WHERE connection_id = $1 AND key = $2`, id, key)
	}
	paidBy := "wallet"
	if c.free {
		m, paidBy = movement{}, "free_credit"
	}
	suffix := "z" + key
	if w.timedIDs {
		suffix = ids.New("", w.clock.Add(-w.begun))
	}
	remaining := at.allocation + m.allocation - at.consumed - m.consumed - at.held
	if c.last {
		remaining = 0
	}
	w.move(id, m, map[string]any{
		"id":               "led_" + suffix,
		"type":             "spend",
		"feature":          bucket,
		"feature_label":    bucket,
		"model":            "model-1",
		"key":              key,
		"key_hash":         hashOfKey(id, key),
		"fingerprint":      "f" + key,
		"paid_by":          paidBy,
		"settlement":       c.settlement,
		"terms":            c.terms,
		"usage":            c.usage,
		"hold_amount_mc":   c.hold,
		"provider_cost_mc": c.cost,
		"svc_fee_mc":       c.fee,
		"dev_margin_mc":    c.margin,
		"user_charge_mc":   c.charge,
		"remaining_mc":     remaining,
	})
	w.addToDay(id, bucket, 1, 1, c)
	index := w.clock.Unix() / 600
	w.bucketOf[key] = index
	for _, subject := range c.counts(at.app, at.account) {
		switch {
		case c.free:
			w.counter(subject).settled[0] += c.charge
		case strings.HasPrefix(subject, "live/"):
			w.counter(subject).settled[index] += c.cost
		default:
			w.counter(subject).settled[index] += c.charge
		}
	}
	if !c.free && c.charge > 0 {
		w.counter(id).settled[index] += c.charge
	}
	if strings.Contains(c.usage, "waived") {
		w.counter("waived/" + at.app + "/" + at.account).settled[index] += c.cost
	}
	w.insert("stored_responses", map[string]any{
		"request_id": "req_" + suffix,
		"encoding":   "raw",
		"body":       []byte("{}"),
		"created_us": w.clock.UnixMicro(),
	})
}

// hashOfKey is the column key_hash of a call.
func hashOfKey(connection, key string) int64 {
	digits := fmt.Sprintf("%x", sha256.Sum256([]byte(connection+"\n"+key)))
	n, _ := strconv.ParseUint(digits[:16], 16, 64) // 16 digits are a number
	return int64(n / 2)
}

// refund reverses a call.
func (w *writer) refund(id, key, bucket string, c call) {
	w.Helper()
	w.begin()
	at := w.connections[id]
	m := movement{reserved: c.charge, consumed: -c.charge}
	if at.revokedUS != nil {
		m = movement{available: c.charge, allocation: -c.charge, consumed: -c.charge}
	}
	w.move(id, m, map[string]any{
		"type":             "spend",
		"status":           "reversed",
		"reversal_of":      "led_z" + key,
		"reason":           "provider_error",
		"feature":          bucket,
		"feature_label":    bucket,
		"model":            "model-1",
		"paid_by":          "wallet",
		"hold_amount_mc":   c.hold,
		"provider_cost_mc": c.cost,
		"svc_fee_mc":       c.fee,
		"dev_margin_mc":    c.margin,
		"user_charge_mc":   c.charge,
		"remaining_mc":     0,
	})
	c.input, c.output, c.cached = 0, 0, 0
	w.addToDay(id, bucket, 0, -1, c)
	for _, subject := range []string{id, "spend/" + at.app, "spend/" + at.app + "/" + at.account} {
		w.counter(subject).settled[w.bucketOf[key]] -= c.charge
	}
	w.eventWith(id, "request.refunded", fmt.Sprintf(`{"request":{"id":"req_z%s","refunded_mc":%d,"reversed_by":%q}}`,
		key, c.charge, fmt.Sprintf("led_y%s%d", at.account, w.balances[at.account].seq)))
}

// addToDay adds a call to the day's totals, or takes a refunded one back.
func (w *writer) addToDay(id, bucket string, calls, sign int64, c call) {
	at := w.connections[id]
	day := [6]any{w.clock.Format(time.DateOnly), id, bucket, "model-1", at.app, at.account}
	sums := w.dailyTotals[day]
	for i, n := range []int64{calls, c.input, c.output, sign * c.cost, sign * c.fee, sign * c.margin, sign * c.charge,
		c.cached, sign * c.saved} {
		sums[i] += n
	}
	w.dailyTotals[day] = sums
}

// revoke returns what is neither spent nor held.
func (w *writer) revoke(id string) {
	w.Helper()
	w.begin()
	c := w.connections[id]
	w.move(id, allocate(-(c.allocation - c.consumed - c.held)), map[string]any{"type": "revoke"})
	c.revokedUS = w.clock.UnixMicro()
	w.event(id, "connection.revoked")
}

// unhold ends what a call of the wallet holds.
func (w *writer) unhold(id string, c call) {
	at := w.connections[id]
	at.held -= c.hold
	w.counter("spend/" + at.app).held -= c.hold
	w.counter("spend/" + at.app + "/" + at.account).held -= c.hold
	w.counter("live/wac_dev").held -= c.cost
	w.counter("live/*").held -= c.cost
}

// release ends a hold of a revoked connection.
func (w *writer) release(id, key string, c call) {
	w.Helper()
	w.begin()
	w.move(id, allocate(-c.hold), map[string]any{"type": "release"})
	w.unhold(id, c)
	w.exec(`UPDATE holds SET state = 'failed' WHERE connection_id = $1 AND key = $2`, id, key)
}

func (w *writer) event(id, kind string) {
	w.Helper()
	data := "{}"
	if kind == "request.settled" { // k2 was pending once
		data = fmt.Sprintf(
			`{"request":{"id":"req_zk2","object":"request","status":"estimated","charge":{"provider_cost_mc":%d,`+
				`"user_charge_mc":%d}}}`, estimate.cost, estimate.charge)
	}
	w.eventWith(id, kind, data)
}

func (w *writer) eventWith(id, kind, data string) {
	w.Helper()
	c := w.connections[id]
	c.eventSeq++
	w.insert("events", map[string]any{
		"id":            fmt.Sprintf("evt_%s_%d", id, c.eventSeq),
		"type":          kind,
		"app_id":        c.app,
		"connection_id": id,
		"seq":           c.eventSeq,
		"data":          data,
		"created_us":    w.clock.UnixMicro(),
	})
}

func (w *writer) refuse(request string, status int, code string, at time.Time) {
	w.Helper()
	w.insert("refusals", map[string]any{
		"request_id":    request,
		"connection_id": "conn_1",
		"app_id":        "app_1",
		"status":        status,
		"code":          code,
		"message":       "",
		"details":       "{}",
		"created_us":    at.UnixMicro(),
	})
}

// finish writes the sums of all rows.
func (w *writer) finish() {
	w.Helper()
	for account, b := range w.balances {
		w.insert("balances", map[string]any{
			"account_id":   account,
			"sandbox":      strings.Count(account, "test"),
			"available_mc": b.available,
			"reserved_mc":  b.reserved,
			"disputed":     b.disputed,
			"seq":          b.seq,
			"head":         b.head,
		})
	}
	for id, c := range w.connections {
		status := "active"
		if c.revokedUS != nil {
			status = "revoked"
		}
		w.insert("connections", map[string]any{
			"id":            id,
			"app_id":        c.app,
			"account_id":    c.account,
			"allocation_mc": c.allocation,
			"consumed_mc":   c.consumed,
			"held_mc":       c.held,
			"delegated_mc":  c.delegated,
			"child_held_mc": c.childHeld,
			"status":        status,
			"spent":         w.counter(id).buckets(),
			"event_seq":     c.eventSeq,
			"created_us":    1,
			"revoked_us":    c.revokedUS,
		})
	}
	for subject, c := range w.counters {
		if strings.Contains(subject, "/") { // a connection's own stands in its row
			w.insert("counters",
				map[string]any{"subject": subject, "buckets": c.buckets(), "held": c.held, "limit_reported": c.told})
		}
	}
	for day, n := range w.dailyTotals {
		w.exec(`INSERT INTO daily_totals (day, connection_id, feature, model, app_id, account_id, calls,
			input_tokens, output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc,
			cached_tokens, cache_saved_mc)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)`,
			day[0], day[1], day[2], day[3], day[4],
			day[5], n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8])
	}
}

// writeFixture begins filling d.
func writeFixture(t testing.TB, d *db.DB, f func(w *writer)) {
	t.Helper()
	err := d.InTx(db.ForJob(t.Context()), func(ctx context.Context, tx *db.Tx) error {
		w := &writer{
			TB:          t,
			ctx:         ctx,
			tx:          tx,
			balances:    map[string]*balance{},
			connections: map[string]*connection{},
			dailyTotals: map[[6]any][9]int64{},
			counters:    map[string]*counter{},
			bucketOf:    map[string]int64{},
			clock:       noon.Add(-time.Hour),
		}
		f(w)
		w.finish()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// fixture is a small consistent database in which everything happened once.
func fixture(w *writer) {
	w.addLedgerRow("wac_a", movement{available: 10_000_000_000},
		map[string]any{"type": "topup", "amount_mc": 10_000_000_000})
	w.connect("conn_1", "app_1", "wac_a", 500_000_000)
	w.spend("conn_1", "k1", "chat", plain)
	w.spend("conn_1", "k2", "", estimate)
	w.event("conn_1", "request.settled")
	w.spend("conn_1", "k3", "chat", long)
	w.refund("conn_1", "k1", "chat", plain)
	w.move("conn_1", allocate(100_000_000), map[string]any{"type": "cap"})
	w.event("conn_1", "connection.updated")
	for status, target := range map[string]int64{"approved": 600_000_000, "pending": 700_000_000} {
		given := map[string]any{
			"id":            "acr_" + status,
			"connection_id": "conn_1",
			"status":        status,
			"current_mc":    500_000_000,
			"target_mc":     target,
			"reason":        "",
			"created_us":    w.clock.UnixMicro(),
		}
		if status == "approved" {
			given["decided_us"] = w.clock.UnixMicro()
		}
		w.insert("allocation_requests", given)
	}
	w.spend("conn_1", "k6", "chat", edge)
	w.spend("conn_1", "k7", "chat", capped)
	w.event("conn_1", "connection.frozen")
	w.event("conn_1", "connection.resumed")
	w.hold("conn_1", "k4", "open", plain)
	w.hold("conn_1", "k5", "failed", plain)
	w.unbilled("conn_1", "k5", 43_210)
	w.hold("conn_1", "k8", "pending", plain)
	w.insert("realtime_sessions", map[string]any{
		"id":              "rts_1",
		"connection_id":   "conn_1",
		"account_id":      "wac_a",
		"app_id":          "app_1",
		"model":           "model-1",
		"mock":            0,
		"status":          "ended",
		"ticket_hash":     "",
		"ticket_until_us": 1,
		"lease_us":        0,
		"own_key":         0,
		"hang_up":         0,
		"state":           "{}",
		"max_duration_s":  900,
		"max_cost_mc":     spoken.charge,
		"charged_mc":      spoken.charge,
		"response_count":  2,
		"end_reason":      "max_cost",
		"created_us":      1,
		"started_us":      1,
		"ended_us":        1,
	})
	w.insert("realtime_replies", map[string]any{"request_id": "req_zrts_1/1", "session_id": "rts_1", "n": 1})
	// which said nothing
	w.insert("realtime_replies", map[string]any{"request_id": "req_zrts_1/2", "session_id": "rts_1", "n": 2})
	w.spend("conn_1", "rts_1/1", "chat", spoken)
	w.insert("realtime_replies", map[string]any{"request_id": "req_zrts_1/3", "session_id": "rts_1", "n": 3})
	w.spend("conn_1", "rts_1/3", "chat", hushed)
	w.counter("voice/rts_1").settled[0] = spoken.charge
	w.event("conn_1", "realtime_session.ended")

	w.connect("conn_2", "app_2", "wac_a", 10_000_000) // revoked with two calls in flight
	w.spend("conn_2", "k1b", "", plain)
	w.hold("conn_2", "k2b", "open", plain)
	w.hold("conn_2", "k3b", "open", estimate)
	w.revoke("conn_2")
	w.spend("conn_2", "k2b", "", plain)
	w.release("conn_2", "k3b", estimate)
	w.refund("conn_2", "k1b", "", plain)
	refundByApp := fmt.Sprint("led_ywac_a", w.balances["wac_a"].seq)

	w.connect("conn_3", "app_2", "wac_a", 2_000_000) // used up by a call above its hold
	w.spend("conn_3", "k1c", "", overrun)
	w.event("conn_3", "connection.exhausted")

	w.spend("conn_3", "k2c", "", gift)
	w.hold("conn_3", "k3c", "open", gift)

	w.addLedgerRow("wac_b", movement{available: 1000}, map[string]any{
		"id":        "led_zb",
		"type":      "topup",
		"amount_mc": 1000,
	})
	w.addLedgerRow("wac_b", movement{}, map[string]any{"type": "topup", "status": "pending", "amount_mc": 5_000_000})
	w.addLedgerRow("wac_b", movement{available: -10}, map[string]any{
		"type":        "topup",
		"status":      "reversed",
		"amount_mc":   10,
		"reversal_of": "led_zb",
		"reason":      "refund",
	})
	w.addLedgerRow("wac_c", movement{}, map[string]any{"type": "topup", "status": "pending", "amount_mc": 5_000_000})
	fixturePayments(w)
	fixtureCardRefunds(w)
	fixtureSettlement(w)
	fixtureGoodwill(w)
	fixtureCallRefund(w, refundByApp)
	fixtureLoss(w)
	fixturePayouts(w)

	// a test account
	w.addLedgerRow("wac_test", movement{available: 10_000_000},
		map[string]any{"type": "topup", "amount_mc": 10_000_000})
	w.connect("conn_4", "app_test", "wac_test", 5_000_000)
	w.spend("conn_4", "k1d", "", plain)
	w.connect("conn_5", "app_2", "wac_test", 1000) // which was a sandbox app then
	w.revoke("conn_5")

	w.connect("conn_6", "app_3", "wac_a", 1_000_000) // whose app charges for its own work
	w.hold("conn_6", "k1e", "failed", work)
	w.spend("conn_6", "k2e", "", work)
	w.spend("conn_6", "k3e", "chat", empty)
	fixtureChildren(w)

	w.insert("nodes", map[string]any{
		"id":         "node_1",
		"started_us": noon.Add(-time.Hour).UnixMicro(),
		"lease_us":   noon.Add(5 * time.Minute).UnixMicro(),
	})
	w.insert("nodes", map[string]any{"id": "node_0", "started_us": noon.Add(-2 * time.Hour).UnixMicro(), "lease_us": 0})
	w.refuse("req_other", 402, "allocation_exhausted", noon)
	w.refuse("req_zk5", 502, "provider_error", noon)                 // its hold failed
	w.refuse("req_zk3", 502, "provider_error", noon.Add(-time.Hour)) // the next attempt was billed
	fixtureTokens(w)

	w.event("conn_1", "connection.risk_warning")
	w.clock = w.clock.Add(10 * time.Minute)
	w.event("conn_1", "connection.risk_warning")
	w.insert("notices", map[string]any{
		"id":            "ntc_1",
		"kind":          "allocation_50",
		"account_id":    "wac_a",
		"connection_id": "conn_1",
		"app_id":        "app_1",
		"data":          "{}",
		"created_us":    w.clock.UnixMicro(),
	})
}

func fixtureTokens(w *writer) {
	for _, a := range []string{"wac_a", "wac_b", "wac_dev", "wac_p", "wac_g", "wac_l"} {
		w.insert("accounts", map[string]any{"id": a, "email": a + "@example.com", "password_hash": "", "created_us": 1})
	}
	for account, first := range map[string]int64{"wac_a": 1, "wac_b": 0} {
		w.insert("paying_cards",
			map[string]any{"card": "card", "account_id": account, "is_first": first, "since_us": 1})
	}
	w.counter("free/wac_b").told = 1
	w.insert("accounts", map[string]any{
		"id":            "wac_test",
		"email":         "wac_test@test.invalid",
		"password_hash": "",
		"sandbox":       1,
		"owner_id":      "wac_dev",
		"created_us":    1,
	})
	for app, mode := range map[string]string{"app_1": "mock", "app_2": "live", "app_3": "live", "app_test": "mock"} {
		tier := "limited-live"
		if app == "app_test" {
			tier = "sandbox"
		}
		w.insert("apps", map[string]any{
			"id":             app,
			"owner_id":       "wac_dev",
			"name":           app,
			"client_id":      "cid_" + app,
			"secret_hash":    "",
			"redirect_uris":  "[]",
			"allowed_models": "[]",
			"tier":           tier,
			"provider_mode":  mode,
			"test_allowlist": "[]",
			"dev_margin_ppm": 150000,
			"created_us":     1,
		})
	}
	later, past := noon.Add(time.Hour).UnixMicro(), noon.Add(-time.Minute).UnixMicro()
	token := func(hash, kind, family string, expires int64, used, revoked any) {
		w.insert("oauth_tokens", map[string]any{
			"hash":          hash,
			"kind":          kind,
			"family_id":     family,
			"connection_id": "conn_1",
			"app_id":        "app_1",
			"expires_us":    expires,
			"used_us":       used,
			"revoked_us":    revoked,
			"created_us":    1,
		})
	}
	token("r1", "refresh", "fam_1", later, past, nil)
	token("r2", "refresh", "fam_1", later, nil, nil)
	token("a1", "access", "fam_1", later, nil, nil)
	token("r3", "refresh", "fam_2", later, nil, past)
	token("r4", "refresh", "fam_2", later, nil, past)
	token("a2", "access", "fam_2", later, nil, past)
	token("a3", "access", "fam_2", past, nil, nil)
	code := func(hash string, used, family any) {
		w.insert("oauth_codes", map[string]any{
			"hash":          hash,
			"app_id":        "app_1",
			"account_id":    "wac_a",
			"redirect_uri":  "",
			"challenge":     "",
			"allocation_mc": 1,
			"expires_us":    later,
			"used_us":       used,
			"family_id":     family,
		})
	}
	code("c1", past, "fam_1")
	code("c2", past, "fam_2")
	code("c3", nil, nil)
	w.insert("oauth_device_codes", map[string]any{
		"hash":           "d1",
		"user_code_hash": "u1",
		"app_id":         "app_1",
		"requested_mc":   0,
		"features":       "",
		"expires_us":     later,
		"interval_us":    5_000_000,
	})
}

// fixtureCallRefund says that the developer has refunded call k1b, from margin and from balance.
func fixtureCallRefund(w *writer, reversal string) {
	w.addLedgerRow("wac_dev", movement{available: 1_000_000}, map[string]any{"type": "topup", "amount_mc": 1_000_000})
	w.addLedgerRow("wac_dev", movement{available: -580_000}, map[string]any{
		"id":        "led_d1",
		"type":      "topup",
		"amount_mc": -580_000,
		"reason":    "Refund of req_zk1b",
	})
	w.insert("call_refunds", map[string]any{
		"app_id":         "app_2",
		"n":              1,
		"entry_id":       "led_zk1b",
		"reversal_id":    reversal,
		"developer_id":   "wac_dev",
		"sandbox":        0,
		"margin_mc":      140_000,
		"balance_mc":     580_000,
		"debit_id":       "led_d1",
		"margin_used_mc": 50_000,
		"earned_day":     "2026-11-20",
		"earned_mc":      0,
		"reason":         "provider_error",
		"created_us":     noon.UnixMicro(),
	})
}

// What was lost by the disputed payment of wac_l, and the share of app_1 of two calls.
const (
	fixtureLossMC  = 8_000_000 - (300_000 + 8_000_000 - 754_994)
	fixtureShareMC = (90_000 + 4_374) * fixtureLossMC / 754_994
)

// fixtureLoss is a payment of wac_l that is disputed: the balance bears most of it. Before it the account has made one
// call, since then two that count, one that was refunded, and one after the loss was computed.
func fixtureLoss(w *writer) {
	w.addLedgerRow("wac_l", movement{available: 334_994}, map[string]any{"type": "topup", "amount_mc": 334_994})
	w.connect("conn_l", "app_1", "wac_l", 334_994)
	w.spend("conn_l", "k1l", "chat", estimate)
	w.addLedgerRow("wac_l", movement{}, map[string]any{
		"id": "led_l1", "type": "topup", "status": "pending", "amount_mc": 8_000_000,
	})
	w.addLedgerRow("wac_l", movement{available: 8_000_000}, map[string]any{
		"id": "led_l2", "type": "topup", "amount_mc": 8_000_000,
	})
	for i, r := range []map[string]any{
		{"kind": "opened", "entry_id": "led_l1"},
		{"kind": "paid", "payment_intent": "pi_l", "hold_until_us": noon.UnixMicro()},
		{"kind": "settled", "entry_id": "led_l2"},
		{"kind": "disputed", "reason": "du_l"},
	} {
		r["payment_id"], r["n"], r["account_id"], r["amount_mc"] = "top_l", i+1, "wac_l", 8_000_000
		r["created_us"] = noon.UnixMicro()
		w.insert("payment_records", r)
	}
	w.insert("checkouts", map[string]any{
		"id": "top_l", "account_id": "wac_l", "token": "top_l", "cents": 8, "created_us": noon.UnixMicro(),
	})
	w.revoke("conn_l")
	w.connect("conn_m", "app_1", "wac_l", 5_000_000)
	w.spend("conn_m", "k2l", "chat", plain)
	w.spend("conn_m", "k3l", "chat", estimate)
	w.spend("conn_m", "k4l", "chat", plain)
	w.refund("conn_m", "k4l", "chat", plain)
	w.insert("disputes", map[string]any{
		"id": "du_l", "payment_id": "top_l", "cents": 8, "contested": 1, "changed_us": 5,
	})
	w.insert("losses", map[string]any{
		"account_id": "wac_l", "seq": w.balances["wac_l"].seq, "disputed_cents": 8, "changed_us": 5,
		"loss_mc": fixtureLossMC,
	})
	w.spend("conn_m", "k5l", "chat", estimate)
}

// fixturePayouts are three payouts of app_1, of which one is open, one was paid and one failed, what two disputed
// payments of one account take, as an earlier version has recorded it, and what those of another account take.
// The matured days are those of all of its calls.
func fixturePayouts(w *writer) {
	for _, payment := range []string{"top_a", "top_a2"} {
		entry := "led_" + payment
		w.addLedgerRow("wac_a", movement{}, map[string]any{
			"id": entry, "type": "topup", "status": "pending", "amount_mc": 5_000_000,
		})
		for i, r := range []map[string]any{
			{"kind": "opened", "entry_id": entry}, {"kind": "disputed", "reason": "du_" + payment},
		} {
			r["payment_id"], r["n"], r["account_id"], r["amount_mc"] = payment, i+1, "wac_a", 5_000_000
			r["created_us"] = noon.UnixMicro()
			w.insert("payment_records", r)
		}
		w.insert("checkouts", map[string]any{
			"id": payment, "account_id": "wac_a", "token": payment, "cents": 5, "created_us": noon.UnixMicro(),
		})
	}
	var matured, taken int64
	for day, sums := range w.dailyTotals {
		if day[4] == "app_1" {
			matured += sums[5]
		}
	}
	for i, r := range []struct {
		kind, subject string
		amount        int64
		detail        any
	}{
		{"begun", "po_1", 5_000_000, nil},
		{"paid", "po_1", 0, "tr_1"},
		{"begun", "po_2", 1_000_000, nil},
		{"disputed", "top_a", 3, nil},
		{"failed", "po_2", -1_000_000, "refused"},
		{"disputed", "top_a", -2, nil},
		{"begun", "po_3", 2_000_000, nil},
		{"disputed", "top_a2", 2, nil},
		{"disputed", "wac_l", fixtureShareMC, nil},
	} {
		taken += r.amount
		given := map[string]any{
			"app_id": "app_1", "n": i + 1, "kind": r.kind, "subject": r.subject, "developer_id": "wac_dev",
			"amount_mc": r.amount, "taken_mc": taken, "detail": r.detail, "created_us": noon.UnixMicro(),
		}
		if r.kind == "begun" {
			given["matured_day"], given["matured_mc"], given["returned_mc"] = "2100-01-01", matured, 10
		}
		w.insert("margin_records", given)
	}
	w.insert("margin_records", map[string]any{ // of app_2: a transfer that Stripe had and the books had not
		"app_id": "app_2", "n": 1, "kind": "found", "subject": "po_4", "developer_id": "wac_dev",
		"amount_mc": 1_000_000, "taken_mc": 1_000_000, "detail": "tr_4", "created_us": noon.UnixMicro(),
	})
}

// fixtureGoodwill is a goodwill credit of which a part was withdrawn.
func fixtureGoodwill(w *writer) {
	w.addLedgerRow("wac_g", movement{available: 500}, map[string]any{
		"id":        "led_g1",
		"type":      "topup",
		"amount_mc": 500,
		"reason":    "Sorry for the outage.",
	})
	w.addLedgerRow("wac_g", movement{available: -200}, map[string]any{
		"id":          "led_g2",
		"type":        "topup",
		"status":      "reversed",
		"amount_mc":   200,
		"reversal_of": "led_g1",
		"reason":      "Given twice.",
	})
	for n, record := range []map[string]any{
		{"kind": "given", "amount_mc": 500, "entry_id": "led_g1", "reason": "Sorry for the outage."},
		{"kind": "withdrawn", "amount_mc": 200, "entry_id": "led_g2", "reason": "Given twice."},
	} {
		record["goodwill_id"], record["n"], record["account_id"] = "gwc_1", n+1, "wac_g"
		record["created_us"] = noon.UnixMicro()
		w.insert("goodwill_records", record)
	}
}

// fixturePayments is a payment that was disputed and partly refunded, one that
// failed, and two that wait.
func fixturePayments(w *writer) {
	row := func(entry, status string, available int64, values map[string]any) {
		values["id"], values["type"], values["status"] = entry, "topup", status
		w.addLedgerRow("wac_p", movement{available: available}, values)
	}
	record := func(payment string, n int, kind, account string, amount int64, values map[string]any) {
		given := map[string]any{
			"payment_id": payment,
			"n":          n,
			"kind":       kind,
			"account_id": account,
			"amount_mc":  amount,
			"created_us": noon.UnixMicro(),
		}
		for name, value := range values {
			given[name] = value
		}
		w.insert("payment_records", given)
		if kind == "reversed" {
			w.balances[account].disputed = 1
		}
		if kind == "opened" {
			given := map[string]any{
				"id":         payment,
				"account_id": account,
				"token":      payment,
				"cents":      amount / 1_000_000,
				"created_us": noon.UnixMicro(),
			}
			if account == "wac_p" { // automatic, and the one that failed does not count
				given["n"], given["month_us"], given["most_cents"], given["intent_id"] = int(payment[4]-'0'),
					noon.AddDate(0, 0, 1-noon.Day()).Truncate(24*time.Hour).UnixMicro(), 85, "pi_"+payment[4:]
			}
			w.insert("checkouts", given)
		}
	}
	row("led_p1", "pending", 0, map[string]any{"amount_mc": 50_000_000})
	row("led_p2", "settled", 50_000_000, map[string]any{"amount_mc": 50_000_000})
	row("led_p3", "reversed", -20_000_000, map[string]any{
		"amount_mc":   20_000_000,
		"reversal_of": "led_p2",
		"reason":      "refunded",
	})
	row("led_p4", "pending", 0, map[string]any{"amount_mc": 10_000_000})
	row("led_p5", "reversed", 0, map[string]any{"amount_mc": 10_000_000, "reversal_of": "led_p4", "reason": "expired"})
	row("led_p6", "pending", 0, map[string]any{"amount_mc": 30_000_000})
	record("top_1", 1, "opened", "wac_p", 50_000_000, map[string]any{"entry_id": "led_p1"})
	record("top_1", 2, "paid", "wac_p", 50_000_000,
		map[string]any{"payment_intent": "pi_1", "hold_until_us": noon.UnixMicro()})
	record("top_1", 3, "settled", "wac_p", 50_000_000, map[string]any{"entry_id": "led_p2"})
	record("top_1", 4, "disputed", "wac_p", 50_000_000, map[string]any{"reason": "du_1"})
	record("top_1", 5, "reversed", "wac_p", 20_000_000, map[string]any{"entry_id": "led_p3", "reason": "refunded"})
	record("top_2", 1, "opened", "wac_p", 10_000_000, map[string]any{"entry_id": "led_p4"})
	record("top_2", 2, "failed", "wac_p", 10_000_000, map[string]any{"entry_id": "led_p5", "reason": "expired"})
	record("top_3", 1, "opened", "wac_p", 30_000_000, map[string]any{"entry_id": "led_p6"})
	record("top_3", 2, "paid", "wac_p", 30_000_000,
		map[string]any{"payment_intent": "pi_3", "hold_until_us": noon.Add(time.Hour).UnixMicro()})
	record("top_b", 1, "opened", "wac_b", 5_000_000, map[string]any{"entry_id": "led_ywac_b2"})
	record("top_c", 1, "opened", "wac_c", 5_000_000, map[string]any{"entry_id": "led_ywac_c1"})
}

// fixtureCardRefunds are two parts of payment top_1 that went back to the card; the card did not accept one.
func fixtureCardRefunds(w *writer) {
	for n, cents := range []int{10, 5} {
		entry := fmt.Sprint("led_p", 7+n)
		w.addLedgerRow("wac_p", movement{available: int64(-cents) * 1_000_000}, map[string]any{
			"id":          entry,
			"type":        "topup",
			"status":      "reversed",
			"amount_mc":   cents * 1_000_000,
			"reversal_of": "led_p2",
			"reason":      "returned_to_card",
		})
		w.insert("payment_records", map[string]any{
			"payment_id": "top_1",
			"n":          6 + n,
			"kind":       "reversed",
			"account_id": "wac_p",
			"amount_mc":  cents * 1_000_000,
			"entry_id":   entry,
			"reason":     "returned_to_card",
			"created_us": noon.UnixMicro(),
		})
		w.insert("refunds", map[string]any{
			"id":          fmt.Sprintf("rfd_%d_back", n),
			"payment_id":  "top_1",
			"account_id":  "wac_p",
			"cents":       cents,
			"total_cents": cents,
			"state":       []string{"done", "refused"}[n],
			"by_user":     1,
			"next_us":     1,
			"created_us":  1,
		})
	}
	w.addLedgerRow("wac_p", movement{available: 5_000_000}, map[string]any{
		"id":          "led_p9",
		"type":        "topup",
		"status":      "reversed",
		"amount_mc":   5_000_000,
		"reversal_of": "led_p8",
		"reason":      "returned_to_card",
	})
	w.insert("payment_records", map[string]any{
		"payment_id": "top_1",
		"n":          8,
		"kind":       "restored",
		"account_id": "wac_p",
		"amount_mc":  5_000_000,
		"entry_id":   "led_p9",
		"reason":     "returned_to_card",
		"created_us": noon.UnixMicro(),
	})
}

// fixtureSettlement is a part of payment top_1 that an operator has paid otherwise.
func fixtureSettlement(w *writer) {
	w.addLedgerRow("wac_p", movement{available: -2_000_000}, map[string]any{
		"id":          "led_pa",
		"type":        "topup",
		"status":      "reversed",
		"amount_mc":   2_000_000,
		"reversal_of": "led_p2",
		"reason":      "paid_elsewhere",
	})
	w.insert("payment_records", map[string]any{
		"payment_id": "top_1",
		"n":          9,
		"kind":       "reversed",
		"account_id": "wac_p",
		"amount_mc":  2_000_000,
		"entry_id":   "led_pa",
		"reason":     "paid_elsewhere",
		"created_us": noon.UnixMicro(),
	})
	w.insert("operator_log", map[string]any{
		"id":         "opl_1",
		"actor":      "wac_op",
		"action":     "settle",
		"subject":    "wac_p",
		"reason":     "by bank transfer",
		"before":     "{}",
		"after":      `{"settled_mc":2000000}`,
		"created_us": noon.UnixMicro(),
	})
}

// The children of the fixture; their ids are as long as any.
var childIDs = [...]string{
	"chd_0000000000000000000000000a", "chd_0000000000000000000000000b", "chd_0000000000000000000000000c",
	"chd_0000000000000000000000000e",
}

// fixtureChildren passes 400,000 of conn_6 on: a has passed 150,000 on to b, of which a call holds 100,000, and
// 90,000 to c, which has spent 61 and given the rest back, and 20,000 to e, which has spent them. Free credit paid for
// a call of a and the one of e, and holds another for a.
func fixtureChildren(w *writer) {
	a, b, c, e := childIDs[0], childIDs[1], childIDs[2], childIDs[3]
	at := w.connections["conn_6"]
	w.hold("conn_6", b+"/k3e", "open", work)
	w.exec(`UPDATE holds SET reservations = reservations || $1 WHERE key = $2`, " child/"+b+"|s|0|100000", b+"/k3e")
	w.spend("conn_6", c+"/k4e", "", work)
	w.spend("conn_6", a+"/k5e", "gifts", smallGift)
	w.spend("conn_6", e+"/k6e", "gifts", lastGift)
	w.hold("conn_6", a+"/k7e", "open", smallGift)
	w.exec(`UPDATE holds SET reservations = reservations || $1 WHERE key = $2`, " childfree/"+a+"|s|0|110250", a+"/k7e")
	w.counter("childfree/" + a).held = smallGift.hold
	w.eventWith("conn_6", "connection.child_ended", fmt.Sprintf(`{"child":{"id":%q}}`, c))
	ended := w.clock
	for i, n := range []struct {
		parent              any
		depth, amount, left int64
		endedBy             string
		endedUS             any
		returned, held      int64
	}{
		{nil, 1, 400_000, 400_000 - 150_000 - 61 - 20_000 - 21_600, "", nil, 0, 0},
		{a, 2, 150_000, 150_000, "", nil, 0, 100_000},
		{a, 2, 90_000, 0, "app", ended.UnixMicro(), 90_000 - 61, 0},
		{a, 2, 20_000, 0, "", nil, 0, 0},
	} {
		w.insert("children", map[string]any{
			"id": childIDs[i], "connection_id": "conn_6", "parent_id": n.parent, "depth": n.depth, "label": "",
			"amount_mc": n.amount, "features": "[]", "models": "[]", "key": fmt.Sprint("make", i), "fingerprint": "f",
			"token_hash": fmt.Sprint("t", i), "expires_us": noon.Add(time.Hour).UnixMicro(), "created_us": 1,
			"ended_us": n.endedUS, "ended_by": n.endedBy, "returned_mc": n.returned,
		})
		counter := w.counter("child/" + childIDs[i])
		counter.held, counter.settled[0] = n.held, n.left
		if n.endedUS != nil {
			counter.told = 1
		}
		at.delegated += n.left
		at.childHeld += n.held
	}
}
