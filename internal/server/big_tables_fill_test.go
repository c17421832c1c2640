package server

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// fillDays are the days over which the rows are spread, up to now: those of the first one are for the purges.
const fillDays = 32

// A fill says what is inserted into one table. share is how many rows of the ledger there are for each of its rows, and
// values are SQL of its columns, with names in braces that expand explains. A column that is not named has its default,
// or else nothing, 0 or ”. A line "where = SQL" leaves rows out.
type fill struct {
	table  string
	share  int
	values string // "column = SQL", a line for each
}

// fiveMinutes is the length of an interval of health, in microseconds.
const fiveMinutes = int64(5 * time.Minute / time.Microsecond)

// notFilled are the tables that stay small, or that the test's jobs fill, by the reason.
var notFilled = map[string]string{
	"a row each": "app_days_head event_log_head log_state operator_totals watch_turns settings goose_db_version " +
		"migration_hashes",
	"of jobs": "app_days log_accounts log_calls log_rows log_tiles operator_days operator_balances",
	"few rows of an app": "app_invitations app_logo_proposals app_logos app_members consent_counts golive_requests " +
		"margin_changes webhook_days",
	"few rows of an account": "erasures passkeys payees provider_keys invitations",
	"while something is running": "card_removals checkpoints customer_removals deferrals open_disputes " +
		"passkey_challenges",
	"rows of the operator": "estimates incidents nodes policies price_lists reconciliations settlements " +
		"verifications",
}

