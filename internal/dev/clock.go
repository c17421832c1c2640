package dev

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
	"github.com/purserhq/purser/internal/base/timestamp"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/base/web"
)

// Bounds of the clock. PostgreSQL has partitions of this year and the next, and a step ends in one of them; the whole
// stays far below what a time in an id can hold.
const (
	maxClockStep  = 365 * day
	maxClockAhead = 20 * maxClockStep
	day           = 24 * time.Hour
)

// A clock moves the time of a development node ahead of its machine's (decision 210). It goes forward only, because
// ids and rows rise with time, and how far it is ahead is kept in the database.
type clock struct {
	db    *db.DB
	fixed bool // see errFixed

	moving sync.Mutex // held while it moves

	mu      sync.Mutex // of the rest
	ahead   time.Duration
	waiting map[chan time.Time]struct{} // jobs' tickers
}

// now is the time of the emulators. It may be asked before the database is open.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// start goes on where the clock of the database was, or at atLeast.
func (c *clock) start(ctx context.Context, d *db.DB, atLeast time.Duration) error {
	c.db = d
	text, err := settings.Get(ctx, d, settings.ClockAhead)
	if err != nil {
		return err
	}
	kept, err := settings.ParseClockAhead(text)
	if err != nil {
		return err
	}
	if atLeast != 0 && atLeast < kept {
		return fmt.Errorf("--clock: the clock of this database is %s ahead already, and goes forward only: ids and "+
			"ledger rows rise with time; an empty data folder has a new one", formatAhead(kept))
	}
	if c.fixed && kept > 0 {
		return fmt.Errorf("the clock of this database is %s ahead, and that of the identity provider is not: unset "+
			"PURSER_OIDC_ISSUER, or take an empty data folder", formatAhead(kept))
	}
	c.set(kept)
	for c.ahead < atLeast {
		if err := c.advance(ctx, min(atLeast-c.ahead, maxClockStep)); err != nil {
			return err
		}
	}
	return nil
}

func (c *clock) set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
	c.db.SetBack(-ahead)
}

// errFixed is the refusal where people sign in with an identity provider: what it says ends by its own clock.
var errFixed = apierr.InvalidRequest.Errorf("advance: the clock can't move while PURSER_OIDC_ISSUER is set, because " +
	"the identity provider's clock does not")

// advance moves the clock, and has all jobs run at once.
func (c *clock) advance(ctx context.Context, by time.Duration) error {
	if c.fixed {
		return errFixed
	}
	c.moving.Lock()
	defer c.moving.Unlock()
	ahead, err := c.store(ctx, by)
	if err != nil {
		return err
	}
	c.set(ahead)
	if err := c.db.EnsureYears(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ticks := range c.waiting {
		select {
		case ticks <- time.Now():
		default: // it has one that it has not taken
		}
	}
	return nil
}

// store adds to how far the database's clock is ahead, and returns it. What others have added since counts.
func (c *clock) store(ctx context.Context, by time.Duration) (ahead time.Duration, err error) {
	err = c.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		text, err := settings.Lock(ctx, tx, settings.ClockAhead)
		if err != nil {
			return err
		}
		before, err := settings.ParseClockAhead(text)
		if err != nil {
			return err
		}
		if ahead = before + by; ahead > maxClockAhead {
			return apierr.InvalidRequest.Errorf("advance: the clock would be %s ahead, and may be %s at most",
				formatAhead(ahead), formatAhead(maxClockAhead))
		}
		return settings.Set(ctx, tx, settings.ClockAhead, strconv.FormatInt(ahead.Microseconds(), 10))
	})
	return ahead, err
}

// every is the ticks.Source of the node's jobs: an advance is a tick for all of them.
func (c *clock) every(interval time.Duration) (<-chan time.Time, func()) {
	ticks, t, ended := make(chan time.Time, 1), time.NewTicker(interval), make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = map[chan time.Time]struct{}{}
	}
	c.waiting[ticks] = struct{}{}
	go func() {
		for {
			select {
			case at := <-t.C:
				select {
				case ticks <- at:
				default:
				}
			case <-ended:
				return
			}
		}
	}()
	return ticks, func() {
		t.Stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, ticks)
		close(ended)
	}
}

// A Duration is how far a clock is moved, written as 30d, 36h, 1d12h or 90m, also with a plus sign.
type Duration time.Duration

// UnmarshalText reads a flag.
func (d *Duration) UnmarshalText(text []byte) (err error) {
	*d, err = parseDuration(string(text))
	return err
}

