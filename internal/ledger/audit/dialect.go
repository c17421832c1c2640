package audit

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

// Expressions that differ between the engines, and those that statements repeat.
var (
	commonPlaceholders = []string{
		"{spent}", `CASE WHEN type = 'spend' AND paid_by = 'wallet' THEN CASE status WHEN 'settled' THEN user_charge_mc ELSE -user_charge_mc END ELSE 0 END`,
		"{funded}", `CASE WHEN type = 'topup' THEN CASE status WHEN 'settled' THEN amount_mc WHEN 'reversed' THEN CASE WHEN available_delta_mc = 0 THEN 0 WHEN available_delta_mc > 0 THEN amount_mc ELSE -amount_mc END ELSE 0 END ELSE 0 END`,
	}
	placeholders = map[db.Engine]*strings.Replacer{
		db.SQLite: strings.NewReplacer(slices.Concat(commonPlaceholders, []string{
			"{day}", `date(created_us / 1000000, 'unixepoch')`,
			"{input}", `COALESCE(json_extract(usage, '$.input'), 0) + COALESCE(json_extract(usage, '$.cached'), 0) + COALESCE(json_extract(usage, '$.cache_write'), 0) + COALESCE(json_extract(usage, '$.audio_input'), 0) + COALESCE(json_extract(usage, '$.audio_cached'), 0) + COALESCE(json_extract(usage, '$.image_input'), 0) + COALESCE(json_extract(usage, '$.image_cached'), 0)`,
			"{cached}", `CASE WHEN json_extract(usage, '$.cache_saved_mc') IS NULL THEN 0
				ELSE COALESCE(json_extract(usage, '$.cached'), 0) END`,
			"{saved}", `COALESCE(json_extract(usage, '$.cache_saved_mc'), 0)`,
			"{output}", `COALESCE(json_extract(usage, '$.output'), 0) + COALESCE(json_extract(usage, '$.audio_output'), 0)`,
			"{pool}", `json_extract(terms, '$.pool')`,
			"{settled}", `json_extract(after, '$.settled_mc')`,
			"{buckets of c.spent}", `json_each('["' || replace(c.spent, ' ', '","') || '"]') AS e`,
			"{buckets of c.buckets}", `json_each('["' || replace(c.buckets, ' ', '","') || '"]') AS e`,
			"{index}", `CAST(substr(e.value, 1, instr(e.value, ':') - 1) AS INTEGER)`,
			"{amount}", `CAST(substr(e.value, instr(e.value, ':') + 1) AS INTEGER)`})...),
		db.Postgres: strings.NewReplacer(slices.Concat(commonPlaceholders, []string{
			"{day}", `to_char(to_timestamp(created_us / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')`,
			"{input}", `COALESCE((usage::json->>'input')::bigint, 0) + COALESCE((usage::json->>'cached')::bigint, 0) + COALESCE((usage::json->>'cache_write')::bigint, 0) + COALESCE((usage::json->>'audio_input')::bigint, 0) + COALESCE((usage::json->>'audio_cached')::bigint, 0) + COALESCE((usage::json->>'image_input')::bigint, 0) + COALESCE((usage::json->>'image_cached')::bigint, 0)`,
			"{cached}", `CASE WHEN usage::json->>'cache_saved_mc' IS NULL THEN 0
				ELSE COALESCE((usage::json->>'cached')::bigint, 0) END`,
			"{saved}", `COALESCE((usage::json->>'cache_saved_mc')::bigint, 0)`,
			"{output}", `COALESCE((usage::json->>'output')::bigint, 0) + COALESCE((usage::json->>'audio_output')::bigint, 0)`,
			"{pool}", `terms::json->>'pool'`,
			"{settled}", `(after::json->>'settled_mc')::bigint`,
			"{buckets of c.spent}", `LATERAL unnest(string_to_array(c.spent, ' ')) AS e(value)`,
			"{buckets of c.buckets}", `LATERAL unnest(string_to_array(c.buckets, ' ')) AS e(value)`,
			"{index}", `split_part(e.value, ':', 1)::bigint`,
			"{amount}", `split_part(e.value, ':', 2)::bigint`})...),
	}
)

