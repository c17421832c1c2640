package apitest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// A FilledBody is a request body of openapi.yaml with one array or map that has as many elements as fit.
type FilledBody struct {
	Route     string // "METHOD /path"
	Security  string // the name of the first way to authenticate, "" = none is needed
	MediaType string
	Place     string // of what is filled, such as messages[].content with {}

	head, tail string
	item       func(i int) string
}

// Bytes returns the body with as many elements as fit into size bytes.
func (b *FilledBody) Bytes(size int) []byte {
	text := make([]byte, 0, size)
	text = append(text, b.head...)
	for i := 0; ; i++ {
		next := b.item(i)
		if len(text)+len(next)+len(b.tail) > size {
			return append(text, b.tail...)
		}
		text = append(text, next...)
	}
}

// FilledBodies returns for a route the bodies in which one array or map, or what no schema allows, is filled with the
// smallest elements. It returns none for a route without a body.
func FilledBodies(route string) (list []FilledBody) {
	c, err := loadContract()
	if err != nil {
		panic(err)
	}
	method, path, _ := strings.Cut(route, " ")
	operation := c.doc.Paths.Value(path).GetOperation(method)
	if operation.RequestBody == nil {
		return nil
	}
	base := FilledBody{Route: route}
	if s := operation.Security; s != nil && len(*s) > 0 {
		for name := range (*s)[0] {
			base.Security = name
		}
	}
	for media, content := range operation.RequestBody.Value.Content {
		base.MediaType = media
		f := filler(func(place, head string, item func(i int) string, tail string) {
			b := base
			b.Place, b.head, b.item, b.tail = place, head, item, tail
			list = append(list, b)
		})
		switch media {
		case "application/json":
			f.walk(content.Schema, "", "", "", 0)
			f("a member that is not known", `{"x":{`, names(`0`), `}}`)
		case "application/x-www-form-urlencoded":
			f("parameters", "a=", func(i int) string { return fmt.Sprintf("&%x=", i) }, "")
		default: // text
			f("text", "", func(int) string { return "v=0\r\n" }, "")
		}
	}
	slices.SortFunc(list, func(a, b FilledBody) int { return strings.Compare(a.Place, b.Place) })
	return list
}

// filler adds the body of a place whose items stand between head and tail.
type filler func(place, head string, item func(i int) string, tail string)

// maxNested bounds how deep places are looked for: schemas may contain themselves.
const maxNested = 8

// walk fills each place of a value whose text stands between head and tail.
func (f filler) walk(ref *openapi3.SchemaRef, place, head, tail string, depth int) {
	if ref == nil || ref.Value == nil || depth > maxNested {
		return
	}
	s := ref.Value
	for _, one := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		f.walk(one, place, head, tail, depth)
	}
	for name, property := range s.Properties {
		before := head + "{"
		for _, required := range s.Required {
			if required != name {
				before += quote(required) + ":" + smallest(s.Properties[required], 0) + ","
			}
		}
		f.walk(property, strings.TrimPrefix(place+"."+name, "."), before+quote(name)+":", "}"+tail, depth+1)
	}
	if s.Items != nil || s.Type.Includes("array") {
		for _, item := range elements(s.Items) {
			f(place+"[] with "+item, head+"[", func(i int) string {
				if i == 0 {
					return item
				}
				return "," + item
			}, "]"+tail)
		}
		f.walk(s.Items, place+"[]", head+"[", "]"+tail, depth+1)
	}
	isMap := s.AdditionalProperties.Schema != nil || s.Type.Includes("object") && len(s.Properties) == 0
	if isMap {
		value := smallest(s.AdditionalProperties.Schema, 0)
		f(place+"{} with "+value, head+"{", names(value), "}"+tail)
		f.walk(s.AdditionalProperties.Schema, place+"{}", head+`{"a":`, "}"+tail, depth+1)
	}
}

// names returns the members of a map whose values are all the same.
func names(value string) func(i int) string {
	return func(i int) string {
		text := `"` + strconv.FormatInt(int64(i), 16) + `":` + value
		if i > 0 {
			text = "," + text
		}
		return text
	}
}

func quote(name string) string {
	b, _ := json.Marshal(name) // a string always marshals
	return string(b)
}

// elements returns the smallest elements of an array: of the wrong kinds, too, and one with its required members.
func elements(ref *openapi3.SchemaRef) []string {
	list := []string{`{}`, `null`, `""`, `0`}
	if small := smallest(ref, 0); !slices.Contains(list, small) {
		list = append(list, small)
	}
	if ref != nil && ref.Value != nil {
		for _, one := range slices.Concat(ref.Value.OneOf, ref.Value.AnyOf) {
			if small := smallest(one, 0); !slices.Contains(list, small) {
				list = append(list, small)
			}
		}
	}
	return list
}

// smallest returns a small value that a schema may allow.
func smallest(ref *openapi3.SchemaRef, depth int) string {
	if ref == nil || ref.Value == nil || depth > maxNested {
		return "0"
	}
	s := ref.Value
	for _, one := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		return smallest(one, depth+1)
	}
	switch {
	case s.Const != nil:
		b, _ := json.Marshal(s.Const) // it was JSON
		return string(b)
	case len(s.Enum) > 0:
		b, _ := json.Marshal(s.Enum[0]) // as above
		return string(b)
	case s.Type.Includes("string"):
		return quote(strings.Repeat("x", int(s.MinLength)))
	case s.Type.Includes("boolean"):
		return "true"
	case s.Type.Includes("array"):
		return "[]"
	case s.Type.Includes("object") || len(s.Properties) > 0:
		var members []string
		for _, name := range s.Required {
			members = append(members, quote(name)+":"+smallest(s.Properties[name], depth+1))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	return "1"
}

// Method returns the method of the route.
func (b *FilledBody) Method() string {
	method, _, _ := strings.Cut(b.Route, " ")
	return method
}

// Path returns the path of the route, with the names of its parameters.
func (b *FilledBody) Path() string {
	_, path, _ := strings.Cut(b.Route, " ")
	return path
}
