// Package rowfile is the form of backups (decision 094): the rows of all tables. A file is a stream that is written
// and read once, in a form that belongs to neither engine. It is compressed. Its last part is the manifest: the rows of
// each table, and a digest of all bytes before. A file that lacks its end has no manifest, and is never taken for a
// whole one.
package rowfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime/debug"
	"time"

	"github.com/klauspost/compress/zstd"
)

// magic begins every file. What follows is a Zstandard stream of records: one header; for each table its name and
// columns, and then its rows; and one manifest. Integers are varints of encoding/binary; a text, a byte string and a
// JSON object follow their length.
const magic = "purser backup 1\n"

// The records.
const (
	recordHeader   = 'B' // JSON
	recordTable    = 'T' // name, number of columns, their names
	recordRow      = 'R' // a value for each column
	recordManifest = 'M' // JSON
)

// The kinds of values in a row.
const (
	valueNull = iota
	valueInt
	valueText
	valueBytes
)

// maxBytes bounds a value. PostgreSQL and SQLite have no larger ones.
const maxBytes = 1 << 30

// maxColumns bounds the columns of a table.
const maxColumns = 1000

// A Header says what a file was taken of.
type Header struct {
	Purser  string    `json:"purser"` // version that wrote it
	Engine  string    `json:"engine"` // sqlite or postgres
	Schema  int64     `json:"schema"` // version of the schema
	BeganAt time.Time `json:"began_at"`

	Database string `json:"database,omitempty"` // the database's id, if it has one
}

// NewHeader returns the header of a file that this binary begins to write.
func NewHeader(engine string, schema int64) Header {
	h := Header{Purser: "(devel)", Engine: engine, Schema: schema, BeganAt: time.Now().UTC().Truncate(time.Microsecond)}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		h.Purser = info.Main.Version
	}
	return h
}

// A Manifest says what is in a file. It is written after all rows.
type Manifest struct {
	Header
	EndedAt time.Time    `json:"ended_at"`
	Tables  []TableCount `json:"tables"`
	Heads   Heads        `json:"heads"`
	Digest  string       `json:"digest"` // SHA-256 of all records before, in hexadecimal digits
}

// A TableCount is a table with the number of its rows.
type TableCount struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// Heads sums up the hash chains of all accounts.
type Heads struct {
	Accounts int64  `json:"accounts"`
	Entries  int64  `json:"entries"`   // the sum of their newest seq: the number of ledger rows
	NewestUS int64  `json:"newest_us"` // time of the newest ledger row; 0 = there is none
	Digest   string `json:"digest"`    // SHA-256 of a line "account seq head" for each account, in order of their ids
}

// Rows returns the number of rows in all tables.
func (m Manifest) Rows() (n int64) {
	for _, t := range m.Tables {
		n += t.Rows
	}
	return n
}

// Why a file is refused.
var (
	ErrCutOff  = errors.New("the file is cut off: its end is missing")
	ErrDamaged = errors.New("the file is damaged")
	ErrFormat  = errors.New("the file is of another kind")
)

// An Encoder writes records. Its methods return no error, because bufio.Writer keeps the first one for Close.
type Encoder struct {
	out     *bufio.Writer // to digest and zip
	digest  hash.Hash
	zip     *zstd.Encoder
	scratch [binary.MaxVarintLen64]byte
}

// NewEncoder begins a file.
func NewEncoder(w io.Writer) (*Encoder, error) {
	if _, err := io.WriteString(w, magic); err != nil {
		return nil, err
	}
	zip, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	e := &Encoder{digest: sha256.New(), zip: zip}
	e.out = bufio.NewWriterSize(io.MultiWriter(e.digest, zip), 64<<10)
	return e, nil
}

func (e *Encoder) putKind(kind byte) { _ = e.out.WriteByte(kind) }

func (e *Encoder) putCount(n int) {
	_, _ = e.out.Write(e.scratch[:binary.PutUvarint(e.scratch[:], uint64(n))])
}

