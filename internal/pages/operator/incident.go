package operator

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/pages/status"
)

// incidentPrefix is that of the ids of incidents.
const incidentPrefix = "inc_"

const (
	maxIncidentTitle = 100
	maxIncidentText  = 2000
)

// SaveIncident adds an incident to the status page if it has no id, or changes the one with its id.
func (d *Service) SaveIncident(ctx context.Context, by string, i status.Incident) (status.Incident, error) {
	i.Title, i.Text = strings.TrimSpace(i.Title), strings.TrimSpace(strings.ReplaceAll(i.Text, "\r\n", "\n"))
	now := d.Now()
	switch {
	case !slices.Contains(status.Impacts, i.Impact):
		return i, apierr.InvalidRequest.Errorf("impact: must be none, degraded or down")
	case i.FromUS <= 0 || i.FromUS > now.UnixMicro():
		return i, apierr.InvalidRequest.Errorf("from: must be a time that has passed")
	}
	if err := apps.CheckText("title", i.Title, maxIncidentTitle); err != nil {
		return i, err
	}
	if err := apps.CheckText("text", strings.ReplaceAll(i.Text, "\n", " "), maxIncidentText); err != nil {
		return i, err
	}
	a := action{by: by, what: "incident", subject: i.ID, before: map[string]any{}}
	if i.ID == "" {
		i.ID, i.CreatedUS = id.New(incidentPrefix, now), now.UnixMicro()
		a.subject = i.ID
	}
	err := d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		a.before = map[string]any{}
		before, err := status.GetIncident(ctx, tx, i.ID)
		switch {
		case err == nil:
			a.before, i.CreatedUS = describeIncident(before), before.CreatedUS
		case !errors.Is(err, sql.ErrNoRows):
			return err
		case i.CreatedUS == 0:
			return missing(err, "incident")
		}
		a.after = describeIncident(i)
		return status.SaveIncident(ctx, tx, i)
	})
	return i, err
}

// describeIncident returns an incident for the audit log.
func describeIncident(i status.Incident) map[string]any {
	list := map[string]any{
		"service": i.Service,
		"impact":  i.Impact,
		"title":   i.Title,
		"text":    i.Text,
		"from":    timestamp.Format(i.FromUS),
	}
	if i.ResolvedUS > 0 {
		list["resolved_at"] = timestamp.Format(i.ResolvedUS)
	}
	return list
}
