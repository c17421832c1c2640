package audit

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// tagSize is how much of an entry of the public log is its tag; the rest is the commitment to the row (decision 103).
const tagSize = 16

// newLogEntry returns what the leaf of a row says.
func newLogEntry(secret []byte, seq int64, rowHash string) []byte {
	derive := func(purpose string) []byte {
		mac := hmac.New(sha256.New, secret)
		fmt.Fprintf(mac, "purser log %s %d", purpose, seq)
		return mac.Sum(nil)
	}
	commitment := sha256.Sum256([]byte("purser log row\n" + string(derive("blind")) + rowHash))
	return append(derive("tag")[:tagSize], commitment[:]...)
}

// checkLogRows compares the ledger's rows with the leaves that commit to them.
func checkLogRows(ctx context.Context, a *verification, v *checkResult) error {
	if err := a.compareLeaves(ctx, v); err != nil {
		return err
	}
	err := a.formatRows(ctx, `SELECT v.account_id AS account, v.log_seq AS verified_seq, a.seq
		FROM {verified accounts} AS v LEFT JOIN log_accounts a ON a.account_id = v.account_id
		WHERE v.log_seq > COALESCE(a.seq, 0)`, nil, func(row string) {
		v.addFinding("%s: fewer rows are published than were", row)
	})
	if err != nil {
		return err
	}
	return a.formatRows(ctx, `SELECT r.position, r.account_id AS account, r.seq FROM log_rows r
		LEFT JOIN log_accounts a ON a.account_id = r.account_id
		LEFT JOIN ledger l ON l.account_id = r.account_id AND l.seq = r.seq
		WHERE r.position >= $1 AND (l.id IS NULL OR a.account_id IS NULL OR r.seq > a.seq)`,
		[]any{a.firstNewLeaf()}, func(row string) {
			v.addFinding("%s: the leaf is of no row that is published", row)
		})
}

// compareLeaves computes the leaf of each published row.
func (a *verification) compareLeaves(ctx context.Context, v *checkResult) error {
	return a.forEachRow(ctx, `SELECT l.account_id, l.seq, l.hash, a.secret, r.entry
		FROM {ledger since the log} AS l JOIN log_accounts a ON a.account_id = l.account_id
		LEFT JOIN log_rows r ON r.account_id = l.account_id AND r.seq = l.seq
		WHERE l.seq <= a.seq`, func(scan func(...any) error) error {
		var account, hash string
		var seq int64
		var secret, entry []byte
		if err := scan(&account, &seq, &hash, &secret, &entry); err != nil {
			return err
		}
		v.checked++
		if !bytes.Equal(entry, newLogEntry(secret, seq, hash)) {
			v.addFinding("account=%s seq=%d: its leaf is missing, or commits to another row", account, seq)
		}
		return nil
	})
}

// firstNewLeaf returns the position of the first leaf that no checkpoint verified.
func (a *verification) firstNewLeaf() int64 {
	if a.since == nil {
		return 0
	}
	return a.since.LogSize
}

// A logLevel is one level of the log's tree: the hashes after its last full tile, and how many tiles were full.
type logLevel struct {
	hashes []byte
	tiles  int64
}

// tileBytes is the length of a full tile.
const tileBytes = 256 * sha256.Size

// A logTree computes the log's tree, and compares each tile with the stored one.
type logTree struct {
	*verification
	result *checkResult
	levels []logLevel
	size   int64 // leaves that were added
}

// add appends a hash to a level.
func (t *logTree) add(ctx context.Context, level int, hash []byte) error {
	if level == len(t.levels) {
		t.levels = append(t.levels, logLevel{})
	}
	l := &t.levels[level]
	if l.hashes = append(l.hashes, hash...); len(l.hashes) < tileBytes {
		return nil
	}
	if err := t.compare(ctx, level); err != nil {
		return err
	}
	root := treeHash(l.hashes)
	l.hashes, l.tiles = nil, l.tiles+1
	return t.add(ctx, level+1, root)
}

// compare compares a level's last tile with the stored one.
func (t *logTree) compare(ctx context.Context, level int) error {
	l := &t.levels[level]
	stored, err := t.tile(ctx, level, l.tiles)
	if err != nil {
		return err
	}
	if !bytes.Equal(stored, l.hashes) {
		t.result.addFinding("level=%d tile=%d: the stored hashes are not those of the leaves", level, l.tiles)
	}
	return nil
}

