package anthropic

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/models/provider"
)

// Bounds of the references of a schema, beside those to its definitions: each one is looked for in the whole of it.
const (
	maxReferences = 100 // to other places
	maxReferring  = 100 // references within what references lead to
)

// references follows those of one schema.
type references struct {
	root   []byte
	defs   map[string][]byte // the definitions, by what refers to them
	state  map[string]int    // of each reference: inProgress or done
	depth  int
	others int
}

const (
	inProgress = iota + 1
	done
)

// checkReferences says what is wrong with the references of a schema; "" = nothing. Claude takes no recursion, and
// nothing from elsewhere.
func checkReferences(schema []byte) string {
	r := references{root: schema, defs: map[string][]byte{}, state: map[string]int{"#": inProgress}}
	for _, list := range []string{"$defs", "definitions"} {
		provider.Members(findMember(schema, list), func(name, value []byte) bool {
			r.defs["#/"+list+"/"+pointerEscapes.Replace(string(name))] = value
			return true
		})
	}
	return r.visit(schema)
}

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// visit checks a schema, or a list of schemas, with what is in it.
func (r *references) visit(schema []byte) (why string) {
	check := func(schema []byte) bool {
		why = r.visit(schema)
		return why == ""
	}
	if len(schema) == 0 {
		return ""
	}
	if schema[0] == '[' {
		provider.Elements(schema, check)
	}
	if schema[0] != '{' {
		return why
	}
	provider.Members(schema, func(name, value []byte) bool {
		switch string(name) {
		case "$ref":
			if value[0] == '"' {
				why = r.follow(value)
			}
			return why == ""
		case "enum", "const", "default", "examples", "required":
			return true
		case "properties", "patternProperties", "$defs", "definitions":
			provider.Members(value, func(_, value []byte) bool { return check(value) })
			return why == ""
		}
		return check(value)
	})
	return why
}

// follow checks what a reference leads to.
func (r *references) follow(value []byte) string {
	var ref string
	if json.Unmarshal(value, &ref) != nil {
		return "a $ref is no text"
	}
	if plain, err := url.PathUnescape(ref); err == nil {
		ref = plain
	}
	switch r.state[ref] {
	case done:
		return ""
	case inProgress:
		return fmt.Sprintf("this model takes no recursive schema, but %.100q leads to itself; write out the levels "+
			"that you need", ref)
	}
	target, ok := r.defs[ref]
	if !ok {
		if r.others++; r.others > maxReferences {
			return fmt.Sprintf("at most %d references to other places than $defs", maxReferences)
		}
		target = r.find(ref)
	}
	if target == nil {
		return fmt.Sprintf("$ref: %.100q is not within the schema", ref)
	}
	if r.depth++; r.depth > maxReferring {
		return fmt.Sprintf("at most %d references within each other", maxReferring)
	}
	r.state[ref] = inProgress
	why := r.visit(target)
	r.state[ref] = done
	r.depth--
	return why
}

// find returns what a JSON pointer behind # leads to; nil = nothing.
func (r *references) find(ref string) []byte {
	path, ok := strings.CutPrefix(ref, "#/")
	if !ok {
		return nil
	}
	at := r.root
	for step := range strings.SplitSeq(path, "/") {
		step = pointerUnescapes.Replace(step)
		if len(at) == 0 || at[0] != '[' {
			at = findMember(at, step)
			continue
		}
		n, err := strconv.Atoi(step)
		var element []byte
		provider.Elements(at, func(value []byte) bool {
			if n--; n == -1 && err == nil {
				element = value
			}
			return true
		})
		at = element
	}
	return at
}
