package nodes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/gateway/voice"
	"github.com/purserhq/purser/internal/gateway/voice/session"
	"github.com/purserhq/purser/internal/models/pricing"
	"github.com/purserhq/purser/internal/testkit"
	"github.com/purserhq/purser/internal/testkit/apitest"
	"github.com/purserhq/purser/internal/testkit/calltest"
	"github.com/purserhq/purser/internal/testkit/dbtest"
	"github.com/purserhq/purser/internal/testkit/servertest"
)

const (
	stormSessions = 20
	maxUnmetered  = 15 * time.Second // of speech that no bill has (F-85, F-86)
)

// A voiceStorm is two nodes, an emulated provider that knows what each reply used, and what breaks
// the nodes.
type voiceStorm struct {
	t        *testing.T
	calls    *emulatedCalls
	cluster  *dbtest.Cluster
	database string
	data     string
	nodes    [2]*servertest.Process
	tokens   []string // access tokens, of two sessions each
	table    strings.Builder
}

// A voiceFault is one kind of fault, which lasts for a while.
type voiceFault struct {
	name  string
	lasts time.Duration
	cause func() (end func())
	// nodesLive: no node dies or sleeps, so that each reply that a sideband heard is in a bill.
	nodesLive bool
}

// madeReply is a reply that has ended, as the emulator knows it.
type madeReply struct {
	Number       int
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Began        time.Time `json:"began_at"`
	Ended        time.Time `json:"ended_at"`
	Sidebands    int
}

// TestVoiceStorm lets twenty sessions speak, breaks what serves them, and compares what the provider
// knows of each reply with the ledger: every reply is charged once and with its usage, or estimated
// within its hold, or belongs to a stretch of at most 15 s that is in no bill. No transcript is charged twice. No hold
// stays, and every call is hung up. PURSER_TEST_STORM sets how long.
func TestVoiceStorm(t *testing.T) {
	t.Parallel()
	release, err := testkit.TakeTurn("load")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	s := &voiceStorm{t: t, calls: newEmulatedCalls(t), cluster: dbtest.StartCluster(t, false), data: t.TempDir()}
	s.database = s.cluster.NewURL(t)
	s.table.WriteString("| fault | sessions | replies | charged by usage | estimated | in no bill | longest stretch " +
		"of these | longest time unwatched |\n|---|---|---|---|---|---|---|---|\n")
	for i := range s.nodes {
		s.start(i)
	}
	s.connect()
	faults := []voiceFault{
		{name: "kill -9", lasts: time.Second, cause: s.kill},
		{name: "PostgreSQL frozen 13 s", lasts: 13 * time.Second, cause: s.freeze, nodesLive: true},
	}
	limit := stormDuration(t)
	if limit > 0 {
		faults = append(faults,
			voiceFault{name: "SIGSTOP 8 s", lasts: 8 * time.Second, cause: s.sleep},
			voiceFault{name: "PostgreSQL frozen 6 s", lasts: 6 * time.Second, cause: s.freeze, nodesLive: true},
			voiceFault{name: "backends terminated", lasts: time.Second, cause: s.terminate, nodesLive: true},
			voiceFault{name: "sidebands dropped", lasts: time.Second, cause: s.drop, nodesLive: true})
	}
	for begun, rounds := time.Now(), 0; rounds == 0 || time.Since(begun) < limit; rounds++ {
		for _, f := range faults {
			if s.round(f); t.Failed() {
				return
			}
		}
	}
	servertest.Verify(t, s.database)
	if n := dbtest.Number(t, s.database, `SELECT SUM(held_mc) FROM connections`); n != 0 {
		t.Errorf("%d micro-cents are held", n)
	}
	t.Logf("\n%s", &s.table)
}

func (s *voiceStorm) start(i int) {
	s.t.Helper()
	s.nodes[i] = servertest.Start(s.t, s.database, "--data="+s.data, "--providers=live",
		"PURSER_PROVIDERS_OPENAI_BASE_URL="+s.calls.url+"/v1", "PURSER_PROVIDERS_OPENAI_KEY=sk-emulated",
		"PURSER_SANDBOX_DAY=100000")
}

