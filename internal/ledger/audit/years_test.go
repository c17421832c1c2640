package audit_test

import (
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/audit"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// TestYears bills calls in two years, which are two partitions, detaches the old year and attaches it again, by
// PostgreSQL's own means. What docs/operate/scale.md says of it holds: a key of a
// detached year is new, and the audit reports the rows that are gone.
func TestYears(t *testing.T) {
	t.Parallel()
	at := dbtest.URL(t, db.Postgres)
	d, err := db.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	d.RelaxLimits(12)
	t.Cleanup(func() { _ = d.Close() })
	b, ctx := apitest.NewBooks(t, d), t.Context()
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := d.ExecContext(ctx, statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	verify := func(o audit.Options) (audit.Result, string) {
		t.Helper()
		o.Now = b.Now()
		r, err := audit.Run(ctx, at, o)
		if err != nil {
			t.Fatal(err)
		}
		return r, r.Report
	}
	owner, user, idle := id.New(id.Account, b.Now()), id.New(id.Account, b.Now()), id.New(id.Account, b.Now())
	exec(`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ($1, 'd@example.com', '', 1)`, owner)
	for account, mail := range map[string]string{user: "u@example.com", idle: "i@example.com"} {
		exec(`INSERT INTO accounts (id, email, password_hash, sandbox, owner_id, created_us)
			VALUES ($1, $2, '', 1, $3, 1)`, account, mail, owner)
		b.Do(rules.TopUp{AccountID: account, Sandbox: true, AmountMC: 900 * money.Cent})
	}
	conn := b.Do(rules.Connect{
		ConnectionID: id.New(id.Connection, b.Now()),
		AppID:        "app_1",
		AccountID:    user,
		Sandbox:      true,
		RequestedMC:  600 * money.Cent,
	}).Connection
	b.Terms = `{"rates":{"book":"2026-11-21","mc_per_million":[[0,200000000,20000000,250000000,800000000]]},` +
		`"margin_ppm":150000,"fee_ppm":50000,"input_tokens":1000,"max_tokens":1000}`
	settle := func(call rules.Call) rules.Entry {
		t.Helper()
		return b.Do(rules.Settle{
			Call:       call,
			Attempt:    1,
			Settlement: rules.Settled,
			Usage: rules.Usage{
				JSON:         `{"input":1000,"cached":0,"cache_write":0,"output":500,"reasoning":0}`,
				InputTokens:  1000,
				OutputTokens: 500,
			},
			Charge: rules.Amounts{
				ProviderCostMC: 600_000,
				SvcFeeMC:       30_000,
				DevMarginMC:    90_000,
				UserChargeMC:   720_000,
			},
		}).Entry
	}
	const held = 1_323_000
	first := b.Hold(conn, held)
	billed := settle(first)
	if err := d.EnsureYears(ctx); err != nil {
		t.Fatal(err)
	}
	b.Pass(time.Until(time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)) - time.Until(b.Now()) - time.Second)
	straddling := b.Hold(conn, held)
	b.Pass(2 * time.Second)
	settle(b.Hold(conn, held))
	settle(straddling) // billed in 2027, of a call of 2026
	b.Pass(200 * 24 * time.Hour)
	settle(b.Hold(conn, held))

	// again asks for a hold of the first call's key.
	again := func() rules.Result {
		t.Helper()
		call := first
		call.RequestID = id.New(id.Request, b.Now())
		return b.Do(rules.Hold{Call: call, NodeID: "node_1", Claim: call.RequestID})
	}
	isReplayed := func() {
		t.Helper()
		if r := again(); r.Outcome != rules.Done || r.Entry.ID != billed.ID {
			t.Errorf("the key of 2026 leads to %+v", r)
		}
		if _, report := verify(audit.Options{}); !strings.Contains(report, "clean: ") {
			t.Error(report)
		}
	}
	isReplayed()
	r, _ := verify(audit.Options{Checkpoint: true})
	b.Pass(time.Hour)
	settle(b.Hold(conn, held))

	var bounds string
	if err := d.QueryRowContext(ctx, `SELECT pg_get_expr(relpartbound, oid) FROM pg_class
		WHERE relname = 'ledger_y2026'`).Scan(&bounds); err != nil {
		t.Fatal(err)
	}
	exec(`ALTER TABLE ledger DETACH PARTITION ledger_y2026`)
	if whole, report := verify(audit.Options{}); whole.Findings == 0 || !strings.Contains(report, "seq is dense") {
		t.Errorf("without a year the whole audit says\n%s", report)
	}
	// Since a checkpoint that has verified the year, only accounts without a row since then lack their last one.
	if since, report := verify(audit.Options{Since: r.Checkpoint}); since.Findings != 2 ||
		strings.Count(report, "account="+idle) != 2 {
		t.Errorf("without a year the audit since a checkpoint says\n%s", report)
	}
	exec(`ALTER TABLE ledger ATTACH PARTITION ledger_y2026 ` + bounds)
	isReplayed()
	exec(`ALTER TABLE ledger DETACH PARTITION ledger_y2026`)
	if r := again(); r.Outcome != rules.Applied || r.RequestID == first.RequestID {
		t.Errorf("the key of a detached year leads to %+v", r)
	}
}
