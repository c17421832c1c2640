package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// TestNodeSDK runs node/client.mjs, which calls the drop-in route by the official
// SDK for Node, and compares what it counted with the ledger.
func TestNodeSDK(t *testing.T) {
	testkit.Long(t, "TestClients calls by the same SDK")
	t.Parallel()
	installNode(t, "node")
	onNode(t, func(t *testing.T, p *servertest.Process) {
		poor, revoked := grant(t, p, "0.0001", ""), grant(t, p, "5", "")
		manage(t, p, "POST", "/v1/connections/"+revoked.Extra("connection_id").(string)+"/revoke", "", nil)
		with, err := json.Marshal(map[string]string{
			"baseURL":    p.BaseURL + "/v1",
			"apiKey":     p.Connection.AccessToken,
			"poorKey":    poor.AccessToken,
			"revokedKey": revoked.AccessToken,
		})
		if err != nil {
			t.Fatal(err)
		}
		node := exec.CommandContext(soon(t), supportedNode(t), "client.mjs", string(with))
		var told strings.Builder
		node.Dir, node.Stderr = "node", &told
		out, err := node.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, told.String())
		}
		settled(t, p, p.Connection.AccessToken)
		rows := spends(t, p, p.Connection.ID)
		if counted := read[int](t, string(out)); counted != len(rows) {
			t.Errorf("the client counts %d calls, the ledger %d", counted, len(rows))
		}
		for _, r := range rows {
			if r.Settlement != rules.Settled {
				t.Errorf("%s is %s", r.ID, r.Settlement)
			}
		}
	})
}
