package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/purserhq/purser/api"
	"github.com/purserhq/purser/internal/base/ui"
)

// A contract is openapi.yaml in the forms that pages need.
type contract struct {
	json   []byte // with this node's base URL as the server
	groups []ui.OperationGroup
}

// methods are the HTTP methods of operations, in the order in which pages list them.
var methods = []string{"get", "post", "put", "patch", "delete", "head", "options"}

// newContract returns a function that reads openapi.yaml when it is first called, and keeps what it found.
func newContract(baseURL string) func() (*contract, error) {
	return sync.OnceValues(func() (*contract, error) { return parseContract(api.Spec, baseURL) })
}

// parseContract reads openapi.yaml. It keeps the order of members.
func parseContract(spec []byte, baseURL string) (*contract, error) {
	var root yaml.MapSlice
	if err := yaml.UnmarshalWithOptions(spec, &root, yaml.UseOrderedMap()); err != nil {
		return nil, fmt.Errorf("docs: openapi.yaml: %w", err)
	}
	c := &contract{}
	order := map[string]int{}
	for _, tag := range listAt(root, "tags") {
		name, description := textAt(tag, "name"), textAt(tag, "description")
		order[name] = len(c.groups)
		c.groups = append(c.groups, ui.OperationGroup{Name: name, Description: description})
	}
	paths, _ := valueAt(root, "paths").(yaml.MapSlice)
	for _, path := range paths {
		for _, method := range methods {
			operation := valueAt(path.Value, method)
			if operation == nil {
				continue
			}
			tags := listAt(operation, "tags")
			if len(tags) == 0 {
				return nil, fmt.Errorf("docs: openapi.yaml: %s %v has no tag", method, path.Key)
			}
			name, _ := tags[0].(string)
			at, ok := order[name]
			if !ok {
				return nil, fmt.Errorf("docs: openapi.yaml: %s %v has the unknown tag %q", method, path.Key, name)
			}
			text, _ := path.Key.(string)
			c.groups[at].Operations = append(c.groups[at].Operations, ui.Operation{
				Method:  strings.ToUpper(method),
				Path:    text,
				Summary: textAt(operation, "summary"),
			})
		}
	}
	c.groups = slices.DeleteFunc(c.groups, func(g ui.OperationGroup) bool { return len(g.Operations) == 0 })
	return c, c.encode(root, baseURL)
}

// encode writes the contract as JSON, with baseURL in place of the servers.
func (c *contract) encode(root yaml.MapSlice, baseURL string) (err error) {
	i := slices.IndexFunc(root, func(m yaml.MapItem) bool { return m.Key == "servers" })
	if i < 0 {
		return errors.New("docs: openapi.yaml: no servers")
	}
	if baseURL != "" {
		root[i].Value = []any{yaml.MapSlice{{Key: "url", Value: baseURL}}}
	}
	text, err := yaml.Marshal(root)
	if err != nil {
		return fmt.Errorf("docs: openapi.yaml: %w", err)
	}
	if c.json, err = yaml.YAMLToJSON(text); err != nil {
		return fmt.Errorf("docs: openapi.json: %w", err)
	}
	if !json.Valid(c.json) {
		return errors.New("docs: openapi.json is not valid JSON")
	}
	return nil
}

// valueAt returns a member of a mapping, or nil.
func valueAt(mapping any, key string) any {
	m, _ := mapping.(yaml.MapSlice)
	for _, item := range m {
		if item.Key == key {
			return item.Value
		}
	}
	return nil
}

// listAt returns a member that is a list, or nil.
func listAt(mapping any, key string) []any {
	list, _ := valueAt(mapping, key).([]any)
	return list
}

// textAt returns a member that is text, or "".
func textAt(mapping any, key string) string {
	text, _ := valueAt(mapping, key).(string)
	return text
}
