package web

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/base/apierr"
)

// maxDepth bounds the nesting of a JSON body. The JSON Schemas of tools are the deepest valid values.
const maxDepth = 64

// Bounds of what a body becomes in memory. Each body is a list of tiny values in the worst case, whose Go values take
// a hundred times its bytes, so both are counted before the memory is taken.
const (
	maxDecodedBytes = 8 << 20 // of all Go values that one body is decoded into; their texts don't count
	maxOpenNames    = 1 << 16 // member names in the objects around one place, which the parser remembers
	fewValues       = 4096    // take less than maxDecodedBytes, whatever they are
)

// Decode decodes one JSON value into dst. It is strict: exact member names without duplicates, valid UTF-8, no NUL,
// integers as integers, at most 64 levels, no data after the value, and a JSON object if dst is a struct. It refuses
// unknown members. null becomes the zero value; use Field where the two differ. It counts the values while it decodes
// them, so that memory is a small multiple of the body. Errors are 400 invalid_request and name the member.
func Decode(data []byte, dst any) error { return decode(data, dst, false, false, maxDecodedBytes) }

// DecodeSaid is Decode for what is said to models: it drops unknown members (decision 012), and takes NUL, which a
// model may have said before (decision 175). No text of it may go to the database.
func DecodeSaid(data []byte, dst any) error { return decode(data, dst, true, true, maxDecodedBytes) }

// DecodeSmall is Decode for what has few values, if long ones: beyond fewValues, they may take half of its length. It
// drops unknown members if allowUnknown is set.
func DecodeSmall(data []byte, dst any, allowUnknown bool) error {
	return decode(data, dst, allowUnknown, false, len(data)/2)
}

func decode(data []byte, dst any, allowUnknown, allowNUL bool, maxValues int) error {
	s := scanJSON(data)
	switch {
	case s.depth > maxDepth:
		return apierr.InvalidRequest.Errorf("body: must be nested at most %d levels deep", maxDepth)
	case s.nulAt >= 0 && !allowNUL:
		return apierr.InvalidRequest.Errorf("%s: must not hold the character NUL", pathAt(data, s.nulAt))
	case s.openNames > maxOpenNames:
		return apierr.InvalidRequest.Errorf("body: its objects have too many members, at most %d", maxOpenNames)
	case wantsObject(dst) && jsontext.Value(data).Kind() != '{':
		return apierr.InvalidRequest.Errorf("body: must be a JSON object")
	}
	options := []json.Options{json.RejectUnknownMembers(!allowUnknown)}
	if s.values > fewValues {
		options = append(options, json.WithUnmarshalers(countDecoded(maxValues)))
	}
	if err := json.Unmarshal(data, dst, options...); err != nil {
		return decodeError(err)
	}
	return nil
}

// countDecoded returns an unmarshaler that decodes nothing, and refuses the value with which the Go values of one
// body take more than so many bytes.
func countDecoded(left int) *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(d *jsontext.Decoder, value any) error {
		if left -= int(reflect.TypeOf(value).Elem().Size()); left < 0 {
			return apierr.InvalidRequest.Errorf("%s: the request has too many values, this one and those after it",
				formatPath(d.StackPointer()))
		}
		return json.SkipFunc
	})
}

