package policies

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

func open(t *testing.T, d *db.DB, configured policy.Policy, given ...string) *Book {
	t.Helper()
	b, err := Open(t.Context(), d, configured, given, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// add changes settings of a Book, and reads them again.
func add(t *testing.T, b *Book, from time.Time, values map[string]string) (v Version, err error) {
	t.Helper()
	err = b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
		_, v, err = b.Add(ctx, tx, from, values, "wac_1", "why")
		return err
	})
	if readErr := b.Read(t.Context()); readErr != nil {
		t.Fatal(readErr)
	}
	return v, err
}

// TestFirstNodeSets opens a database with two nodes of different settings: the first one's count on both, and the
// second one knows of the difference.
func TestFirstNodeSets(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		other := policy.Default
		other.Fee, other.Risk.Warn, other.Risk.Freeze = money.One/10, 7, 70
		first := open(t, d, policy.Default, "fee_rate")
		second := open(t, d, other, "fee_rate", "risk.warn", "risk.throttle") // the rest is another program's default
		for _, b := range []*Book{first, second} {
			if got := *b.At(d.Now()); got != policy.Default {
				t.Errorf("%+v", got)
			}
		}
		if names := second.Differences(); !slices.Equal(names, []string{"fee_rate", "risk.warn"}) {
			t.Errorf("the second node differs in %q", names)
		}
		if names := first.Differences(); names != nil {
			t.Errorf("the first node differs in %q", names)
		}
		if err := second.Follow(t.Context()); err != nil { // as in development
			t.Fatal(err)
		}
		if err := first.Read(t.Context()); err != nil || *first.At(d.Now()) != other {
			t.Errorf("%+v, %v", first.At(d.Now()), err)
		}
		if n := len(first.Versions()); n != 2 {
			t.Errorf("%d versions", n)
		}
		if err := second.Follow(t.Context()); err != nil || len(second.Versions()) != 2 {
			t.Errorf("once more: %d versions, %v", len(second.Versions()), err)
		}
	})
}

// TestChanges makes changes at several times: each holds from its time on, the ones after it stay, and it can be
// withdrawn until it begins.
func TestChanges(t *testing.T) {
	t.Parallel()
	dbtest.EachInTurn(t, func(t *testing.T, d *db.DB) {
		b, now := open(t, d, policy.Default), d.Now()
		day := func(n int) time.Time { return now.Truncate(time.Second).AddDate(0, 0, n) }
		later, err := add(t, b, day(20), map[string]string{"fee_rate": "0.1", "sandbox_day": "2.5"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := add(t, b, day(10), map[string]string{"risk.freeze": "50"}); err != nil {
			t.Fatal(err)
		}
		soon, err := add(t, b, time.Time{}, map[string]string{"fee_rate": "0.04"})
		if err != nil {
			t.Fatal(err)
		}
		if wait := time.UnixMicro(soon.FromUS).Sub(now); wait < Lead || wait > Lead+5*time.Second {
			t.Errorf("a change without a time begins after %v", wait)
		}
		for _, x := range []struct {
			at     time.Time
			fee    money.PPM
			freeze int64
			day    string
		}{
			{now, 50_000, 20, policy.Default.SandboxDayMC.Decimal()},
			{time.UnixMicro(soon.FromUS - 1), 50_000, 20, policy.Default.SandboxDayMC.Decimal()},
			{time.UnixMicro(soon.FromUS), 40_000, 20, policy.Default.SandboxDayMC.Decimal()},
			{day(10), 40_000, 50, policy.Default.SandboxDayMC.Decimal()}, // made before the one that begins first
			{day(20).Add(-time.Microsecond), 40_000, 50, policy.Default.SandboxDayMC.Decimal()},
			{day(20), 100_000, 50, "2.5"}, // made before both
			{day(2000), 100_000, 50, "2.5"},
		} {
			p := b.At(x.at)
			if p.Fee != x.fee || p.Risk.Freeze != x.freeze || p.SandboxDayMC.Decimal() != x.day {
				t.Errorf("at %v: %+v", x.at, p)
			}
		}
		for name, wrong := range map[string]struct {
			from   time.Time
			values map[string]string
		}{
			"fee_rate: must be at most 1":               {day(3), map[string]string{"fee_rate": "1.5"}},
			"risk.warn: must be a whole number":         {day(3), map[string]string{"risk.warn": "0"}},
			"free_credit.pool: must be an amount":       {day(3), map[string]string{"free_credit.pool": "-1"}},
			"fee: is no such setting":                   {day(3), map[string]string{"fee": "0.1"}},
			"settings: nothing would change":            {day(3), map[string]string{"fee_rate": "0.0400"}},
			"from: another change begins at this time":  {day(20), map[string]string{"fee_rate": "0.2"}},
			"from: must be at least 10 seconds ahead, ": {now.Add(Lead / 2), map[string]string{"fee_rate": "0.2"}},
		} {
			if _, err := add(t, b, wrong.from, wrong.values); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		withdraw := func(versionID string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := b.Withdraw(ctx, tx, versionID)
				return err
			})
		}
		if err := withdraw(later.ID); err != nil {
			t.Error(err)
		}
		if err := withdraw(later.ID); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("again: %v", err)
		}
		if err := withdraw(b.Versions()[0].ID); !errors.Is(err, ErrBegun) {
			t.Errorf("the first: %v", err)
		}
		if err := b.Read(t.Context()); err != nil || b.At(day(30)).Fee != 40_000 {
			t.Errorf("after the withdrawal: %+v, %v", b.At(day(30)), err)
		}
	})
}

// TestUnknownSettingStopsANode: a version that a newer program wrote must not be priced without what it says.
func TestUnknownSettingStopsANode(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, db.SQLite)
	b := open(t, d, policy.Default)
	if _, err := d.ExecContext(t.Context(),
		`UPDATE policies SET settings = '{"fee_rate":"0.2","surcharge":"1"}'`); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(t.Context()); err == nil || b.At(d.Now()).Fee != policy.Default.Fee {
		t.Errorf("read: %v, %+v", err, b.At(d.Now()))
	}
	if _, err := Open(t.Context(), d, policy.Default, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a node starts")
	}
}

// TestSettingsAreText writes each setting of a policy as text, and reads it again.
func TestSettingsAreText(t *testing.T) {
	t.Parallel()
	p := policy.Default
	p.Fee, p.SandboxTotalDayMC, p.Free.OnAppMC, p.Risk.FloorMC = 123_456, money.Max, 1, 0
	var again policy.Policy
	if err := again.Change(p.Values()); err != nil || again != p {
		t.Errorf("%+v is %+v, %v", p, again, err)
	}
}
