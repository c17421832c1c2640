package session

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

const (
	maxReference = 16 << 10 // bytes; the provider's have less than one kilobyte
	maxFields    = 32       // of one report that are told
	maxPath      = 128      // bytes of a path that is kept
)

// defaultSession is what the provider's session has besides Config before the first report is known: a browser may have
// changed it before the sideband was attached.
const defaultSession = `{"tracing":null,"prompt":null,"include":null,"truncation":"auto","reasoning":{"effort":"low"},
	"audio":{"input":{"noise_reduction":null},"output":{"speed":1}}}`

// wantedRest returns what the provider's session must have besides the fields of configChecks: as in the first session
// that it has confirmed, and how Config wants the audio input.
func (m *machine) wantedRest() map[string]any {
	known := m.Reference
	if len(known) == 0 {
		known = json.RawMessage(defaultSession)
	}
	var rest, input map[string]any
	_ = json.Unmarshal(known, &rest) // it was encoded from JSON
	audio := m.Config.RealtimeSession(false)["audio"].(map[string]any)
	_ = json.Unmarshal(EncodeJSON(audio["input"]), &input)
	return mergeMembers(rest, map[string]any{"audio": map[string]any{"input": input}})
}

// mergeMembers returns an object with the members of another one, objects in it merged.
func mergeMembers(object, with map[string]any) map[string]any {
	out := maps.Clone(object)
	if out == nil {
		out = map[string]any{}
	}
	for name, v := range with {
		was, ok := out[name].(map[string]any)
		if members, isObject := v.(map[string]any); ok && isObject {
			v = mergeMembers(was, members)
		}
		out[name] = v
	}
	return out
}

// compareMembers returns the paths at which got differs from want. Members that got does not have are equal, and so are
// those that only got has, unless strict.
func compareMembers(path string, want, got any, strict bool) (list []string) {
	w, isObject := want.(map[string]any)
	g, ok := got.(map[string]any)
	if !isObject || !ok || isOtherType(w, g) {
		if isUnset(want) && isUnset(got) || reflect.DeepEqual(want, got) {
			return nil
		}
		return []string{path}
	}
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if _, known := w[name]; known || strict && !isUnset(g[name]) {
			list = append(list, compareMembers(strings.TrimPrefix(path+"."+name, "."), w[name], g[name], strict)...)
		}
	}
	return list
}

// isOtherType reports whether two objects are of different types, so that their members say different things.
func isOtherType(a, b map[string]any) bool {
	return a["type"] != nil && b["type"] != nil && !reflect.DeepEqual(a["type"], b["type"])
}

// isReasoning reports whether a path is how much the model thinks.
func isReasoning(path string) bool { return isWithin(path, []string{"reasoning"}) }

// isUnset reports whether a value says nothing: the provider shows null or an empty list.
func isUnset(v any) bool {
	list, isList := v.([]any)
	return v == nil || isList && len(list) == 0
}

// keepReference takes the first session that is as it must be as the reference of all that follow.
func (m *machine) keepReference(got *sessionObject) {
	if len(m.Reference) > 0 || len(got.Rest) == 0 {
		return
	}
	if raw := EncodeJSON(got.Rest); len(raw) <= maxReference {
		m.Reference, m.mustPersist = raw, true
	}
}

// isWithin reports whether a path is one of the fields, or in one.
func isWithin(path string, fields []string) bool {
	return slices.ContainsFunc(fields, func(f string) bool { return path == f || strings.HasPrefix(path, f+".") })
}

// isUnrestorable reports whether the provider does not set a path back.
func (m *machine) isUnrestorable(path string) bool { return isWithin(path, m.Unrestorable) }

// giveUpRestoring leaves paths as they are, because the provider does not set them back, and reports whether it may:
// what counts as tampering is not left.
func (m *machine) giveUpRestoring(paths []string) (left bool) {
	for _, path := range paths {
		if path != "" && len(path) <= maxPath && len(m.Unrestorable) < maxFields && !isTampering(path) &&
			!m.isUnrestorable(path) {
			m.Unrestorable, left = append(m.Unrestorable, path), true
		}
	}
	return left
}

// setPath sets a member of nested objects.
func setPath(object map[string]any, path string, v any) {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[name] = v
		return
	}
	inner, ok := object[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		object[name] = inner
	}
	setPath(inner, rest, v)
}

// hasPath reports whether nested objects have a member.
func hasPath(object map[string]any, path string) bool {
	name, rest, nested := strings.Cut(path, ".")
	v, ok := object[name]
	if !nested || !ok {
		return ok
	}
	inner, isObject := v.(map[string]any)
	return isObject && hasPath(inner, rest)
}

// deletePath deletes a member of nested objects.
func deletePath(object map[string]any, path string) {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		delete(object, name)
	} else if inner, ok := object[name].(map[string]any); ok {
		deletePath(inner, rest)
	}
}

// restoringSession renders the session that sets these fields back, with all that must be. Nil fields = what Config
// has.
func (m *machine) restoringSession(fields []string) map[string]any {
	var session map[string]any
	_ = json.Unmarshal(EncodeJSON(m.Config.RealtimeSession(false)), &session)
	deletePath(session, voiceField)
	if fields != nil {
		session = mergeMembers(m.wantedRest(), session)
		if isWithin(voiceField, fields) && !m.AudioHeard && m.Config.Voice != "" {
			setPath(session, voiceField, m.Config.Voice)
		}
		for _, path := range fields { // what the browser has added is cleared
			if path != voiceField && !hasPath(session, path) {
				setPath(session, path, nil)
			}
		}
		if len(m.Reference) == 0 && !slices.ContainsFunc(fields, isReasoning) { // not every model takes it
			delete(session, "reasoning")
		}
		if v, ok := session["include"]; ok && v == nil { // a list, which may be shown as null
			session["include"] = []any{}
		}
	}
	if fields == nil && m.isUpdatable("instructions") {
		delete(session, "instructions") // what the browser has set may be newer
	}
	for i := range m.Updates {
		if m.Updates[i].Kind == appUpdate { // it sets them
			for _, path := range m.Updates[i].fields() {
				deletePath(session, path)
			}
		}
	}
	for _, path := range m.Unrestorable {
		deletePath(session, path)
	}
	return session
}
