package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/tokens"
)

// waves are how often the active users call on a day.
const waves = 2

// liveDays makes the days one after the other.
func (m *Maker) liveDays(ctx context.Context) error {
	if err := m.addTester(ctx); err != nil {
		return err
	}
	for day := range m.Days {
		// The apps are made in the first hours.
		m.moveTo(m.begin.Add(time.Duration(day)*24*time.Hour + 8*time.Hour))
		if err := errors.Join(m.beginDay(ctx, day), m.visit(ctx, day)); err != nil {
			return fmt.Errorf("day %d: %w", day, err)
		}
	}
	return nil
}

// beginDay makes what happens on a day besides calls.
func (m *Maker) beginDay(ctx context.Context, day int) error {
	for i, u := range m.users {
		if i < len(names) && u.joins == day {
			if err := m.open(ctx, i); err != nil {
				return err
			}
		}
	}
	live := m.apps[0]
	switch day {
	case m.Days / 4:
		return m.call(ctx, "POST", "/v1/apps/"+live.ID+"/webhooks", map[string]any{
			"url":    m.hook.url,
			"events": []string{"connection.created", "connection.exhausted", "connection.frozen", "connection.revoked"},
		}, live.sign, nil)
	case m.Days * 5 / 8:
		m.hook.fails.Store(true)
	case m.Days / 2:
		return m.topUp(ctx, m.users[0], "pay")
	case m.Days * 3 / 4: // a bank debit that fails
		return m.topUp(ctx, m.users[1], "later", "bounce")
	case m.Days * 5 / 6:
		return m.topUp(ctx, m.users[4], "pay")
	}
	return nil
}

// visit makes the calls of the users who are active on a day, and what follows from them. At the
// weekend they are fewer. The tester is active on the last day, so that the figures of the last 24 hours
// are never empty.
func (m *Maker) visit(ctx context.Context, day int) error {
	share := 1.0
	if w := m.Server.DB.Now().Weekday(); w == time.Saturday || w == time.Sunday {
		share = 0.5
	}
	var active []*connection
	tester := m.users[len(m.users)-1]
	for _, u := range m.users {
		for _, c := range u.connections {
			if m.random.Float64() < share*u.activity || u == tester && day == m.Days-1 {
				active = append(active, c)
			}
		}
	}
	if err := m.issueTokens(ctx, active); err != nil {
		return err
	}
	for range waves {
		m.wait(time.Duration(1+m.random.IntN(6)) * time.Minute)
		if err := m.wave(ctx, active); err != nil {
			return err
		}
	}
	return m.Server.RunDueJobs(ctx)
}

// issueTokens gives each connection a fresh access token, as its app gets by its refresh token.
func (m *Maker) issueTokens(ctx context.Context, list []*connection) error {
	return m.Server.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, c := range list {
			t, err := m.Server.Tokens.IssueTokens(ctx, tx, c.id, c.app.ID, "")
			if err != nil {
				return err
			}
			c.token = t.AccessToken
		}
		return nil
	})
}

// maxCallsAtOnce bounds the calls of a wave that run at the same time.
const maxCallsAtOnce = 64

// wave makes one or two calls of each connection.
func (m *Maker) wave(ctx context.Context, list []*connection) error {
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(maxCallsAtOnce)
	for _, c := range list {
		for range 1 + m.random.IntN(2) {
			kind := m.vary(c, c.app.calls[m.random.IntN(len(c.app.calls))])
			calls.Go(func() error {
				requestID, err := m.infer(ctx, c.token, kind)
				if requestID != "" && c.isLive() {
					m.mu.Lock()
					m.billed = append(m.billed, requestID)
					m.mu.Unlock()
				}
				return err
			})
		}
	}
	return calls.Wait()
}

// vary returns one call of a kind. What answers it is told how long to be: the mock by a number of words, the emulated
// providers, which serve live apps, by the usage of a model that thinks before it writes.
func (m *Maker) vary(c *connection, kind call) call {
	words := kind.words*(50+m.random.IntN(100))/100 + 1
	if m.random.IntN(60) == 0 {
		kind.model = "gpt-4o-mini" // which the app does not allow
	}
	if c.isLive() {
		output := 4 * words
		if c.long {
			output *= 4
		}
		kind.maxTokens = output + 100
		kind.text += fmt.Sprintf("\n!emu words=%d usage=%d,0,0,%d,%d", words/8, tokens.Count(kind.text)+24, output,
			output-words)
		return kind
	}
	kind.maxTokens = 2*words + 50
	kind.text += fmt.Sprintf("\n!mock words=%d", words)
	return kind
}

// endToday makes what the pages should show as the latest: a voice session, a refund, a pending request for a higher
// cap, and a paused connection.
func (m *Maker) endToday(ctx context.Context) error {
	now := m.begin.AddDate(0, 0, m.Days)
	m.moveTo(now.Add(-3 * time.Hour))
	tester := m.users[len(m.users)-1]
	cards, planner := tester.connections[1], tester.connections[2]
	if err := m.issueTokens(ctx, []*connection{planner}); err != nil {
		return err
	}
	err := errors.Join(m.talk(ctx, planner.token), m.refund(ctx))
	if err != nil {
		return err
	}
	m.moveTo(now.Add(-time.Hour))
	err = m.call(ctx, "POST", "/v1/connections/"+cards.id+"/allocation-requests", map[string]any{
		"target_allocation_mc": 20 * money.Dollar,
		"reason":               "Your exam has 240 more cards.",
	}, cards.app.sign, nil)
	if err != nil {
		return err
	}
	m.moveTo(now.Add(-40 * time.Minute))
	err = m.Server.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := m.Server.Ledger.DoTx(ctx, tx, rules.Freeze{ConnectionID: planner.id, By: rules.FrozenByUser})
		return err
	})
	return errors.Join(err, m.Server.RunDueJobs(ctx))
}

// refund lets the operator refund the latest charge that a user's own money paid.
func (m *Maker) refund(ctx context.Context) error {
	for _, requestID := range slices.Backward(m.billed) {
		entry, err := store.GetEntry(ctx, m.Server.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
		if err != nil {
			return err
		}
		if entry.PaidBy == rules.PaidByWallet {
			return m.call(ctx, "POST", "/v1/operator/ledger/"+entry.ID+"/reverse",
				map[string]string{"reason": "The answer was cut off."}, m.asOperator, nil)
		}
	}
	return errors.New("no charge to refund")
}
