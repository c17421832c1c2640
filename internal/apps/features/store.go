package features

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/purserhq/purser/internal/apps/apps"
	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/web"
)

// A Store reads and writes features.
type Store struct {
	db      *db.DB
	now     func() time.Time
	offered func(model string) bool
}

// NewStore returns a Store on d. offered reports whether a model can be called now.
func NewStore(d *db.DB, now func() time.Time, offered func(model string) bool) *Store {
	return &Store{db: d, now: now, offered: offered}
}

// ListAll returns all features of an app, newest first.
func (s *Store) ListAll(ctx context.Context, appID string) ([]Feature, error) {
	list, err := listNewest(ctx, s.db, appID, MaxPerApp)
	if err != nil {
		return nil, fmt.Errorf("features: of app: %w", err)
	}
	return list, nil
}

// ListLocked returns all features of an app, and keeps other transactions from changing them until tx ends. If the app
// is locked too, none is added.
func (s *Store) ListLocked(ctx context.Context, tx *db.Tx, appID string) ([]Feature, error) {
	list, err := listLocked(ctx, tx, appID)
	if err != nil {
		return nil, fmt.Errorf("features: lock: %w", err)
	}
	return list, nil
}

// List returns a page of an app's features, newest first, and whether there are
// more. A page that starts after a feature that does not exist is 400
// invalid_request.
func (s *Store) List(ctx context.Context, appID string, p web.Page) (list []Feature, more bool, err error) {
	if p.StartingAfter == "" {
		list, err = listNewest(ctx, s.db, appID, p.Limit+1)
	} else {
		if _, err := s.Get(ctx, appID, p.StartingAfter); errors.Is(err, sql.ErrNoRows) {
			return nil, false, apierr.InvalidRequest.Errorf("starting_after: must be the slug of a feature of this app")
		} else if err != nil {
			return nil, false, err
		}
		list, err = listOlder(ctx, s.db, appID, p.StartingAfter, p.Limit+1)
	}
	if err != nil {
		return nil, false, fmt.Errorf("features: list: %w", err)
	}
	if len(list) > p.Limit {
		return list[:p.Limit], true, nil
	}
	return list, false, nil
}

// Get returns a feature; the error wraps sql.ErrNoRows when there is none.
func (s *Store) Get(ctx context.Context, appID, slug string) (Feature, error) {
	f, err := getFeature(ctx, s.db, appID, slug, "")
	if err != nil {
		return Feature{}, fmt.Errorf("features: get: %w", err)
	}
	return f, nil
}

// Create creates a feature. An invalid member, a used slug and a 201st feature are 400 invalid_request.
func (s *Store) Create(ctx context.Context, appID string, c Change) (Feature, error) {
	f, err := c.makeFeature(appID, s.offered)
	if err != nil {
		return Feature{}, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := lockAndCount(ctx, tx, appID)
		if err != nil {
			return err
		}
		if _, err := getFeature(ctx, tx, appID, f.Slug, ""); err == nil {
			return apierr.InvalidRequest.Errorf("slug: the feature %q already exists; PATCH it, or choose another slug",
				f.Slug)
		} else if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if n >= MaxPerApp {
			return apierr.InvalidRequest.Errorf("an app has at most %d features", MaxPerApp)
		}
		if err := s.recordMargin(ctx, tx, Feature{AppID: appID}, f); err != nil {
			return err
		}
		return insertFeature(ctx, tx, f, s.now().UnixMicro())
	})
	if err != nil {
		return Feature{}, fmt.Errorf("features: create: %w", err)
	}
	return f, nil
}

// Patch changes a feature and returns it. An invalid member is 400 invalid_request. The error wraps
// sql.ErrNoRows if there is no such feature.
func (s *Store) Patch(ctx context.Context, appID, slug string, c Change) (Feature, error) {
	var f Feature
	err := s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		before, err := getFeature(ctx, tx, appID, slug, tx.Engine.ForUpdate())
		if err != nil {
			return err
		}
		if f, err = c.applyTo(before, s.offered); err != nil {
			return err
		}
		if err := s.recordMargin(ctx, tx, before, f); err != nil {
			return err
		}
		return updateFeature(ctx, tx, f)
	})
	if err != nil {
		return Feature{}, fmt.Errorf("features: patch: %w", err)
	}
	return f, nil
}

// recordMargin records a change of the rate by which users pay for a feature. Without a rate of its own, also before it
// is created, that is the app's.
func (s *Store) recordMargin(ctx context.Context, tx *db.Tx, before, after Feature) error {
	tier, rate, err := getAppMargin(ctx, tx, after.AppID)
	if err != nil {
		return err
	}
	c := apps.MarginChange{
		AppID:     after.AppID,
		Feature:   after.Slug,
		Name:      after.DisplayName,
		Before:    rate,
		After:     rate,
		ChangedUS: s.now().UnixMicro(),
	}
	if before.DevMargin != nil {
		c.Before = *before.DevMargin
	}
	if after.DevMargin != nil {
		c.After = *after.DevMargin
	}
	return apps.RecordMargin(ctx, tx, tier, c)
}
