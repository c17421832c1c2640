package docs

import (
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/purserhq/purser/api"
	"github.com/purserhq/purser/internal/testkit/apitest"
)

// openapi.json says what openapi.yaml says, with the address of the node.
func TestContractAsJSON(t *testing.T) {
	t.Parallel()
	c, err := newContract("https://api.example.com")()
	if err != nil {
		t.Fatal(err)
	}
	want, err := openapi3.NewLoader().LoadFromData(api.Spec)
	if err != nil {
		t.Fatal(err)
	}
	got, err := openapi3.NewLoader().LoadFromData(c.json)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Servers) != 1 || got.Servers[0].URL != "https://api.example.com" {
		t.Errorf("servers: %+v", got.Servers)
	}
	got.Servers = want.Servers
	wantJSON, err := want.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	gotJSON, err := got.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if string(gotJSON) != string(wantJSON) {
		t.Error("openapi.json differs from openapi.yaml")
	}
}

// The list of operations has every route of the contract.
func TestOperationsAreAllRoutes(t *testing.T) {
	t.Parallel()
	c, err := newContract("")()
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for _, g := range c.groups {
		for _, o := range g.Operations {
			if listed++; o.Summary == "" || !strings.HasPrefix(o.Path, "/") {
				t.Errorf("%+v", o)
			}
		}
	}
	if routes := apitest.Routes(); listed != len(routes) {
		t.Errorf("%d operations are listed, and there are %d routes", listed, len(routes))
	}
}
