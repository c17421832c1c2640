// Package policies keeps the policies of a database, each with the time from which it holds (decision 096). Every node
// prices a call by the version in force at the call's start, whatever its own settings say.
package policies

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/policy"
)

// Prefix is that of the ids of versions.
const Prefix = "pol_"

// Lead is how far ahead of now a version begins at the least. Nodes read the versions every ReadInterval, so that each
// of them knows of it before.
const (
	Lead         = 10 * time.Second
	ReadInterval = 2 * time.Second
)

// A Version is a policy that holds from a time on.
type Version struct {
	ID        string
	FromUS    int64             // 0 = the first
	Changes   map[string]string // what it sets; the rest is as in the version before it
	Policy    policy.Policy     // all that holds
	Actor     string
	Reason    string
	CreatedUS int64
}

// A Book has the versions of a database. It is safe for concurrent use.
type Book struct {
	db         *db.DB
	log        *slog.Logger
	configured policy.Policy
	given      []string                  // names of settings that the node's file, environment or flags have
	versions   atomic.Pointer[[]Version] // in the order of their times
}

// Fixed returns a Book of one policy, without a database.
func Fixed(p policy.Policy) *Book {
	b := &Book{configured: p}
	b.versions.Store(&[]Version{{Policy: p}})
	return b
}

// Open returns the Book of a database. The policy of the node's own settings is its first version; a database that has
// one already is not changed. Given are the names of those settings that the node does not have by default: if they
// differ from the database's, that is logged.
func Open(ctx context.Context, d *db.DB, configured policy.Policy, given []string, log *slog.Logger) (*Book, error) {
	b := &Book{db: d, log: log, configured: configured, given: given}
	now := d.Now()
	err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		first := Version{
			ID:        id.New(Prefix, now),
			Changes:   configured.Values(),
			Actor:     "settings",
			Reason:    "The settings of the first node",
			CreatedUS: now.UnixMicro(),
		}
		return insertFirst(ctx, tx, &first)
	})
	if err != nil {
		return nil, fmt.Errorf("policies: %w", err)
	}
	if err := b.Read(ctx); err != nil {
		return nil, err
	}
	if names := b.Differences(); len(names) > 0 {
		log.Warn("settings differ from the database's, which count", "settings", names,
			"change", "purser operator settings")
	}
	return b, nil
}

// Follow makes the policy of the node's own settings the one in force at once. It is for development, where one node
// runs and its flags count.
func (b *Book) Follow(ctx context.Context) error {
	now := b.db.Now()
	if *b.At(now) == b.configured {
		return nil
	}
	err := b.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := deleteFrom(ctx, tx, now.UnixMicro()); err != nil {
			return err
		}
		return insert(ctx, tx, &Version{
			ID:        id.New(Prefix, now),
			FromUS:    now.UnixMicro(),
			Changes:   b.configured.Values(),
			Actor:     "settings",
			Reason:    "The settings of purser dev",
			CreatedUS: now.UnixMicro(),
		})
	})
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	return b.Read(ctx)
}

// Read reads the versions again. It is a job of every node, each ReadInterval.
func (b *Book) Read(ctx context.Context) error {
	list, err := selectAll(ctx, b.db)
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	b.versions.Store(&list)
	return nil
}

// At returns the policy in force at a time.
func (b *Book) At(now time.Time) *policy.Policy { return &b.VersionAt(now).Policy }

// VersionAt returns the version in force at a time.
func (b *Book) VersionAt(now time.Time) *Version {
	list := *b.versions.Load()
	return &list[indexAt(list, now.UnixMicro())]
}

// indexAt returns the index of the version in force at a time.
func indexAt(list []Version, us int64) int {
	for i := len(list) - 1; i > 0; i-- {
		if list[i].FromUS <= us {
			return i
		}
	}
	return 0
}

// Versions returns all versions, in the order of their times.
func (b *Book) Versions() []Version { return *b.versions.Load() }

// Differences returns the names of the settings that the node was given otherwise than they are in force.
func (b *Book) Differences() (names []string) {
	current := *b.At(b.db.Now())
	for _, s := range policy.Settings {
		if slices.Contains(b.given, s.Name) && s.Text(b.configured) != s.Text(current) {
			names = append(names, s.Name)
		}
	}
	return names
}

// Add changes settings from a time on; zero = as soon as every node knows of it. It returns the version that was in
// force then, and the new one. Later versions stay as they are. Errors are 400 invalid_request.
func (b *Book) Add(ctx context.Context, tx *db.Tx, from time.Time, values map[string]string, actor,
	reason string) (before, v Version, err error) {
	now := b.db.Now()
	if from.IsZero() {
		from = now.Add(Lead).Truncate(time.Second).Add(time.Second)
	}
	if from.Before(now.Add(Lead)) {
		return before, v, apierr.InvalidRequest.Errorf(
			"from: must be at least %d seconds ahead, so that every node knows of it", Lead/time.Second)
	}
	if err := lock(ctx, tx); err != nil {
		return before, v, err
	}
	list, err := selectAll(ctx, tx)
	if err != nil {
		return before, v, err
	}
	before = list[indexAt(list, from.UnixMicro())]
	if before.FromUS == from.UnixMicro() {
		return before, v, apierr.InvalidRequest.Errorf("from: another change begins at this time")
	}
	v = Version{
		ID:        id.New(Prefix, now),
		FromUS:    from.UnixMicro(),
		Policy:    before.Policy,
		Actor:     actor,
		Reason:    reason,
		CreatedUS: now.UnixMicro(),
	}
	if err := v.Policy.Change(values); err != nil {
		return before, v, apierr.InvalidRequest.Errorf("%s", err)
	}
	if v.Changes = v.Policy.ChangesFrom(before.Policy); len(v.Changes) == 0 {
		return before, v, apierr.InvalidRequest.Errorf("settings: nothing would change")
	}
	return before, v, insert(ctx, tx, &v)
}

// ErrBegun says that a version is in force, or may be before every node knows of its withdrawal.
var ErrBegun = errors.New("policies: the version has begun")

// Withdraw removes a version that has not begun. Errors: sql.ErrNoRows, and ErrBegun.
func (b *Book) Withdraw(ctx context.Context, tx *db.Tx, versionID string) (v Version, err error) {
	if err := lock(ctx, tx); err != nil {
		return v, err
	}
	list, err := selectAll(ctx, tx)
	if err != nil {
		return v, err
	}
	i := slices.IndexFunc(list, func(v Version) bool { return v.ID == versionID })
	if i < 0 {
		return v, sql.ErrNoRows
	}
	if list[i].FromUS < b.db.Now().Add(Lead).UnixMicro() {
		return v, ErrBegun
	}
	return list[i], deleteOne(ctx, tx, versionID)
}

// join gives each version of a list the policy that holds from its time on. What an older version of the program did
// not know is as by default; what this one does not know is an error, because calls would be priced without it.
func join(list []Version) error {
	p := policy.Default
	for i := range list {
		if err := p.Change(list[i].Changes); err != nil {
			return fmt.Errorf("version %s: %w", list[i].ID, err)
		}
		list[i].Policy = p
	}
	return nil
}

// States of versions.
const (
	Past     = "past"
	InForce  = "in_force"
	Upcoming = "upcoming"
)

// StateOf returns the state of a version of a list at a time.
func StateOf(v Version, list []Version, now time.Time) string {
	us := now.UnixMicro()
	switch {
	case v.FromUS > us:
		return Upcoming
	case len(list) > 0 && list[indexAt(list, us)].ID == v.ID:
		return InForce
	}
	return Past
}