// checkTriggers checks that triggers refuse to change or delete rows. It reads the
// catalog, because an attempt would be a write.
func checkTriggers(ctx context.Context, a *verification, v *checkResult) error {
	refused, verbs := sqliteRefusedVerbs, []string{"UPDATE", "DELETE"}
	if a.Engine == db.Postgres {
		refused, verbs = postgresRefusedVerbs, append(verbs, "TRUNCATE")
	}
	for _, table := range []string{"ledger", "payment_records", "goodwill_records", "call_refunds", "margin_records"} {
		got, err := refused(ctx, a, table)
		if err != nil {
			return err
		}
		for _, verb := range verbs {
			v.checked++
			if !got[verb] {
				v.addFinding("table=%s: no enabled trigger refuses %s", table, verb)
			}
		}
	}
	if a.Engine != db.Postgres {
		return nil
	}
	var stray int64
	err := a.QueryRowContext(ctx, `SELECT COUNT(*) FROM ledger_default`).Scan(&stray)
	if err == nil && stray > 0 {
		v.remark = formatCount(stray) + " rows of the ledger are in no year, as those of a wrong clock"
	}
	return err
}

// refusingTrigger matches a trigger of SQLite without a condition, for all columns.
var refusingTrigger = regexp.MustCompile(
	`(?is)\bBEFORE\s+(UPDATE|DELETE)\s+ON\s+"?\w+"?\s+(?:FOR\s+EACH\s+ROW\s+)?` +
		`BEGIN\s+SELECT\s+RAISE\s*\(\s*(?:ABORT|FAIL|ROLLBACK)\b`)

// sqliteRefusedVerbs returns the verbs that a trigger on the table refuses.
func sqliteRefusedVerbs(ctx context.Context, a *verification, table string) (verbs map[string]bool, err error) {
	rows, err := a.QueryContext(ctx, `SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = $1`, table)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	verbs = map[string]bool{}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		if m := refusingTrigger.FindStringSubmatch(text); m != nil {
			verbs[strings.ToUpper(m[1])] = true
		}
	}
	return verbs, rows.Err()
}

// Bits of pg_trigger.tgtype.
const (
	pgBefore   = 1 << 1
	pgDelete   = 1 << 3
	pgUpdate   = 1 << 4
	pgTruncate = 1 << 5
)

// postgresRefusedVerbs returns the verbs that an enabled trigger on the table and on each of its partitions, without a
// condition and for all columns, refuses.
func postgresRefusedVerbs(ctx context.Context, a *verification, table string) (map[string]bool, error) {
	verbs := map[string]bool{"DELETE": true, "UPDATE": true, "TRUNCATE": true}
	// The name may be that of a temporary view, too.
	tables, err := db.QueryAll(ctx, a.Tx, db.ScanColumn[int64], `SELECT t.relid::oid::bigint FROM pg_partition_tree(
			(SELECT oid::regclass FROM pg_class WHERE relname = $1
				AND relnamespace = current_schema()::regnamespace)) t`,
		table)
	if err != nil {
		return nil, err
	}
	if len(tables) == 0 { // no partitions, and no table with partitions
		tables, err = db.QueryAll(ctx, a.Tx, db.ScanColumn[int64], `SELECT oid::bigint FROM pg_class
			WHERE relname = $1 AND relnamespace = current_schema()::regnamespace`, table)
		if err != nil {
			return nil, err
		}
	}
	for _, oid := range tables {
		refused, err := refusedByTriggers(ctx, a, oid)
		if err != nil {
			return nil, err
		}
		for verb := range verbs {
			verbs[verb] = verbs[verb] && refused[verb]
		}
	}
	return verbs, nil
}

// refusedByTriggers returns the verbs that the triggers of one table or partition refuse.
func refusedByTriggers(ctx context.Context, a *verification, oid int64) (verbs map[string]bool, err error) {
	rows, err := a.QueryContext(ctx, `SELECT t.tgtype, p.prosrc FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
		WHERE t.tgrelid = $1::bigint::oid AND (NOT t.tgisinternal OR t.tgparentid <> 0) AND t.tgenabled IN ('O', 'A')
			AND t.tgqual IS NULL AND cardinality(t.tgattr::int2[]) = 0`, oid)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	verbs = map[string]bool{}
	for rows.Next() {
		var kind int64
		var body string
		if err := rows.Scan(&kind, &body); err != nil {
			return nil, err
		}
		if kind&pgBefore != 0 && strings.Contains(strings.ToUpper(body), "RAISE") {
			verbs["DELETE"] = verbs["DELETE"] || kind&pgDelete != 0
			verbs["UPDATE"] = verbs["UPDATE"] || kind&pgUpdate != 0
			verbs["TRUNCATE"] = verbs["TRUNCATE"] || kind&pgTruncate != 0
		}
	}
	return verbs, rows.Err()
}
