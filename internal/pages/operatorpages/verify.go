package operatorpages

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/ledger/audit"
)

// A Verifier runs the verifications that operators request: `purser ledger verify` while the service runs, in one
// read-only snapshot.
type Verifier struct {
	DB  *db.DB
	URL string // of the database, which is opened a second time
	Now func() time.Time
}

// The states of a verification.
const (
	stateWaiting  = "waiting"
	stateRunning  = "running"
	stateClean    = "clean"
	stateFindings = "findings"
	stateFailed   = "failed"
)

const (
	verificationPrefix = "ver_"
	touchInterval      = 2 * time.Second // between the writes of a running verification's progress
	staleAfter         = time.Minute     // restart a running verification that was not touched for this long
)

// A verification is a requested verification of the ledger, with its result.
type verification struct {
	id, state, requestedBy        string
	requestedUS, touchedUS        int64
	finishedUS                    int64 // 0 = not yet
	progress                      string
	checks, rowsChecked, findings int64
	report                        string
}

// LastResult returns the findings of the newest verification that has read the whole database, and when it ended; 0 =
// none has. One that could not run has found nothing and verified nothing.
func LastResult(ctx context.Context, q db.Queryer) (findings, finishedUS int64, err error) {
	v, err := lastVerification(ctx, q, stateClean, stateFindings)
	return v.findings, v.finishedUS, err
}

// Once runs the oldest verification that waits, if there is one.
func (v *Verifier) Once(ctx context.Context) error {
	// This is called every second: a read is cheap, a transaction would wait for the writer.
	if open, err := hasOpenVerification(ctx, v.DB); err != nil || !open {
		return err
	}
	now := v.Now()
	ver, err := claimVerification(ctx, v.DB, now.UnixMicro(), now.Add(-staleAfter).UnixMicro())
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	} else if err != nil {
		return fmt.Errorf("operatorpages: verify: %w", err)
	}
	result, err := v.runAudit(ctx, ver.id)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return err // this node stops: it is no result, and another node, or the next start, takes the verification over
	}
	ver.state, ver.report = stateClean, result.Report
	ver.checks, ver.rowsChecked, ver.findings = int64(result.Checks), result.Checked, int64(result.Findings)
	if err != nil {
		ver.state, ver.report = stateFailed, "The verification could not run: "+err.Error()
	} else if result.Findings > 0 {
		ver.state = stateFindings
	}
	ver.finishedUS = v.Now().UnixMicro()
	// The result is saved also when the node stops.
	saving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, finishVerification(saving, v.DB, ver))
}

// scheduled is what requested a daily verification, in place of an account.
const scheduled = "schedule"

// scheduleWindow is how late a daily verification may start. A node that starts at noon does not read the whole
// database at once.
const scheduleWindow = 2 * time.Hour

const (
	// retryPause is how long after its failure a daily verification is tried again.
	retryPause = 10 * time.Minute
	// slowFailure is how long a failed verification has read that is not tried again the same day: the database is too
	// large for its time limit.
	slowFailure = 2 * time.Hour
)

// A Schedule requests a verification every day, and again after it could not run. One node at a time runs it, as those
// that operators request.
type Schedule struct {
	DB  *db.DB
	At  string // time of day in UTC, as 03:00; "" = never
	Now func() time.Time

	last string // day of the last request that this node knows
}

// Once requests the verification of the day if it is due, or if that of the day has failed.
func (s *Schedule) Once(ctx context.Context) error {
	at, err := time.Parse("15:04", s.At)
	if err != nil {
		return nil // there is none
	}
	now := s.Now().UTC()
	due := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
	if now.Before(due) {
		due = due.AddDate(0, 0, -1)
	}
	day := due.Format(time.DateOnly)
	failed, err := s.hasFailed(ctx, now)
	if err != nil {
		return fmt.Errorf("operatorpages: the last daily verification: %w", err)
	}
	if (now.Sub(due) > scheduleWindow || s.last == day) && !failed {
		return nil
	}
	err = s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		last, err := settings.Lock(ctx, tx, "verified_day")
		if err == nil && failed {
			failed, err = s.hasFailed(ctx, now) // another node may have requested it
		}
		if err != nil || last == day && !failed {
			return err
		}
		if err := settings.Set(ctx, tx, "verified_day", day); err != nil {
			return err
		}
		return requestVerification(ctx, tx, id.New(verificationPrefix, now), scheduled, now.UnixMicro())
	})
	if err != nil {
		return fmt.Errorf("operatorpages: request the daily verification: %w", err)
	}
	s.last = day
	return nil
}

// hasFailed reports whether the newest verification is a daily one that could not run, some time ago.
func (s *Schedule) hasFailed(ctx context.Context, now time.Time) (bool, error) {
	if open, err := hasOpenVerification(ctx, s.DB); err != nil || open {
		return false, err
	}
	v, err := lastVerification(ctx, s.DB, stateClean, stateFindings, stateFailed)
	since := now.Sub(time.UnixMicro(v.finishedUS))
	took := time.Duration(v.finishedUS-v.requestedUS) * time.Microsecond
	return v.state == stateFailed && v.requestedBy == scheduled && since >= retryPause && took < slowFailure, err
}

// runAudit runs the audit and saves its progress every touchInterval.
func (v *Verifier) runAudit(ctx context.Context, verificationID string) (result audit.Result, err error) {
	lines, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		o := audit.Options{Now: v.Now()}
		o.Progress = func(p audit.Progress) {
			select {
			case <-lines: // drop the previous line: only the newest is saved
			default:
			}
			lines <- p.String()
		}
		result, err = audit.Run(ctx, v.URL, o)
	}()
	tick := time.NewTicker(touchInterval)
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

