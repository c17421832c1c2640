package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// voiceSpec is one measurement of live voice sessions.
type voiceSpec struct {
	URL      string        `json:"url"` // of Purser
	PID      int           `json:"pid"` // its process
	Tokens   []string      `json:"tokens"`
	Listen   string        `json:"listen"` // where Purser looks for the provider
	Sessions int           `json:"sessions"`
	Warmup   time.Duration `json:"warmup"`
	Duration time.Duration `json:"duration"`
}

// runVoiceRole is the role of the provider, of the browsers that make offers, and of the
// apps that create sessions and read their control channels. They are one process, so
// that one clock measures how long a charge takes.
func runVoiceRole([]string) error {
	debug.SetGCPercent(400) // its garbage is not what is measured
	return answerRole(voiceSpec.measureSessions)
}

// voiceClients are the peers of Purser in one measurement.
type voiceClients struct {
	voiceSpec
	provider *realtime
	client   *http.Client
	tally    chargeTally
	sessions []*session
}

// session is one voice session as its app has it.
type session struct {
	id, token string
	control   *websocket.Conn
	started   chan struct{}
	over      chan struct{}
	ended     bool // the end was reported; read after over is closed
}

func (s voiceSpec) measureSessions() (voiceSample, error) {
	p := &voiceClients{
		voiceSpec: s,
		provider:  newRealtime(s.Sessions),
		client:    &http.Client{Transport: proxyTransport()},
		sessions:  make([]*session, s.Sessions),
	}
	p.tally = chargeTally{when: p.provider.doneTime, settled: map[string]int{}}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return voiceSample{}, err
	}
	go http.Serve(l, p.provider.handler()) // until the process ends
	purser := child{cmd: &exec.Cmd{Process: &os.Process{Pid: s.PID}}}
	out := voiceSample{Sessions: s.Sessions}
	out.BeforeKiB, _ = purser.memory()
	if err := p.forEachSession(p.openSession); err != nil {
		return out, err
	}
	p.measureReplies(&purser, &out)
	if err := p.forEachSession(p.endSession); err != nil {
		p.tally.countFault(err)
	}
	p.tally.compareReplies(p.provider, &out)
	return out, nil
}

// forEachSession calls f for every session, eight at a time.
func (p *voiceClients) forEachSession(f func(i int) error) error {
	errs := make([]error, p.Sessions)
	turns := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for i := range p.Sessions {
		turns <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-turns
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// measureReplies lets every call speak, and measures.
func (p *voiceClients) measureReplies(purser *child, out *voiceSample) {
	from := time.Now().Add(p.Warmup)
	until := from.Add(p.Duration)
	p.provider.from, p.provider.until = time.Now(), until
	close(p.provider.begin)
	time.Sleep(time.Until(from))
	before := purser.cpuTime()
	time.Sleep(time.Until(until))
	cpu := purser.cpuTime() - before
	out.LiveKiB, _ = purser.memory()
	p.provider.work.Wait()
	for deadline := time.Now().Add(30 * time.Second); p.tally.countSettled() < p.provider.countReplies() &&
		time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	p.tally.computeFigures(from, until, out)
	out.CPUUS = float64(cpu.Microseconds()) / float64(max(out.Replies, 1))
}

// openSession starts session i: its app creates it and reads the control channel, and its
// browser makes an offer.
func (p *voiceClients) openSession(i int) error {
	s := &session{token: p.Tokens[i%len(p.Tokens)], started: make(chan struct{}), over: make(chan struct{})}
	p.sessions[i] = s
	var created struct {
		ID     string
		Client struct {
			Ticket   string
			OfferURL string `json:"offer_url"`
		}
		ControlURL string `json:"control_url"`
	}
	answer, err := p.postRequest("/v1/realtime/sessions", "application/json", s.token,
		`{"model":"`+voiceModel+`","voice":"marin","max_duration_s":3540,"instructions":"`+voiceInstructions+
			`","tools":[`+voiceTool+`]}`)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, &created); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.id = created.ID
	if s.control, _, err = websocket.Dial(ctx, created.ControlURL,
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + s.token}}}); err != nil {
		return fmt.Errorf("control channel: %w", err)
	}
	s.control.SetReadLimit(1 << 20)
	go p.readControlEvents(s)
	if _, err := p.postRequest(strings.TrimPrefix(created.Client.OfferURL, p.URL), "application/sdp",
		created.Client.Ticket,
		sdp); err != nil {
		return err
	}
	select {
	case <-s.started:
		return nil
	case <-s.over:
		return errors.New("the control channel ended before the session started")
	case <-ctx.Done():
		return errors.New("a session did not start within a minute")
	}
}

