package proofs

import (
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/ledger/rules"
)

// Formats of the files, told in their member "format".
const (
	ReceiptFormat = "purser-receipt-1"
	HistoryFormat = "purser-history-1"
)

// A Column is a named value of a ledger row: a text, an integer, or null. As JSON it is [name, value].
type Column struct {
	Name  string
	Value rules.Column
}

// MarshalJSON writes [name, value].
func (c Column) MarshalJSON() ([]byte, error) { return json.Marshal([2]any{c.Name, c.Value.Value()}) }

// UnmarshalJSON reads [name, value].
func (c *Column) UnmarshalJSON(text []byte) error {
	var pair []any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errors.New("a column is not [name, value]")
	}
	name, ok := pair[0].(string)
	if !ok {
		return errors.New("a column has no name")
	}
	*c = Column{Name: name}
	switch v := pair[1].(type) {
	case nil:
	case string:
		c.Value = rules.TextColumn(v)
	case json.Number:
		n, err := v.Int64()
		if err != nil {
			return fmt.Errorf("column %s: %w", name, err)
		}
		c.Value = rules.Integer(n)
	default:
		return fmt.Errorf("column %s is neither a text, an integer nor null", name)
	}
	return nil
}

// A Row is a ledger row with all columns that its hash covers.
type Row struct {
	Columns []Column `json:"columns"`
	Hash    string   `json:"hash"`
}

// columnNames are the names of a row's columns in their order.
var columnNames = strings.FieldsFunc(rules.EntryColumns, func(r rune) bool {
	return strings.ContainsRune(", \t\n", r)
})

// check verifies the row's columns and its hash after a row with hash head.
func (r *Row) check(head string) error {
	if len(r.Columns) != len(columnNames) {
		return fmt.Errorf("proofs: a row has %d columns, not %d", len(r.Columns), len(columnNames))
	}
	values := make([]rules.Column, len(r.Columns))
	for i, c := range r.Columns {
		if c.Name != columnNames[i] {
			return fmt.Errorf("proofs: column %d is %q, not %s", i, c.Name, columnNames[i])
		}
		values[i] = c.Value
	}
	if rules.ChainHash(head, values) != r.Hash {
		return fmt.Errorf("proofs: row %s is not the one that was hashed: something in it was changed", r.Text("id"))
	}
	return nil
}

// checkAfter verifies row seq of an account after a row with hash head, and returns its own hash.
func (r *Row) checkAfter(head, accountID string, seq int64) (string, error) {
	if err := r.check(head); err != nil {
		return "", err
	}
	if r.Text("account_id") != accountID || r.Integer("seq") != seq {
		return "", fmt.Errorf("proofs: a row is not row %d of account %s", seq, accountID)
	}
	return r.Hash, nil
}

// Text returns a column's text, "" if it has none.
func (r *Row) Text(name string) string { return r.value(name).Text }

// Integer returns a column's integer, 0 if it has none.
func (r *Row) Integer(name string) int64 { return r.value(name).Integer }

func (r *Row) value(name string) rules.Column {
	i := slices.IndexFunc(r.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return rules.Column{}
	}
	return r.Columns[i].Value
}

// A Proof shows that an entry is a leaf of the log.
type Proof struct {
	Position   int64    `json:"position"`   // the leaf's index
	Entry      []byte   `json:"entry"`      // what the leaf says
	Hashes     [][]byte `json:"hashes"`     // the inclusion proof of RFC 9162
	Checkpoint string   `json:"checkpoint"` // the signed note
	Key        string   `json:"key"`        // that it is said to be signed by
}

