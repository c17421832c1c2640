package voice

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policies"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/ledger/tiers"
)

// usageMC3M is the usage of a reply that costs the user about 3,000,000 mc.
const usageMC3M = `{"input_tokens":600,"output_tokens":200,"input_token_details":{"text_tokens":300,"audio_tokens":300},
	"output_token_details":{"text_tokens":20,"audio_tokens":180}}`

// A growing is a session whose context, or whose replies, become more than its hold covers.
type growing struct {
	*world
	side, control *socket
	asked         int // replies
}

// tell sends an event on the sideband, if the session has not ended.
func (g *growing) tell(event string) { tell(g.side, event) }

func tell(s *socket, event string) {
	_ = s.ws.Write(s.t.Context(), websocket.MessageText, []byte(event))
}

// said lets a reply begin and end with the usage of so many tokens, whatever the session wants.
func (g *growing) said(inText, inAudio, out int) {
	id := g.begun()
	g.over(id, inText, inAudio, out)
}

func (g *growing) begun() (id string) {
	g.asked++
	id = fmt.Sprint("resp_", g.asked)
	g.tell(createdEvent(id))
	return id
}

// over ends a reply.
func (g *growing) over(id string, inText, inAudio, out int) {
	g.tell(doneEvent(id, "completed", fmt.Sprintf(`{"input_tokens":%d,"output_tokens":%d,
		"input_token_details":{"text_tokens":%d,"audio_tokens":%d},"output_token_details":{"audio_tokens":%d}}`,
		inText+inAudio, out, inText, inAudio, out)))
}