func wantsObject(dst any) bool {
	t := reflect.TypeOf(dst)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

// A scan is what scanJSON counts.
type scan struct {
	depth     int // of the deepest value
	values    int // about as many as there are; no fewer than half of them
	openNames int // the most member names in the objects around one place
	nulAt     int // the offset of the first string with NUL, -1 if none
}

// scanJSON counts what the JSON package accepts in any number: levels, values and members. It looks for NUL as \u0000,
// which PostgreSQL cannot store. It stops at the first limit that the data exceeds, and ignores syntax errors, which
// the parser reports.
func scanJSON(data []byte) scan {
	s := scan{nulAt: -1}
	var names [maxDepth + 2]int // of the open object at each level
	open, sum := 0, 0
	for i := 0; i < len(data) && s.depth <= maxDepth && s.openNames <= maxOpenNames; i++ {
		switch data[i] {
		case '{', '[':
			open++
			s.values++
			s.depth = max(s.depth, open)
		case '}', ']':
			if open > 0 { // otherwise a syntax error
				sum, names[open] = sum-names[open], 0
				open--
			}
		case ',':
			s.values++
		case ':':
			names[open]++
			sum++
			s.openNames = max(s.openNames, sum)
		case '"':
			end, nul := scanString(data, i+1)
			if nul && s.nulAt < 0 {
				s.nulAt = i
			}
			i = end
		}
	}
	return s
}

// scanString returns the offset of the closing quote of the string at i, and whether the string contains NUL.
func scanString(data []byte, i int) (end int, nul bool) {
	if n := bytes.IndexByte(data[i:], '"'); n >= 0 && bytes.IndexByte(data[i:i+n], '\\') < 0 {
		return i + n, false
	}
	for ; i < len(data) && data[i] != '"'; i++ {
		if data[i] != '\\' {
			continue
		}
		nul = nul || bytes.HasPrefix(data[i:], []byte(`\u0000`))
		i++ // the escaped character, which may be a quote or a backslash
	}
	return i, nul
}

// pathAt returns the path of the value at offset.
func pathAt(data []byte, offset int) string {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		_, err := d.ReadToken()
		if err != nil || d.InputOffset() > int64(offset) {
			return formatPath(d.StackPointer())
		}
	}
}

// decodeError rewords an error of the JSON package.
func decodeError(err error) error {
	if e, ok := errors.AsType[*apierr.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		switch {
		case errors.Is(e.Err, jsontext.ErrDuplicateName):
			return apierr.InvalidRequest.Errorf("%s: must come once", formatPath(e.JSONPointer))
		case errors.Is(e.Err, io.ErrUnexpectedEOF):
			return apierr.InvalidRequest.Errorf("body: must be JSON, it ends too early after byte %d", e.ByteOffset)
		}
		return apierr.InvalidRequest.Errorf("body: must be JSON: %v after byte %d", e.Err, e.ByteOffset)
	}
	e, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return apierr.InvalidRequest.Errorf("body: must be JSON").WithCause(err)
	}
	if errors.Is(e.Err, json.ErrUnknownName) {
		return apierr.InvalidRequest.Errorf("%s: is not a member that this request takes", formatPath(e.JSONPointer))
	}
	return apierr.InvalidRequest.Errorf("%s: %s", formatPath(e.JSONPointer), typeRule(e)).WithCause(err)
}

// typeRule describes the JSON values that a Go type accepts.
func typeRule(e *json.SemanticError) string {
	if errors.Is(e.Err, strconv.ErrRange) {
		return "is out of range"
	}
	if e.GoType == nil {
		return "is not valid"
	}
	switch t := e.GoType; t.Kind() {
	case reflect.String:
		return "must be a string"
	case reflect.Bool:
		return "must be true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "must be an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "must be an integer, 0 or more"
	case reflect.Float32, reflect.Float64:
		return "must be a number"
	case reflect.Slice, reflect.Array:
		return "must be an array"
	case reflect.Map, reflect.Struct:
		return "must be an object"
	}
	return "is not valid"
}

// formatPath formats a JSON pointer as messages[0].role.
func formatPath(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		switch {
		case isDigits(token):
			b.WriteString("[" + token + "]")
		case memberName(token):
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(token)
		default:
			b.WriteString("[" + shortName(token) + "]")
		}
		if b.Len() > 200 {
			b.WriteString("…")
			break
		}
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

// shortName returns a name from the client, shortened and quoted unless it is plain.
func shortName(name string) string {
	if memberName(name) {
		return name
	}
	if len(name) > 40 {
		name = name[:40] + "…"
	}
	return strconv.QuoteToASCII(name)
}

func isDigits(s string) bool {
	return s != "" && len(s) < 20 && strings.Trim(s, "0123456789") == ""
}

func memberName(s string) bool {
	for _, c := range []byte(s) {
		if !isAlphaNum(c) && c != '_' && c != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// A Field is a member of a PATCH body, which may be absent, null or set (decision 005: absent =
// unchanged, null clears).
type Field[T any] struct {
	Set   bool // the member is present
	Null  bool // it is null
	Value T    // its value, zero if absent or null
}

// UnmarshalJSONFrom decodes the member.
func (f *Field[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*f = Field[T]{Set: true}
	if d.PeekKind() == 'n' {
		f.Null = true
		_, err := d.ReadToken()
		return err
	}
	return json.UnmarshalDecode(d, &f.Value)
}
