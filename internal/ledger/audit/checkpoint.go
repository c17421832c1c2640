package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
)

// A Checkpoint is what a clean verification leaves for the next one, so that it reads only what is new (decision 101).
// It is a copy of what the books said at that moment of each account and connection, all of which was verified, and of
// where history ended: the newest row of each chain with its hash, and the size and the root of the public log. It is
// kept outside of the database, so that whoever can write the database cannot write it.
type Checkpoint struct {
	Version int   `json:"version"`
	MadeUS  int64 `json:"made_us"`
	Rows    int64 `json:"rows"` // of the ledger, all verified up to here
	// VoiceFrom comes before the ids of all voice sessions that had not ended.
	VoiceFrom string `json:"voice_from"`
	LogSize   int64  `json:"log_size"`
	LogRoot   []byte `json:"log_root"`
	// Late are the newest rows of calls that had begun long before, whose ids do not tell when they were billed.
	Late []lateRow `json:"late"`

	Accounts    []verifiedAccount    `json:"accounts"`
	Connections []verifiedConnection `json:"connections"`
	Counters    []verifiedCounter    `json:"counters"`
	Totals      []verifiedTotals     `json:"totals"`
	Voice       []verifiedVoice      `json:"voice"`

	Digest string `json:"digest"` // of everything else
}

// checkpointVersion rises when a verification checks something of old rows that an earlier version did not: it then
// reads no checkpoint of that version.
const checkpointVersion = 1

// checkpointOverlap is how much before a checkpoint a verification since it begins to read what has no sequence, only
// ids and times: longer than a call or a voice session takes, and than clocks differ.
const checkpointOverlap = 2 * time.Hour

// A verifiedAccount is a balance, and how far the account's rows are in the public log.
type verifiedAccount struct {
	AccountID   string `json:"account_id"`
	Seq         int64  `json:"seq"`
	Head        string `json:"head"`
	AvailableMC int64  `json:"available_mc"`
	ReservedMC  int64  `json:"reserved_mc"`
	Disputed    int64  `json:"disputed"`
	LogSeq      int64  `json:"log_seq"`
}

// A verifiedConnection is a connection, and what its events have told.
type verifiedConnection struct {
	ConnectionID string `json:"connection_id"`
	AccountID    string `json:"account_id"`
	AppID        string `json:"app_id"`
	AllocationMC int64  `json:"allocation_mc"`
	ConsumedMC   int64  `json:"consumed_mc"`
	Frozen       int64  `json:"frozen"`
	Revoked      int64  `json:"revoked"`
	EventSeq     int64  `json:"event_seq"`
	WarnedUS     int64  `json:"warned_us"` // the last warning; 0 = none
}

// A verifiedCounter is what a counter of free credit has counted.
type verifiedCounter struct {
	Subject   string `json:"subject"`
	CountedMC int64  `json:"counted_mc"`
}

// verifiedTotals are the totals of a day that had not ended.
type verifiedTotals struct {
	ConnectionID   string `json:"connection_id"`
	AppID          string `json:"app_id"`
	AccountID      string `json:"account_id"`
	Day            string `json:"day"`
	Feature        string `json:"feature"`
	Model          string `json:"model"`
	Calls          int64  `json:"calls"`
	InputTokens    int64  `json:"input_tokens"`
	CachedTokens   int64  `json:"cached_tokens"`
	OutputTokens   int64  `json:"output_tokens"`
	ProviderCostMC int64  `json:"provider_cost_mc"`
	SvcFeeMC       int64  `json:"svc_fee_mc"`
	DevMarginMC    int64  `json:"dev_margin_mc"`
	UserChargeMC   int64  `json:"user_charge_mc"`
	CacheSavedMC   int64  `json:"cache_saved_mc"`
}

// verifiedVoice is how many voice sessions of a connection, from VoiceFrom on, had ended.
type verifiedVoice struct {
	ConnectionID string `json:"connection_id"`
	Sessions     int64  `json:"sessions"`
}

// A lateRow is a charge of a call that had begun more than checkpointOverlap before. That happens when no node was up
// to end it.
type lateRow struct {
	ID        string `json:"id"`
	CreatedUS int64  `json:"created_us"`
}

// noteLate notes a row if it is late, and of the day that windows look back on.
func (a *verification) noteLate(entry string, createdUS int64) {
	began, billed := id.Time(entry), time.UnixMicro(createdUS)
	if !began.IsZero() && billed.Sub(began) > checkpointOverlap && a.now.Sub(billed) <= dailyWindow+checkpointOverlap {
		a.late = append(a.late, lateRow{entry, createdUS})
	}
}

// Made returns when the checkpoint was made.
func (c *Checkpoint) Made() time.Time { return time.UnixMicro(c.MadeUS).UTC() }

// computeDigest returns the digest of everything but Digest.
func (c *Checkpoint) computeDigest() (string, error) {
	rest := *c
	rest.Digest = ""
	text, err := json.Marshal(rest)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// ReadCheckpoint reads the checkpoint in a file. Its digest shows a file that is damaged or was changed by hand.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var c Checkpoint
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("audit: %s is no checkpoint: %w", path, err)
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("audit: %s is of another version of the checks: verify the whole database once", path)
	}
	if digest, err := c.computeDigest(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	} else if digest != c.Digest {
		return nil, fmt.Errorf("audit: %s was changed or damaged: verify the whole database", path)
	}
	return &c, nil
}