// requestVerification is POST /operator/verify. It changes no money, so it is recorded only in the list of
// verifications, not in the audit log.
func (h *Handler) requestVerification(r *http.Request, s staff, _ url.Values) (string, error) {
	now := h.Service.Now()
	return "/operator/verify",
		requestVerification(r.Context(), h.DB, id.New(verificationPrefix, now), s.ID, now.UnixMicro())
}

// showVerifications is GET /operator/verify.
func (h *Handler) showVerifications(r *http.Request, s staff) (ui.Report, error) {
	c := s.newReport("/operator", "Verify the ledger",
		"Recomputes every balance, hold and charge from the ledger, with code that is independent of the code that "+
			"moves money.")
	c.Back = &ui.Link{Href: "/operator", Text: "Overview"}
	list, err := listVerifications(r.Context(), h.DB, 20)
	if err != nil {
		return c, err
	}
	requesters := []string{}
	for _, v := range list {
		requesters = append(requesters, v.requestedBy)
	}
	who, err := loadNames(r.Context(), h.DB, requesters...)
	if err != nil {
		return c, err
	}
	who[scheduled] = "Daily schedule"
	open := len(list) > 0 && list[0].finishedUS == 0
	if len(list) > 0 {
		c.Blocks = append(c.Blocks, list[0].latestBlock())
	}
	if s.canAct() && !open {
		c.Blocks = append(c.Blocks, ui.Block{
			Heading: "Verify now",
			Text: "Reads the whole database in one snapshot while the service runs. With millions of entries it takes " +
				"minutes.",
			Form: &ui.Ask{Action: "/operator/verify", Button: "Verify now"},
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
			[]ui.Cell{timeCell(v.requestedUS), {Text: who[v.requestedBy]}, v.resultCell(), countCell(v.checks),
				countCell(v.rowsChecked),
				countCell(v.findings), {Text: v.formatDuration()}})
	}
	c.Blocks = append(c.Blocks, ui.Block{Heading: "History", Table: t})
	return c, nil
}

// latestBlock shows a verification with its report.
func (v verification) latestBlock() ui.Block {
	b := ui.Block{Heading: "Latest", Facts: []ui.Detail{
		{Name: "Result", Cell: v.resultCell()},
		{Name: "Requested", Cell: timeCell(v.requestedUS)},
	}}
	switch v.state {
	case stateWaiting:
		b.Text = "It will start in a few seconds."
		b.More = &ui.Link{Href: "/operator/verify", Text: "Refresh"}
	case stateRunning:
		progress := v.progress
		if progress == "" {
			progress = "starting"
		}
		b.Facts = append(b.Facts, ui.Detail{Name: "Progress", Cell: ui.Cell{Text: progress}})
		b.More = &ui.Link{Href: "/operator/verify", Text: "Refresh"}
	default:
		b.Facts = append(b.Facts, ui.Detail{Name: "Finished", Cell: timeCell(v.finishedUS)},
			ui.Detail{Name: "Checks", Cell: countCell(v.checks)},
			ui.Detail{Name: "Rows checked", Cell: countCell(v.rowsChecked)},
			ui.Detail{Name: "Findings", Cell: countCell(v.findings)})
		b.Source, b.Folded = v.report, "Results by check"
		if v.state == stateFindings {
			b.Folded = "" // findings are shown at once
		}
		if v.state == stateFailed {
			b.Source, b.Folded, b.Text = "", "", v.report
		}
	}
	return b
}

// banner tells the result of the last verification that has ended.
func (v verification) banner(now time.Time) *ui.Banner {
	b := &ui.Banner{Link: &ui.Link{Href: "/operator/verify", Text: "Details"}}
	checks := fmt.Sprintf("%s checks of %s rows", ui.Count(v.checks), ui.Count(v.rowsChecked))
	at := formatMinute(v.finishedUS)
	switch {
	case v.finishedUS == 0:
		b.Tone, b.Text, b.Link.Text = "warn", "Books not verified yet", "Verify"
	case v.state == stateFindings:
		b.Tone, b.Text, b.Detail = "bad", "The books have findings", fmt.Sprintf("%s findings in %s, %s.",
			ui.Count(v.findings), checks, at)
	case v.state == stateFailed:
		b.Tone, b.Text, b.Detail = "warn", "The last verification could not run", at+"."
		if v.requestedBy == scheduled {
			b.Detail = at + ". It is tried again within ten minutes."
		}
	case now.UnixMicro()-v.finishedUS > verifiedFor.Microseconds():
		b.Tone, b.Text, b.Detail = "warn", "Books verified "+at, "That is more than two days ago."
	default:
		b.Tone, b.Text, b.Detail = "good", "Books verified "+at, checks+"."
	}
	return b
}

// verifiedFor is how long a verification is recent.
const verifiedFor = 48 * time.Hour

// formatMinute returns a time without seconds.
func formatMinute(us int64) string {
	return strings.ReplaceAll(time.UnixMicro(us).UTC().Format("2 Jan 2006, 15:04 UTC"), " ", "\u00a0")
}

func (v verification) resultCell() ui.Cell {
	switch v.state {
	case stateClean:
		return ui.Cell{Text: "Clean", Tone: "good"}
	case stateFindings:
		return ui.Cell{Text: "Findings", Tone: "bad"}
	case stateFailed:
		return ui.Cell{Text: "Failed", Tone: "bad"}
	case stateRunning:
		return ui.Cell{Text: "Running", Tone: "warn"}
	}
	return ui.Cell{Text: "Waiting", Tone: "plain"}
}

func (v verification) formatDuration() string {
	if v.finishedUS == 0 {
		return "–"
	}
	return (time.Duration(v.finishedUS-v.requestedUS) * time.Microsecond).Round(10 * time.Millisecond).String()
}