// fills are the big tables. Half of the rows belong to one account, one connection and one app: {account}, {connection}
// and {app} are theirs in even rows, and those of one of a tenth as many others in odd rows. {payer} is the hot account
// in one of 250 rows: nobody pays 100,000 times.
var fills = []fill{
	{"accounts", 10, `id = {other account}
		email = 'u' || {i} || '@example.org'
		sandbox = CASE {i} % 10 WHEN 9 THEN 1 ELSE 0 END
		owner_id = CASE {i} % 10 WHEN 9 THEN {hot account} END
		deactivated_us = CASE WHEN {i} % 10 = 9 AND {i} >= 250 THEN {us} END
		created_us = {us}`},
	{"apps", 1000, `id = {id app_}
		owner_id = CASE {i} % 2 WHEN 0 THEN {hot account} ELSE {other account} END
		name = 'App ' || {i}
		client_id = {id cid_}
		redirect_uris = '[]'
		allowed_models = '[]'
		tier = 'full-live'
		provider_mode = 'mock'
		test_allowlist = '[]'
		created_us = {us}`},
	{"balances", 10, `account_id = {other account}
		sandbox = CASE {i} % 10 WHEN 9 THEN 1 ELSE 0 END
		available_mc = 1000000000
		seq = 5
		head = 'h'`},
	{"connections", 10, `id = {other connection}
		app_id = {other app}
		account_id = {other account}
		allocation_mc = 1000000000
		status = CASE {i} % 10 WHEN 5 THEN 'frozen' ELSE 'active' END
		frozen_by = CASE {i} % 10 WHEN 5 THEN 'user' ELSE '' END
		event_seq = 5
		created_us = {us}`},
	{"ledger", 1, `id = {id led_}
		account_id = {account}
		seq = CASE {i} % 2 WHEN 0 THEN {i} / 2 + 1 ELSE {i} / 2 / {others} + 1 END
		type = CASE {i} % 100 WHEN 98 THEN 'topup' ELSE 'spend' END
		status = CASE {i} % 100 WHEN 96 THEN 'reversed' ELSE 'settled' END
		reversal_of = CASE {i} % 100 WHEN 96 THEN 'led_' || {i} END
		connection_id = {connection}
		app_id = {app}
		feature_label = ''
		model = 'gpt-6-luna'
		key = 'k' || {i}
		key_hash = {i}
		fingerprint = 'f' || {i}
		paid_by = 'wallet'
		settlement = 'settled'
		terms = {terms}
		usage = {usage}
		hold_amount_mc = 3
		provider_cost_mc = 1
		svc_fee_mc = 1
		dev_margin_mc = 1
		user_charge_mc = 3
		remaining_mc = 3
		amount_mc = 3
		available_delta_mc = 0
		reserved_delta_mc = -3
		allocation_delta_mc = 0
		consumed_delta_mc = 3
		created_us = {us}
		hash = {hash}
		first_byte_ms = 5
		duration_ms = 9
		finish_reason = 'stop'`},
	{"daily_totals", 1, `day = {day}
		connection_id = {connection of a day}
		feature = ''
		model = 'gpt-6-luna'
		app_id = {app of a day}
		account_id = {account of a day}
		calls = 1
		user_charge_mc = 3
		provider_cost_mc = 1
		svc_fee_mc = 1
		dev_margin_mc = 1`},
	{"holds", 1, `connection_id = {connection}
		key = 'h' || {i}
		request_id = {id req_}
		fingerprint = 'f' || {i}
		state = 'failed'
		attempt = 1
		node_id = 'node_x'
		claim = 'c'
		amount_mc = 3
		account_id = {account}
		app_id = {app}
		model = 'gpt-6-luna'
		terms = {terms}
		created_us = {us}
		paid_by = 'wallet'`},
	{"stored_responses", 4, `request_id = {id req_}
		encoding = 'raw'
		body = {bytes}
		created_us = {us}`},
	{"refusals", 1, `request_id = {id req_}
		connection_id = {connection}
		app_id = {app}
		status = 429
		code = CASE {i} % 3 WHEN 0 THEN 'rate_limited' ELSE 'allocation_exhausted' END
		details = '{}'
		model = 'gpt-6-luna'
		created_us = {us}
		duration_ms = 5`},
	{"unbilled_attempts", 4, `request_id = {id req_}
		attempt = 1
		connection_id = {connection}
		app_id = {app}
		account_id = {account}
		model = 'gpt-6-luna'
		provider_cost_mc = 1
		created_us = {us}`},
	{"events", 1, `id = {id evt_}
		type = CASE {i} % 10 WHEN 7 THEN 'connection.frozen' ELSE 'request.settled' END
		app_id = {app}
		connection_id = {connection}
		seq = {i} + 10
		data = '{}'
		created_us = {us}
		passed = 1`},
	{"event_log", 1, `place = {i} + 1
		app_id = {app}
		event_id = {id evt_}`},
	{"deliveries", 1, `id = {id whd_}
		webhook_id = CASE WHEN {i} % 10 IN (3, 5, 7) THEN 'whk_deleted' ELSE {hot webhook} END
		event_id = {id evt_}
		event_type = 'request.settled'
		status = CASE {i} % 10 WHEN 8 THEN 'failed' ELSE 'delivered' END
		attempts = 1
		due_us = {us}
		delivered_us = {us}
		created_us = {us}`},
	{"delivery_attempts", 1, `delivery_id = {id whd_}
		begun_us = {us}`},
	{"notices", 2, `id = {id ntc_}
		kind = 'frozen'
		account_id = {account}
		connection_id = {connection}
		app_id = {app}
		data = '{}'
		created_us = {us}
		passed = 1`},
	{"mails", 2, `id = {id eml_}
		account_id = {account}
		recipient = 'a@example.com'
		subject = 'Subject'
		created_us = {us}
		status = CASE {i} % 400 WHEN 4 THEN 'failed' ELSE 'sent' END
		next_us = {us}
		done_us = {us}`},
	{"security_events", 2, `id = {id sev_}
		account_id = {account}
		kind = CASE {i} % 4 WHEN 0 THEN 'signed-in' ELSE 'sign-in-failed' END
		created_us = {us}`},
	{"sessions", 4, `token_hash = 's' || {i}
		account_id = CASE {i} % 100 WHEN 0 THEN {hot account} ELSE {other account} END
		data = {bytes}
		started_us = {us}
		seen_us = {us}
		expires_us = {us} + {31 days}`},
	{"oauth_tokens", 2, `hash = 't' || {i}
		kind = CASE {i} % 4 WHEN 0 THEN 'refresh' ELSE 'access' END
		family_id = 'fam_' || ({i} / 8)
		connection_id = {connection}
		app_id = {existing app}
		expires_us = {us} + {31 days}
		created_us = {us}`},
	{"oauth_codes", 20, `hash = 'c' || {i}
		app_id = {existing app}
		account_id = {account}
		expires_us = {us}`},
	{"oauth_replays", 20, `app_id = {app}
		key = 'k' || {i}
		expires_us = {us}`},
	{"identity_links", 20, `token_hash = 'l' || {i}
		kind = 'reset'
		account_id = {account}
		email = 'u' || {i} || '@example.org'
		expires_us = {us}`},
	{"operator_log", 4, `id = {id opl_}
		actor = {account}
		action = CASE {i} % 2 WHEN 0 THEN 'app.suspend' ELSE 'account.view' END
		subject = CASE {i} % 2 WHEN 0 THEN {app} ELSE {account} END
		before = '{}'
		after = '{}'
		created_us = {us}`},
	{"checkouts", 4, `id = {id top_}
		account_id = {payer}
		token = 't' || {i}
		cents = 1000
		session_id = 'cs_' || {i}
		created_us = {us}`},
	{"payment_records", 4, `payment_id = {id top_}
		n = 1
		kind = 'opened'
		account_id = {payer}
		amount_mc = 1000
		entry_id = 'led_p' || {i}
		created_us = {us}`},
	{"payment_records", 4, `payment_id = {id top_}
		n = 2
		kind = 'disputed'
		account_id = {payer}
		amount_mc = 1000
		reason = 'dp_' || {i}
		created_us = {us}
		where = {i} % 50 = 0`},
	{"refunds", 4, `id = {id rfd_}
		payment_id = {id top_}
		account_id = {payer}
		cents = 1000
		total_cents = 1000
		state = 'done'
		created_us = {us}`},
	{"stripe_events", 4, `id = 'evt_' || {i}
		type = 'charge.updated'
		created_us = {us}`},
	{"stripe_refunds", 4, `id = 're_' || {i}
		payment_id = {id top_}
		cents = 1000
		status = 'succeeded'
		changed_us = {us}`},
	{"disputes", 4, `id = 'dp_' || {i}
		payment_id = {id top_}
		cents = 1000
		contested = CASE {i} % 100 WHEN 0 THEN 1 ELSE 0 END
		changed_us = {us}
		undecided = 0
		where = {i} % 50 = 0`},
	{"children", 2, `id = {id chd_}
		connection_id = {connection}
		depth = 1
		label = 'task'
		amount_mc = 1000
		features = '[]'
		models = '[]'
		key = 'k' || {i}
		token_hash = 'c' || {i}
		expires_us = {us}
		created_us = {us}
		ended_us = {us}
		ended_by = 'expired'
		family_id = {id chd_}`},
	{"realtime_sessions", 4, `id = {id rts_}
		connection_id = {connection}
		account_id = {account}
		app_id = {app}
		model = 'gpt-realtime-3'
		status = 'ended'
		mock = 1
		state = '{}'
		max_duration_s = 60
		charged_mc = 3
		response_count = 1
		end_reason = 'ended'
		created_us = {us}
		started_us = {us}
		ended_us = {us}`},
	{"realtime_replies", 4, `request_id = {id req_}
		session_id = {id rts_}
		n = 1`},
	{"allocation_requests", 4, `id = {id acr_}
		connection_id = {connection}
		status = 'denied'
		target_mc = 1000
		created_us = {us}
		decided_us = {us}`},
	{"stops", 20, `id = {id stp_}
		connection_id = {connection}
		request_id = {id req_}
		cause = 'stopped'
		created_us = {us}`},
	{"counters", 2, `subject = 'child/' || {id chd_}`},
	{"counters", 10, `subject = 'free/' || {other account}`},
	{"counters", 10, `subject = 'free/' || {existing app} || '/' || {other account}`},
	{"counters", 1000, `subject = 'free/' || {id app_} || '/2020-01'`},
	{"counters", 1000, `subject = 'free/' || {id app_} || '/{month}'`},
	{"app_spend", 10, `app_id = {app}
		bucket = {us} / 600000000 * 10000 + {i}`},
	{"call_refunds", 10, `app_id = {app}
		n = {i} + 1
		entry_id = {id led_}
		reversal_id = 'r' || {i}
		developer_id = {account}
		earned_day = {day}
		reason = 'requested'
		created_us = {us}`},
	{"goodwill_records", 10, `goodwill_id = {id gwc_}
		n = 1
		kind = 'given'
		account_id = {account}
		amount_mc = 1000
		entry_id = 'led_g' || {i}
		reason = 'sorry'
		created_us = {us}`},
	{"auto_topups", 10, `account_id = {other account}
		customer = 'cus_' || {i}`},
	{"losses", 10, `account_id = {other account}`},
	{"paying_cards", 10, `card = 'card' || {i}
		account_id = {other account}
		is_first = 1
		since_us = {us}`},
	{"recovery_codes", 10, `account_id = {other account}
		code_hash = 'c'`},
	{"totp_seeds", 10, `account_id = {other account}
		active = 1`},
	{"openid_logins", 10, `issuer = 'https://login.example'
		subject = 's' || {i}
		account_id = {other account}
		created_us = {us}`},
	{"openid_attempts", 20, `state_hash = 's' || {i}
		expires_us = {us}`},
	{"oauth_device_codes", 20, `hash = 'd' || {i}
		user_code_hash = 'u' || {i}
		app_id = {existing app}
		expires_us = {us}`},
	{"stripe_requests", 4, `kind = 'session'
		id = {id top_}
		attempt = 1
		fence = 1`},
	{"margin_records", 10, `app_id = 'app_' || ({i} / 60)
		n = {i} + 1
		kind = CASE {i} % 2 WHEN 0 THEN 'begun' ELSE 'paid' END
		subject = 'po_' || ({i} / 2)
		developer_id = 'wac_' || ({i} / 60)
		amount_mc = CASE {i} % 2 WHEN 0 THEN 1000 ELSE 0 END
		matured_day = CASE {i} % 2 WHEN 0 THEN {day} END
		matured_mc = CASE {i} % 2 WHEN 0 THEN 1000 END
		returned_mc = CASE {i} % 2 WHEN 0 THEN 0 END
		detail = CASE {i} % 2 WHEN 1 THEN 'tr_' || {i} END
		created_us = {us}`},
	{"margin_records", 10, `app_id = {existing app}
		n = {i} + 1
		kind = CASE {i} % 1000 WHEN 1 THEN 'begun' WHEN 2 THEN 'paid' ELSE 'disputed' END
		subject = CASE {i} % 1000 WHEN 1 THEN 'po_hot' || {i} WHEN 2 THEN 'po_hot' || ({i} - 1) ELSE {other account} END
		developer_id = {hot account}
		amount_mc = CASE {i} % 1000 WHEN 2 THEN 0 ELSE 1000 END
		matured_day = CASE {i} % 1000 WHEN 1 THEN {day} END
		matured_mc = CASE {i} % 1000 WHEN 1 THEN 1000 END
		returned_mc = CASE {i} % 1000 WHEN 1 THEN 0 END
		detail = CASE {i} % 1000 WHEN 2 THEN 'tr_' || {i} END
		created_us = {us}
		where = {i} % 20 = 0 OR {i} % 1000 < 3`},
	{"health", 1, `from_us = {us of the last three days}
		service = CASE {i} % 5 WHEN 0 THEN 'api' ELSE 'openai' END
		model = CASE {i} % 5 WHEN 0 THEN '' ELSE 'gpt-' || ({i} % 20) END
		node_id = 'node_' || {i}
		attempts = 9
		failures = {i} % 4`},
	{"margin_notices", 10, `app_id = {existing app}
		account_id = {other account}
		seen_us = {us}
		mailed_us = {us}`},
	{"webhooks", 1000, `id = {id whk_}
		app_id = {id app_}
		url = 'https://127.0.0.1:1/'
		events = '[]'
		status = 'active'
		created_us = {us}`},
	{"features", 1000, `app_id = {id app_}
		slug = 'chat'
		display_name = 'Chat'
		created_us = {us}`},
	{"work_consents", 10, `app_id = {app}
		account_id = 'wac_' || {i}
		created_us = {us}`},
	{"transcript_consents", 10, `app_id = {app}
		account_id = 'wac_' || {i}
		connection_id = {other connection}
		created_us = {us}`},
	{"freezes", 10, `connection_id = {other connection}
		cause = 'user'
		since_us = {us}`},
}

