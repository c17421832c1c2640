package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/ledger/limits"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// This file reads and writes the children of connections (decision 107).

const childColumns = `c.id, c.connection_id, COALESCE(c.parent_id, ''), c.depth, c.label, c.amount_mc, c.features,
	c.models, c.key, c.fingerprint, c.token_hash, c.expires_us, c.created_us, c.ended_us, c.ended_by, c.returned_mc,
	COALESCE(c.family_id, '')`

func scanChild(row db.Row) (c rules.Child, err error) {
	err = scanChildInto(row, &c)
	return c, err
}

// scanChildInto reads childColumns, and what more the row has.
func scanChildInto(row db.Row, c *rules.Child, more ...any) error {
	var features, models string
	if err := row.Scan(append([]any{&c.ID, &c.ConnectionID, &c.ParentID, &c.Depth, &c.Label, &c.AmountMC, &features,
		&models, &c.Key, &c.Fingerprint, &c.TokenHash, &c.ExpiresUS, &c.CreatedUS, &c.EndedUS, &c.EndedBy,
		&c.ReturnedMC, &c.FamilyID}, more...)...); err != nil {
		return err
	}
	return errors.Join(json.Unmarshal([]byte(features), &c.Features), json.Unmarshal([]byte(models), &c.Models))
}

// GetChild returns a child, or sql.ErrNoRows.
func GetChild(ctx context.Context, q db.Queryer, childID string) (rules.Child, error) {
	return scanChild(q.QueryRowContext(ctx, `SELECT `+childColumns+` FROM children c WHERE c.id = $1`, childID))
}

// GetChildOfToken returns the child that a token was made for, ended or not, or sql.ErrNoRows. The derived token of an
// older version opens none.
func GetChildOfToken(ctx context.Context, q db.Queryer, tokenHash string) (rules.Child, error) {
	return scanChild(q.QueryRowContext(ctx, `SELECT `+childColumns+` FROM children c
		WHERE c.token_hash = $1 AND c.sealed IS NOT NULL`, tokenHash))
}

// ChildTokenPlace is the place of a child's sealed token.
func ChildTokenPlace(childID string) seal.Place { return seal.Place{"children", "sealed", childID} }

// SealedColumn is the column of the tokens of children, for a change of the envelope key.
func SealedColumn(d *db.DB) seal.Column {
	return seal.TableColumn(d, "children.sealed",
		`SELECT id, sealed FROM children WHERE id > $1 AND sealed IS NOT NULL ORDER BY id LIMIT $2`,
		`UPDATE children SET sealed = $1 WHERE id = $2 AND sealed = $3`, ChildTokenPlace)
}