func (e *Encoder) putText(text string) {
	e.putCount(len(text))
	_, _ = e.out.WriteString(text)
}

func (e *Encoder) putBytes(b []byte) {
	e.putCount(len(b))
	_, _ = e.out.Write(b)
}

// PutHeader writes what the file was taken of.
func (e *Encoder) PutHeader(h Header) error {
	text, err := json.Marshal(h)
	e.putKind(recordHeader)
	e.putBytes(text)
	return err
}

// PutTable begins a table.
func (e *Encoder) PutTable(name string, columns []string) {
	e.putKind(recordTable)
	e.putText(name)
	e.putCount(len(columns))
	for _, c := range columns {
		e.putText(c)
	}
}

// PutRow writes the values of a row, as a database driver returns them.
func (e *Encoder) PutRow(values []any) error {
	e.putKind(recordRow)
	for _, value := range values {
		switch v := value.(type) {
		case nil:
			e.putKind(valueNull)
		case int64:
			e.putKind(valueInt)
			_, _ = e.out.Write(e.scratch[:binary.PutVarint(e.scratch[:], v)])
		case string:
			e.putKind(valueText)
			e.putText(v)
		case []byte:
			e.putKind(valueBytes)
			e.putBytes(v)
		default:
			return fmt.Errorf("a value of type %T is not supported", value)
		}
	}
	return nil
}

// Close writes the manifest, with the digest of all that was written before, and ends the stream.
func (e *Encoder) Close(m *Manifest) error {
	if err := e.out.Flush(); err != nil {
		return err
	}
	m.Digest = hex.EncodeToString(e.digest.Sum(nil))
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	e.putKind(recordManifest)
	e.putBytes(text)
	if err := e.out.Flush(); err != nil {
		return err
	}
	return e.zip.Close()
}

// A Decoder reads records in the order in which an Encoder writes them.
type Decoder struct {
	Header Header
	Counts []TableCount // of the tables that were read so far
	in     *bufio.Reader
	zip    *zstd.Decoder
	digest hash.Hash // of the records that were read
	next   byte      // kind of the next record
	width  int       // number of columns of the present table
	byteAt [1]byte
}

// NewDecoder reads the magic and the header. Its caller closes the decoder.
func NewDecoder(r io.Reader) (*Decoder, error) {
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(r, begin); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if bytes.HasPrefix([]byte(magic), bytes.TrimRight(begin, "\x00")) {
			return nil, ErrCutOff
		}
		return nil, fmt.Errorf("%w: it is no backup of Purser", ErrFormat)
	} else if err != nil {
		return nil, err
	}
	if string(begin) != magic {
		return nil, fmt.Errorf("%w: it is no backup of Purser", ErrFormat)
	}
	zip, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	d := &Decoder{in: bufio.NewReaderSize(zip, 64<<10), zip: zip, digest: sha256.New()}
	if err := d.readHeader(); err != nil {
		zip.Close()
		return nil, err
	}
	return d, nil
}

// Close ends the decoder.
func (d *Decoder) Close() { d.zip.Close() }

func (d *Decoder) readHeader() error {
	kind, err := d.ReadByte()
	if err != nil {
		return err
	}
	text, err := d.readBytes()
	if err != nil {
		return err
	}
	if kind != recordHeader || json.Unmarshal(text, &d.Header) != nil {
		return ErrDamaged
	}
	return d.readKind()
}

// explainEnd says that the file is cut off where a stream ends too early, and that it is damaged where the
// compression says so.
func explainEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCutOff
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

// ReadByte implements io.ByteReader for the varints.
func (d *Decoder) ReadByte() (byte, error) {
	b, err := d.in.ReadByte()
	if err != nil {
		return 0, explainEnd(err)
	}
	d.byteAt[0] = b
	d.digest.Write(d.byteAt[:])
	return b, nil
}

