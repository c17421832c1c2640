package anthropic

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestFitSchema: objects are closed wherever they stand, and what Claude is not held to becomes words.
func TestFitSchema(t *testing.T) {
	t.Parallel()
	deep := `{"type":"object","properties":{"a":{"type":"string"}}}`
	const closed = `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`
	for _, c := range [][2]string{
		{deep, closed},
		{closed, closed},
		{`{"properties":{}}`, `{"properties":{},"type":"object","additionalProperties":false}`},
		{`{"type":["object","null"],"additionalProperties":{"type":"string"}}`,
			`{"type":["object","null"],"additionalProperties":false}`},
		{`{"type":"array","items":` + deep + `}`, `{"type":"array","items":` + closed + `}`},
		{`{"anyOf":[` + deep + `,{"type":"null"}]}`, `{"anyOf":[` + closed + `,{"type":"null"}]}`},
		{`{"oneOf":[` + deep + `,true]}`, `{"anyOf":[` + closed + `,true]}`},
		{`{"allOf":[` + deep + `]}`, `{"allOf":[` + closed + `]}`},
		{`{"$defs":{"x":` + deep + `},"$ref":"#/$defs/x"}`, `{"$ref":"#/$defs/x"}`},
		{`{"$schema":"s","$id":"i","type":"object","properties":{"x":{"$ref":"#/$defs/x","title":"no"},` +
			`"$ref":{"const":1}},"$defs":{"x":` + deep + `}}`,
			`{"type":"object","properties":{"x":{"$ref":"#/$defs/x"},"$ref":{"const":1}},"$defs":{"x":` + closed +
				`},"additionalProperties":false}`},
		{`{"type":"integer","minimum":1,"maximum":1e2,"exclusiveMinimum":0,"exclusiveMaximum":101,"multipleOf":2}`,
			`{"type":"integer","description":"At least 1. At most 1e2. More than 0. Less than 101. A multiple of 2."}`},
		{`{"type":"string","minLength":1,"maxLength":9,"pattern":"^\"x","description":"A \u00e9."}`,
			`{"type":"string","description":"A é.\n\nAt least 1 characters. At most 9 characters. Matches the ` +
				`regular expression \"^\\\"x\"."}`},
		{`{"type":"array","minItems":1,"maxItems":3,"uniqueItems":true}`,
			`{"type":"array","minItems":1,"description":"At most 3 elements. uniqueItems: true."}`},
		{`{"type":"array","minItems":2}`, `{"type":"array","description":"At least 2 elements."}`},
		{`{"type":"string","format":"date","enum":["a",null],"default":"a","title":"T"}`,
			`{"type":"string","format":"date","enum":["a",null],"default":"a","title":"T"}`},
		{`{"type":"string","format":"color","examples":[ "a" ]}`,
			`{"type":"string","description":"In the format \"color\". examples: [\"a\"]."}`},
		{`{"type":"array","items":[{"type":"string"}]}`,
			`{"type":"array","description":"items: [{\"type\":\"string\"}]."}`},
		{`{"not":{"type":"null"},"description":5}`, `{"description":"not: {\"type\":\"null\"}. description: 5."}`},
		{`{}`, `{}`},
		{`{"properties":[]}`, "!s: must be a JSON Schema object"},
		{`{"type":"object","properties":{"n":{"$ref":"#"}}}`, `!s: this model takes no recursive schema, but "#"`},
		{`{"$defs":{"a":{"items":{"$ref":"#/$defs/b"}},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`,
			`!s: this model takes no recursive schema, but "#/$defs/`},
		{`{"properties":{"a":{"items":{"$ref":"#/properties/a"}}}}`, `!s: this model takes no recursive schema`},
		{`{"definitions":{"a/b c":{"$ref":"#/definitions/a~1b%20c"}}}`, `!s: this model takes no recursive schema`},
		{`{"properties":{"a":{"anyOf":[{"type":"null"}]},"b":{"$ref":"#/properties/a/anyOf/0"}}}`,
			`{"properties":{"a":{"anyOf":[{"type":"null"}]},"b":{"$ref":"#/properties/a/anyOf/0"}},"type":"object",` +
				`"additionalProperties":false}`},
		{`{"$defs":{"x":{}},"properties":{"a":{"$ref":"#/$defs/x"},"b":{"$ref":"#/$defs/x"}}}`,
			`{"$defs":{"x":{}},"properties":{"a":{"$ref":"#/$defs/x"},"b":{"$ref":"#/$defs/x"}},"type":"object",` +
				`"additionalProperties":false}`},
		{`{"$ref":"https://example.com/s"}`, `!s: $ref: "https://example.com/s" is not within the schema`},
		{`{"$ref":"#/$defs/x"}`, `!s: $ref: "#/$defs/x" is not within the schema`},
		{`{"default":{"$ref":"#"},"enum":[{"$ref":"#"}]}`, `{"default":{"$ref":"#"},"enum":[{"$ref":"#"}]}`},
		{`{"a":"` + strings.Repeat("x", maxSchema) + `"}`, "!s: this model takes at most 262144 bytes"},
	} {
		got, err := fitSchema([]byte(c[0]), "s")
		if err != nil {
			got = []byte("!" + refusedBecause(t, err))
		}
		if want := c[1]; string(got) != want && (want[0] != '!' || !strings.HasPrefix(string(got), want)) {
			t.Errorf("%.300s:\n got %s\nwant %s", c[0], got, want)
		}
	}
}

// TestManyReferences: no schema of the largest size takes long or deep.
func TestManyReferences(t *testing.T) {
	t.Parallel()
	var chain, others strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&chain, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
		fmt.Fprintf(&others, `{"$ref":"#/x/%d"},`, i)
	}
	for schema, want := range map[string]string{
		`{"$defs":{` + chain.String() + `"d4000":{}}}`: "at most 100 references within each other",
		`{"anyOf":[` + others.String() + `{}],"x":[` + strings.Repeat(`{},`, 5000) + `{}]}`: "at most 100 " +
			"references to other places",
	} {
		begun := time.Now()
		_, err := fitSchema([]byte(schema), "s")
		if err == nil || !strings.Contains(refusedBecause(t, err), want) || time.Since(begun) > time.Minute {
			t.Errorf("%v after %v, want %s", err, time.Since(begun), want)
		}
	}
}
