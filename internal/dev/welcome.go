package dev

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/dev/sample"
)

// printWelcome writes the sample data: one line of JSON, or the welcome.
func printWelcome(o Options, c *config.Config, d *sample.Data) error {
	if o.JSON {
		return json.NewEncoder(o.Out).Encode(d)
	}
	providers := "off: live calls go to the real providers"
	if o.Providers != "live" {
		providers = strings.TrimSuffix(c.Providers["anthropic"].BaseURL, "/v1")
	}
	_, err := strings.NewReplacer(
		"{base}", d.BaseURL,
		"{auth}", d.AuthURL,
		"{dashboard}", d.DashboardURL,
		"{providers}", providers,
		"{stripe}", c.Stripe.BaseURL,
		"{developer}", fmt.Sprintf("%-23s %s", d.Developer.Email, d.Developer.Password),
		"{tester}", fmt.Sprintf("%-23s %s", d.TestAccount.Email, d.TestAccount.Password),
		"{operator}", fmt.Sprintf("%-23s %s", d.Operator.Email, d.Operator.Password),
		"{operator_file}", d.OperatorFile,
		"{client}", d.App.ClientID,
		"{secret}", d.App.ClientSecret,
		"{public}", d.PublicApp.ClientID,
		"{token}", d.Connection.AccessToken,
		"{key}", id.NewUUID(),
		"{db}", d.DB,
	).WriteString(o.Out, welcome)
	return err
}

const welcome = `
Purser runs at {base} with fake money. Stop it with Ctrl-C.

Make your first metered call. Paste it twice: the second answer is a replay,
and free. (The token is good for 15 minutes. Restart for a new one.)

  curl -s {base}/v1/ai/gpt-6-luna \
    -H 'Authorization: Bearer {token}' \
    -H 'Idempotency-Key: {key}' \
    -H 'Content-Type: application/json' -H 'X-Svc-Feature: chat' \
    -d '{"messages":[{"role":"user","content":"Hello, what do you cost?"}]}'

Open
  Console          {base}/developer
  Dashboard        {base}/dashboard
  Operator         {base}/operator
  Docs             {base}/docs
  API reference    {base}/reference
  Mail             {base}/dev/mail
  Clock            {base}/dev/clock
  Emulated AI      {providers}
  Emulated Stripe  {stripe}

Sign in
  Developer        {developer}
  User             {tester}
  Operator         {operator}

Your app
  client_id        {client}
  client_secret    {secret}

From a terminal
  purser login --server {auth} --client {public}
  purser operator requests --url {base} --token-file {operator_file}
  purser ledger verify --database {db}
`