// GetSealedToken returns the sealed token of a child; nil = an older version has made the child.
func GetSealedToken(ctx context.Context, q db.Queryer, childID string) (sealed []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT sealed FROM children WHERE id = $1`, childID).Scan(&sealed)
	return sealed, err
}

// GetChildOfKey returns the child that a key of a connection has made, or sql.ErrNoRows.
func GetChildOfKey(ctx context.Context, q db.Queryer, connectionID, key string) (rules.Child, error) {
	return scanChild(q.QueryRowContext(ctx, `SELECT `+childColumns+` FROM children c
		WHERE c.connection_id = $1 AND c.key = $2`, connectionID, key))
}

// A ChildBudget is a child and what is left of its budget, held amounts included, of which HeldMC is held. FreeHeldMC
// is what calls hold that free credit pays: of a live child's budget, and of no money.
type ChildBudget struct {
	rules.Child
	LeftMC, HeldMC, FreeHeldMC money.MC
}

// RemainingMC is what the child's calls can still hold; nothing of an ended one.
func (c *ChildBudget) RemainingMC() money.MC {
	if c.EndedUS != nil {
		return 0
	}
	return c.LeftMC - c.AllHeldMC()
}

// AllHeldMC is what the child's calls hold, whoever pays for them.
func (c *ChildBudget) AllHeldMC() money.MC { return c.HeldMC + c.FreeHeldMC }

// Connection returns the connection of the child as the child's token sees it: what it has spent or passed on is
// consumed, what has gone back is not, and there is no more than its budget.
func (c *ChildBudget) Connection(conn *rules.Connection) rules.Connection {
	out := *conn
	out.AllocationMC, out.ConsumedMC, out.HeldMC = c.AmountMC, c.AmountMC-c.ReturnedMC-c.LeftMC, c.AllHeldMC()
	out.DelegatedMC, out.ChildHeldMC, out.CreatedUS = 0, 0, c.CreatedUS
	if c.EndedUS != nil {
		out.Status, out.FrozenBy, out.FrozenReason, out.AllocationMC = rules.Revoked, "", "", out.ConsumedMC+out.HeldMC
	}
	return out
}

// ReadChild returns a child with its budget, or sql.ErrNoRows.
func ReadChild(ctx context.Context, q db.Queryer, childID string) (ChildBudget, error) {
	list, err := readChildren(ctx, q, `c.id = $1`, childID)
	if err == nil && len(list) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		return ChildBudget{}, err
	}
	return list[0], nil
}

// ListChildren returns at most limit children of a connection with their budgets, newest first, those older than the
// one named by after if it is not empty: all, or those below a child if above names one.
func ListChildren(
	ctx context.Context, q db.Queryer, connectionID, above, after string, limit int,
) ([]ChildBudget, error) {
	if after == "" {
		after = "~" // behind every id
	}
	return readChildren(ctx, q, `c.connection_id = $1 AND c.id < $2 AND ($4 = '' OR c.id IN (
			WITH RECURSIVE below AS (SELECT id FROM children WHERE parent_id = $4
				UNION ALL SELECT d.id FROM below CROSS JOIN children d WHERE d.parent_id = below.id)
			SELECT id FROM below)) ORDER BY c.id DESC LIMIT $3`, connectionID, after, limit, above)
}

// ListLiveChildren returns the live children of a connection with their budgets, oldest first.
func ListLiveChildren(ctx context.Context, q db.Queryer, connectionID string) ([]ChildBudget, error) {
	return readChildren(ctx, q, `c.connection_id = $1 AND c.ended_us IS NULL ORDER BY c.id`, connectionID)
}

// ListLiveTokens returns the hashes of the tokens of a connection's live children.
func ListLiveTokens(ctx context.Context, q db.Queryer, connectionID string) ([]string, error) {
	return db.QueryAll(ctx, q, db.ScanColumn[string], `SELECT token_hash FROM children
		WHERE connection_id = $1 AND ended_us IS NULL`, connectionID)
}

func readChildren(ctx context.Context, q db.Queryer, where string, args ...any) (list []ChildBudget, err error) {
	err = withUnsavedHolds(q, func() (err error) {
		list, err = db.QueryAll(ctx, q, scanChildBudget, `SELECT `+childColumns+`, w.buckets, w.held,
				COALESCE(f.held, 0) FROM children c JOIN counters w ON w.subject = 'child/' || c.id
				LEFT JOIN counters f ON f.subject = 'childfree/' || c.id WHERE `+where, args...)
		return err
	}, func(unsavedMC map[string]money.MC) {
		for i := range list {
			list[i].HeldMC += unsavedMC[rules.ChildSubject(list[i].ID)]
			list[i].FreeHeldMC += unsavedMC[rules.FreeOfChildSubject(list[i].ID)]
		}
	})
	return list, err
}

func scanChildBudget(row db.Row) (c ChildBudget, err error) {
	var buckets string
	if err := scanChildInto(row, &c.Child, &buckets, &c.HeldMC, &c.FreeHeldMC); err != nil {
		return c, err
	}
	counter := rules.Counter{}
	counter.Spent, err = limits.ParseSeries(0, buckets)
	c.LeftMC = counter.BudgetMC()
	return c, err
}

// ListExpiredChildren returns at most limit live children whose time is over.
func ListExpiredChildren(ctx context.Context, q db.Queryer, nowUS int64, limit int) ([]rules.Child, error) {
	return db.QueryAll(ctx, q, scanChild, `SELECT `+childColumns+` FROM children c
		WHERE c.ended_us IS NULL AND c.expires_us <= $1 ORDER BY c.expires_us LIMIT $2`, nowUS, limit)
}

// findChildren reads the live children of each connection that is named, under the lock of its account's balance, and
// the child that a request has made or that is named itself. Their budgets are read with all counters.
func (r *rareRows) findChildren(ctx context.Context, tx *db.Tx, keys *rules.RowKeys) error {
	for _, k := range keys.Children {
		found, err := db.QueryAll(ctx, tx, scanChild, `SELECT `+childColumns+` FROM children c WHERE c.id IN (
			SELECT id FROM children WHERE connection_id = $1 AND ended_us IS NULL
			UNION SELECT id FROM children WHERE connection_id = $1 AND key = $2
			UNION SELECT id FROM children WHERE connection_id = $1 AND id = $3)`, k.ConnectionID, k.Key, k.ID)
		if err != nil {
			return err
		}
		for _, c := range found {
			r.children = append(r.children, &c)
			keys.AddBudget(c.ID)
		}
	}
	return nil
}

// saveChildren writes new children, and ends others.
func saveChildren(ctx context.Context, tx *db.Tx, s *rules.State) error {
	for _, c := range s.Changes.Children {
		features, err1 := json.Marshal(append([]string{}, c.Features...))
		models, err2 := json.Marshal(append([]string{}, c.Models...))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		_, err := tx.ExecContext(
			ctx,
			`INSERT INTO children (id, connection_id, parent_id, depth, label, amount_mc, features,
				models, key, fingerprint, token_hash, expires_us, created_us, ended_us, ended_by, returned_mc,
				family_id, sealed)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)
			ON CONFLICT (id) DO UPDATE SET ended_us = excluded.ended_us, ended_by = excluded.ended_by,
				returned_mc = excluded.returned_mc`,
			c.ID,
			c.ConnectionID,
			db.NullText(c.ParentID),
			c.Depth,
			c.Label,
			int64(c.AmountMC),
			string(features),
			string(models),
			c.Key,
			c.Fingerprint,
			c.TokenHash,
			c.ExpiresUS,
			c.CreatedUS,
			db.NullInt(c.EndedUS),
			string(c.EndedBy),
			int64(c.ReturnedMC),
			db.NullText(c.FamilyID),
			c.SealedToken,
		)
		if err != nil {
			return fmt.Errorf("ledger: child %s: %w", c.ID, err)
		}
	}
	return nil
}
