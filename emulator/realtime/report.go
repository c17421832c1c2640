package realtime

import (
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/purserhq/purser/emulator/exchange"
)

// A callReport is a call as GET /emulator/realtime shows it.
type callReport struct {
	ID      string        `json:"id"`
	Number  int           `json:"number"` // from 1
	State   string        `json:"state"`  // live or ended
	End     string        `json:"end"`    // hangup, expired, browser, closed; "" while it is live
	Created time.Time     `json:"created_at"`
	Ended   *time.Time    `json:"ended_at"`
	Media   bool          `json:"media"`
	Browser string        `json:"browser"` // none, connecting, connected or gone
	Session sessionObject `json:"session"`

	Replies int  `json:"replies"`
	Active  bool `json:"reply_active"`
	Playing bool `json:"playing"`

	Sidebands    int   `json:"sidebands"`        // attached now
	Dials        int   `json:"sideband_dials"`   // handshakes attempted
	RefusedDials int   `json:"sideband_refused"` // of these, refused
	Drops        int   `json:"sideband_drops"`   // by the script
	Hangups      int   `json:"hangups"`          // requested
	AudioOutMS   int64 `json:"audio_out_ms"`     // what the user has heard
	AudioInMS    int64 `json:"audio_in_ms"`      // what the user has said
	PacketsOut   int64 `json:"packets_out"`      // of media, silence among them
	PacketsIn    int64 `json:"packets_in"`       //
	// the times without a sideband, the first before there was one
	Unwatched     []unwatchedGap `json:"unwatched"`
	UnwatchedMS   int64          `json:"unwatched_ms"`       // the longest of them
	UnwatchedLoud int64          `json:"unwatched_audio_ms"` // the most audio, in and out, in one of them

	Made   []madeReply   `json:"made"`   // the replies that have ended, oldest first
	Events []loggedEvent `json:"events"` // the latest, by their types
}

// A madeReply is a reply that has ended, with what it used, whether or not that was sent.
type madeReply struct {
	Number       int       `json:"number"` // from 1
	Status       string    `json:"status"`
	InputTokens  int       `json:"input_tokens"`  // of the whole conversation, so no two replies have as many
	OutputTokens int       `json:"output_tokens"` //
	Began        time.Time `json:"began_at"`
	Ended        time.Time `json:"ended_at"`
	Sidebands    int       `json:"sidebands"` // attached at its end
}

// newReport returns the report of a call.
func (c *call) newReport(now time.Time) callReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := callReport{
		ID:           c.id,
		Number:       c.number,
		State:        "live",
		End:          c.end,
		Created:      c.created,
		Media:        !c.script.noMedia,
		Session:      c.session,
		Browser:      c.browserState(),
		Replies:      c.replies,
		Active:       c.reply != nil,
		Playing:      c.currentPlayback() != nil,
		Sidebands:    len(c.sockets),
		Dials:        c.dials,
		RefusedDials: c.refusedDials,
		Drops:        c.drops,
		Hangups:      c.hangups,
		AudioOutMS:   c.playedUntil(now).Milliseconds(),
		AudioInMS:    c.heardUntil(now).Milliseconds(),
		Unwatched:    slices.Clone(c.unwatched),
		Made:         append([]madeReply{}, c.made...),
		Events:       slices.Clone(c.log),
	}
	if c.end != "" {
		r.State, r.Ended = "ended", &c.endedAt
	}
	if c.peer != nil {
		r.PacketsOut, r.PacketsIn = c.peer.packetsOut.Load(), c.peer.packetsIn.Load()
	}
	if len(r.Unwatched) == 0 {
		r.Unwatched = []unwatchedGap{{From: c.created}}
	}
	if last := &r.Unwatched[len(r.Unwatched)-1]; !c.unwatchedSince.IsZero() {
		*last = last.endingAt(now, c.playedUntil(now), c.heardUntil(now))
	}
	for _, g := range r.Unwatched {
		r.UnwatchedMS, r.UnwatchedLoud = max(r.UnwatchedMS, g.MS), max(r.UnwatchedLoud, g.AudioOutMS+g.AudioInMS)
	}
	return r
}

