package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// voiceSample is what one measurement of live voice sessions found. Times are from
// the provider's response.done to svc.response.settled on the control channel, of
// charges that were reported inside the measured time; the counts are of the whole run.
type voiceSample struct {
	Engine     string  `json:"engine"`
	Round      int     `json:"round"`
	Sessions   int     `json:"sessions"`
	Replies    int64   `json:"replies"`
	PerSecond  float64 `json:"replies_per_s"`
	P50US      int64   `json:"p50_us"`
	P99US      int64   `json:"p99_us"`
	MaxUS      int64   `json:"max_us"`
	CPUUS      float64 `json:"cpu_us_per_reply"`      // of the gateway's process
	BeforeKiB  int64   `json:"rss_before_kib"`        // just started
	FewKiB     int64   `json:"rss_few_kib"`           // with a tenth of the sessions
	LiveKiB    int64   `json:"rss_live_kib"`          // at the end of the measured time
	GrownKiB   float64 `json:"grown_kib_per_session"` // since before
	SessionKiB float64 `json:"kib_per_session"`       // since few, of each session more
	KeptKiB    int64   `json:"kept_kib"`              // heap and stacks after a collection; 0 = not asked
	EachKiB    float64 `json:"kept_kib_per_session"`  // of that each session more
	Done       int64   `json:"done"`                  // replies that the provider ended
	Missing    int64   `json:"missing"`               // of these, those without a reported charge
	Wrong      int64   `json:"wrong"`                 // wrong events
	FirstFault string  `json:"first_fault,omitempty"`
}

func (s voiceSample) faults() int64 { return s.Missing + s.Wrong }

func (s voiceSample) valid() error {
	if s.faults() > 0 {
		return fmt.Errorf("%d charges missing, %d faults: %s", s.Missing, s.Wrong, s.FirstFault)
	}
	return nil
}

// measureVoice measures live voice sessions on each engine, each round on a process of
// Purser that has just started, first with a tenth of the sessions: how much more memory
// the others take is what a session takes.
func (b *bench) measureVoice(ctx context.Context) error {
	var audits report
	for _, engine := range b.engines {
		if engine != "sqlite" && engine != "postgres" {
			continue
		}
		// contract §8: two at a time on a connection
		d, err := b.prepareDatabase(ctx, engine, 0, max(b.connections, (b.sessions+1)/2))
		if err != nil {
			return err
		}
		for round := range b.rounds {
			s, a, err := b.measureVoiceRound(ctx, engine, d, round)
			if err != nil {
				return fmt.Errorf("voice, %s: %w", engine, err)
			}
			s.Engine, s.Round = engine, round+1
			b.report.Voice, audits.Audits = append(b.report.Voice, s), append(audits.Audits, a)
		}
	}
	b.report.Audits = append(b.report.Audits, audits.Audits...)
	b.report.printVoice(os.Stdout)
	audits.printAudits(os.Stdout)
	return nil
}

// measureVoiceRound runs one round.
func (b *bench) measureVoiceRound(ctx context.Context, engine string, d *database,
	round int) (s voiceSample, a ledgerCheck, err error) {
	n := len(b.closers)
	defer func() { err = errors.Join(err, b.closeFrom(n)) }()
	d.spends += d.checkLedger(ctx, "", 0).SpendRows // what other parts and rounds have left
	listen, err := freeAddress()
	if err != nil {
		return s, a, err
	}
	t, err := b.startPurser(ctx, "voice "+engine, d, "http://"+listen)
	if err != nil {
		return s, a, err
	}
	spec := voiceSpec{
		URL:      t.url,
		PID:      t.cmd.Process.Pid,
		Tokens:   t.tokens,
		Listen:   listen,
		Sessions: max(b.sessions/10, 1),
		Warmup:   b.warmup + replyEvery,
		Duration: b.duration,
	}
	late := spec.Warmup + spec.Duration*4/5
	live := t.measureLiveMemory(ctx, late)
	few, err := askRole[voiceSample](ctx, "talk", spec) // what any load takes, however many sessions there are
	keptByFew, liveErr := live()
	if err := errors.Join(err, liveErr, few.valid()); err != nil {
		return s, a, err
	}
	d.spends += few.Done
	spec.Sessions = b.sessions
	wait := t.recordProfile(ctx, b.profiles, fmt.Sprintf("voice-%s-%d.pprof", engine, round+1), b.warmup, b.duration)
	live = t.measureLiveMemory(ctx, late)
	s, err = askRole[voiceSample](ctx, "talk", spec)
	s.KeptKiB, liveErr = live()
	if err := errors.Join(err, liveErr, wait()); err != nil {
		return s, a, err
	}
	s.EachKiB = float64(s.KeptKiB-keptByFew) / float64(max(s.Sessions-few.Sessions, 1))
	s.BeforeKiB, s.FewKiB = few.BeforeKiB, few.LiveKiB
	s.GrownKiB = float64(s.LiveKiB-s.BeforeKiB) / float64(s.Sessions)
	s.SessionKiB = float64(s.LiveKiB-s.FewKiB) / float64(max(s.Sessions-few.Sessions, 1))
	return s, d.checkLedger(ctx, "voice "+engine, s.Done), nil
}

// printVoice prints the medians of the voice sessions.
func (r *report) printVoice(w io.Writer) {
	of := map[string][]voiceSample{}
	var names []string
	for _, s := range r.Voice {
		if of[s.Engine] == nil {
			names = append(names, s.Engine)
		}
		of[s.Engine] = append(of[s.Engine], s)
	}
	fmt.Fprintf(w, "\nlive voice sessions, each with a reply every %s: from response.done to svc.response.settled\n"+
		"%-26s%9s%11s%9s%9s%9s%9s%10s%9s%10s%14s%9s\n", replyEvery.Round(time.Second),
		"", "sessions", "replies/s", "p50 ms", "p99 ms", "max ms", "cpu µs", "started", "RSS MB", "grown KB",
		"KB a session", "kept")
	for _, name := range names {
		printVoiceRow(w, name, of[name])
	}
}

func printVoiceRow(w io.Writer, name string, list []voiceSample) {
	pick := func(f func(s voiceSample) float64) float64 { return median(list, f) }
	fmt.Fprintf(w, "%-26s%9d%11.1f%9.2f%9.2f%9.2f%9.0f%10.0f%9.0f%10.0f%14.0f%9.0f", "purser "+name, list[0].Sessions,
		pick(func(s voiceSample) float64 { return s.PerSecond }),
		pick(func(s voiceSample) float64 { return float64(s.P50US) / 1000 }),
		pick(func(s voiceSample) float64 { return float64(s.P99US) / 1000 }),
		pick(func(s voiceSample) float64 { return float64(s.MaxUS) / 1000 }),
		pick(func(s voiceSample) float64 { return s.CPUUS }),
		pick(func(s voiceSample) float64 { return float64(s.BeforeKiB) / 1024 }),
		pick(func(s voiceSample) float64 { return float64(s.LiveKiB) / 1024 }),
		pick(func(s voiceSample) float64 { return s.GrownKiB }),
		pick(func(s voiceSample) float64 { return s.SessionKiB }),
		pick(func(s voiceSample) float64 { return s.EachKiB }))
	var missing, wrong int64
	fault := ""
	for _, s := range list {
		missing, wrong = missing+s.Missing, wrong+s.Wrong
		if fault == "" {
			fault = s.FirstFault
		}
	}
	if missing+wrong > 0 {
		fmt.Fprintf(w, "  INVALID: %d charges missing, %d faults\n%16s%s", missing, wrong, "", fault)
	}
	fmt.Fprintln(w)
}