const (
	voiceModel        = "gpt-realtime-2.1-mini"
	voiceInstructions = "You are the assistant inside a mail client. Sum up what the user has to do today, in " +
		"three sentences, most urgent first. Do not invent anything. Speak calmly and briefly, and ask back when " +
		"something is not clear."
	voiceTool = `{"type":"function","function":{"name":"open_thread",` +
		`"description":"Opens a mail thread on the user's screen.","parameters":{"type":"object",` +
		`"properties":{"thread_id":{"type":"string"}},"required":["thread_id"]}}}`
)

func (p *voiceClients) postRequest(path, kind, token, body string) ([]byte, error) {
	req, err := http.NewRequest(http.MethodPost, p.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("POST %s: status %d: %.300s", path, resp.StatusCode, answer)
	}
	return answer, err
}

// readControlEvents reads a control channel to its end.
func (p *voiceClients) readControlEvents(s *session) {
	defer close(s.over)
	live := sync.OnceFunc(func() { close(s.started) })
	for {
		_, data, err := s.control.Read(context.Background())
		if err != nil {
			if !s.ended {
				p.tally.countFault(fmt.Errorf("the control channel: %w", err))
			}
			return
		}
		at := time.Now()
		switch kind := kindOf(data); kind {
		case "svc.session.started":
			live()
		case "svc.response.settled":
			p.tally.addSettlement(data, at)
		case "svc.session.ending":
		case "svc.session.ended":
			s.ended = true
		default:
			if strings.HasPrefix(kind, "svc.") || kind == "error" {
				p.tally.countFault(fmt.Errorf("unexpected: %.300s", data))
			}
		}
	}
}

// kindOf is the type of an event, which stands first in it.
func kindOf(event []byte) string {
	rest, ok := bytes.CutPrefix(event, []byte(`{"type":"`))
	kind, _, closed := bytes.Cut(rest, []byte(`"`))
	if !ok || !closed {
		return ""
	}
	return string(kind)
}

// endSession ends session i, and waits until its app gets the event.
func (p *voiceClients) endSession(i int) error {
	s := p.sessions[i]
	defer s.control.CloseNow()
	if _, err := p.postRequest("/v1/realtime/sessions/"+s.id+"/end", "application/json", s.token,
		`{"when":"immediate"}`); err != nil {
		return err
	}
	select {
	case <-s.over:
		return nil
	case <-time.After(30 * time.Second):
		return errors.New("a session did not end")
	}
}

// doneTime returns when response.done of a reply was written.
func (p *realtime) doneTime(reply string) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.said[reply]
	return at, ok
}

func (p *realtime) countReplies() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.said)
}

// chargeTally counts the charges that the control channels reported.
type chargeTally struct {
	when func(reply string) (time.Time, bool) // when its response.done was written

	mu      sync.Mutex
	settled map[string]int // by reply: the number of its settlements
	times   []charge
	wrong   int64
	fault   string
}

// charge is the delay of one charge.
type charge struct {
	at time.Time // when it was reported
	us int64
}

// addSettlement records an event svc.response.settled.
func (t *chargeTally) addSettlement(event []byte, at time.Time) {
	var e struct {
		Reply   string `json:"response_id"`
		Receipt struct {
			Source string `json:"usage_source"`
			MC     int64  `json:"user_charge_mc"`
		} `json:"receipt"`
	}
	err := json.Unmarshal(event, &e)
	done, known := t.when(e.Reply)
	t.mu.Lock()
	t.settled[e.Reply]++
	first := t.settled[e.Reply] == 1
	if first && known {
		t.times = append(t.times, charge{at, at.Sub(done).Microseconds()})
	}
	t.mu.Unlock()
	if err != nil || !known || !first || e.Receipt.Source != "provider" || e.Receipt.MC <= 0 {
		t.countFault(fmt.Errorf("a wrong charge: %.400s", event))
	}
}

// countFault counts a fault, and keeps the first.
func (t *chargeTally) countFault(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong++
	if t.fault == "" {
		t.fault = err.Error()
	}
}

func (t *chargeTally) countSettled() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.settled)
}

// computeFigures computes the figures of the charges that were reported inside the
// measured time.
func (t *chargeTally) computeFigures(from, until time.Time, out *voiceSample) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []int64
	for _, c := range t.times {
		if c.at.After(from) && c.at.Before(until) {
			list = append(list, c.us)
		}
	}
	out.Replies, out.PerSecond = int64(len(list)), float64(len(list))/until.Sub(from).Seconds()
	out.P50US, out.P99US, out.MaxUS = percentile(list, 50), percentile(list, 99), percentile(list, 100)
}

// compareReplies compares the provider's replies with the reported charges.
func (t *chargeTally) compareReplies(p *realtime, out *voiceSample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	out.Done, out.Wrong, out.FirstFault = int64(len(p.said)), t.wrong, t.fault
	for reply := range p.said {
		if t.settled[reply] == 0 {
			out.Missing++
		}
	}
	if p.fault != nil {
		out.Wrong++
		out.FirstFault = p.fault.Error()
	}
}
