package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/ledger/store"
)

var (
	errDevelopment = errors.New("database: it is one of purser dev, whose money is not real and whose passwords are " +
		"printed: purser serve needs another, unless it serves this machine alone and takes no real payments")
	errService = errors.New("database: it is one of purser serve, with real accounts: purser dev needs another")
)

// checkIdentity refuses a database that is not what the node takes it for (decision 137), and gives a new one its id.
func (s *Server) checkIdentity(ctx context.Context, dev bool) error {
	seeded, err := settings.Get(ctx, s.DB, settings.Development)
	if err != nil {
		return err
	}
	if s.databaseID, err = settings.Get(ctx, s.DB, settings.DatabaseID); err != nil {
		return err
	}
	switch {
	case dev && seeded == "" && s.databaseID != "":
		return errService
	case dev:
		return nil
	case s.Config.Drill: // which also practises with copies of purser dev
		return s.refuseLiveNodes(ctx)
	case seeded != "" && (!s.Config.IsLocal() || s.Config.StripeMode() == config.StripeLive):
		return errDevelopment
	case seeded != "": // strangers cannot come, and purser dev reaches real providers, too
		s.log.Warn("the database is one of purser dev: its money is not real")
	}
	s.databaseID, err = settings.Keep(ctx, s.DB, settings.DatabaseID, id.New(id.Database, s.DB.Now()))
	if err != nil {
		return err
	}
	return s.checkStripeMode(ctx)
}

// refuseLiveNodes refuses a drill on a database that nodes use: its pages would act on real accounts. A SQLite file has
// a lock.
func (s *Server) refuseLiveNodes(ctx context.Context) error {
	if s.DB.Engine == db.SQLite {
		return nil
	}
	n, err := store.CountLiveNodes(ctx, s.DB, s.DB.Now().UnixMicro())
	if err == nil && n > 0 {
		err = fmt.Errorf("drill: %d nodes run on the database, or were killed some seconds ago: a drill needs a "+
			"restored copy", n)
	}
	return err
}

// checkStripeMode refuses a key of another mode of Stripe than the payments of the database were made in: money of
// test cards would be spent as real, or real customers would be looked for among test ones.
func (s *Server) checkStripeMode(ctx context.Context) error {
	mode := s.Config.StripeMode()
	if mode == "" {
		return nil
	}
	kept, err := settings.Keep(ctx, s.DB, settings.StripeMode, mode)
	if err == nil && kept != mode {
		err = fmt.Errorf("stripe.key: it is of the %s mode, and this database has payments of the %s mode. Use "+
			"another database; or, if its balances may stay, run purser operator reconcile --new-account on a node "+
			"with the former key, and start with this one then", mode, kept)
	}
	return err
}
