package realtime

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/emulator/script"
)

// A steering is the script of a call and of its replies. The comment of package emulator
// lists its words.
type steering struct {
	callSteering
	replySteering
}

// A callSteering is fixed when the call is made.
type callSteering struct {
	status int
	code   string
	hang   bool

	noMedia, gone, closes, private bool
	notFound, drops, dropCode      int
	dropAfter, mute                int    // events on one sideband
	dropAt                         string // the type of an event
	fresh, down, expire, slow      time.Duration
	vanish                         int // replies

	hangupFails, hangupStatus, hangupLost int
	hangupGone                            bool

	turns          int
	speech, silent time.Duration

	lateTranscript                                        time.Duration
	failTranscript, twiceTranscript, unmeasuredTranscript bool
	browser                                               []browserEvent
}

// A browserEvent is one that the emulated browser sends by itself.
type browserEvent struct {
	at    string // the type of the event that it follows; "" = the sideband is there
	nth   int
	event string
}

// A replySteering may change from reply to reply.
type replySteering struct {
	only                                  []int // the replies that go wrong; none = all
	delay, pace                           time.Duration
	words, calls, length, fast            int
	say, emptyArgs, malformedCall         bool
	hang                                  int
	noUsage, omitUsage, cancelNoUsage     bool
	usage                                 []int
	usageRaw, fail, incomplete            string
	duplicate, noDone, noStopped, unknown bool
	garbage, deaf                         bool
}

const forever = 1_000_000

func newSteering() steering {
	return steering{
		callSteering: callSteering{
			dropAfter:    script.Never,
			mute:         script.Never,
			drops:        1,
			dropCode:     1006,
			vanish:       script.Never,
			speech:       time.Second,
			silent:       500 * time.Millisecond,
			hangupStatus: 500,
		},
		replySteering: replySteering{
			delay: 50 * time.Millisecond,
			pace:  20 * time.Millisecond,
			fast:  1,
			hang:  script.Never,
		},
	}
}

func (s *steering) flags() map[string]*bool {
	return map[string]*bool{
		"hang":        &s.callSteering.hang,
		"no_media":    &s.noMedia,
		"leave_gone":  &s.gone,
		"leave_close": &s.closes,
		"private":     &s.private,
		"hangup_gone": &s.hangupGone,

		"transcript_fails":    &s.failTranscript,
		"transcript_twice":    &s.twiceTranscript,
		"transcript_no_usage": &s.unmeasuredTranscript,

		"say":             &s.say,
		"empty_args":      &s.emptyArgs,
		"malformed_call":  &s.malformedCall,
		"no_usage":        &s.noUsage,
		"omit_usage":      &s.omitUsage,
		"cancel_no_usage": &s.cancelNoUsage,
		"duplicate":       &s.duplicate,
		"no_done":         &s.noDone,
		"no_stopped":      &s.noStopped,
		"unknown":         &s.unknown,
		"garbage":         &s.garbage,
		"deaf":            &s.deaf,
	}
}

func (s *steering) numbers() map[string]*int {
	return map[string]*int{
		"status":        &s.status,
		"not_found":     &s.notFound,
		"drops":         &s.drops,
		"drop_code":     &s.dropCode,
		"mute":          &s.mute,
		"vanish":        &s.vanish,
		"hangup_fails":  &s.hangupFails,
		"hangup_status": &s.hangupStatus,
		"hangup_lost":   &s.hangupLost,
		"turns":         &s.turns,
		"words":         &s.words,
		"calls":         &s.calls,
		"fast":          &s.fast,
		"hang":          &s.replySteering.hang,
	}
}

func (s *steering) durations() map[string]*time.Duration {
	return map[string]*time.Duration{
		"fresh":  &s.fresh,
		"down":   &s.down,
		"slow":   &s.slow,
		"expire": &s.expire,
		"speech": &s.speech,
		"every":  &s.silent,

		"transcript_late": &s.lateTranscript,

		"delay": &s.delay,
		"pace":  &s.pace,
	}
}

func (s *steering) texts() map[string]*string {
	return map[string]*string{"code": &s.code, "usage_raw": &s.usageRaw, "fail": &s.fail, "incomplete": &s.incomplete}
}