// browserState returns the state of the browser's connection.
func (c *call) browserState() string {
	switch {
	case c.left:
		return "gone"
	case c.peer == nil:
		return "none"
	case c.peer.connected.Load():
		return "connected"
	}
	return "connecting"
}

func (e *API) listCalls(w http.ResponseWriter, _ *http.Request) {
	now, list := time.Now(), []callReport{}
	var live, hangups, replies int
	var longest, loudest int64
	for _, c := range e.calls.copyCalls() {
		r := c.newReport(now)
		r.Events, r.Made = nil, nil
		list = append(list, r)
		if r.State == "live" {
			live++
		}
		hangups, replies = hangups+r.Hangups, replies+r.Replies
		longest, loudest = max(longest, r.UnwatchedMS), max(loudest, r.UnwatchedLoud)
	}
	exchange.SendJSON(w, http.StatusOK, exchange.Encode(map[string]any{
		"live":               live,
		"calls":              len(list),
		"hangups":            hangups,
		"replies":            replies,
		"unwatched_ms":       longest,
		"unwatched_audio_ms": loudest,
		"data":               list,
	}))
}

// forgetCalls deletes the ended calls.
func (e *API) forgetCalls(w http.ResponseWriter, _ *http.Request) {
	e.calls.mu.Lock()
	e.calls.calls = slices.DeleteFunc(e.calls.calls, (*call).hasEnded)
	e.calls.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (e *API) getCall(w http.ResponseWriter, r *http.Request) {
	c := e.calls.findCall(r.PathValue("id"))
	if c == nil {
		http.NotFound(w, r)
		return
	}
	exchange.SendJSON(w, http.StatusOK, exchange.Encode(c.newReport(time.Now())))
}

// A steerCommand triggers an event outside the API, such as speech of the user.
type steerCommand struct {
	Do    string `json:"do"`
	Text  string `json:"text"`  // of what is said
	MS    int    `json:"ms"`    // how long; 1000 if it is missing
	Fast  int    `json:"fast"`  // how many times as fast as it is counted
	Code  int    `json:"code"`  // of a drop
	Event raw    `json:"event"` // of the browser, or of the provider
}

// postCommand runs a steerCommand, and answers with the call's report.
func (e *API) postCommand(w http.ResponseWriter, r *http.Request) {
	c := e.calls.findCall(r.PathValue("id"))
	if c == nil {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := steerCommand{MS: 1000, Fast: 1, Code: 1006}
	if _, _, err := exchange.DecodeStrict(body, &s); err != nil || s.Fast < 1 || s.MS < 0 {
		http.Error(w, "the emulator wants {\"do\":…}", http.StatusBadRequest)
		return
	}
	if !c.runCommand(&s) {
		http.Error(w, "the emulator cannot do that, or the call has ended", http.StatusConflict)
		return
	}
	exchange.SendJSON(w, http.StatusOK, exchange.Encode(c.newReport(time.Now())))
}

func (c *call) runCommand(s *steerCommand) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != "" {
		return false
	}
	switch s.Do {
	case "speak":
		c.speakFor(s.Text, time.Duration(s.MS)*time.Millisecond, s.Fast)
	case "speech_start":
		c.startTalking(s.Text, s.Fast)
	case "speech_stop":
		c.stopTalking()
	case "browser":
		c.receiveEvent(s.Event, nil)
	case "emit":
		c.sendEvent("emitted", s.Event, true)
	case "drop":
		for socket := range c.sockets {
			c.dropSideband(socket, s.Code)
		}
	case "vanish":
		c.loseBrowser()
	case "expire":
		c.expireCall()
	case "close":
		c.finishCall("closed", s.Code)
	default:
		return false
	}
	return true
}
