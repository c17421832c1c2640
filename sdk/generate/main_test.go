package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/purserhq/purser/api"
)

// TestUpToDate writes the types and compares them with those of the SDKs.
func TestUpToDate(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name := range outputs {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := generate(folder); err != nil {
		t.Fatal(err)
	}
	for name := range outputs {
		written, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if committed, err := os.ReadFile(filepath.Join("..", name)); err != nil || !bytes.Equal(committed, written) {
			t.Errorf("sdk/%s is not up to date: run go run ./sdk/generate (%v)", name, err)
		}
	}
}

// TestEveryExceptionIsOfAMember: what an SDK has otherwise is still in the API.
func TestEveryExceptionIsOfAMember(t *testing.T) {
	t.Parallel()
	s, err := readSpec(api.Spec)
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]bool{}
	for i := range types {
		o, err := s.objectOf(&types[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range o.fields {
			for _, name := range []string{types[i].schema, types[i].golang, types[i].python} {
				members[name+"."+f.name] = true
			}
		}
		for _, name := range types[i].absent {
			if !members[types[i].schema+"."+name] {
				t.Errorf("%s has no member %s", types[i].schema, name)
			}
		}
	}
	for _, table := range []map[string]string{docs, goTypes, goNames, pythonTypes} {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			if !members[name] {
				t.Errorf("no member %s", name)
			}
		}
	}
}

// TestReadsSchemas makes a type of parts, of variants, and of what may be null or absent.
func TestReadsSchemas(t *testing.T) {
	t.Parallel()
	s, err := readSpec([]byte(`
components:
  schemas:
    Freeze: {type: object, description: Why., required: [cause], properties: {cause: {type: string, enum: [a, b]}}}
    Members: {type: object, properties: {name: {type: [string, 'null'], description: "A name;\n null = none."}}}
    Connection:
      description: What it is.
      allOf:
        - {$ref: '#/components/schemas/Members'}
        - type: object
          required: [name, freeze, list]
          properties:
            freeze: {oneOf: [{type: 'null'}, {$ref: '#/components/schemas/Freeze'}]}
            list: {type: array, items: {$ref: '#/components/schemas/Freeze'}}
            at: {type: [string, 'null'], format: date-time}
            count: {type: [integer, 'null']}
      oneOf:
        - {required: [count], properties: {extra: {type: boolean}}}
        - {required: [count, extra], properties: {other: {type: object}}}
`))
	if err != nil {
		t.Fatal(err)
	}
	o, err := s.objectOf(s.types["Connection"])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range o.fields {
		got = append(got, f.name+": "+goType(f, false)+", "+pythonType(f))
	}
	want := []string{
		"name: string, str | None", "freeze: *Freeze, Freeze | None", "list: []Freeze, tuple[Freeze, ...]",
		"at: *time.Time, str | None", "count: *int64, int | None", "extra: bool, bool | None",
		"other: json.RawMessage, Mapping[str, Any] | None",
	}
	if !slices.Equal(got, want) || o.doc != "What it is." || o.fields[0].doc != "A name; null = none." {
		t.Errorf("%q %q\n%s", o.doc, o.fields[0].doc, strings.Join(got, "\n"))
	}
	if _, err := s.objectOf(s.types["Hold"]); err == nil {
		t.Error("a schema that is missing was read")
	}
}
