package status

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
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

// rowsPerDelete bounds the rows of a statement that deletes some.
const rowsPerDelete = 200

// deleteOld deletes the rows of intervals before a time, in slices.
func deleteOld(ctx context.Context, d *db.DB, beforeUS int64) error {
	for n := int64(rowsPerDelete); n == rowsPerDelete; {
		err := d.InTurn(ctx, func() error {
			r, err := d.ExecContext(ctx, `DELETE FROM health WHERE (from_us, service, model, node_id) IN
				(SELECT from_us, service, model, node_id FROM health WHERE from_us < $1
				ORDER BY from_us, service, model, node_id LIMIT $2)`, beforeUS, rowsPerDelete)
			if err == nil {
				n, err = r.RowsAffected()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// An hour has the counts of an hour of one service.
type hour struct {
	fromUS             int64
	service            string
	attempts, failures int64
	intervals          int64 // in which something was counted
}

// A statement about health reads an hour: the rows of a day are those of all nodes and models in 288 intervals.
const hourUS = int64(time.Hour / time.Microsecond)

// listHours returns the counts of each of the last hours, of all nodes.
func listHours(ctx context.Context, q db.Queryer, now time.Time) (list []hour, err error) {
	for i := range Hours {
		fromUS := firstHour(now).Add(time.Duration(i) * time.Hour).UnixMicro()
		step, err := db.QueryAll(ctx, q, db.ScanFields(func(h *hour) []any {
			h.fromUS = fromUS
			return []any{&h.service, &h.intervals, &h.attempts, &h.failures}
		}), `SELECT service, COUNT(DISTINCT from_us), CAST(SUM(attempts) AS BIGINT), CAST(SUM(failures) AS BIGINT)
			FROM health WHERE from_us >= $1 AND from_us < $2 GROUP BY service ORDER BY service`, fromUS, fromUS+hourUS)
		if err != nil {
			return nil, err
		}
		list = append(list, step...)
	}
	return list, nil
}

// firstInterval returns the start of the oldest interval with counts; 0 = none.
func firstInterval(ctx context.Context, q db.Queryer) (fromUS int64, err error) {
	err = q.QueryRowContext(ctx, `SELECT COALESCE(MIN(from_us), 0) FROM health`).Scan(&fromUS)
	return fromUS, err
}

// sumBetween sums the intervals from a time up to another, of all nodes.
func sumBetween(ctx context.Context, q db.Queryer, fromUS, beforeUS int64) ([]metrics.Tally, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(t *metrics.Tally) []any {
		return append([]any{&t.Service, &t.Model}, counts(t)...)
	}), `SELECT service, model, `+sumColumns+` FROM health WHERE from_us >= $1 AND from_us < $2
		GROUP BY service, model ORDER BY service, model`, fromUS, beforeUS)
}

// A trouble is the newest interval in which a third of the calls to a model failed, at least three.
type trouble struct {
	service, model string
	fromUS         int64
}

// listTroubles returns the newest troubles from a time up to another, by service and model.
func listTroubles(ctx context.Context, q db.Queryer, fromUS, beforeUS int64) ([]trouble, error) {
	return db.QueryAll(ctx, q, db.ScanFields(func(t *trouble) []any {
		return []any{&t.service, &t.model, &t.fromUS}
	}), `SELECT service, model, MAX(from_us) FROM (SELECT service, model, from_us, SUM(failures) AS failed,
		SUM(attempts) AS all_attempts FROM health WHERE from_us >= $1 AND from_us < $2
		GROUP BY service, model, from_us) AS i
		WHERE failed >= 3 AND failed * 3 >= all_attempts GROUP BY service, model`, fromUS, beforeUS)
}

// A Health is how calls to one model of a provider fared.
type Health struct {
	metrics.Tally
	TroubleUS int64 // start of the newest 5 minutes in which a third of the calls failed, at least three; 0 = none
}

// ListHealth returns how calls to each model of the providers fared in the last 24 hours, of all nodes.
func ListHealth(ctx context.Context, q db.Queryer, now time.Time) (list []Health, err error) {
	byModel := map[[2]string]*Health{}
	for fromUS := now.Add(-24 * time.Hour).UnixMicro(); fromUS <= now.UnixMicro(); fromUS += hourUS {
		tallies, err := sumBetween(ctx, q, fromUS, fromUS+hourUS)
		if err != nil {
			return nil, err
		}
		for _, t := range tallies {
			if h := byModel[[2]string{t.Service, t.Model}]; h != nil {
				h.Add(t)
			} else if t.Model != "" {
				byModel[[2]string{t.Service, t.Model}] = &Health{Tally: t}
			}
		}
		troubles, err := listTroubles(ctx, q, fromUS, fromUS+hourUS)
		if err != nil {
			return nil, err
		}
		for _, t := range troubles {
			if h := byModel[[2]string{t.service, t.model}]; h != nil {
				h.TroubleUS = t.fromUS
			}
		}
	}
	for _, h := range byModel {
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b Health) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Model, b.Model))
	})
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
