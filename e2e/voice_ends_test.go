package e2e

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

// An end is a way in which sessions end.
type end struct {
	reason   string
	how      string // "" = the only way
	only     string // "emulator" where the mock voice has no such end
	options  string // of the session
	steering string
	spendCap string
	replies  int // that are billed, at least
	begin    func(c *caller)
	finish   func(c *caller) // takes long, while others begin
}

// ends are those of sessions that share a node. What takes long comes first, and
// goes on while the others do.
var ends = []end{
	{
		reason:  session.MaxDuration,
		options: `"max_duration_s":30`,
		replies: 1,
		begin:   func(c *caller) { c.begin(); c.converses() },
		finish:  func(*caller) {},
	},
	{
		reason:  session.BudgetNotApproved,
		options: `"budget_block_mc":1,"confirm_each_block":true`,
		replies: 1,
		begin: func(c *caller) {
			c.begin()
			c.listen(c.p)
			c.converses()
		},
		finish: func(c *caller) {
			by, err := time.Parse(time.RFC3339Nano, fmt.Sprint(c.told("svc.session.budget_checkpoint")["approve_by"]))
			if err != nil {
				c.t.Fatal(err)
			}
			time.Sleep(time.Until(by)) // the app thinks about it for too long
			c.word()
			c.told("svc.session.ending")
		},
	},
	{reason: session.ControlLost, options: `"on_control_lost":"end"`, replies: 1, begin: func(c *caller) {
		c.begin()
		c.listen(c.p)
		c.converses()
		if err := c.control.Close(websocket.StatusNormalClosure, ""); err != nil {
			c.t.Fatal(err)
		}
	}, finish: func(*caller) {}},
	{reason: session.IdleTimeout,
		replies: 1,
		begin: func(c *caller) {
			// development has no setting for it
			write(c.t, c.p, `UPDATE realtime_sessions SET state = REPLACE(state, '"IdleTimeout":120000000000', '"IdleTimeout":15000000000') WHERE id = $1`, c.id)
			c.begin()
			c.converses()
		},
		finish: func(*caller) {}},
	{reason: session.AppEnded, replies: 3, begin: func(c *caller) {
		c.begin()
		c.converses()
		c.converses()
		c.answered()
		c.end(c.p, session.AfterHeard)
		c.heardOut()
	}},
	{reason: session.AppEnded, how: "immediate", steering: "words=100", replies: 1, begin: func(c *caller) {
		c.begin()
		c.answered()
		c.end(c.p, session.Immediate)
	}},
	{
		reason:  session.AppEnded,
		how:     "after approvals",
		options: `"budget_block_mc":1,"confirm_each_block":true`,
		replies: 2,
		begin: func(c *caller) {
			c.begin()
			c.listen(c.p)
			for range 2 {
				c.converses()
				c.told("svc.session.budget_checkpoint")
				c.tells(`{"type":"svc.session.approve_block"}`)
			}
			c.end(c.p, session.Immediate)
		},
	},
	{reason: session.AppEnded, how: "without control", replies: 2, begin: func(c *caller) {
		c.begin()
		c.listen(c.p)
		c.converses()
		if err := c.control.Close(websocket.StatusNormalClosure, ""); err != nil {
			c.t.Fatal(err)
		}
		c.converses()
		if came := c.again(); came != "401" && came != "4001" && came != "4009" {
			c.t.Errorf("a used ticket: %s", came)
		}
		c.end(c.p, session.Immediate)
	}},
	{reason: session.ClientClosed, how: "in a reply", steering: "leave_close words=100", replies: 1,
		begin: func(c *caller) {
			c.begin()
			c.answered()
			c.leaves()
		}},
	{reason: session.ClientClosed, steering: "leave_close", replies: 1, begin: func(c *caller) {
		c.begin()
		c.converses()
		c.leaves()
	}},
	// max_cost and allocation_exhausted are proved by TestBudget and TestOutputLimit of package voice: replies are
	// shortened to what fits, so that neither is reached by one reply.
	{reason: session.ConfigTampering, replies: 1, begin: func(c *caller) {
		c.begin()
		c.converses()
		c.listen(c.p)
		for range 3 {
			c.sends(`{type: 'session.update', session: {type: 'realtime', max_output_tokens: 4000}}`)
			c.told("svc.session.config_reset")
		}
	}},
	{
		reason:   session.SidebandLost,
		only:     "emulator",
		steering: "drop=output_audio_buffer.stopped down=forever",
		replies:  1,
		begin:    func(c *caller) { c.begin(); c.converses() },
	},
	{
		reason:   session.ProviderError,
		only:     "emulator",
		steering: "only=2,3,4 fail=server_error",
		replies:  1,
		begin: func(c *caller) {
			c.begin()
			c.converses()
			for range 3 {
				c.word()
				c.hears("response.done")
			}
		},
	},
	{reason: session.ProviderError, how: "refused", only: "emulator", steering: "status=503", begin: func(c *caller) {
		c.expect("502")
		if came := c.talk(); came != "502 provider_error" {
			c.t.Errorf("the browser is told %s", came)
		}
	}},
	{reason: session.TicketExpired,
		begin: func(c *caller) {
			// a minute later
			write(c.t, c.p, `UPDATE realtime_sessions SET state = REPLACE(state, '"TicketExpiresUS":' || ticket_until_us, '"TicketExpiresUS":1'), ticket_until_us = 1 WHERE id = $1`, c.id)
			if came := c.talk(); came != "401 invalid_ticket" && came != "4001" && came != "4009" {
				c.t.Errorf("the browser is told %s", came)
			}
		}},
	// in the middle of a word
	{reason: session.ConnectionRevoked, steering: "words=100", replies: 1, begin: func(c *caller) {
		c.begin()
		c.answered()
		manage(c.t, c.p, "POST", "/v1/connections/"+c.conn+"/revoke", "", nil)
	}},
	{reason: session.ConnectionFrozen, replies: 1, begin: func(c *caller) {
		c.begin()
		c.converses()
		administer(c.t, c.p, "POST", "/v1/operator/connections/"+c.conn+"/freeze", `{"reason":"It spends fast."}`)
	}},
}

