package apitest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/purserhq/purser/api"
)

// resource is the name under which the schemas of the document are compiled.
const resource = "mem:///openapi.json"

// contract is openapi.yaml, loaded once. kin-openapi reads it, checks it and
// finds the operation of a request. It would compile a schema for every value, in
// about 3 ms; so the validator beneath it is used directly, compiled once.
type contract struct {
	doc    *openapi3.T
	router routers.Router

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

var loadContract = sync.OnceValues(func() (*contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(api.Spec)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	doc.Servers = nil // any host will do
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	plain, err := yaml.YAMLToJSON(api.Spec)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	tree, err := jsonschema.UnmarshalJSON(strings.NewReader(string(plain)))
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	if err := c.AddResource(resource, tree); err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	return &contract{doc: doc, router: router, compiler: c}, nil
})

// Routes returns every operation of openapi.yaml as "METHOD /path", sorted. The
// server's routes must be the same, pages and their assets aside.
func Routes() []string {
	c, err := loadContract()
	if err != nil {
		panic(err)
	}
	var list []string
	for path, item := range c.doc.Paths.Map() {
		for method := range item.Operations() {
			list = append(list, method+" "+path)
		}
	}
	slices.Sort(list)
	return list
}

// found is what the document says about a request.
type found struct {
	path      string // as it stands in the document, "" = not there
	operation *openapi3.Operation
	method    string // lower case
}

// findOperation returns the operation of a request. Without one, path says whether the
// address exists with other methods.
func (c *contract) findOperation(r *http.Request) (found, error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	plain := &http.Request{Method: method, URL: r.URL, Host: "example.com", Header: http.Header{}}
	route, _, err := c.router.FindRoute(plain)
	if errors.Is(err, routers.ErrPathNotFound) {
		return found{}, nil
	} else if errors.Is(err, routers.ErrMethodNotAllowed) {
		return found{path: r.URL.Path}, nil
	} else if err != nil {
		return found{}, err
	}
	return found{path: route.Path, operation: route.Operation, method: strings.ToLower(method)}, nil
}

// response returns what the document says about a status, and where: the JSON
// pointer of the response.
func (f *found) response(status int) (*openapi3.Response, string) {
	ref := f.operation.Responses.Status(status)
	if ref == nil {
		return nil, ""
	}
	if ref.Ref != "" {
		return ref.Value, strings.TrimPrefix(ref.Ref, "#")
	}
	return ref.Value, pointer("paths", f.path, f.method, "responses", fmt.Sprint(status))
}

// validate checks a value against the schema at a JSON pointer of the document.
func (c *contract) validate(at string, value any) error {
	c.mu.Lock()
	schema, err := c.compiler.Compile(resource + "#" + (&url.URL{Fragment: at}).EscapedFragment())
	c.mu.Unlock()
	if err != nil {
		return fmt.Errorf("openapi.yaml at %s: %w", at, err)
	}
	return schema.Validate(value)
}

// schemaOf is the JSON pointer of a named schema.
func schemaOf(name string) string { return pointer("components", "schemas", name) }

func pointer(tokens ...string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	var b strings.Builder
	for _, t := range tokens {
		b.WriteString("/" + escape.Replace(t))
	}
	return b.String()
}

// parseJSON reads JSON with numbers as they are written.
func parseJSON(body []byte) (any, error) {
	if !json.Valid(body) {
		return nil, errors.New("is not JSON")
	}
	return jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
}
