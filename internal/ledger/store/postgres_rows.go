package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/purserhq/purser/internal/ledger/rules"
)

// A rowKind is a composite type of the migrations, in which rows reach
// PostgreSQL. One array of them costs the server a third less than an array for
// each column, which it has to put together again.
type rowKind struct {
	name    string
	columns string // t text, i bigint, b bytea
}

var (
	keyRows            = rowKind{"key_row", "tti"}
	balanceRows        = rowKind{"balance_row", "tiiit"}
	connectionRows     = rowKind{"connection_row", "tiiiittiiii"}
	holdRows           = rowKind{"hold_row", "tttttittittttttitt"}
	ledgerRows         = rowKind{"ledger_row", "ttitt" + "ttttttttttttt" + "iiiiiii" + "iiiii" + "ti" + "iit"}
	storedResponseRows = rowKind{"stored_response_row", "ttbi"}
	dailyTotalRows     = rowKind{"daily_total_row", "ttttttiiiiiiiii"}

	rowKinds = []rowKind{keyRows, balanceRows, connectionRows, holdRows, ledgerRows, storedResponseRows, dailyTotalRows}
)

// rowTypes are the numbers that the types of row kinds have in a database.
type rowTypes map[string]rowType

type rowType struct{ row, array uint32 }

func findRowTypes(ctx context.Context, conn *pgx.Conn) (rowTypes, error) {
	types := rowTypes{}
	for _, kind := range rowKinds {
		t := rowType{}
		if err := conn.QueryRow(ctx, `SELECT oid, typarray FROM pg_type WHERE oid = $1::text::regtype`,
			kind.name).Scan(&t.row, &t.array); err != nil {
			return nil, fmt.Errorf("ledger: the type %s: %w", kind.name, err)
		}
		types[kind.name] = t
		// sent as it is
		conn.TypeMap().RegisterType(&pgtype.Type{Name: "_" + kind.name, OID: t.array, Codec: pgtype.ByteaCodec{}})
	}
	return types, nil
}

// rows is an array of rows in PostgreSQL's binary form.
type rows struct {
	rowKind
	n    uint32
	data []byte
}

// newRows returns an empty array. It reuses those of the last batch.
func (q *postgres) newRows(kind rowKind) *rows {
	if q.usedArrays == len(q.arrays) {
		q.arrays = append(q.arrays, &rows{})
	}
	r := q.arrays[q.usedArrays]
	q.usedArrays++
	if cap(r.data) > 1<<20 { // of a batch with large answers
		r.data = nil
	}
	r.rowKind, r.n, r.data = kind, 0, r.data[:0]
	// dimensions, no nulls, type, length (later), first index
	for _, n := range []uint32{1, 0, q.types[kind.name].row, 0, 1} {
		r.data = binary.BigEndian.AppendUint32(r.data, n)
	}
	return r
}

func (r *rows) add(columns ...rules.Column) {
	start := len(r.data)
	b := binary.BigEndian.AppendUint32(r.data, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(columns)))
	for i, c := range columns {
		b = binary.BigEndian.AppendUint32(b, columnTypes[r.columns[i]])
		switch c.Kind {
		case 's':
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(c.Text))), c.Text...)
		case 'i':
			b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(c.Integer))
		default:
			b = binary.BigEndian.AppendUint32(b, ^uint32(0)) // null
		}
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	r.n, r.data = r.n+1, b
}

var columnTypes = [256]uint32{'t': pgtype.TextOID, 'i': pgtype.Int8OID, 'b': pgtype.ByteaOID}

func (r *rows) array() []byte {
	binary.BigEndian.PutUint32(r.data[12:], r.n)
	return r.data
}

// addRows adds a part to the statement that saves, if there are any rows. @ in its
// text stands for the rows.
func (q *postgres) addRows(r *rows, text string) {
	if r.n > 0 {
		q.addPart(strings.Replace(text, "@", "unnest(@::"+r.name+"[])", 1), r.array())
	}
}

// addPart adds a part to the statement that saves. @ in its text stands for the
// argument.
func (q *postgres) addPart(text string, arg any) {
	q.args = append(q.args, arg)
	n := strconv.Itoa(len(q.args))
	q.parts = append(q.parts, "p"+n+" AS ("+strings.Replace(text, "@", "$"+n, 1)+")")
}