// TestVoiceEnds talks in Chromium, by WebRTC with the emulated model and by its
// socket with the mock voice, and ends each session in another way.
func TestVoiceEnds(t *testing.T) {
	testkit.Long(t, "package voice proves each end; TestTypeScriptVoice talks in the browser")
	t.Parallel()
	for _, from := range []string{"mock", "emulator"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			provider, flags := "", []string{"--providers=mock"}
			if from == "emulator" {
				provider, flags = emulatedVoice(t)
			}
			eachNode(t, func(t *testing.T, p *servertest.Process) { endAll(t, p, from, provider, flags) }, flags...)
		})
	}
}

// emulatedVoice starts an emulator, and returns its address, and how a node finds it.
func emulatedVoice(t *testing.T) (address string, flags []string) {
	base := emulated(t).OpenAI
	return strings.TrimSuffix(base, "/v1"),
		[]string{"--providers=live", "PURSER_PROVIDERS_OPENAI_BASE_URL=" + base,
			"PURSER_PROVIDERS_OPENAI_KEY=sk-emulated"}
}

// endAll ends sessions on one node, three at a time, and at last the node.
func endAll(t *testing.T, p *servertest.Process, from, emulator string, flags []string) {
	var all sync.WaitGroup
	busy := make(chan struct{}, 3)
	for _, e := range ends {
		if e.only != "" && e.only != from {
			continue
		}
		busy <- struct{}{}
		all.Go(func() {
			done := sync.OnceFunc(func() { <-busy })
			defer done()
			t.Run(strings.TrimSpace(e.reason+" "+e.how), func(t *testing.T) {
				c := newCaller(t, p, emulator, cmp.Or(e.spendCap, "5"), e.options, "words=3 "+e.steering)
				e.begin(c)
				if e.finish != nil {
					done()
					e.finish(c)
				}
				c.over(e.reason, e.replies)
			})
		})
	}
	all.Wait()
	t.Run("app_suspended", func(t *testing.T) {
		c, app := newCaller(t, p, emulator, "5", "", "words=3"), "/v1/operator/apps/"+p.App.ID
		c.begin()
		c.converses()
		administer(t, p, "POST", app+"/suspend", `{"reason":"It is under review."}`)
		c.over("app_suspended", 1)
		administer(t, p, "POST", app+"/lift", `{"reason":"It was reviewed."}`)
	})
	t.Run(session.ServerShutdown, func(t *testing.T) {
		endWithServer(newCaller(t, p, emulator, "5", "", "words=10"), flags)
	})
}

// endWithServer stops the node while the model is heard; the next one shows how the
// session has ended.
func endWithServer(c *caller, flags []string) {
	c.t.Helper()
	c.begin()
	c.answered()
	stopped := make(chan int, 1)
	go func(p *servertest.Process) { stopped <- p.Stop() }(c.p)
	c.heardOut()
	if code := <-stopped; code != 0 {
		c.t.Errorf("the node stopped with %d", code)
	}
	c.p = servertest.Start(c.t, c.p.DB, flags...)
	c.over(session.ServerShutdown, 1)
}
