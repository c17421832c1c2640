package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/ledger/store"
)

// listShared returns the settings that every node of a database must have alike, by their names in purser.yaml. What is
// not here differs by intent, as addresses that a node listens at, or only bounds the node, as max_calls. Policies are
// in the database.
func listShared(c config.Config) map[string][]string {
	list := map[string][]string{
		"base_url":       {c.BaseURL},
		"auth_url":       {c.AuthURL},
		"dashboard_url":  {c.DashboardURL},
		"signups":        {string(c.SignUps)},
		"operator_token": c.OperatorTokens,
		"operator":       {c.Site.Operator, c.Site.SupportURL, c.Site.TermsURL, c.Site.PrivacyURL},
		"oidc":           {c.OIDC.Name, c.OIDC.Issuer, c.OIDC.ClientID, c.OIDC.ClientSecret},
		"stripe": {c.Stripe.Key, c.Stripe.WebhookSecret, c.Stripe.BaseURL, c.Stripe.Clearance.String(),
			string(c.Stripe.Invoices)},
		"payouts":            {fmt.Sprint(c.Payouts)},
		"smtp.from":          {c.SMTP.From.String()},
		"lease":              {c.Lease.String()},
		"retention":          {c.Retention.String()},
		"voice_idle_timeout": {c.VoiceIdleTimeout.String()},
	}
	for name, p := range c.Providers {
		list["providers."+name] = append([]string{p.BaseURL, strconv.FormatBool(p.Store)}, p.Keys...)
	}
	return list
}

// digestShared returns what a node says of these settings to the others: enough to compare them, and nothing from which
// who reads the database could guess a value.
func digestShared(c config.Config, derivation []byte) map[string]string {
	digests := map[string]string{}
	for name, values := range listShared(c) {
		h := hmac.New(sha256.New, derivation)
		fmt.Fprintf(h, "shared setting %q %q", name, values)
		digests[name] = hex.EncodeToString(h.Sum(nil)[:16])
	}
	return digests
}

// compareNodes raises an alarm when living nodes begin to differ in what they must have alike. It names the settings,
// and never their values.
func (s *Server) compareNodes(ctx context.Context) error {
	list, err := store.ListSettingsDifferences(ctx, s.DB, s.DB.Now().UnixMicro())
	if err != nil {
		return err
	}
	s.metrics.SetDifferences(len(list))
	differing := map[string]bool{}
	for _, d := range list {
		differing[d.Setting] = true
		if s.differing[d.Setting] {
			continue
		}
		groups := make([]string, len(d.Nodes))
		for i, nodes := range d.Nodes {
			groups[i] = strings.Join(nodes, " ")
		}
		s.log.Error("nodes differ in a setting that they must have alike", "setting", d.Setting,
			"nodes", strings.Join(groups, " / "))
		s.metrics.RaiseAlarm("nodes differ", d.Setting)
	}
	s.differing = differing
	return nil
}
