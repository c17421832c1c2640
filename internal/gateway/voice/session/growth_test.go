package session

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/pricing"
)

// growthEvents returns what can happen to a context, by the words for it.
func growthEvents() map[string]Event {
	known := storyEvents()
	item := func(bytes int) Event {
		return FromApp{AppEvent{
			Type:      "conversation.item.create",
			Item:      &Item{Type: "message", Role: "user"},
			ItemBytes: bytes,
		}}
	}
	browserItem := provided("conversation.item.added", "")
	browserItem.content.Item = &itemObject{Role: "user", Content: 10_000}
	aside := func(id string) Event {
		e := provided("response.created", "")
		e.content.Response = &responseObject{ID: id, ConversationID: []byte("null")}
		return e
	}
	asideDone := provided("response.done", "")
	asideDone.content.Response = &responseObject{
		ID:             "resp_x",
		Status:         "completed",
		ConversationID: []byte("null"),
		Usage:          []byte(`{"input_tokens":1,"output_tokens":1}`),
	}
	spoken, _ := ParseProviderEvent([]byte(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":181000}`))
	odd, _ := ParseProviderEvent([]byte(`{"type":"input_audio_buffer.speech_stopped","audio_end_ms":"soon"}`))
	began, _ := ParseProviderEvent([]byte(`{"type":"input_audio_buffer.speech_started","audio_start_ms":1000}`))
	charge := rules.Entry{Usage: "{}", Amounts: rules.Amounts{UserChargeMC: 10}}
	for word, e := range map[string]Event{
		"app item":         item(10_000),
		"small app item":   item(150),
		"browser item":     browserItem,
		"aside x":          aside("resp_x"),
		"aside y":          aside("resp_y"),
		"aside z":          aside("resp_z"),
		"aside last":       aside("resp_last"),
		"aside x done":     asideDone,
		"ask":              FromApp{AppEvent{Type: "response.create", Reply: &ReplyOptions{}}},
		"may":              MaySpend{},
		"speaks":           began,
		"spoke 3m":         spoken,
		"spoke":            odd,
		"held 2":           HoldMade{N: 2},
		"held 2 for less":  HoldMade{N: 2, MaxOutputTokens: 100},
		"refused":          HoldRefused{2, MaxCost},
		"released 2":       Released{2},
		"charged":          Settled{N: 1, ReplyID: "resp_1", Entry: &charge},
		"second charged":   Settled{N: 2, ReplyID: "resp_2", Entry: &charge},
		"another done":     doneOf("resp_2"),
		"another, limited": limitedTo("resp_2", "1024"),
	} {
		known[word] = e
	}
	return known
}

func doneOf(id string) Event {
	e := provided("response.done", id)
	e.content.Response = &responseObject{ID: id, Status: "completed", Usage: []byte(usage10)}
	return e
}

func limitedTo(id, tokens string) Event {
	e := provided("response.created", id)
	e.content.Response = &responseObject{ID: id, MaxOutputTokens: []byte(tokens)}
	return e
}

// TestContextGrows: a hold that no longer covers the next reply is made again before that reply; a reply that begins in
// between takes the new hold, or is cancelled.
func TestContextGrows(t *testing.T) {
	t.Parallel()
	known := growthEvents()
	for _, test := range []struct{ name, events, want string }{
		{"the app's item is held before the reply that it asks for", "app item, ask, released, held 2, may",
			"conversation.item.create, release 1, hold 2, response.create"},
		{"also when the reply was asked for before", "ask, app item, may, released, held 2, may",
			"conversation.item.create, release 1, hold 2, response.create"},
		{"a short one is covered by speech that was not spoken", "small app item, ask, may",
			"conversation.item.create, response.create"},
		{"many short ones are not", "small app item, small app item",
			"conversation.item.create, conversation.item.create, release 1"},
		{"what grows meanwhile is held once more", "app item, released, app item, held 2, released 2",
			"conversation.item.create, release 1, hold 2, conversation.item.create, release 2, hold 3"},
		{"no hold, no reply", "app item, ask, released, refused",
			"conversation.item.create, release 1, hold 2, svc.session.ending, session.update, hang up"},
		{"a browser's item", "browser item, released, created, held 2, done, second uncharged",
			"release 1, hold 2, settle 2, svc.response.settled, hold 3"},
		{"a reply that begins before the new hold takes it", "browser item, created, released, held 2, done",
			"release 1, hold 2, settle 2"},
		{"and is cancelled if that covers less", "browser item, another, limited, released, held 2 for less",
			"release 1, hold 2, session.update, response.cancel"},
		{"or is refused", "browser item, created, released, refused",
			"release 1, hold 2, svc.session.ending, session.update, response.cancel"},
		{"one that ends before is charged without a hold", "browser item, created, done",
			"release 1, settle 2"},
		{"a long speech, by the provider's clock", "speaks, spoke 3m", "release 1"},
		{"by ours, while it lasts", "speaks, 9s, 2s, released, held 2, 9s, 2s", "release 1, hold 2, release 2"},
		{"a short speech is covered", "speaks, 9s, spoke, created", ""},
		{"an end of unknown time counts by our clock", "speaks, 9s, spoke, speaks, 2s, spoke", "release 1"},
		{"what is added during a reply is held next", "created, app item, done, uncharged, held 2, created",
			"conversation.item.create, settle 1, svc.response.settled, hold 2"},
		{"a reply that begins while the last one is charged takes the next hold",
			"created, done, another, limited, charged, held 2 for less",
			"settle 1, svc.response.settled, hold 2, session.update, response.cancel"},
		{"replies outside the conversation end the session, and each is reset once",
			"aside x, aside y, aside z, aside last",
			"response.cancel, svc.session.config_reset, response.cancel, svc.session.config_reset, " +
				"response.cancel, svc.session.config_reset, svc.session.ending, session.update, " +
				"response.cancel, response.cancel, response.cancel, response.cancel"},
	} {
		now, s := start, at(start)
		var got []string
		events := strings.ReplaceAll(test.events, "another, limited", "another limited")
		for word := range strings.SplitSeq(events, ", ") {
			e, ok := known[strings.ReplaceAll(word, "another limited", "another, limited")]
			if !ok {
				d, err := time.ParseDuration(word)
				if err != nil {
					t.Fatalf("%s: %q is no event", test.name, word)
				}
				now, e = now.Add(d), Tick{}
			}
			var actions []Action
			s, actions = Step(s, e, now)
			for _, a := range actions {
				if p, ok := a.(ToProvider); ok {
					if raw, ok := p.Event.(json.RawMessage); ok && strings.Contains(string(raw), "response.create") {
						got = append(got, "response.create")
						continue
					}
				}
				got = append(got, describe(a)...)
			}
		}
		if line := strings.Join(got, ", "); line != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, line, test.want)
		}
	}
}

