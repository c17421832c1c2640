// Package domains checks that the developer of an app controls a domain, for the consent screen (decision 090).
package domains

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/apps/webhooks"
	"github.com/purserhq/purser/internal/base/apierr"
)

// FilePath is where a file on the domain proves it. One of its lines is the id of the app.
const FilePath = "/.well-known/purser-domain"

// recordPrefix begins the TXT record that proves a domain; the id of the app follows.
const recordPrefix = "purser-domain="

// Record returns the TXT record that proves the domain of an app.
func Record(appID string) string { return recordPrefix + appID }

// Bounds of a check.
const (
	stepTimeout = 5 * time.Second // for the file and for the record
	maxFile     = 4 << 10         // bytes
)

// A Checker looks for the proof of a domain. The proof is the id of the app, which is no secret: who can publish it at
// the domain controls the domain. The zero value asks no domain.
type Checker struct {
	client *http.Client
	lookup func(ctx context.Context, domain string) ([]string, error) // TXT records
}

// New returns a Checker that reaches the addresses that webhooks may reach (F-79), so that no domain leads into our own
// network.
func New(rules webhooks.Addresses) *Checker {
	return &Checker{rules.NewClient(), (&net.Resolver{}).LookupTXT}
}

// Check returns nil if the domain has the file or the TXT record for an app, and 400 invalid_request otherwise. The
// error does not reveal what answers at the domain (F-83).
func (c *Checker) Check(ctx context.Context, domain, appID string) error {
	switch {
	case domain == "":
		return apierr.InvalidRequest.Errorf("domain: save a domain first")
	case c.client == nil:
		return apierr.InvalidRequest.Errorf("domain: this copy of the service reaches nothing outside")
	case c.hasFile(ctx, domain, appID), c.hasRecord(ctx, domain, appID):
		return nil
	}
	return apierr.InvalidRequest.Errorf(
		"domain: neither the file nor the TXT record was found. A new record can take an hour to be seen")
}

// hasFile reports whether the domain serves the file with the id of the app. It follows no redirect.
func (c *Checker) hasFile(ctx context.Context, domain, appID string) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+domain+FilePath, http.NoBody)
	if err != nil {
		return false
	}
	answer, err := c.client.Do(r)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return false
	}
	lines := bufio.NewScanner(io.LimitReader(answer.Body, maxFile))
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == appID {
			return true
		}
	}
	return false
}

// hasRecord reports whether the domain has the TXT record for the app.
func (c *Checker) hasRecord(ctx context.Context, domain, appID string) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	records, err := c.lookup(ctx, domain+".") // the dot keeps the search list of this machine out
	return err == nil && slices.ContainsFunc(records, func(record string) bool {
		return strings.TrimSpace(record) == Record(appID)
	})
}