// readWord reads one word of steering.
func (s *steering) readWord(name, value string) (err error) {
	if flag := s.flags()[name]; flag != nil && value == "" {
		*flag = true
	} else if number := s.numbers()[name]; number != nil {
		if *number, err = parseCount(value); err == nil && (name == "status" || name == "hangup_status") &&
			(*number < 200 || *number > 599) || name == "fast" && *number == 0 {
			err = fmt.Errorf("is out of range")
		}
	} else if duration := s.durations()[name]; duration != nil {
		if *duration, err = time.ParseDuration(value); value == "forever" {
			*duration, err = 24*time.Hour, nil
		}
	} else if text := s.texts()[name]; text != nil && value != "" {
		*text = value
	} else {
		err = s.readSpecial(name, value)
	}
	if err == nil && s.usageRaw != "" && !raw(s.usageRaw).IsValid() {
		err = fmt.Errorf("is no JSON")
	}
	return err
}

func (s *steering) readSpecial(name, value string) (err error) {
	switch name {
	case "drop": // a number of events, or the type of one
		if s.dropAfter, err = parseCount(value); err != nil && strings.Contains(value, ".") {
			s.dropAfter, s.dropAt, err = script.Never, value, nil
		}
	case "audio":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return fmt.Errorf("wants a duration")
		}
		s.length = int(d.Milliseconds())
	case "only":
		s.only, err = parseCounts(value)
	case "usage":
		if s.usage, err = parseCounts(value); err == nil && (len(s.usage) < 6 || len(s.usage) > 7) {
			err = fmt.Errorf(
				"wants text and audio in, text and audio cached, text and audio out, and perhaps reasoning")
		}
	default:
		err = fmt.Errorf("is not known")
	}
	return err
}

// parseCount reads a number of things.
func parseCount(value string) (int, error) {
	if value == "forever" {
		return forever, nil
	}
	n, err := strconv.Atoi(value)
	if err == nil && (n < 0 || n > 10_000_000) {
		err = fmt.Errorf("is out of range")
	}
	return n, err
}

func parseCounts(value string) (list []int, err error) {
	for field := range strings.SplitSeq(value, ",") {
		n, err := parseCount(field)
		if err != nil {
			return nil, err
		}
		list = append(list, n)
	}
	return list, nil
}

// readText takes the steering out of a text: its words, the calls of each step, and
// what is left.
func (s *steering) readText(text string) (steps [][]script.Call, rest string, err error) {
	var others []string
	for line := range strings.Lines(text) {
		command, after, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case command == "!emu":
			for word := range strings.FieldsSeq(after) {
				name, value, _ := strings.Cut(word, "=")
				if err := s.readWord(name, value); err != nil {
					return nil, "", fmt.Errorf("steering %q: %w", word, err)
				}
			}
		case command == "!browser", strings.HasPrefix(command, "!browser@"):
			b, err := parseBrowserEvent(command, after)
			if err != nil {
				return nil, "", err
			}
			s.browser = append(s.browser, b)
		default:
			others = append(others, line)
		}
	}
	var none script.Script // the words are taken out already
	return script.Extract(strings.Join(others, ""), &none, time.Time{})
}

// parseBrowserEvent reads !browser@response.done#2 {"type":…}.
func parseBrowserEvent(command, event string) (b browserEvent, err error) {
	_, at, _ := strings.Cut(command, "@")
	at, nth, ok := strings.Cut(at, "#")
	b = browserEvent{at: at, nth: 1, event: strings.TrimSpace(event)}
	if ok {
		b.nth, err = parseCount(nth)
	}
	if err == nil && raw(b.event).Kind() != '{' {
		err = fmt.Errorf("is no JSON object")
	}
	if err != nil {
		err = fmt.Errorf("steering %q: %w", command, err)
	}
	return b, err
}

// applyOnly takes the faults out of a reply that is not to go wrong.
func (s *replySteering) applyOnly(reply int) {
	if len(s.only) == 0 || slices.Contains(s.only, reply) {
		return
	}
	kept := newSteering().replySteering
	kept.delay, kept.pace, kept.fast, kept.words, kept.length = s.delay, s.pace, s.fast, s.words, s.length
	*s = kept
}
