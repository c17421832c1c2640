package emulator

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A script is what the words of steering ask for; the package comment says what
// they mean. Numbers that are not asked for are never.
type script struct {
	status         int
	code           string
	daily          bool
	header         http.Header   // of the error: when to try again
	retryDelay     time.Duration // the same, as Google says it
	html, redirect bool

	cut, end, err, hang, garbage int // after so many bytes, or events
	fails                        int

	words, calls                               int
	say, emptyArgs, malformedCall              bool
	refusal, safety, thinking, redacted, spent bool
	usage                                      []int
	usageRaw, stop                             string
	noUsage                                    bool

	delay, pace, storedAfter time.Duration
	split, huge, unstored    bool
}

const never = math.MaxInt

func newScript() script {
	return script{cut: never, end: never, err: never, hang: never, garbage: never, header: http.Header{}}
}

// flags are the words that need no value.
func (s *script) flags() map[string]*bool {
	return map[string]*bool{
		"daily": &s.daily, "html": &s.html, "redirect": &s.redirect, "say": &s.say, "empty_args": &s.emptyArgs,
		"malformed_call": &s.malformedCall, "refusal": &s.refusal, "safety": &s.safety, "thinking": &s.thinking,
		"redacted": &s.redacted, "reasoning_only": &s.spent, "no_usage": &s.noUsage, "split": &s.split, "huge": &s.huge,
		"unstored": &s.unstored,
	}
}

func (s *script) numbers() map[string]*int {
	return map[string]*int{
		"status": &s.status, "cut": &s.cut, "end": &s.end, "error": &s.err, "hang": &s.hang, "garbage": &s.garbage,
		"fails": &s.fails, "words": &s.words, "calls": &s.calls,
	}
}

func (s *script) durations() map[string]*time.Duration {
	return map[string]*time.Duration{"delay": &s.delay, "pace": &s.pace, "stored_after": &s.storedAfter}
}

// read takes the words of one line.
func (s *script) read(line string, now time.Time) error {
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		if err := s.word(name, value, now); err != nil {
			return fmt.Errorf("steering %q: %w", word, err)
		}
	}
	return nil
}

func (s *script) word(name, value string, now time.Time) (err error) {
	if flag := s.flags()[name]; flag != nil {
		*flag = true
	} else if name == "hang" && value == "" {
		s.hang = -1 // before the headers
	} else if name == "garbage" && value == "" {
		s.garbage = 1
	} else if number := s.numbers()[name]; number != nil {
		*number, err = strconv.Atoi(value)
		if err == nil && (*number < 0 || *number > 10_000_000 || name == "status" && (*number < 200 || *number > 599) || name == "words" && *number > 200_000 || name == "calls" && *number > 128) {
			err = fmt.Errorf("is out of range")
		}
	} else if duration := s.durations()[name]; duration != nil {
		*duration, err = time.ParseDuration(value)
	} else {
		err = s.special(name, value, now)
	}
	return err
}

func (s *script) special(name, value string, now time.Time) error {
	switch name {
	case "code":
		s.code = value
	case "should_retry":
		s.header.Set("X-Should-Retry", value)
	case "stop":
		s.stop = value
	case "usage_raw":
		if s.usageRaw = value; !raw(value).IsValid() {
			return fmt.Errorf("is no JSON")
		}
	case "usage":
		for field := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			s.usage = append(s.usage, n)
		}
		if len(s.usage) < 4 || len(s.usage) > 5 {
			return fmt.Errorf("wants input,cached,written,output and perhaps reasoning")
		}
	case "retry_after", "retry_after_ms", "retry_after_date":
		return s.again(name, value, now)
	default:
		return fmt.Errorf("is not known")
	}
	return nil
}

// again sets when to try again, in one of the three forms of the header.
func (s *script) again(name, value string, now time.Time) error {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	s.retryDelay = time.Duration(number * float64(time.Second))
	switch name {
	case "retry_after":
		s.header.Set("Retry-After", value)
	case "retry_after_ms":
		s.retryDelay /= 1000
		s.header.Set("Retry-After-Ms", value)
	case "retry_after_date":
		s.header.Set("Retry-After", now.Add(s.retryDelay).UTC().Format(http.TimeFormat))
	}
	return nil
}

// spare takes the faults out: this try shall succeed.
func (s *script) spare() {
	s.status, s.html, s.redirect = 0, false, false
	s.cut, s.end, s.err, s.hang, s.garbage = never, never, never, never, never
}

// A wanted call is a line "!call name arguments".
type wanted struct{ name, args string }

// steer divides a user's text into words of steering, the calls of each step,
// and what is left.
func steer(text string, s *script, now time.Time) (steps [][]wanted, rest string, err error) {
	var said []string
	steps = [][]wanted{nil}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch command, after, _ := strings.Cut(strings.TrimSpace(line), " "); command {
		case "!emu":
			if err := s.read(after, now); err != nil {
				return nil, "", err
			}
		case "!step":
			steps = append(steps, nil)
		case "!call":
			name, args, _ := strings.Cut(strings.TrimSpace(after), " ")
			steps[len(steps)-1] = append(steps[len(steps)-1], wanted{name, strings.TrimSpace(args)})
		default:
			said = append(said, line)
		}
	}
	if len(steps) == 1 && steps[0] == nil {
		steps = nil
	}
	return steps, strings.TrimSpace(strings.Join(said, "\n")), nil
}
