package voice

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/money"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/catalog"
	"github.com/purserhq/purser/internal/models/pricing"
)

// A talk is an ordinary conversation up to its cap: the user speaks for some seconds, the model replies for ten, and
// all that it has read before is cached. The ledger always has room.
type talk struct {
	t       *testing.T
	s       session.State
	terms   billingTerms
	now     time.Time
	turn    int
	read    pricing.VoiceUsage // what the last reply read, cached or not
	said    pricing.VoiceUsage // what it said
	spoken  int64              // audio tokens of the user since
	charged money.MC
	costMC  money.MC // the same before any bound
	limit   int64    // the output limit at the provider
	warned  money.MC // charged when the app was warned; -1 = it was not
	holds   int
}

func newTalk(t *testing.T, model string, most money.MC, maxOutput int64) *talk {
	t.Helper()
	prices, err := catalog.Open("", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), limit: maxOutput, warned: -1}
	m, rates, ok := prices.Current().Find(model, k.now)
	if !ok {
		t.Fatal("no " + model)
	}
	k.terms = billingTerms{
		Model:           model,
		Rates:           rates.Snapshot(),
		rates:           rates,
		Shares:          policy.Shares{Margin: 200_000, Fee: 50_000},
		MaxOutputTokens: maxOutput,
		BudgetMC:        &most,
	}
	c := &creationRequest{Instructions: "You help people to cook. Be brief.", MaxCostMC: &most}
	seconds := int64(maxDurationS)
	c.MaxDurationS = &seconds
	k.s = newState(c, &m, maxOutput, false, time.Minute)
	k.s.ID, k.s.CreatedUS = "rts_1", k.now.UnixMicro()
	k.s.TicketExpiresUS = k.now.Add(ticketTTL).UnixMicro()
	k.read.TextInput = k.s.Context.TextInput / 2 // less than is held for
	for _, e := range []session.Event{
		session.Tick{}, session.TicketUsed{}, session.CallAnswered{CallID: "rtc_1"}, session.ControlUp{},
		session.SidebandUp{},
	} {
		k.step(e)
	}
	return k
}

// step gives the session an event, and answers what it asks the ledger for at once.
func (k *talk) step(e session.Event) {
	var actions []session.Action
	k.s, actions = session.Step(k.s, e, k.now)
	for _, a := range actions {
		switch a := a.(type) {
		case session.Hold:
			k.holds++
			k.step(k.hold(a))
		case session.Release:
			k.step(session.Released(a))
		case session.Settle:
			k.step(k.settle(&a))
		case session.ToProvider:
			if k.limit = k.s.Config.MaxOutputTokens; k.limit < 1 {
				k.t.Fatal("no output limit")
			}
		case session.ToApp:
			if fmt.Sprintf("%T", a.Event) == "session.spendWarningMessage" {
				k.warned = k.charged
			}
		}
	}
}

func (k *talk) hold(h session.Hold) session.Event {
	made, fitted, err := k.terms.fitMaxCost(h)
	if _, refused := errors.AsType[errOverMaxCost](err); refused {
		return session.HoldRefused{N: h.N, Code: session.MaxCost}
	}
	if err == nil {
		made.AmountMC, err = k.terms.holdAmount(fitted, k.terms.Margin, k.terms.Fee)
	}
	if err != nil {
		k.t.Fatal(err)
	}
	made.MaxOutputTokens = fitted.MaxOutputTokens
	return made
}

// settle charges a reply at most what is left of the cap, as the ledger does.
func (k *talk) settle(s *session.Settle) session.Event {
	amounts, err := pricing.ChargeVoice(k.terms.rates, s.Usage, k.terms.Margin, k.terms.Fee)
	if err != nil || s.Estimated {
		k.t.Fatalf("%+v: %v", s, err)
	}
	k.costMC += amounts.UserChargeMC
	amounts.UserChargeMC = min(amounts.UserChargeMC, *k.terms.BudgetMC-k.charged)
	k.charged += amounts.UserChargeMC
	entry := &rules.Entry{Usage: "{}", Amounts: rules.Amounts(amounts)}
	return session.Settled{N: s.N, ReplyID: s.ReplyID, Entry: entry, Usage: s.Usage}
}