func (d *Decoder) readCount(most int) (int, error) {
	n, err := binary.ReadUvarint(d)
	if err == nil && n > uint64(most) {
		err = ErrDamaged
	}
	return int(n), err
}

func (d *Decoder) readBytes() ([]byte, error) {
	n, err := d.readCount(maxBytes)
	if err != nil {
		return nil, err
	}
	var b []byte
	if n <= 1<<20 {
		b = make([]byte, n)
		_, err = io.ReadFull(d.in, b)
	} else { // a damaged length must not take memory that the file does not fill
		var read bytes.Buffer
		_, err = io.CopyN(&read, d.in, int64(n))
		b = read.Bytes()
	}
	if err != nil {
		return nil, explainEnd(err)
	}
	d.digest.Write(b)
	return b, nil
}

// readKind reads the kind of the next record. Nothing of the manifest belongs to the digest.
func (d *Decoder) readKind() error {
	next, err := d.in.Peek(1)
	if err != nil {
		return explainEnd(err)
	}
	if d.next = next[0]; d.next == recordManifest {
		return nil
	}
	_, err = d.ReadByte()
	return err
}

// ReadTable reads the name and the columns of the next table. It returns false where the manifest follows.
func (d *Decoder) ReadTable() (name string, columns []string, more bool, err error) {
	if d.next == recordManifest {
		return "", nil, false, nil
	}
	if d.next != recordTable {
		return "", nil, false, ErrDamaged
	}
	text, err := d.readBytes()
	if err != nil {
		return "", nil, false, err
	}
	if d.width, err = d.readCount(maxColumns); err != nil {
		return "", nil, false, err
	}
	for range d.width {
		column, err := d.readBytes()
		if err != nil {
			return "", nil, false, err
		}
		columns = append(columns, string(column))
	}
	d.Counts = append(d.Counts, TableCount{Name: string(text)})
	return string(text), columns, true, d.readKind()
}

// ReadRow reads the next row of the present table; nil = there is none.
func (d *Decoder) ReadRow() (values []any, err error) {
	if d.next != recordRow {
		return nil, nil
	}
	values = make([]any, d.width)
	for i := range values {
		if values[i], err = d.readValue(); err != nil {
			return nil, err
		}
	}
	d.Counts[len(d.Counts)-1].Rows++
	return values, d.readKind()
}

func (d *Decoder) readValue() (any, error) {
	kind, err := d.ReadByte()
	if err != nil {
		return nil, err
	}
	switch kind {
	case valueNull:
		return nil, nil
	case valueInt:
		return binary.ReadVarint(d)
	case valueText:
		b, err := d.readBytes()
		return string(b), err
	case valueBytes:
		return d.readBytes()
	}
	return nil, ErrDamaged
}

// ReadManifest reads the manifest, which must end the file, and compares it with what was read.
func (d *Decoder) ReadManifest() (m Manifest, err error) {
	if d.next != recordManifest {
		return m, ErrDamaged
	}
	digest := hex.EncodeToString(d.digest.Sum(nil))
	if _, err := d.ReadByte(); err != nil {
		return m, err
	}
	text, err := d.readBytes()
	if err != nil {
		return m, err
	}
	if json.Unmarshal(text, &m) != nil || m.Digest != digest || m.Header != d.Header {
		return m, ErrDamaged
	}
	if len(m.Tables) != len(d.Counts) {
		return m, ErrDamaged
	}
	for i, t := range m.Tables {
		if t != d.Counts[i] {
			return m, fmt.Errorf("%w: table %s has %d of %d rows", ErrDamaged, t.Name, d.Counts[i].Rows, t.Rows)
		}
	}
	if _, err := d.in.ReadByte(); err == nil {
		return m, ErrDamaged
	} else if !errors.Is(err, io.EOF) {
		return m, explainEnd(err)
	}
	return m, nil
}

// Abandon ends an Encoder whose stream is not complete.
func (e *Encoder) Abandon() error {
	e.zip.Reset(io.Discard) // so that the stream gets no end
	return e.zip.Close()
}