// connect makes one connection for each two sessions.
func (s *voiceStorm) connect() {
	s.t.Helper()
	p := s.nodes[1] // the last one to start registered its redirect URI
	c := apitest.Client{Base: p.BaseURL, User: p.App.ClientID, Secret: p.App.ClientSecret}
	s.tokens = []string{p.Connection.AccessToken}
	for len(s.tokens) < stormSessions/2 {
		var a calltest.TestAccount
		made := c.Do(s.t, "POST", "/v1/apps/"+p.App.ID+"/test-accounts", "")
		if err := json.Unmarshal([]byte(made.Body), &a); err != nil {
			s.t.Fatal(made, err)
		}
		token, _ := calltest.Connect(s.t, p.Node, a.Email, a.Password, "100")
		s.tokens = append(s.tokens, token)
	}
	if patched := c.Do(s.t, "PATCH", "/v1/apps/"+p.App.ID, `{"transcripts":true}`); patched.Status != http.StatusOK {
		s.t.Fatal(patched)
	}
	d, err := db.Open(s.t.Context(), s.database)
	if err != nil {
		s.t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.ExecContext(s.t.Context(), `INSERT INTO transcript_consents (app_id, account_id, connection_id,
			created_us) SELECT app_id, account_id, id, 1 FROM connections`); err != nil {
		s.t.Fatal(err)
	}
}

// round opens the sessions, causes one fault, ends the sessions, and compares.
func (s *voiceStorm) round(f voiceFault) {
	s.t.Helper()
	ids := s.open()
	if s.t.Failed() {
		return
	}
	s.await("each session has charged two replies", ids, func(o voice.Session) bool { return o.ResponseCount >= 2 })
	end := f.cause()
	<-time.After(f.lasts)
	end()
	before := map[string]int64{}
	s.await("each session is known again", ids, func(o voice.Session) bool {
		before[o.ID] = o.ResponseCount
		return true
	})
	s.await("each session has charged a reply since, or has ended", ids, func(o voice.Session) bool {
		return o.Status == session.Ended || o.ResponseCount > before[o.ID]
	})
	var ends sync.WaitGroup
	for i, id := range ids {
		ends.Go(func() {
			resp := s.nodes[i%2].Call("POST", "/v1/realtime/sessions/"+id+"/end", `{"when":"after_heard"}`,
				"Authorization: Bearer "+s.tokens[i/2])
			if _ = resp.Body.Close(); resp.StatusCode != http.StatusAccepted && resp.StatusCode != http.StatusConflict {
				s.t.Errorf("end of %s: %d", id, resp.StatusCode)
			}
		})
	}
	ends.Wait()
	s.await("each session has ended", ids, func(o voice.Session) bool { return o.Status == session.Ended })
	testkit.Eventually(s.t, maxRecovery, "each call is hung up", func() bool {
		for _, c := range s.calls.list() {
			if c.State != "ended" {
				return false
			}
		}
		return true
	})
	s.compare(f, ids)
	s.calls.forget()
}

// open opens all sessions, whose users and models speak by themselves: a reply each two seconds.
func (s *voiceStorm) open() (ids []string) {
	s.t.Helper()
	ids = make([]string, stormSessions)
	var opened sync.WaitGroup
	for i := range ids {
		opened.Go(func() {
			p, bearer := s.nodes[i%2], "Authorization: Bearer "+s.tokens[i/2]
			var o struct {
				ID     string
				Client struct {
					Ticket   string
					OfferURL string `json:"offer_url"`
				}
			}
			resp := p.Call("POST", "/v1/realtime/sessions", `{"model":"gpt-realtime-2.1-mini",`+
				`"transcription":{"model":"gpt-4o-mini-transcribe"},"instructions":`+
				`"Be kind.\n!emu audio=3s fast=2 speech=400ms every=400ms turns=forever"}`, bearer)
			defer resp.Body.Close()
			if err := json.NewDecoder(resp.Body).Decode(&o); err != nil || resp.StatusCode != http.StatusCreated {
				s.t.Errorf("open: %d, %v", resp.StatusCode, err)
				return
			}
			ids[i] = o.ID
			offered := p.Call("POST", strings.TrimPrefix(o.Client.OfferURL, p.BaseURL), silentOffer,
				"Authorization: Bearer "+o.Client.Ticket, "Content-Type: application/sdp")
			if _ = offered.Body.Close(); offered.StatusCode != http.StatusCreated {
				s.t.Errorf("offer of %s: %d", o.ID, offered.StatusCode)
			}
		})
	}
	opened.Wait()
	return ids
}

// silentOffer is a browser's offer for a call without media.
const silentOffer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\nm=application 9 " +
	"UDP/DTLS/SCTP webrtc-datachannel\r\n"

// await waits until ok of each session.
func (s *voiceStorm) await(what string, ids []string, ok func(voice.Session) bool) {
	s.t.Helper()
	for i, id := range ids {
		testkit.Eventually(s.t, testkit.Patience, what, func() bool {
			resp := s.nodes[i%2].Call("GET", "/v1/realtime/sessions/"+id, "", "Authorization: Bearer "+s.tokens[i/2])
			defer resp.Body.Close()
			var o voice.Session
			return json.NewDecoder(resp.Body).Decode(&o) == nil && resp.StatusCode == http.StatusOK && ok(o)
		})
	}
}

// A voiceRow is the ledger row of a reply.
type voiceRow struct {
	key, settlement string
	isTranscript    bool
	usage           pricing.VoiceUsage
	holdMC          int64
	chargeMC        int64
}

// compare compares the calls of a round with the ledger.
func (s *voiceStorm) compare(f voiceFault, ids []string) {
	s.t.Helper()
	calls := map[string]emulatedCall{}
	for _, c := range s.calls.list() {
		calls[c.ID] = s.calls.get(c.ID)
	}
	var replies, charged, estimated, missing int
	var longest, unwatched time.Duration
	for _, id := range ids {
		callID, chargedMC, count := s.endedSession(id)
		c, rows := calls[callID], s.rows(id)
		var sumMC int64
		made := map[[2]int64]int{} // by usage
		for _, r := range c.Made {
			made[[2]int64{r.InputTokens, r.OutputTokens}]++
		}
		billed, estimates := map[[2]int64]bool{}, 0
		written, transcripts := map[[2]int64]bool{}, 0
		for _, r := range rows {
			sumMC += r.chargeMC
			if r.isTranscript { // no two of a call have the same usage
				usage := [2]int64{r.usage.Input(), r.usage.Output()}
				if transcripts++; r.settlement != "settled" || written[usage] {
					s.t.Errorf("%s: a transcript is %s for %d, charged before: %t", r.key, r.settlement, usage,
						written[usage])
				}
				written[usage] = true
				continue
			}
			if r.settlement == "estimated" {
				if estimates++; r.chargeMC > r.holdMC {
					s.t.Errorf("%s: an estimate of %d, held %d", r.key, r.chargeMC, r.holdMC)
				}
				continue
			}
			usage := [2]int64{r.usage.Input(), r.usage.Output()}
			if made[usage] != 1 || billed[usage] {
				s.t.Errorf("%s: charged for %d, which %d replies used; charged before: %t", r.key, usage, made[usage],
					billed[usage])
			}
			billed[usage] = true
		}
		if sumMC != chargedMC || int64(len(rows)-transcripts) != count {
			s.t.Errorf("%s: charged %d with %d replies, its %d rows, %d of transcripts, say %d", id, chargedMC, count,
				len(rows), transcripts, sumMC)
		}
		if transcripts == 0 {
			s.t.Errorf("vacuous: %s has no transcript", id)
		}
		unbilled, stretch, heard := unbilledReplies(c.Made, billed)
		if longest = max(longest, stretch); stretch > maxUnmetered {
			s.t.Errorf("%s: %s of speech is in no bill", id, stretch)
		}
		if f.nodesLive && heard > estimates {
			s.t.Errorf("%s: %d replies that a sideband heard are in no bill, %d estimates", id, heard, estimates)
		}
		unwatched = max(unwatched, time.Duration(c.UnwatchedMS)*time.Millisecond)
		replies, charged, estimated = replies+len(c.Made), charged+len(billed), estimated+estimates
		missing += max(0, unbilled-estimates)
	}
	if unwatched > maxUnmetered {
		s.t.Errorf("%s: a call was unwatched for %s", f.name, unwatched)
	}
	if charged < 2*len(ids) {
		s.t.Errorf("vacuous: %d replies were charged", charged)
	}
	fmt.Fprintf(&s.table, "| %s | %d | %d | %d | %d | %d | %.1f s | %.1f s |\n", f.name, len(ids), replies, charged,
		estimated, missing, longest.Seconds(), unwatched.Seconds())
}

// unbilledReplies counts the replies that are not charged by their usage, and those of them whose end
// a sideband heard, and returns the length of the longest stretch of them.
func unbilledReplies(made []madeReply, billed map[[2]int64]bool) (n int, longest time.Duration, heard int) {
	var since time.Time
	for _, r := range made {
		if billed[[2]int64{r.InputTokens, r.OutputTokens}] {
			since = time.Time{}
			continue
		}
		if n++; r.Sidebands > 0 {
			heard++
		}
		if since.IsZero() {
			since = r.Began
		}
		longest = max(longest, r.Ended.Sub(since))
	}
	return n, longest, heard
}

// endedSession reads what the row of an ended session says.
func (s *voiceStorm) endedSession(id string) (callID string, chargedMC, count int64) {
	s.t.Helper()
	d := dbtest.OpenReadOnly(s.t, s.database)
	defer d.Close()
	if err := d.QueryRowContext(s.t.Context(),
		`SELECT call_id, charged_mc, response_count FROM realtime_sessions WHERE id = $1`, id).
		Scan(&callID, &chargedMC, &count); err != nil {
		s.t.Fatal(err)
	}
	return callID, chargedMC, count
}

// rows reads the ledger rows of a session.
func (s *voiceStorm) rows(id string) (list []voiceRow) {
	s.t.Helper()
	d := dbtest.OpenReadOnly(s.t, s.database)
	defer d.Close()
	rows, err := d.QueryContext(s.t.Context(),
		`SELECT key, settlement, usage, hold_amount_mc, user_charge_mc, model FROM ledger `+
			`WHERE type = 'spend' AND key LIKE $1`, id+"/%")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var r voiceRow
		var usage, model string
		if err := rows.Scan(&r.key, &r.settlement, &usage, &r.holdMC, &r.chargeMC, &model); err != nil {
			s.t.Fatal(err)
		}
		r.isTranscript = model == "gpt-4o-mini-transcribe"
		if err := json.Unmarshal([]byte(usage), &r.usage); err != nil {
			s.t.Fatal(err)
		}
		list = append(list, r)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return list
}

func (s *voiceStorm) kill() (end func()) {
	i := rand.IntN(2)
	s.nodes[i].Kill()
	return func() { s.start(i) }
}

func (s *voiceStorm) sleep() (end func()) {
	p := s.nodes[rand.IntN(2)]
	p.Signal(syscall.SIGSTOP)
	return func() { p.Signal(syscall.SIGCONT) }
}

func (s *voiceStorm) freeze() (end func()) { return s.cluster.Freeze(s.t) }

func (s *voiceStorm) terminate() (end func()) {
	s.cluster.TerminateBackends(s.t, 1)
	return func() {}
}

func (s *voiceStorm) drop() (end func()) {
	for _, c := range s.calls.list() {
		s.calls.do(c.ID, `{"do":"drop"}`)
	}
	return func() {}
}
