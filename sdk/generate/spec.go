package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// A spec is the schemas of the API's description.
type spec struct {
	schemas yaml.MapSlice
	types   map[string]*sdkType // those of the SDKs, by schema
}

func readSpec(text []byte) (*spec, error) {
	var root yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(text, &root, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	s := &spec{schemas: mapOf(mapOf(root, "components"), "schemas"), types: map[string]*sdkType{}}
	for i := range types {
		s.types[types[i].schema] = &types[i]
	}
	return s, nil
}

func valueOf(m yaml.MapSlice, key string) any {
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

func mapOf(m yaml.MapSlice, key string) yaml.MapSlice {
	value, _ := valueOf(m, key).(yaml.MapSlice)
	return value
}

// textOf returns a text as one line.
func textOf(m yaml.MapSlice, key string) string {
	text, _ := valueOf(m, key).(string)
	return strings.Join(strings.Fields(text), " ")
}

func schemasOf(m yaml.MapSlice, key string) (list []yaml.MapSlice) {
	values, _ := valueOf(m, key).([]any)
	for _, value := range values {
		if schema, ok := value.(yaml.MapSlice); ok {
			list = append(list, schema)
		}
	}
	return list
}

// wordsOf returns a list of texts, or one text, without null.
func wordsOf(m yaml.MapSlice, key string) (list []string) {
	switch value := valueOf(m, key).(type) {
	case string:
		list = append(list, value)
	case []any:
		for _, item := range value {
			if word, ok := item.(string); ok && word != "null" {
				list = append(list, word)
			}
		}
	}
	return list
}

// refOf returns the name of the schema that another one refers to.
func refOf(m yaml.MapSlice) string {
	return strings.TrimPrefix(textOf(m, "$ref"), "#/components/schemas/")
}

// A field is a member of an object.
type field struct {
	name   string // in JSON
	doc    string
	absent bool // it may be absent
	kind   kind
	schema yaml.MapSlice
}

// An object is a schema that becomes a type of the SDKs.
type object struct {
	base      *sdkType // whose members it has, too
	inherited []field  // of the base
	fields    []field
	doc       string
}

// find returns a schema by its name, or by Schema.member that of an object within one.
func (s *spec) find(name string) (yaml.MapSlice, error) {
	name, member, within := strings.Cut(name, ".")
	schema := mapOf(s.schemas, name)
	if within {
		var o object
		s.collect(&o, map[string]bool{}, schema, name)
		schema = nil
		for _, f := range o.fields {
			if f.name == member {
				schema = f.schema
			}
		}
	}
	if schema == nil {
		return nil, fmt.Errorf("no schema %s %s", name, member)
	}
	return schema, nil
}

// objectOf returns the object of a type.
func (s *spec) objectOf(t *sdkType) (o object, err error) {
	schema, err := s.find(t.schema)
	if err != nil {
		return o, err
	}
	required := map[string]bool{}
	s.collect(&o, required, schema, t.schema)
	o.fields = slices.DeleteFunc(o.fields, func(f field) bool { return slices.Contains(t.without, f.name) })
	for i := range o.fields {
		f := &o.fields[i]
		f.absent = !required[f.name] || slices.Contains(t.absent, f.name)
		if doc := docs[t.schema+"."+f.name]; doc != "" {
			f.doc, f.kind.enum = doc, nil
		}
	}
	o.doc = textOf(schema, "description")
	if t.doc != "" {
		o.doc = t.doc
	}
	if o.doc == "" || len(o.fields) == 0 {
		return o, fmt.Errorf("%s has no description, or no members", t.schema)
	}
	return o, nil
}

// collect adds the members of a schema.
func (s *spec) collect(o *object, required map[string]bool, schema yaml.MapSlice, path string) {
	if ref := refOf(schema); ref != "" {
		if base := s.types[ref]; base != nil {
			var of object
			s.collect(&of, map[string]bool{}, mapOf(s.schemas, ref), ref)
			o.base, o.inherited = base, of.fields
			return
		}
		s.collect(o, required, mapOf(s.schemas, ref), ref)
		return
	}
	for _, part := range schemasOf(schema, "allOf") {
		s.collect(o, required, part, path)
	}
	for _, item := range mapOf(schema, "properties") {
		name, _ := item.Key.(string)
		member, _ := item.Value.(yaml.MapSlice)
		known := func(f field) bool { return f.name == name }
		if slices.ContainsFunc(o.fields, known) || slices.ContainsFunc(o.inherited, known) {
			continue // another part says what it may be
		}
		f := field{name: name, doc: s.docOf(member), kind: s.kindOf(member, path+"."+name), schema: member}
		o.fields = append(o.fields, f)
	}
	for _, name := range wordsOf(schema, "required") {
		required[name] = true
	}
	variants := schemasOf(schema, "oneOf")
	times := map[string]int{}
	for _, variant := range variants {
		of := map[string]bool{}
		s.collect(o, of, variant, path)
		for name := range of {
			if times[name]++; times[name] == len(variants) {
				required[name] = true
			}
		}
	}
}

// plain are the schemas whose descriptions need not be said of each member.
var plain = []string{"MicroCents", "Display", "Time"}

func (s *spec) docOf(member yaml.MapSlice) string {
	doc, ref := textOf(member, "description"), refOf(member)
	if doc == "" && ref != "" && s.types[ref] == nil && !slices.Contains(plain, ref) {
		return textOf(mapOf(s.schemas, ref), "description")
	}
	return doc
}

// A kind is what a member may be.
type kind struct {
	of       string // string, integer, number, boolean, array or object
	nullable bool
	format   string
	enum     []string
	object   *sdkType // nil: the SDKs have no type of it
	items    *kind
	events   bool // a type of event, of which more may follow
}

func (s *spec) kindOf(schema yaml.MapSlice, path string) kind {
	if ref := refOf(schema); ref != "" {
		if t := s.types[ref]; t != nil {
			return kind{of: "object", object: t}
		}
		k := s.kindOf(mapOf(s.schemas, ref), ref)
		k.events = ref == "EventType"
		return k
	}
	for _, variant := range schemasOf(schema, "oneOf") {
		if textOf(variant, "type") != "null" { // of the others, each is one of two
			k := s.kindOf(variant, path)
			k.nullable = true
			return k
		}
	}
	types := wordsOf(schema, "type")
	k := kind{of: "object", format: textOf(schema, "format"), enum: wordsOf(schema, "enum"), object: s.types[path]}
	if _, list := valueOf(schema, "type").([]any); list {
		k.nullable = true
	}
	switch {
	case len(types) > 0:
		k.of = types[0]
	case valueOf(schema, "enum") != nil || valueOf(schema, "const") != nil:
		k.of = "string"
	}
	if k.of == "array" {
		items := s.kindOf(mapOf(schema, "items"), path)
		k.items = &items
	}
	return k
}
