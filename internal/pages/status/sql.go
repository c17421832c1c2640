package status

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/metrics"
)

// tookColumns are the columns of the durations.
const tookColumns = `t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12`

// sumColumns sums the counts of several rows. A sum of BIGINT is NUMERIC in PostgreSQL.
var sumColumns = func() string {
	columns := strings.Split("attempts, failures, "+tookColumns, ", ")
	for i, c := range columns {
		columns[i] = "CAST(SUM(" + c + ") AS BIGINT)"
	}
	return strings.Join(columns, ", ")
}()

// counts returns the destinations of attempts, failures and tookColumns.
func counts(t *metrics.Tally) []any {
	list := []any{&t.Attempts, &t.Failures}
	for i := range t.Took {
		list = append(list, &t.Took[i])
	}
	return list
}

// values returns the counts for attempts, failures and tookColumns.
func values(t metrics.Tally) []any {
	list := []any{t.Attempts, t.Failures}
	for _, n := range t.Took {
		list = append(list, n)
	}
	return list
}

// saveRow writes what a node has counted in an interval, in place of what it wrote before.
func saveRow(ctx context.Context, tx *db.Tx, nodeID string, fromUS int64, t metrics.Tally) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO health (from_us, service, model, node_id, attempts, failures, `+
		tookColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
		ON CONFLICT (from_us, service, model, node_id) DO UPDATE SET attempts = excluded.attempts,
		failures = excluded.failures, t0 = excluded.t0, t1 = excluded.t1, t2 = excluded.t2, t3 = excluded.t3,
		t4 = excluded.t4, t5 = excluded.t5, t6 = excluded.t6, t7 = excluded.t7, t8 = excluded.t8, t9 = excluded.t9,
		t10 = excluded.t10, t11 = excluded.t11, t12 = excluded.t12`,
		append([]any{fromUS, t.Service, t.Model, nodeID}, values(t)...)...)
	return err
}

// deleteOld deletes intervals before a time.
func deleteOld(ctx context.Context, tx *db.Tx, beforeUS int64) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM health WHERE from_us < $1`, beforeUS)
	return err
}

// An hour has the counts of an hour of one service.
type hour struct {
	fromUS             int64
	service            string
	attempts, failures int64
	intervals          int64 // in which something was counted
}

// listHours returns the counts of each hour since the beginning of one, of all nodes.
func listHours(ctx context.Context, q db.Queryer, fromUS int64) ([]hour, error) {
	const hourUS = int64(time.Hour / time.Microsecond)
	return db.QueryAll(ctx, q, db.ScanFields(func(h *hour) []any {
		return []any{&h.fromUS, &h.service, &h.intervals, &h.attempts, &h.failures}
	}), `SELECT from_us / $2 * $2, service, COUNT(DISTINCT from_us), CAST(SUM(attempts) AS BIGINT),
			CAST(SUM(failures) AS BIGINT)
		FROM health WHERE from_us >= $1 GROUP BY 1, 2 ORDER BY 1, 2`, fromUS, hourUS)
}

// firstInterval returns the start of the oldest interval with counts; 0 = none.
func firstInterval(ctx context.Context, q db.Queryer) (fromUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MIN(from_us), 0) FROM health`).Scan(&fromUS)
	return fromUS, err
}

// sumSince sums the intervals since a time, of all nodes.
func sumSince(ctx context.Context, q db.Queryer, sinceUS int64) ([]metrics.Tally, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(t *metrics.Tally) []any {
		return append([]any{&t.Service, &t.Model}, counts(t)...)
	}), `SELECT service, model, `+sumColumns+` FROM health WHERE from_us >= $1 GROUP BY service, model
		ORDER BY service, model`, sinceUS)
}

// lastTrouble returns the start of the newest interval since sinceUS in which a third of a provider's calls failed, at
// least three, by service and model.
func lastTrouble(ctx context.Context, q db.Queryer, sinceUS int64) (map[[2]string]int64, error) {
	type trouble struct {
		service, model string
		fromUS         int64
	}
	list, err := db.QueryAll(ctx, q, db.ScanFields(func(t *trouble) []any {
		return []any{&t.service, &t.model, &t.fromUS}
	}), `SELECT service, model, MAX(from_us) FROM (SELECT service, model, from_us, SUM(failures) AS failed,
		SUM(attempts) AS all_attempts FROM health WHERE from_us >= $1 GROUP BY service, model, from_us) AS i
		WHERE failed >= 3 AND failed * 3 >= all_attempts GROUP BY service, model`, sinceUS)
	byKey := map[[2]string]int64{}
	for _, t := range list {
		byKey[[2]string{t.service, t.model}] = t.fromUS
	}
	return byKey, err
}

// A Health is how calls to one model of a provider fared.
type Health struct {
	metrics.Tally
	TroubleUS int64 // start of the newest 5 minutes in which a third of the calls failed, at least three; 0 = none
}

// ListHealth returns how calls to each model of the providers fared since a time, of all nodes. Counts are kept for
// three days.
func ListHealth(ctx context.Context, q db.Queryer, sinceUS int64) (list []Health, err error) {
	tallies, err := sumSince(ctx, q, sinceUS)
	if err != nil {
		return nil, err
	}
	trouble, err := lastTrouble(ctx, q, sinceUS)
	if err != nil {
		return nil, err
	}
	for _, t := range tallies {
		if t.Model != "" {
			list = append(list, Health{t, trouble[[2]string{t.Service, t.Model}]})
		}
	}
	return list, nil
}

// An Incident is what an operator tells visitors.
type Incident struct {
	ID         string
	Service    string // "" = the whole service
	Impact     string // none, degraded or down
	Title      string
	Text       string
	FromUS     int64
	ResolvedUS int64 // 0 = it lasts
	CreatedUS  int64
}

const incidentColumns = `id, service, impact, title, text, from_us, COALESCE(resolved_us, 0), created_us`

func (i *Incident) fields() []any {
	return []any{&i.ID, &i.Service, &i.Impact, &i.Title, &i.Text, &i.FromUS, &i.ResolvedUS, &i.CreatedUS}
}

// ListIncidents returns incidents, newest first: before the id after, or the newest if it is "".
func ListIncidents(ctx context.Context, q db.Queryer, after string, limit int) ([]Incident, error) {
	if after == "" {
		after = "~" // sorts after every id
	}
	return db.QueryAll(ctx, q, db.ScanFields((*Incident).fields), `SELECT `+incidentColumns+` FROM incidents
		WHERE id < $1 ORDER BY id DESC LIMIT $2`, after, limit)
}

// GetIncident returns an incident; the error is sql.ErrNoRows if there is none.
func GetIncident(ctx context.Context, q db.Queryer, incidentID string) (i Incident, err error) {
	err = q.QueryRowContext(ctx, `SELECT `+incidentColumns+` FROM incidents WHERE id = $1`, incidentID).
		Scan(i.fields()...)
	return i, err
}

// SaveIncident adds an incident, or replaces the one with its id.
func SaveIncident(ctx context.Context, tx *db.Tx, i Incident) error {
	resolved := sql.NullInt64{Int64: i.ResolvedUS, Valid: i.ResolvedUS > 0}
	_, err := tx.ExecContext(ctx, `INSERT INTO incidents
		(id, service, impact, title, text, from_us, resolved_us, created_us) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (id) DO UPDATE SET service = excluded.service, impact = excluded.impact, title = excluded.title,
		text = excluded.text, from_us = excluded.from_us, resolved_us = excluded.resolved_us`,
		i.ID, i.Service, i.Impact, i.Title, i.Text, i.FromUS, resolved, i.CreatedUS)
	return err
}
