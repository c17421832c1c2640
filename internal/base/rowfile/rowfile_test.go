package rowfile

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

var sampleRows = [][]any{
	{int64(math.MinInt64), "", []byte{}},
	{int64(math.MaxInt64), "ü\n\x00\xff", []byte{0, 1, 255}},
	{nil, nil, nil},
	{int64(0), strings.Repeat("long ", 1000), bytes.Repeat([]byte{7}, 3<<20)},
}

// encodeSample returns a backup of two tables without a database.
func encodeSample(t *testing.T, rows [][]any) []byte {
	t.Helper()
	var file bytes.Buffer
	e, err := NewEncoder(&file)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	m := Manifest{
		Header:  Header{Purser: "test", Engine: "sqlite", Schema: 7, BeganAt: now},
		EndedAt: now,
		Tables:  []TableCount{{"empty", 0}, {"full", int64(len(rows))}},
	}
	if err := e.PutHeader(m.Header); err != nil {
		t.Fatal(err)
	}
	e.PutTable("empty", []string{"x"})
	e.PutTable("full", []string{"n", "text", "bytes"})
	for _, row := range rows {
		if err := e.PutRow(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(&m); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// decodeAll reads a backup to its end and returns the rows of its last table.
func decodeAll(r io.Reader) (rows [][]any, err error) {
	d, err := NewDecoder(r)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for {
		_, _, more, err := d.ReadTable()
		if err != nil {
			return nil, err
		}
		if !more {
			_, err := d.ReadManifest()
			return rows, err
		}
		rows = nil
		for {
			row, err := d.ReadRow()
			if err != nil {
				return nil, err
			}
			if row == nil {
				break
			}
			rows = append(rows, row)
		}
	}
}

func TestRowsComeBack(t *testing.T) {
	t.Parallel()
	rows, err := decodeAll(bytes.NewReader(encodeSample(t, sampleRows)))
	if err != nil || !reflect.DeepEqual(rows, sampleRows) {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	e, err := NewEncoder(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.PutRow([]any{1.5}); err == nil {
		t.Error("a float is accepted")
	}
}

// A file that lacks its end, however little, is no backup.
func TestCutFile(t *testing.T) {
	t.Parallel()
	file := encodeSample(t, sampleRows[:3])
	for n := range file {
		if _, err := decodeAll(bytes.NewReader(file[:n])); !errors.Is(err, ErrCutOff) {
			t.Fatalf("%d of %d bytes: %v", n, len(file), err)
		}
	}
	for _, more := range []string{"x", "\n", string(file)} {
		if _, err := decodeAll(bytes.NewReader(append(bytes.Clone(file), more...))); err == nil {
			t.Errorf("%d bytes behind the end are accepted", len(more))
		}
	}
}

// A changed bit is an error, unless it is one of the compression's that have no meaning.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	file := encodeSample(t, sampleRows[:3])
	harmless := 0
	for i := range file {
		for bit := range 8 {
			changed := bytes.Clone(file)
			changed[i] ^= 1 << bit
			rows, err := decodeAll(bytes.NewReader(changed))
			if err == nil && !reflect.DeepEqual(rows, sampleRows[:3]) {
				t.Fatalf("bit %d of byte %d is not noticed", bit, i)
			} else if err == nil {
				harmless++
			}
		}
	}
	if harmless > len(file) {
		t.Errorf("%d of %d changed bits are not noticed", harmless, 8*len(file))
	}
	for _, text := range []string{"SQLite format 3\x00", "purser backup 2\n....", strings.Repeat("x", 100)} {
		if _, err := decodeAll(strings.NewReader(text)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