// TestHoldCoversWhatGrew: the hold of the next reply covers what was added while the last one was in progress, and the
// usage of a reply outside the conversation is not the context's.
func TestHoldCoversWhatGrew(t *testing.T) {
	t.Parallel()
	known := growthEvents()
	for _, test := range []struct {
		name, events string
		want         pricing.VoiceInput
	}{
		{"a reply", "created, done, charged",
			pricing.VoiceInput{Text: 8 + 3, TextCached: 4, Audio: 7 + 7 + 110, AudioCached: 1}},
		{"what it has read is not added again", "small app item, created, done, charged",
			pricing.VoiceInput{Text: 8 + 3, TextCached: 4, Audio: 7 + 7 + 110, AudioCached: 1}},
		{"what came later is", "created, small app item, done, charged",
			pricing.VoiceInput{Text: 8 + 3 + 91, TextCached: 4, Audio: 7 + 7 + 110, AudioCached: 1}},
		{"also speech", "created, speaks, spoke 3m, done, charged",
			pricing.VoiceInput{Text: 8 + 3, TextCached: 4, Audio: 7 + 7 + 1800 + 110, AudioCached: 1}},
		{"a reply outside the conversation, which is reset",
			"created, done, charged, held 2, aside x, aside x done, second charged",
			pricing.VoiceInput{Text: 12 + 3, Audio: 8 + 7 + 110}},
	} {
		s := at(start)
		var last Hold
		for word := range strings.SplitSeq(test.events, ", ") {
			e, ok := known[word]
			if !ok {
				t.Fatalf("%s: %q is no event", test.name, word)
			}
			var actions []Action
			s, actions = Step(s, e, start)
			for _, a := range actions {
				if h, ok := a.(Hold); ok {
					last = h
				}
			}
		}
		if last.VoiceInput != test.want {
			t.Errorf("%s: the hold covers %+v, want %+v", test.name, last.VoiceInput, test.want)
		}
	}
}
