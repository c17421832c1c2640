package purser

import (
	"bytes"
	"encoding/json"
)

// A Resource is embedded in what the service returns.
type Resource struct {
	// Raw is the JSON as the service sent it, with the members that this version of the SDK does not know. Objects
	// within other objects have none.
	Raw json.RawMessage `json:"-"`
}

func (r *Resource) keepRaw(raw []byte) { r.Raw = bytes.Clone(raw) }

// decode reads a JSON object and keeps it as Raw where its type has that.
func decode[T any](data []byte) (value T, err error) {
	if err := json.Unmarshal(data, &value); err != nil {
		return value, newOwnError(CodeInvalidResponse, err, "unexpected answer: %v", err)
	}
	if keeper, ok := any(&value).(interface{ keepRaw([]byte) }); ok {
		keeper.keepRaw(data)
	}
	return value, nil
}

// decodeList reads a JSON array of objects.
func decodeList[T any](data []byte) ([]T, error) {
	items, err := decode[[]json.RawMessage](data)
	if err != nil {
		return nil, err
	}
	values := make([]T, 0, len(items))
	for _, item := range items {
		value, err := decode[T](item)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

// readDetails reads the details of an error. Numbers stay exact.
func readDetails(data []byte) (details map[string]any) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if decoder.Decode(&details) != nil {
		return nil
	}
	return details
}

// marshalWith returns the JSON object of value with further members, which win.
func marshalWith(value any, extra map[string]any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil || len(extra) == 0 {
		return text, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	for name, member := range extra {
		if members[name], err = json.Marshal(member); err != nil {
			return nil, err
		}
	}
	return json.Marshal(members)
}

// unmarshalRest returns the members of a JSON object other than the known ones.
func unmarshalRest(data []byte, known ...string) (map[string]any, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	for _, name := range known {
		delete(members, name)
	}
	if len(members) == 0 {
		return nil, nil
	}
	rest := make(map[string]any, len(members))
	for name, member := range members {
		rest[name] = member
	}
	return rest, nil
}

// Ptr returns a pointer to a value, for the optional members of an update.
func Ptr[T any](value T) *T { return &value }
