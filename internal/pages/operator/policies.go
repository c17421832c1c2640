package operator

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/web"
	"github.com/purserhq/purser/internal/gateway/policies"
)

// ChangePolicy changes settings of all calls by their names, from a time on; zero = as soon as every node knows of it.
func (d *Service) ChangePolicy(ctx context.Context, by string, from time.Time, values map[string]string,
	reason string) (v policies.Version, err error) {
	a := action{by: by, what: "settings", reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		var before policies.Version
		if before, v, err = d.Policies.Add(ctx, tx, from, values, by, reason); err != nil {
			return err
		}
		a.subject, a.before, a.after = v.ID, describePolicy(before, v), describePolicy(v, before)
		return nil
	})
	if err != nil {
		return v, err
	}
	return v, d.Policies.Read(ctx)
}

// WithdrawPolicy removes a version of the settings that has not begun.
func (d *Service) WithdrawPolicy(ctx context.Context, by, versionID, reason string) (v policies.Version, err error) {
	a := action{by: by, what: "settings", subject: versionID, reason: reason}
	err = d.runAction(ctx, &a, func(ctx context.Context, tx *db.Tx) error {
		if v, err = d.Policies.Withdraw(ctx, tx, versionID); errors.Is(err, policies.ErrBegun) {
			return apierr.InvalidRequest.Errorf("these settings hold already, or within seconds: change them instead")
		} else if errors.Is(err, sql.ErrNoRows) {
			return apierr.NotFound.Errorf("no such version of the settings")
		} else if err != nil {
			return err
		}
		a.before = policyResource(v, d.Policies.Versions(), d.Now())
		return nil
	})
	if err != nil {
		return v, err
	}
	return v, d.Policies.Read(ctx)
}

// describePolicy returns, for the audit log, what v has otherwise than another version, and since when.
func describePolicy(v, other policies.Version) map[string]string {
	list, others := map[string]string{"from": describeStart(v.FromUS)}, other.Policy.Values()
	for name, text := range v.Policy.Values() {
		if others[name] != text {
			list[name] = text
		}
	}
	return list
}

// describeStart writes the time from which a version holds.
func describeStart(us int64) string {
	if us == 0 {
		return "the beginning"
	}
	return timestamp.Format(us)
}

// A settingsResource is a version of the settings as the API shows it.
type settingsResource struct {
	Object    string            `json:"object"`
	ID        string            `json:"id"`
	State     string            `json:"state"`
	From      *string           `json:"from"` // null = from the beginning
	Changes   map[string]string `json:"changes"`
	Settings  map[string]string `json:"settings"`
	Actor     string            `json:"actor"`
	Reason    string            `json:"reason"`
	CreatedAt string            `json:"created_at"`
}

// policyResource returns a version of a list.
func policyResource(v policies.Version, list []policies.Version, now time.Time) settingsResource {
	r := settingsResource{
		Object:    "settings",
		ID:        v.ID,
		State:     policies.StateOf(v, list, now),
		Changes:   v.Changes,
		Settings:  v.Policy.Values(),
		Actor:     v.Actor,
		Reason:    v.Reason,
		CreatedAt: timestamp.Format(v.CreatedUS),
	}
	if v.FromUS > 0 {
		from := timestamp.Format(v.FromUS)
		r.From = &from
	}
	return r
}

func (h *Handler) settings(w http.ResponseWriter, r *http.Request) error {
	if err := h.Service.Policies.Read(r.Context()); err != nil {
		return err
	}
	list, now := h.Service.Policies.Versions(), h.Service.Now()
	out := make([]settingsResource, 0, len(list))
	for _, v := range slices.Backward(list) {
		out = append(out, policyResource(v, list, now))
	}
	return web.WriteJSON(w, http.StatusOK, out)
}

// settingsBody is the body of POST /v1/operator/settings.
type settingsBody struct {
	Settings web.Field[map[string]string] `json:"settings"`
	From     web.Field[string]            `json:"from"`
	Reason   web.Field[string]            `json:"reason"`
}

func (h *Handler) changeSettings(w http.ResponseWriter, r *http.Request) error {
	var b settingsBody
	if err := web.ReadJSON(r, &b); err != nil {
		return err
	}
	if !b.Settings.Set || len(b.Settings.Value) == 0 {
		return apierr.InvalidRequest.Errorf("settings: required")
	}
	reason, err := CheckReason(b.Reason.Value)
	if err != nil {
		return err
	}
	var from time.Time
	if b.From.Set && !b.From.Null {
		if from, err = time.Parse(time.RFC3339, b.From.Value); err != nil {
			return apierr.InvalidRequest.Errorf("from: must be a time such as 2027-01-01T00:00:00Z")
		}
	}
	v, err := h.Service.ChangePolicy(r.Context(), actorOf(r), from, b.Settings.Value, reason)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, policyResource(v, h.Service.Policies.Versions(), h.Service.Now()))
}

func (h *Handler) withdrawSettings(w http.ResponseWriter, r *http.Request) error {
	reason, err := readReason(r)
	if err != nil {
		return err
	}
	v, err := h.Service.WithdrawPolicy(r.Context(), actorOf(r), r.PathValue("id"), reason)
	if err != nil {
		return err
	}
	shown := policyResource(v, nil, h.Service.Now())
	shown.State = "withdrawn"
	return web.WriteJSON(w, http.StatusOK, shown)
}