// verify verifies the proof by a key, and that its entry commits to a row with a hash.
func (p *Proof) verify(key, rowHash string, blind []byte) (Checkpoint, error) {
	c, err := OpenCheckpoint(p.Checkpoint, key)
	if err != nil {
		return c, err
	}
	if len(p.Entry) != EntrySize ||
		subtle.ConstantTimeCompare(p.Entry[TagSize:], Commitment(blind, rowHash)) != 1 {
		return c, errors.New("proofs: the leaf commits to another row")
	}
	var hashes tlog.RecordProof
	for _, h := range p.Hashes {
		if len(h) != tlog.HashSize {
			return c, errors.New("proofs: a hash of the proof has a wrong length")
		}
		hashes = append(hashes, tlog.Hash(h))
	}
	if p.Position < 0 || p.Position >= c.Tree.N {
		return c, errors.New("proofs: the checkpoint does not cover the leaf")
	}
	if err := tlog.CheckRecord(hashes, c.Tree.N, c.Tree.Hash, p.Position, tlog.RecordHash(p.Entry)); err != nil {
		return c, errors.New("proofs: the leaf is not in the log at its position")
	}
	return c, nil
}

// A Receipt proves one ledger row.
type Receipt struct {
	Format       string `json:"format"`
	Row          Row    `json:"row"`
	PreviousHash string `json:"previous_hash"` // of the account's row before, "" before the first
	Blind        []byte `json:"blind"`
	Proof        Proof  `json:"proof"`
}

// Verify verifies the receipt by the log's key, and returns the checkpoint that covers it.
func (r *Receipt) Verify(key string) (Checkpoint, error) {
	if r.Format != ReceiptFormat {
		return Checkpoint{}, fmt.Errorf("proofs: the format is %q, not %s", r.Format, ReceiptFormat)
	}
	if err := r.Row.check(r.PreviousHash); err != nil {
		return Checkpoint{}, err
	}
	return r.Proof.verify(key, r.Row.Hash, r.Blind)
}

// A History proves all rows of an account up to one. The hash of the last row covers those before it, so that its leaf
// proves them all.
type History struct {
	Format    string `json:"format"`
	AccountID string `json:"account_id"`
	Secret    []byte `json:"secret"` // tells which leaves are the account's
	Rows      []Row  `json:"rows"`
	Proof     Proof  `json:"proof"` // of the last row
}

// Verify verifies the history by the log's key, and returns the checkpoint that covers it.
func (h *History) Verify(key string) (Checkpoint, error) {
	if h.Format != HistoryFormat {
		return Checkpoint{}, fmt.Errorf("proofs: the format is %q, not %s", h.Format, HistoryFormat)
	}
	if len(h.Rows) == 0 || len(h.Secret) != SecretSize {
		return Checkpoint{}, errors.New("proofs: the history has no rows or no secret")
	}
	head := ""
	for i := range h.Rows {
		var err error
		if head, err = h.Rows[i].checkAfter(head, h.AccountID, int64(i+1)); err != nil {
			return Checkpoint{}, err
		}
	}
	return h.verifyEnd(key, int64(len(h.Rows)), head)
}

// verifyEnd verifies that the log has the last row, with a hash.
func (h *History) verifyEnd(key string, last int64, head string) (Checkpoint, error) {
	if len(h.Proof.Entry) != EntrySize || !bytes.Equal(h.Proof.Entry[:TagSize], Tag(h.Secret, last)) {
		return Checkpoint{}, errors.New("proofs: the leaf is not the one of the account’s last row")
	}
	return h.Proof.verify(key, head, Blind(h.Secret, last))
}

// Parse reads a receipt or a history; the other one is nil.
func Parse(text []byte) (*Receipt, *History, error) {
	var kind struct {
		Format string `json:"format"`
	}
	if err := json.Unmarshal(text, &kind); err != nil {
		return nil, nil, fmt.Errorf("proofs: the file is not JSON: %w", err)
	}
	switch kind.Format {
	case ReceiptFormat:
		r := &Receipt{}
		if err := json.Unmarshal(text, r); err != nil {
			return nil, nil, fmt.Errorf("proofs: %w", err)
		}
		return r, nil, nil
	case HistoryFormat:
		h := &History{}
		if err := json.Unmarshal(text, h); err != nil {
			return nil, nil, fmt.Errorf("proofs: %w", err)
		}
		return nil, h, nil
	}
	return nil, nil, fmt.Errorf("proofs: the file is neither a receipt nor a history: its format is %q", kind.Format)
}
