// Package api holds the machine-readable form of the contract: openapi.yaml,
// which the server hands out and every answer in the tests is checked against.
package api

import _ "embed"

// Spec is the text of openapi.yaml, OpenAPI 3.1 (contract §4, §7, §9). The server
// serves it at GET /openapi.yaml. Callers must not change it.
//
//go:embed openapi.yaml
var Spec []byte