// compareUnfinished compares the unfinished tiles with the stored ones.
func (t *logTree) compareUnfinished(ctx context.Context) error {
	for level := range t.levels {
		if len(t.levels[level].hashes) > 0 {
			if err := t.compare(ctx, level); err != nil {
				return err
			}
		}
	}
	return nil
}

// root returns the hash of the whole tree.
func (t *logTree) root() []byte {
	var right []byte // of the levels below
	for level := range t.levels {
		if hashes := append(bytes.Clone(t.levels[level].hashes), right...); len(hashes) > 0 {
			right = treeHash(hashes)
		}
	}
	if right == nil {
		empty := sha256.Sum256(nil)
		return empty[:]
	}
	return right
}

// resume takes the tree's right edge, as it was with size leaves, from the stored tiles. It returns whether its root is
// the one that was verified: no other hashes have it.
func (t *logTree) resume(ctx context.Context, size int64, root []byte) (bool, error) {
	t.size = size
	for level, n := 0, size; n > 0; level, n = level+1, n/256 {
		l := logLevel{tiles: n / 256}
		if bytesLeft := int(n%256) * sha256.Size; bytesLeft > 0 {
			stored, err := t.tile(ctx, level, l.tiles)
			if err != nil {
				return false, err
			}
			l.hashes = bytes.Clone(stored[:min(len(stored), bytesLeft)])
		}
		t.levels = append(t.levels, l)
	}
	return bytes.Equal(t.root(), root), nil
}

// tile returns a stored tile; nil = there is none.
func (t *logTree) tile(ctx context.Context, level int, position int64) (stored []byte, err error) {
	err = t.QueryRowContext(ctx, `SELECT hashes FROM log_tiles WHERE level = $1 AND position = $2`, level, position).
		Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return stored, err
}

// treeHash returns the hash of a tree over hashes (RFC 9162, section 2.1.1): the left part is the largest power of two.
func treeHash(hashes []byte) []byte {
	n := len(hashes) / sha256.Size
	if n == 1 {
		return hashes
	}
	left := 1
	for left*2 < n {
		left *= 2
	}
	text := append([]byte{1}, treeHash(hashes[:left*sha256.Size])...)
	sum := sha256.Sum256(append(text, treeHash(hashes[left*sha256.Size:])...))
	return sum[:]
}

// checkLogTree computes the log's tree from its leaves, and compares it with the tiles and with the checkpoint.
func checkLogTree(ctx context.Context, a *verification, v *checkResult) error {
	var checkpoint string
	if err := a.QueryRowContext(ctx, `SELECT checkpoint FROM log_state`).Scan(&checkpoint); err != nil {
		return err
	}
	tree := &logTree{verification: a, result: v}
	if a.since != nil {
		if same, err := tree.resume(ctx, a.since.LogSize, a.since.LogRoot); err != nil {
			return err
		} else if !same {
			v.addFinding("the tiles of the first %d leaves are not those that were verified", a.since.LogSize)
			return nil
		}
	}
	for {
		entries, err := tree.readPage(ctx)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			hash := sha256.Sum256(append([]byte{0}, entry...))
			if err := tree.add(ctx, 0, hash[:]); err != nil {
				return err
			}
		}
		if len(entries) < pageRows {
			break
		}
	}
	if err := tree.compareUnfinished(ctx); err != nil {
		return err
	}
	a.logSize, a.logRoot = tree.size, tree.root()
	claimed := fmt.Sprintf("\n%d\n%s\n", tree.size, base64.StdEncoding.EncodeToString(a.logRoot))
	if (checkpoint != "" || tree.size > 0) && !strings.Contains(checkpoint, claimed) {
		v.addFinding("the checkpoint does not sign the %d leaves that are there", tree.size)
	}
	return nil
}

// readPage returns the entries of the leaves that follow, and counts them. It ends before a leaf that is missing,
// which is a finding.
func (t *logTree) readPage(ctx context.Context) (entries [][]byte, err error) {
	rows, err := t.QueryContext(ctx,
		`SELECT position, entry FROM log_rows WHERE position >= $1 ORDER BY position LIMIT $2`, t.size, pageRows)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var position int64
		var entry []byte
		if err := rows.Scan(&position, &entry); err != nil {
			return nil, err
		}
		if position != t.size {
			t.result.addFinding("position=%d: leaf %d is missing", position, t.size)
			break
		}
		t.size++
		t.result.checked++
		entries = append(entries, entry)
	}
	return entries, rows.Err()
}