// A filler fills a database for one hot account, connection, app and webhook.
type filler struct {
	d                                 *db.DB
	rows                              int // of the ledger
	account, connection, app, webhook string
	now                               time.Time
}

// run inserts the rows of all big tables, day by day, and lets the database count them.
func (f *filler) run(ctx context.Context) error {
	for _, table := range fills {
		columns, err := f.listColumns(ctx, table)
		if err != nil {
			return err
		}
		n := max(f.rows/table.share, fillDays)
		for day := range fillDays {
			at := f.now.Add(-time.Duration(fillDays-day) * 24 * time.Hour)
			if err := f.insert(ctx, table, columns, n*day/fillDays, n*(day+1)/fillDays, at); err != nil {
				return fmt.Errorf("%s: %w", table.table, err)
			}
		}
	}
	for _, query := range []string{
		fmt.Sprintf(`UPDATE event_log_head SET place = %d`, f.rows),
		`UPDATE app_days_head SET day = '` + f.now.UTC().AddDate(0, 0, -3).Format(time.DateOnly) + `'`,
		`ANALYZE`,
	} {
		if _, err := f.d.ExecContext(ctx, query); err != nil {
			return fmt.Errorf("%w: %s", err, query)
		}
	}
	return nil
}

// listColumns returns the SQL of the columns that an INSERT must name.
func (f *filler) listColumns(ctx context.Context, table fill) (map[string]string, error) {
	columns := map[string]string{}
	for line := range strings.SplitSeq(table.values, "\n\t\t") {
		name, value, found := strings.Cut(strings.TrimSpace(line), " = ")
		if !found { // it goes on with the line before
			return nil, fmt.Errorf("%s has the line %q", table.table, line)
		}
		columns[name] = value
	}
	query := `SELECT name, type FROM pragma_table_info($1) WHERE "notnull" = 1 AND dflt_value IS NULL`
	if f.d.Engine == db.Postgres {
		query = `SELECT column_name, upper(data_type) FROM information_schema.columns WHERE table_name = $1
			AND is_nullable = 'NO' AND column_default IS NULL`
	}
	type column struct{ name, kind string }
	list, err := db.QueryAll(ctx, f.d, db.ScanFields(func(c *column) []any { return []any{&c.name, &c.kind} }), query,
		table.table)
	for _, c := range list {
		if _, named := columns[c.name]; !named {
			columns[c.name] = map[string]string{"TEXT": "''", "BIGINT": "0", "BYTEA": "{bytes}"}[c.kind]
		}
	}
	return columns, err
}