func (k *talk) provide(format string, args ...any) {
	e, ok := session.ParseProviderEvent(fmt.Appendf(nil, format, args...))
	if !ok {
		k.t.Fatalf("malformed: "+format, args...)
	}
	k.step(e)
}

// pass lets time pass, a second at a time.
func (k *talk) pass(d time.Duration) {
	for range d / time.Second {
		k.now = k.now.Add(time.Second)
		k.step(session.Tick{})
	}
}

// speak lets the user speak, and the model reply for ten seconds.
func (k *talk) speak(seconds int64) {
	startMS := k.now.UnixMilli()
	k.provide(`{"type":"input_audio_buffer.speech_started","audio_start_ms":%d}`, startMS)
	k.pass(time.Duration(seconds) * time.Second)
	k.provide(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":%d}`, startMS+1000*seconds)
	k.spoken = seconds * session.AudioInputPerSecond
	k.reply(200, 50)
}

// reply lets the model say so many tokens of audio and of text, or what its limit allows.
func (k *talk) reply(audio, text int64) {
	k.turn++
	id := fmt.Sprint("resp_", k.turn)
	k.provide(`{"type":"response.created","response":{"id":%q,"conversation_id":"conv_1","max_output_tokens":%d}}`, id,
		k.limit)
	if most := k.limit; audio+text > most {
		audio = most * audio / (audio + text)
		text = most - audio
	}
	k.pass(time.Duration(audio/session.AudioOutputPerSecond) * time.Second)
	u := pricing.VoiceUsage{ // all that was read before is cached
		TextCached:  k.read.TextCached + k.read.TextInput,
		AudioCached: k.read.AudioCached + k.read.AudioInput,
		TextInput:   k.said.TextOutput,
		AudioInput:  k.said.AudioOutput + k.spoken,
		TextOutput:  text,
		AudioOutput: audio,
	}
	if k.turn == 1 {
		u.TextInput, u.TextCached = k.read.TextInput, 0
	}
	k.provide(`{"type":"response.done","response":{"id":%q,"status":"completed","usage":{"input_tokens":%d,`+
		`"output_tokens":%d,"input_token_details":{"text_tokens":%d,"audio_tokens":%d,"cached_tokens":%d,`+
		`"cached_tokens_details":{"text_tokens":%d,"audio_tokens":%d}},`+
		`"output_token_details":{"text_tokens":%d,"audio_tokens":%d}}}}`,
		id, u.Input(), u.Output(), u.TextInput+u.TextCached, u.AudioInput+u.AudioCached, u.TextCached+u.AudioCached,
		u.TextCached, u.AudioCached, u.TextOutput, u.AudioOutput)
	k.read, k.said, k.spoken = u, u, 0
}

// TestOrdinaryTalk: a cap can be spent, and is never passed.
func TestOrdinaryTalk(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model   string
		most    money.MC
		seconds int64   // that the user speaks each time
		percent float64 // of the cap that must be spent
	}{
		{"gpt-realtime-2.1", 15_000_000, 5, 85},
		{"gpt-realtime-2.1", 25_000_000, 5, 93},
		{"gpt-realtime-2.1", 50_000_000, 5, 95},
		{"gpt-realtime-2.1", 100_000_000, 5, 97},
		{"gpt-realtime-2.1", 50_000_000, 40, 90},
		{"gpt-realtime-2.1-mini", 5_000_000, 5, 90},
		{"gpt-realtime-2.1-mini", 10_000_000, 5, 90},
		{"gpt-realtime-2.1-mini", 50_000_000, 5, 97},
	} {
		k := newTalk(t, c.model, c.most, defaultMaxOutputTokens)
		for k.s.Ending == nil && k.turn < 1000 {
			k.speak(c.seconds)
		}
		spent := 100 * float64(k.charged) / float64(c.most)
		line := fmt.Sprintf("%s, %d mc, %d s a turn: %.1f %% spent, %d mc left, %d replies, %d holds, warned at %d mc",
			c.model, c.most, c.seconds, spent, c.most-k.charged, k.turn, k.holds, k.warned)
		t.Log(line)
		if k.s.Ending == nil || k.s.Ending.Reason != session.MaxCost || spent < c.percent || k.costMC != k.charged {
			t.Errorf("%s\nending %+v, cost %d of %d", line, k.s.Ending, k.costMC, k.charged)
		}
	}
}