var errDuration = errors.New("must be a time to go forward, such as 30d, 36h or 1d12h, of at least a second")

func parseDuration(text string) (Duration, error) {
	rest, length := strings.TrimPrefix(strings.TrimSpace(text), "+"), time.Duration(0)
	if days, after, ok := strings.Cut(rest, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, errDuration
		}
		rest, length = after, time.Duration(n)*day
	}
	if rest != "" {
		more, err := time.ParseDuration(rest)
		if err != nil || more < 0 || strings.ContainsAny(rest, "+-") {
			return 0, errDuration
		}
		length += more
	}
	if length < time.Second || length > maxClockAhead {
		return 0, errDuration
	}
	return Duration(length), nil
}

// formatAhead writes a length as parseDuration reads it.
func formatAhead(length time.Duration) string {
	days, rest := length/day, (length % day).Round(time.Second).String()
	for _, zeros := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(rest, zeros) {
			rest = rest[:len(rest)-2]
		}
	}
	switch {
	case days == 0:
		return rest
	case rest == "0s":
		return fmt.Sprintf("%dd", days)
	default:
		return fmt.Sprintf("%dd%s", days, rest)
	}
}

// clockState is the body of /v1/dev/clock.
type clockState struct {
	Now   string `json:"now"`
	Ahead string `json:"ahead"` // of this machine's clock, or of the database's
}

func (c *clock) state() clockState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clockState{timestamp.Format(c.db.Now().UnixMicro()), formatAhead(c.ahead)}
}

// mount serves the page and the route of the clock. Without credentials: everything here is for fake money. A page of
// another site can send neither, the form because its origin is not ours, the JSON because no preflight allows it.
func (c *clock) mount(rt *web.Router) {
	rt.HandlePage("GET /dev/clock", func(w http.ResponseWriter, _ *http.Request) error {
		return ui.Render(w, http.StatusOK, c.form())
	})
	rt.HandlePage("POST /dev/clock", c.submit)
	rt.Handle("GET /v1/dev/clock", func(w http.ResponseWriter, _ *http.Request) error {
		return web.WriteJSON(w, http.StatusOK, c.state())
	})
	rt.Handle("POST /v1/dev/clock", func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Advance string `json:"advance"`
		}
		if err := web.ReadJSON(r, &body); err != nil {
			return err
		}
		if err := c.move(r.Context(), body.Advance); err != nil {
			return err
		}
		return web.WriteJSON(w, http.StatusOK, c.state())
	})
}

func (c *clock) move(ctx context.Context, text string) error {
	by, err := parseDuration(text)
	if err == nil && time.Duration(by) > maxClockStep {
		err = fmt.Errorf("may be %s at a time", formatAhead(maxClockStep))
	}
	if err != nil {
		return apierr.InvalidRequest.Errorf("advance: %s", err)
	}
	return c.advance(ctx, time.Duration(by))
}

func (c *clock) submit(w http.ResponseWriter, r *http.Request) error {
	err := c.move(r.Context(), r.PostFormValue("advance"))
	var refused *apierr.Error
	if errors.As(err, &refused) && refused.Code == apierr.InvalidRequest {
		f := c.form()
		f.Fields[0].Value = r.PostFormValue("advance")
		text := strings.TrimPrefix(refused.Message, "advance: ")
		f.Errors = []ui.Problem{{Field: "advance", Text: strings.ToUpper(text[:1]) + text[1:] + "."}}
		return ui.Render(w, http.StatusBadRequest, f)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/dev/clock", http.StatusSeeOther)
	return nil
}

func (c *clock) form() ui.Form {
	lead := "It is " + c.db.Now().UTC().Format("2 Jan 2006, 15:04 UTC") + " here"
	if ahead := c.state().Ahead; ahead == "0s" {
		lead += ", as elsewhere."
	} else {
		lead += ", " + ahead + " ahead."
	}
	return ui.Form{
		Heading: "Clock",
		Lead:    lead,
		Note: "The clock goes forward only. What is due by then happens: retries of webhooks, the first of the " +
			"month, ends of tokens, sessions and holds. You may have to sign in again.",
		Action: "/dev/clock",
		Fields: []ui.Input{{Name: "advance", Label: "Move it forward by", Type: "text", Complete: "off", Value: "1d",
			Hint: "Such as 90m, 36h, 30d or 1d12h."}},
		Button: "Move forward",
	}
}