// spoke lets the user speak for so many seconds, by the provider's clock.
func (g *growing) spoke(seconds int) {
	g.tell(`{"type":"input_audio_buffer.speech_started","audio_start_ms":0}`)
	g.tell(fmt.Sprintf(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":%d}`, 1000*seconds))
}

// app sends an event of the app, and waits until the provider has it.
func (g *growing) app(kind, members string) {
	tell(g.control, fmt.Sprintf(`{"type":%q,%s}`, kind, members))
	if kind != "response.create" {
		g.side.wait(kind)
	}
}

// browser reports an item of the browser.
func (g *growing) browser(item string) {
	g.tell(`{"type":"conversation.item.added","item":{"id":"item_b",` + item + `}}`)
}

// updated reports the provider's session with other instructions.
func (g *growing) updated(instructions string) {
	g.tell(fmt.Sprintf(`{"type":"session.updated","session":{"instructions":%q}}`, instructions))
}

// growths are what can become more than a hold covers: who adds it, what, and when.
var growths = []struct {
	name, more string // more members of the creation
	grow       func(g *growing)
}{
	{"the user speaks for three minutes", "", func(g *growing) { g.spoke(180); g.said(150, 1800, 50) }},
	{"the user has not stopped", "", func(g *growing) {
		g.tell(`{"type":"input_audio_buffer.speech_started","audio_start_ms":0}`)
		g.pass(45 * time.Second)
		g.said(150, 1300, 50)
	}},
	{"the user speaks during the reply", "", func(g *growing) {
		id := g.begun()
		g.spoke(180)
		g.over(id, 150, 10, 50)
		g.said(150, 1900, 50)
	}},
	{"the app's text", "", func(g *growing) {
		g.app("conversation.item.create", longText("user"))
		g.said(20_150, 0, 50)
	}},
	{"the app's text, and it asks for the reply", "", func(g *growing) {
		g.app("conversation.item.create", longText("user"))
		g.app("response.create", `"response":{}`)
		g.said(20_150, 0, 50)
	}},
	{"the app's text during the reply", "", func(g *growing) {
		id := g.begun()
		g.app("conversation.item.create", longText("user"))
		g.over(id, 150, 10, 50)
		g.said(20_250, 0, 50)
	}},
	{"the app's text right after the reply", "", func(g *growing) {
		g.said(150, 10, 50)
		g.app("conversation.item.create", longText("user"))
		g.said(20_250, 0, 50)
	}},
	{"the app's system message", "", func(g *growing) {
		g.app("conversation.item.create", longText("system"))
		g.said(20_150, 0, 50)
	}},
	{"the app's tool result", "", func(g *growing) {
		g.app("conversation.item.create", `"item":{"type":"function_call_output","call_id":"call_1","output":"`+
			strings.Repeat("word ", 20_000)+`"}`)
		g.said(20_150, 0, 50)
	}},
	{"the app's instructions", "", func(g *growing) {
		g.app("session.update", `"session":{"instructions":"`+strings.Repeat("word ", 12_000)+`"}`)
		g.said(12_150, 0, 50)
	}},
	{"the app's tools", "", func(g *growing) {
		g.app("session.update", `"session":{"tools":[{"type":"function","name":"look","description":"`+
			strings.Repeat("word ", 20_000)+`"}]}`)
		g.said(20_150, 0, 50)
	}},
	{"instructions of one reply", "", func(g *growing) {
		g.app("response.create", `"response":{"instructions":"`+strings.Repeat("word ", 12_000)+`"}`)
		g.said(12_150, 0, 50)
	}},
	{"the browser's text", "", func(g *growing) {
		g.browser(`"type":"message","role":"user","content":[{"type":"input_text","text":"` +
			strings.Repeat("word ", 20_000) + `"}]`)
		g.said(20_150, 0, 50)
	}},
	{"the browser's text during the reply", "", func(g *growing) {
		id := g.begun()
		g.browser(`"type":"message","role":"user","content":[{"type":"input_text","text":"` +
			strings.Repeat("word ", 20_000) + `"}]`)
		g.over(id, 150, 10, 50)
		g.said(20_250, 0, 50)
	}},
	{"the browser's image", "", func(g *growing) {
		g.browser(`"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:` +
			strings.Repeat("A", 40_000) + `"}]`)
		g.said(15_000, 0, 50)
	}},
	{"the browser's tool result", "", func(g *growing) {
		g.browser(`"type":"function_call_output","call_id":"call_x","output":"` + strings.Repeat("word ", 20_000) + `"`)
		g.said(20_150, 0, 50)
	}},
	{"the browser's instructions", "", func(g *growing) {
		g.updated(strings.Repeat("word ", 9_000))
		g.said(9_150, 0, 50)
	}},
	{"the browser's instructions, as allowed", `,"client_updatable":["instructions"]`, func(g *growing) {
		g.updated(strings.Repeat("word ", 9_000))
		g.said(9_150, 0, 50)
	}},
	{"replies outside the conversation", "", func(g *growing) {
		for i := range 4 {
			g.tell(strings.Replace(createdEvent(fmt.Sprint("resp_", i+1)), `"conv_1"`, "null", 1))
		}
		for i := range 4 {
			g.asked++
			g.over(fmt.Sprint("resp_", i+1), 300, 300, 180)
		}
	}},
	{"a reply that begins before the last one ends", "", func(g *growing) {
		first, second := g.begun(), g.begun()
		g.over(second, 300, 600, 180)
		g.over(first, 300, 300, 180)
	}},
	{"replies whose begin was missed", "", func(g *growing) {
		for i := range 4 {
			g.asked++
			g.over(fmt.Sprint("resp_", i+1), 300, 300, 180)
		}
	}},
	{"a reply of more than its limit", "", func(g *growing) { g.said(150, 10, 400) }},
	{"the provider counts what nobody added", "", func(g *growing) { g.said(60_000, 0, 50) }},
	{"the provider has lost its cache", "", func(g *growing) {
		g.asked++
		g.tell(createdEvent("resp_1"))
		g.tell(doneEvent("resp_1", "completed", `{"input_tokens":30000,"output_tokens":50,
			"input_token_details":{"text_tokens":30000,"cached_tokens_details":{"text_tokens":29900}},
			"output_token_details":{"audio_tokens":50}}`))
		g.control.wait("svc.response.settled")
		g.said(30_050, 50, 50)
	}},
}

// longText is a message of 100 kB.
func longText(role string) string {
	return fmt.Sprintf(`"item":{"type":"message","role":%q,"content":[{"type":"input_text","text":%q}]}`, role,
		strings.Repeat("word ", 20_000))
}

// TestGrowth: whatever grows after a hold, the user is never charged beyond the cap, on one node or two (F-117). Each
// kind meets each cap: max_cost_mc, a feature's bound of a reply, and the allocation. The ledger verification of each
// world finds nothing.
func TestGrowth(t *testing.T) {
	t.Parallel()
	const most = money.MC(2_100_000)
	caps := map[string]string{
		"max_cost_mc": fmt.Sprintf(`"max_cost_mc":%d`, most),
		"feature":     `"feature":"talk"`,
		"allocation":  `"max_duration_s":900`,
	}
	eachEngine(t, func(t *testing.T, e db.Engine) {
		for name, bound := range caps {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, e, "live", "full-live")
				w.exec(`INSERT INTO features (app_id, slug, display_name, description, max_cost_per_call_mc, created_us)
					VALUES ($1, 'talk', 'Talk', 'Talks.', $2, 1)`, w.app, most)
				charged := 0
				for _, k := range growths {
					if name == "allocation" {
						c, err := store.GetConnection(t.Context(), w.db, w.conn)
						if err != nil {
							t.Fatal(err)
						}
						w.do(rules.ChangeCap{ConnectionID: w.conn, TargetMC: c.ConsumedMC + most})
					}
					s := w.grow(k.grow, bound+k.more)
					charges := s.ChargedMC
					if name == "feature" { // each reply has the bound
						charges = 0
						for _, r := range s.Receipts {
							charges = max(charges, r.UserChargeMC)
						}
					}
					if charges > most {
						t.Errorf("%s: charged %d of %d, ended by %s", k.name, charges, most, *s.EndReason)
					}
					if charges == most {
						charged++
					}
					w.free()
				}
				if charged < len(growths)/2 {
					t.Errorf("vacuous: %d of %d kinds have reached the cap", charged, len(growths))
				}
			})
		}
		t.Run("two nodes", func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, e, "live", "full-live")
			const most = 6_000_000
			o := w.open(`{"model":"gpt-realtime-2.1","max_output_tokens":200,"max_cost_mc":6000000}`)
			w.beginReply(o)
			w.untilHeld()
			saved, err := w.nodes[0].loadSession(t.Context(), o.ID)
			if err != nil {
				t.Fatal(err)
			}
			w.kill(w.nodes[0], o.ID)
			side := w.sideband() // of the node that has taken it over
			slow := newRunner(w.nodes[0].node, saved)
			for _, id := range []string{"resp_1", "resp_2", "resp_3"} {
				slow.postProviderEvent([]byte(createdEvent(id)))
				slow.postProviderEvent([]byte(doneEvent(id, "completed", usageMC3M)))
			}
			slow.stopSession()
			slow.run()
			for _, id := range []string{"resp_4", "resp_5"} {
				side.send(createdEvent(id))
				side.send(doneEvent(id, "completed", usageMC3M))
			}
			w.until("they are charged", func() bool { return w.get(o.ID).ResponseCount == 5 })
			w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
			w.until("the session ends", func() bool { return w.get(o.ID).Status == session.Ended })
			if s := w.get(o.ID); s.ChargedMC != most {
				t.Errorf("charged %d of %d in %d replies", s.ChargedMC, most, s.ResponseCount)
			}
			w.free()
		})
	})
}

