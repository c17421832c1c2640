package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// variable is ${name.path} in a scenario.
var variable = regexp.MustCompile(`\$\{([^}]*)\}`)

// expand replaces the variables in a JSON value.
func expand(v any, vars map[string]any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			expanded, err := expand(value, vars)
			if err != nil {
				return nil, err
			}
			out[key] = expanded
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			expanded, err := expand(value, vars)
			if err != nil {
				return nil, err
			}
			out[i] = expanded
		}
		return out, nil
	case string:
		return expandText(v, vars)
	}
	return v, nil
}

func expandText(text string, vars map[string]any) (any, error) {
	if whole := variable.FindString(text); whole != "" && whole == text {
		return lookUp(text[2:len(text)-1], vars)
	}
	var failed error
	out := variable.ReplaceAllStringFunc(text, func(found string) string {
		value, err := lookUp(found[2:len(found)-1], vars)
		if err != nil {
			failed = err
		}
		if s, ok := value.(string); ok {
			return s
		}
		encoded, _ := json.Marshal(value) // a decoded JSON value
		return string(encoded)
	})
	return out, failed
}

// lookUp returns the value of a path such as answer.items.0.id.
func lookUp(path string, vars map[string]any) (any, error) {
	var v any = vars
	for name := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			value, ok := at[name]
			if !ok {
				return nil, fmt.Errorf("${%s}: no member %s among %v", path, name, slices.Sorted(maps.Keys(at)))
			}
			v = value
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, fmt.Errorf("${%s}: no item %s of %d", path, name, len(at))
			}
			v = at[i]
		default:
			return nil, fmt.Errorf("${%s}: nothing has the member %s", path, name)
		}
	}
	return v, nil
}

// match compares a result with an expectation, and says where they differ; "" = nowhere.
func match(want, got any, at string) string {
	switch want := want.(type) {
	case map[string]any:
		if len(want) == 1 {
			for name, arg := range want {
				if strings.HasPrefix(name, "$") {
					return matchBy(name, arg, got, at)
				}
			}
		}
		members, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s: got %s, want an object", at, compact(got))
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			value, ok := members[name]
			if !ok && want[name] != nil {
				return fmt.Sprintf("%s.%s is missing in %s", at, name, compact(got))
			}
			if difference := match(want[name], value, at+"."+name); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		items, ok := got.([]any)
		if !ok || len(items) != len(want) {
			return fmt.Sprintf("%s: got %s, want %d items", at, compact(got), len(want))
		}
		for i := range want {
			if difference := match(want[i], items[i], at+"."+strconv.Itoa(i)); difference != "" {
				return difference
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, got) {
		return fmt.Sprintf("%s: got %s, want %s", at, compact(got), compact(want))
	}
	return ""
}

// matchBy compares by a matcher such as {"$min": 1}.
func matchBy(name string, arg, got any, at string) string {
	text, _ := got.(string)
	number, isNumber := got.(float64)
	limit, _ := arg.(float64)
	items, isList := got.([]any)
	ok := false
	switch name {
	case "$type":
		ok = arg == typeOf(got) || arg == "number" && isNumber
	case "$match":
		pattern, isText := arg.(string)
		matched, err := regexp.MatchString(pattern, text)
		ok = isText && err == nil && matched
	case "$min":
		ok = isNumber && number >= limit
	case "$max":
		ok = isNumber && number <= limit
	case "$length":
		ok = isList && len(items) == int(limit)
	case "$contains":
		part, isText := arg.(string)
		ok = isText && text != "" && strings.Contains(text, part) ||
			slices.ContainsFunc(items, func(item any) bool { return match(arg, item, "") == "" })
	case "$not":
		ok = match(arg, got, "") != ""
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s: got %s, want %s %s", at, compact(got), name, compact(arg))
}

func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		if v == float64(int64(v)) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// compact writes a value for a message, cut if it is long.
func compact(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	if len(text) > 600 {
		return string(text[:600]) + "…"
	}
	return string(text)
}

// TestMatch keeps the driver from calling everything green.
func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		ok        bool
	}{
		{`{"a": 1}`, `{"a": 1, "b": 2}`, true},
		{`{"a": 1}`, `{"a": 2}`, false},
		{`{"a": 1}`, `{"b": 1}`, false},
		{`{"a": null}`, `{}`, true},
		{`[1, 2]`, `[1, 2]`, true},
		{`[1]`, `[1, 2]`, false},
		{`{"$type": "integer"}`, `1.5`, false},
		{`{"$type": "number"}`, `1`, true},
		{`{"$match": "^req_"}`, `"req_1"`, true},
		{`{"$match": "^req_"}`, `null`, false},
		{`{"$min": 1}`, `0`, false},
		{`{"$min": 1}`, `"2"`, false},
		{`{"$max": 1}`, `1`, true},
		{`{"$length": 2}`, `[1, 2]`, true},
		{`{"$contains": {"a": 1}}`, `[{"a": 2}, {"a": 1}]`, true},
		{`{"$contains": {"a": 1}}`, `[{"a": 2}]`, false},
		{`{"$contains": "b"}`, `"abc"`, true},
		{`{"$not": 1}`, `1`, false},
		{`{"$unknown": 1}`, `1`, false},
	} {
		if difference := match(read[any](t, c.want), read[any](t, c.got), ""); (difference == "") != c.ok {
			t.Errorf("%s against %s: %q", c.want, c.got, difference)
		}
	}
	vars := map[string]any{"a": map[string]any{"list": []any{"x", 7.0}}}
	got, err := expand(read[any](t, `{"b": "${a.list.1}", "c": "n-${a.list.1}-${a.list.0}"}`), vars)
	if difference := match(read[any](t, `{"b": 7, "c": "n-7-x"}`), got, ""); err != nil || difference != "" {
		t.Errorf("expanded: %s, %v", difference, err)
	}
	if _, err := expand("${a.none}", vars); err == nil {
		t.Error("an unknown variable was expanded")
	}
}
