package operatorpages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/audit"
)

// A Verifier carries out the audits that operators ask for: `purser ledger verify`
// beside the running service, in one read-only snapshot.
type Verifier struct {
	DB  *db.DB
	URL string // of the database, to open it once more
	Now func() time.Time
}

// The states of a verification.
const (
	waiting  = "waiting"
	running  = "running"
	clean    = "clean"
	findings = "findings"
	failed   = "failed"
)

const (
	verificationPrefix = "ver_"
	touchEvery         = 2 * time.Second
	lostAfter          = time.Minute // a run that was not heard of for so long is begun anew
)

// A verification is an audit that was asked for, and what came of it.
type verification struct {
	id, state, askedBy           string
	askedUS, touchedUS           int64
	finishedUS                   int64 // 0 = not yet
	progress                     string
	checks, checked, nOfFindings int64
	report                       string
}

// Once carries out an audit that waits, if there is one.
func (v *Verifier) Once(ctx context.Context) error {
	// Asked every second: looking costs nothing, a transaction would wait its turn.
	if open, err := openVerification(ctx, v.DB); err != nil || !open {
		return err
	}
	now := v.Now()
	ver, err := takeVerification(ctx, v.DB, now.UnixMicro(), now.Add(-lostAfter).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return fmt.Errorf("admin: verify: %w", err)
	}
	result, err := v.look(ctx, ver.id)
	ver.state, ver.checks, ver.checked, ver.nOfFindings, ver.report = clean, int64(result.Checks), result.Checked,
		int64(result.Findings), result.Report
	if err != nil {
		ver.state, ver.report = failed, "The verification could not run: "+err.Error()
	} else if result.Findings > 0 {
		ver.state = findings
	}
	ver.finishedUS = v.Now().UnixMicro()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second) // also when the node stops
	defer cancel()
	return errors.Join(err, finishVerification(leaving, v.DB, ver))
}

// look audits, and writes down every few seconds how far it is.
func (v *Verifier) look(ctx context.Context, verificationID string) (result audit.Result, err error) {
	lines, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		result, err = audit.Verify(ctx, v.URL, v.Now(), func(line string) {
			select {
			case <-lines: // the newest is enough
			default:
			}
			lines <- line
		})
	}()
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for line := ""; ; {
		select {
		case line = <-lines:
		case <-tick.C:
			if err := touchVerification(ctx, v.DB, verificationID, line, v.Now().UnixMicro()); err != nil &&
				ctx.Err() == nil {
				<-done
				return result, err
			}
		case <-done:
			return result, err
		}
	}
}

const verificationColumns = `id, state, asked_by, asked_us, touched_us, COALESCE(finished_us, 0), progress, checks, checked, findings, report`

func (v *verification) fields() []any {
	return []any{&v.id, &v.state, &v.askedBy, &v.askedUS, &v.touchedUS, &v.finishedUS, &v.progress, &v.checks,
		&v.checked, &v.nOfFindings, &v.report}
}

func openVerification(ctx context.Context, q db.Queryer) (open bool, err error) {
	err = q.QueryRowContext(ctx,
		`SELECT EXISTS (SELECT 1 FROM verifications WHERE state = 'waiting' OR state = 'running')`).Scan(&open)
	return open, err
}

func takeVerification(ctx context.Context, d *db.DB, nowUS, lostUS int64) (v verification, err error) {
	err = d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return tx.QueryRowContext(ctx,
			`UPDATE verifications SET state = 'running', touched_us = $1, progress = '' WHERE id IN
			(SELECT id FROM verifications WHERE (state = 'waiting' OR state = 'running') AND (state = 'waiting' OR touched_us < $2) ORDER BY id LIMIT 1`+tx.Engine.ForUpdate()+`) RETURNING `+verificationColumns,
			nowUS, lostUS).Scan(v.fields()...)
	})
	return v, err
}

func touchVerification(ctx context.Context, d *db.DB, verificationID, progress string, nowUS int64) error {
	_, err := d.ExecContext(ctx,
		`UPDATE verifications SET progress = $2, touched_us = $3 WHERE id = $1 AND state = 'running'`, verificationID,
		progress, nowUS)
	return err
}

func finishVerification(ctx context.Context, d *db.DB, v verification) error {
	_, err := d.ExecContext(ctx,
		`UPDATE verifications SET state = $2, progress = '', checks = $3, checked = $4, findings = $5, report = $6, finished_us = $7, touched_us = $7 WHERE id = $1`,
		v.id, v.state, v.checks, v.checked, v.nOfFindings, v.report, v.finishedUS)
	return err
}