// grow opens a session, lets something grow, and returns the session when it has ended.
func (w *world) grow(grow func(*growing), members string) Session {
	w.t.Helper()
	o := w.open(`{"model":"gpt-realtime-2.1","max_output_tokens":200,` + members + `}`)
	g := &growing{world: w, side: w.connect(o)}
	g.control = w.dial(o.ControlURL, w.token)
	g.control.wait("svc.session.started")
	grow(g)
	w.until("the replies are settled, or the session has ended", func() bool {
		return g.control.count("svc.response.settled") >= g.asked || w.get(o.ID).Status == session.Ended
	})
	w.call(w.nodes[0], "POST", "/v1/realtime/sessions/"+o.ID+"/end", `{"when":"immediate"}`, w.token)
	w.until("the session ends", func() bool { return w.get(o.ID).Status == session.Ended })
	return w.get(o.ID)
}

// TestGrowthMeetsTheDay: what grows after a hold may pass a limit of a day, by as much as it has grown, because it is
// only known when it is spent (decision 047). No other session begins then, and the limit counts all of it.
func TestGrowthMeetsTheDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tier, code string
		dayMC      money.MC
		spent      func(w *world) string // the counter of the day
	}{
		{tiers.Sandbox, "sandbox_live_cost_limited", money.Dollar, func(*world) string { return "live/wac_dev" }},
		{tiers.LimitedLive, "daily_limit_reached", tiers.PolicyOf(tiers.LimitedLive).ConnectionDayMC,
			func(w *world) string { return tiers.UserSpendSubject(w.app, "wac_user") }},
	} {
		t.Run(c.tier, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db.SQLite, "live", c.tier)
			// at any pace
			book := policies.Fixed(policy.Policy{SandboxDayMC: money.Dollar, SandboxTotalDayMC: money.Max})
			w.nodes[0].handler.Policies, w.nodes[0].node.biller.policies = book, book
			const body = `{"model":"gpt-realtime-2.1","max_output_tokens":200}`
			var sum, last money.MC
			for i := 0; ; i++ {
				status, answer := w.call(w.nodes[0], "POST", "/v1/realtime/sessions", body, w.token)
				if status != 201 {
					if !strings.Contains(string(mustJSON(answer)), c.code) || i == 0 {
						t.Fatalf("session %d: %d %v", i, status, answer)
					}
					break
				}
				w.call(w.nodes[0], "POST", fmt.Sprint("/v1/realtime/sessions/", answer["id"], "/end"), "{}", w.token)
				w.until("it has ended", func() bool { return w.get(fmt.Sprint(answer["id"])).Status == session.Ended })
				s := w.grow(growths[i%len(growths)].grow, `"max_duration_s":900`)
				last = 0
				for _, r := range s.Receipts {
					if last += r.UserChargeMC; c.tier == tiers.Sandbox {
						last += r.ProviderCostMC - r.UserChargeMC
					}
				}
				sum += last
			}
			if sum-last >= c.dayMC || sum < c.dayMC/2 {
				t.Errorf("%d spent of %d, %d of it by the last session", sum, c.dayMC, last)
			}
			var buckets string
			if err := w.db.QueryRowContext(t.Context(), `SELECT buckets FROM counters WHERE subject = $1`,
				c.spent(w)).Scan(&buckets); err != nil {
				t.Fatal(err)
			}
			counted := money.MC(0)
			for bucket := range strings.FieldsSeq(buckets) { // <time>:<amount>
				_, amount, _ := strings.Cut(bucket, ":")
				n, _ := strconv.ParseInt(amount, 10, 64)
				counted += money.MC(n)
			}
			if counted != sum {
				t.Errorf("the limit has counted %d of %d", counted, sum)
			}
			w.free()
		})
	}
}
