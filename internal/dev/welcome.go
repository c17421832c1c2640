package dev

import (
	"encoding/json"
	"fmt"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/dev/sample"
)

// printWelcome writes the sample data: one line of JSON, or the welcome.
func printWelcome(o Options, d *sample.Data, connectURL string) error {
	if o.JSON {
		return json.NewEncoder(o.Out).Encode(d)
	}
	_, err := fmt.Fprintf(o.Out, welcome, d.BaseURL, d.DB,
		d.BaseURL, d.Connection.AccessToken, id.NewUUID(), d.BaseURL, d.Connection.AccessToken, id.NewUUID(),
		d.DashboardURL, connectURL, d.BaseURL,
		d.Developer.Email, d.Developer.Password, d.TestAccount.Email, d.TestAccount.Password,
		d.Operator.Email, d.Operator.Password, d.BaseURL, d.OperatorFile,
		d.App.ClientID, d.App.ClientSecret, d.AuthURL, d.PublicApp.ClientID, d.BaseURL, d.DB)
	return err
}

const welcome = `
Purser is running at %s on %s, with a mock provider and fake money.

Make a metered call. Paste it twice: the second time is a free replay.
(The token is valid for 15 minutes. Restart to get a new one.)

  curl -s %s/v1/ai/gpt-6-luna -H 'Authorization: Bearer %s' \
    -H 'Idempotency-Key: %s' -H 'X-Svc-Feature: chat' \
    -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"Hello, what do you cost?"}]}'

Stream the response:

  curl -sN %s/v1/ai/gpt-6-luna -H 'Authorization: Bearer %s' \
    -H 'Idempotency-Key: %s' \
    -H 'Content-Type: application/json' -d '{"stream":true,"messages":[{"role":"user","content":"Tell me a story."}]}'

Pages
  start               %s/
  connect an app      %s
  API description     %s/openapi.yaml

Accounts and keys
  developer           %s   %s
  test account        %s      %s
  operator            %s    %s
  operator's API      purser operator requests --url %s --token-file %s
  app                 client_id %s   client_secret %s

Sign in from a terminal, as the test account:
  purser login --server %s --client %s
  curl -s %s/v1/connection -H "Authorization: Bearer $(purser token)"

Check the books at any time:  purser ledger verify --database %s
Stop with Ctrl-C.
`
