// Package history gives a development node a past: some weeks with apps, users, calls, refusals, payments and a voice
// session. It makes them through the server's own API and the ledger's own commands, while the database's clock is set
// back and moved from then to now. So every row is what the same requests would have left behind.
package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/purserhq/purser/emulator/stripe"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/retry"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/dev/sample"
	"github.com/purserhq/purser/internal/server"
)

// MinDays and MaxDays bound how long ago a history may begin. In MinDays everything happens that pages show.
const (
	MinDays = 14
	MaxDays = 366
)

// setting is the name of the settings row that says who makes the history.
const setting = "dev_history"

// The values of that row.
const (
	making = "making"
	made   = "made"
)

// makingTimeout is how long a process waits for another one that makes the history.
const makingTimeout = time.Minute

// Claim reports whether the caller has to make the history: the database is empty, and no other process makes one. It
// waits for another process that does.
func Claim(ctx context.Context, d *db.DB) (mine bool, err error) {
	for end := time.Now().Add(makingTimeout); ; {
		state := ""
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			mine = false
			if state, err = settings.Lock(ctx, tx, setting); err != nil || state != "" {
				return err
			}
			seeded, err := settings.Lock(ctx, tx, sample.Setting)
			if err != nil || seeded != "" {
				return err
			}
			mine = true
			return settings.Set(ctx, tx, setting, making)
		})
		if err != nil || mine || state != making || time.Now().After(end) {
			return mine, err
		}
		if !retry.Sleep(ctx, 100*time.Millisecond) {
			return false, ctx.Err()
		}
	}
}

// A Maker makes the history of an empty database.
type Maker struct {
	Server *server.Server
	Days   int // how long ago the history begins: from MinDays to MaxDays
	// Seed makes the sample data that every development node has.
	Seed func(context.Context) (sample.Data, error)
	// Stripe is the emulated Stripe that Server is configured for. It sends no events: the Maker delivers them.
	Stripe *stripe.Server

	handler http.Handler
	data    sample.Data
	begin   time.Time
	random  *rand.Rand
	apps    []*app
	users   []*user
	events  int // of Stripe that were delivered
	hook    *receiver

	mu     sync.Mutex
	billed []string // requests of the live app, oldest first
}

// Make makes the history. The server is not used for anything else, and the clock of its database is right again when
// Make returns.
func (m *Maker) Make(ctx context.Context) (err error) {
	d := m.Server.DB
	defer d.SetBack(0)
	m.handler, m.random = m.Server.Router, rand.New(rand.NewPCG(1, 60)) // the same history each time
	if m.hook, err = listenForWebhooks(); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	defer func() { err = errors.Join(err, m.hook.Close()) }()
	m.begin = d.Now().AddDate(0, 0, -m.Days)
	m.moveTo(m.begin)
	if m.data, err = m.Seed(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{m.makeApps, m.makeUsers, m.liveDays, m.endToday} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("history: %w", err)
		}
	}
	d.SetBack(0)
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := settings.Lock(ctx, tx, setting); err != nil {
			return err
		}
		return settings.Set(ctx, tx, setting, made)
	})
}

// moveTo moves the clock of the database to t. Callers move it forward only.
func (m *Maker) moveTo(t time.Time) {
	d := m.Server.DB
	d.SetBack(0)
	d.SetBack(d.Now().Sub(t))
}

// wait moves the clock forward.
func (m *Maker) wait(length time.Duration) { m.moveTo(m.Server.DB.Now().Add(length)) }