// Write writes the checkpoint to a file that only its owner reads, in place of an earlier one.
func (c *Checkpoint) Write(path string) error {
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("audit: write the checkpoint: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // readable by the owner alone
	if err != nil {
		return fmt.Errorf("audit: write the checkpoint: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("audit: write the checkpoint: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// takeCheckpoint copies what the verification has verified, from the same snapshot.
func (a *verification) takeCheckpoint(ctx context.Context) (c *Checkpoint, err error) {
	c = &Checkpoint{
		Version: checkpointVersion,
		MadeUS:  a.now.UnixMicro(),
		Rows:    a.ledgerRows,
		LogSize: a.logSize,
		LogRoot: a.logRoot,
		Late:    a.late,
	}
	if a.since != nil {
		c.Rows += a.since.Rows
	}
	from := a.now.Add(-checkpointOverlap)
	err = a.queryRow(ctx, `SELECT COALESCE(MIN(id), '') FROM realtime_sessions
		WHERE id >= {from rts_} AND status <> 'ended'`).Scan(&c.VoiceFrom)
	if err != nil {
		return nil, err
	}
	if floor := id.Floor(id.Voice, from); c.VoiceFrom == "" || c.VoiceFrom > floor {
		c.VoiceFrom = floor
	}
	if c.Accounts, err = copyRows(ctx, a, func(v *verifiedAccount) []any {
		return []any{&v.AccountID, &v.Seq, &v.Head, &v.AvailableMC, &v.ReservedMC, &v.Disputed, &v.LogSeq}
	}, `SELECT b.account_id, b.seq, b.head, b.available_mc, b.reserved_mc, b.disputed, COALESCE(l.seq, 0)
		FROM balances b LEFT JOIN log_accounts l ON l.account_id = b.account_id ORDER BY b.account_id`); err != nil {
		return nil, err
	}
	if c.Connections, err = copyRows(ctx, a, func(v *verifiedConnection) []any {
		return []any{&v.ConnectionID, &v.AccountID, &v.AppID, &v.AllocationMC, &v.ConsumedMC, &v.Frozen, &v.Revoked,
			&v.EventSeq, &v.WarnedUS}
	}, `SELECT c.id, c.account_id, c.app_id, c.allocation_mc, c.consumed_mc,
			CASE c.status WHEN 'frozen' THEN 1 ELSE 0 END, CASE c.status WHEN 'revoked' THEN 1 ELSE 0 END,
			c.event_seq, COALESCE(w.warned_us, 0)
		FROM connections c LEFT JOIN (SELECT connection_id, MAX(at_us) AS warned_us FROM (
				SELECT connection_id, created_us AS at_us FROM {events} AS told WHERE type = 'connection.risk_warning'
				UNION ALL SELECT connection_id, warned_us FROM {verified connections} AS v) AS sides
			GROUP BY connection_id) AS w ON w.connection_id = c.id ORDER BY c.id`); err != nil {
		return nil, err
	}
	if c.Counters, err = copyRows(ctx, a, func(v *verifiedCounter) []any { return []any{&v.Subject, &v.CountedMC} },
		`SELECT subject, CASE WHEN buckets = '' THEN 0 ELSE CAST(substr(buckets, 3) AS BIGINT) END FROM counters
		WHERE subject LIKE 'free/%'
		UNION ALL SELECT subject, SUM(spent) FROM (`+childrenSpent+`) AS sides GROUP BY subject HAVING SUM(live) = 1
		ORDER BY 1`); err != nil {
		return nil, err
	}
	if c.Totals, err = copyRows(ctx, a, func(v *verifiedTotals) []any {
		return []any{&v.ConnectionID, &v.AppID, &v.AccountID, &v.Day, &v.Feature, &v.Model, &v.Calls, &v.InputTokens,
			&v.CachedTokens, &v.OutputTokens, &v.ProviderCostMC, &v.SvcFeeMC, &v.DevMarginMC, &v.UserChargeMC,
			&v.CacheSavedMC}
	}, `SELECT connection_id, app_id, account_id, day, feature, model, calls, input_tokens, cached_tokens,
			output_tokens, provider_cost_mc, svc_fee_mc, dev_margin_mc, user_charge_mc, cache_saved_mc
		FROM daily_totals WHERE day >= $1 ORDER BY connection_id, day, feature, model`,
		c.firstDay()); err != nil {
		return nil, err
	}
	if c.Voice, err = copyRows(ctx, a, func(v *verifiedVoice) []any { return []any{&v.ConnectionID, &v.Sessions} },
		`SELECT connection_id, COUNT(*) FROM realtime_sessions WHERE id >= $1 AND status = 'ended'
		GROUP BY connection_id ORDER BY connection_id`, c.VoiceFrom); err != nil {
		return nil, err
	}
	c.Digest, err = c.computeDigest()
	return c, err
}

// firstDay returns the first day whose totals may still change.
func (c *Checkpoint) firstDay() string { return c.Made().Add(-checkpointOverlap).Format(time.DateOnly) }

// copyRows returns the rows of a query.
func copyRows[T any](ctx context.Context, a *verification, fields func(*T) []any, query string, args ...any,
) ([]T, error) {
	query, args = a.prepare(query, args)
	return db.QueryAll(ctx, a.Tx, db.ScanFields(fields), query, args...)
}