// insert inserts the rows from first to before last of a table, as of the day that begins at a time.
func (f *filler) insert(ctx context.Context, table fill, columns map[string]string, first, last int, at time.Time,
) error {
	var names, values []string
	condition := "1 = 1"
	for name, value := range columns {
		if value = f.expand(value, at); name == "where" {
			condition = value
			continue
		}
		names, values = append(names, name), append(values, value)
	}
	_, err := f.d.ExecContext(ctx, fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT CAST(%d AS BIGINT) UNION ALL
		SELECT i + 1 FROM n WHERE i + 1 < %d) INSERT INTO %s (%s) SELECT %s FROM n WHERE %s`, first, last, table.table,
		strings.Join(names, ", "), strings.Join(values, ", "), condition))
	return err
}

// expand replaces the names in braces.
func (f *filler) expand(text string, at time.Time) string {
	begin := f.now.Add(-fillDays * 24 * time.Hour)
	others := max(f.rows/10, fillDays)
	number := func(i string) string { return `substr(CAST(100000000 + (` + i + `) AS TEXT), 2)` }
	base := func(prefix string, at time.Time) string {
		floor := id.Floor(prefix, at)
		return `'` + floor[:len(floor)-8] + `'`
	}
	numbered := func(prefix, i string) string { // of the accounts and connections, whose ids have the first day
		return base(prefix, begin) + ` || ` + number(fmt.Sprintf("(%s) %% %d", i, others))
	}
	either := func(hot, other string) string { return `CASE {i} % 2 WHEN 0 THEN ` + hot + ` ELSE ` + other + ` END` }
	hotAccount, hotConnection, hotApp := `'`+f.account+`'`, `'`+f.connection+`'`, `'`+f.app+`'`
	otherApp := func(i string) string { // three of four others are of the hot app, too
		return fmt.Sprintf(`CASE (%s) %% 4 WHEN 3 THEN 'app_other' ELSE %s END`, i, hotApp)
	}
	text = strings.NewReplacer(
		"{hot account}", hotAccount,
		"{hot webhook}", `'`+f.webhook+`'`,
		"{other account}", numbered(id.Account, "{i}"),
		"{other connection}", numbered(id.Connection, "{i}"),
		"{other app}", otherApp("{i}"),
		"{account}", either(hotAccount, numbered(id.Account, "{i} / 2")),
		"{payer}", `CASE {i} % 250 WHEN 0 THEN `+hotAccount+` ELSE `+numbered(id.Account, "{i} / 2")+` END`,
		"{connection}", either(hotConnection, numbered(id.Connection, "{i} / 2")),
		"{app}", either(hotApp, otherApp("{i} / 2")),
		"{existing app}", hotApp,
		"{account of a day}", numbered(id.Account, "{i}"),
		"{connection of a day}", numbered(id.Connection, "{i}"),
		"{app of a day}", otherApp("{i}"),
		"{others}", fmt.Sprint(others),
	).Replace(text)
	for {
		before, rest, found := strings.Cut(text, "{id ")
		if !found {
			break
		}
		prefix, after, _ := strings.Cut(rest, "}")
		text = before + base(prefix, at) + ` || ` + number("{i}") + after
	}
	bytes := `CAST('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' AS BLOB)`
	if f.d.Engine == db.Postgres {
		bytes = `CAST('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' AS BYTEA)`
	}
	return strings.NewReplacer(
		"{i}", "i",
		"{us}", fmt.Sprintf("%d + i", at.UnixMicro()),
		"{31 days}", fmt.Sprint((31 * 24 * time.Hour).Microseconds()),
		"{day}", `'`+at.UTC().Format(time.DateOnly)+`'`,
		"{month}", f.now.UTC().Format("2006-01"),
		"{us of the last three days}", fmt.Sprintf("(%d - i %% 864) * %d", f.now.UnixMicro()/fiveMinutes, fiveMinutes),
		"{bytes}", bytes,
		"{hash}", `'`+strings.Repeat("h", 43)+`'`,
		"{usage}", `'{"input":118,"cached":0,"cache_write":0,"output":61,"reasoning":0}'`,
		"{terms}", `'{"rates":{"book":"2026-11-21-541a21b0","mc_per_million":[[0,75000000,7500000,75000000,`+
			`450000000]]},"margin_ppm":100000,"fee_ppm":50000,"input_tokens":124,"max_tokens":200}'`,
	).Replace(text)
}