// askVerification adds one unless one is under way.
func askVerification(ctx context.Context, d *db.DB, verificationID, by string, nowUS int64) error {
	_, err := d.ExecContext(ctx,
		`INSERT INTO verifications (id, state, asked_by, asked_us, touched_us, progress, checks, checked, findings, report)
		SELECT $1, 'waiting', $2, CAST($3 AS BIGINT), CAST($3 AS BIGINT), '', 0, 0, 0, '' WHERE NOT EXISTS (SELECT 1 FROM verifications WHERE state = 'waiting' OR state = 'running')`, verificationID, by, nowUS)
	return err
}

func newestVerifications(ctx context.Context, q db.Queryer, limit int) ([]verification, error) {
	return db.QueryAll(ctx, q, db.ScanFields((*verification).fields),
		`SELECT `+verificationColumns+` FROM verifications ORDER BY id DESC LIMIT $1`, limit)
}

// verify is POST /operator/verify: somebody asks for an audit. It changes no money,
// so the list of audits is its record.
func (h *Handler) verify(r *http.Request, s staff, _ url.Values) (string, error) {
	now := h.Service.Now()
	return "/operator/verify",
		askVerification(r.Context(), h.DB, id.New(verificationPrefix, now), s.ID, now.UnixMicro())
}

// verifications is GET /operator/verify.
func (h *Handler) verifications(r *http.Request, s staff) (ui.Report, error) {
	c := s.console("/operator", "Verify the ledger",
		"Recomputes every balance, hold and charge from the ledger, with code that is independent of the code that moves money.")
	c.Back = &ui.Link{Href: "/operator", Text: "Overview"}
	list, err := newestVerifications(r.Context(), h.DB, 20)
	if err != nil {
		return c, err
	}
	asked := map[string]bool{}
	for _, v := range list {
		asked[v.askedBy] = true
	}
	who, err := h.emails(r.Context(), asked)
	if err != nil {
		return c, err
	}
	open := len(list) > 0 && list[0].finishedUS == 0
	if len(list) > 0 {
		c.Blocks = append(c.Blocks, list[0].block())
	}
	if s.acts() && !open {
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "Verify now",
			Text:    "Reads the whole database in one snapshot while the service runs. With millions of entries it takes minutes.",
			Form:    &ui.Ask{Action: "/operator/verify", Button: "Verify now"},
		})
	}
	t := &ui.Table{
		Label: "Verifications",
		Heads: []ui.Head{
			{Name: "Requested"},
			{Name: "By"},
			{Name: "Result"},
			{Name: "Checks", End: true},
			{Name: "Rows checked", End: true},
			{Name: "Findings", End: true},
			{Name: "Duration", End: true},
		},
		Empty: "No verifications yet.",
	}
	for _, v := range list {
		t.Rows = append(t.Rows,
			[]ui.Cell{when(v.askedUS), {Text: who[v.askedBy]}, v.cell(), count(v.checks), count(v.checked),
				count(v.nOfFindings), {Text: v.took()}})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "History", Table: t})
	return c, nil
}

// block is the newest one in full.
func (v verification) block() ui.Block {
	b := ui.Block{Heading: "Latest", Facts: []ui.Detail{
		{Name: "Result", Cell: v.cell()},
		{Name: "Requested", Cell: when(v.askedUS)},
	}}
	switch v.state {
	case waiting:
		b.Text = "It will start in a few seconds."
		b.More = &ui.Link{Href: "/operator/verify", Text: "Refresh"}
	case running:
		at := v.progress
		if at == "" {
			at = "starting"
		}
		b.Facts = append(b.Facts, ui.Detail{Name: "Progress", Cell: ui.Cell{Text: at}})
		b.More = &ui.Link{Href: "/operator/verify", Text: "Refresh"}
	default:
		b.Facts = append(b.Facts, ui.Detail{Name: "Finished", Cell: when(v.finishedUS)},
			ui.Detail{Name: "Checks", Cell: count(v.checks)},
			ui.Detail{Name: "Rows checked", Cell: count(v.checked)},
			ui.Detail{Name: "Findings", Cell: count(v.nOfFindings)})
		b.Source, b.Folded = v.report, "Results by check"
		if v.state == failed {
			b.Source, b.Folded, b.Text = "", "", v.report
		}
	}
	return b
}

func (v verification) cell() ui.Cell {
	switch v.state {
	case clean:
		return ui.Cell{Text: "Clean", Tone: "good"}
	case findings:
		return ui.Cell{Text: "Findings", Tone: "bad"}
	case failed:
		return ui.Cell{Text: "Failed", Tone: "bad"}
	case running:
		return ui.Cell{Text: "Running", Tone: "warn"}
	}
	return ui.Cell{Text: "Waiting", Tone: "plain"}
}

func (v verification) took() string {
	if v.finishedUS == 0 {
		return "–"
	}
	return (time.Duration(v.finishedUS-v.askedUS) * time.Microsecond).Round(10 * time.Millisecond).String()
}
