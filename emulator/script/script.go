// Package script reads the emulator's steering language: lines of a user's text that say how the
// emulator answers. The comment of package emulator lists its words.
package script

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// A Script is the meaning of a request's steering words, which the comment of package
// emulator lists. Numbers that are not set are Never.
type Script struct {
	Status         int
	Code           string
	Daily          bool
	Header         http.Header   // of the error: when to try again
	RetryDelay     time.Duration // the same, as Google says it
	HTML, Redirect bool

	Cut, End, ErrorAt, Hang, Garbage, Unknown int // after so many bytes, or events
	Fails                                     int

	Words, Calls                                       int
	Say, EmptyArgs, MalformedCall                      bool
	Refusal, Safety, Thinking, Redacted, ReasoningOnly bool
	Blocks                                             string // their kinds, in their order: r, t, c
	Usage                                              []int
	UsageRaw, Stop                                     string
	NoUsage, ShortUsage                                bool

	Delay, Pace, StoredAfter time.Duration
	Split, Huge, Unstored    bool
	Twice, Whole             bool
	ErrorForm                string // of an error event of Responses: "", nested, failed
}

// Never is a number of events or bytes that no answer reaches.
const Never = math.MaxInt

// New returns a Script without faults or options.
func New() Script {
	return Script{
		Cut: Never, End: Never, ErrorAt: Never, Hang: Never, Garbage: Never, Unknown: Never, Header: http.Header{},
	}
}

// flags are the words that need no value.
func (s *Script) flags() map[string]*bool {
	return map[string]*bool{
		"daily":          &s.Daily,
		"html":           &s.HTML,
		"redirect":       &s.Redirect,
		"say":            &s.Say,
		"empty_args":     &s.EmptyArgs,
		"malformed_call": &s.MalformedCall,
		"refusal":        &s.Refusal,
		"safety":         &s.Safety,
		"thinking":       &s.Thinking,
		"redacted":       &s.Redacted,
		"reasoning_only": &s.ReasoningOnly,
		"no_usage":       &s.NoUsage,
		"short_usage":    &s.ShortUsage,
		"twice":          &s.Twice,
		"whole":          &s.Whole,
		"split":          &s.Split,
		"huge":           &s.Huge,
		"unstored":       &s.Unstored,
	}
}

func (s *Script) numbers() map[string]*int {
	return map[string]*int{
		"status": &s.Status, "cut": &s.Cut, "end": &s.End, "error": &s.ErrorAt, "hang": &s.Hang, "garbage": &s.Garbage,
		"unknown": &s.Unknown, "fails": &s.Fails, "words": &s.Words, "calls": &s.Calls,
	}
}

func (s *Script) durations() map[string]*time.Duration {
	return map[string]*time.Duration{"delay": &s.Delay, "pace": &s.Pace, "stored_after": &s.StoredAfter}
}

// ReadWords takes the words of one line.
func (s *Script) ReadWords(line string, now time.Time) error {
	for _, word := range strings.Fields(line) {
		name, value, _ := strings.Cut(word, "=")
		if err := s.readWord(name, value, now); err != nil {
			return fmt.Errorf("steering %q: %w", word, err)
		}
	}
	return nil
}

func (s *Script) readWord(name, value string, now time.Time) (err error) {
	if flag := s.flags()[name]; flag != nil {
		*flag = true
	} else if name == "hang" && value == "" {
		s.Hang = -1 // before the headers
	} else if name == "garbage" && value == "" {
		s.Garbage = 1
	} else if number := s.numbers()[name]; number != nil {
		*number, err = strconv.Atoi(value)
		if err == nil && (*number < 0 || *number > 10_000_000 || name == "status" && (*number < 200 || *number > 599) ||
			name == "words" && *number > 200_000 || name == "calls" && *number > 128) {
			err = fmt.Errorf("is out of range")
		}
	} else if duration := s.durations()[name]; duration != nil {
		*duration, err = time.ParseDuration(value)
	} else {
		err = s.readSpecial(name, value, now)
	}
	return err
}

func (s *Script) readSpecial(name, value string, now time.Time) error {
	switch name {
	case "code":
		s.Code = value
	case "should_retry":
		s.Header.Set("X-Should-Retry", value)
	case "stop":
		s.Stop = value
	case "blocks":
		if s.Blocks = value; strings.Trim(value, "rtc") != "" || value == "" {
			return fmt.Errorf("wants r, t and c")
		}
		s.Calls, s.Say = strings.Count(value, "c"), strings.Contains(value, "t")
	case "error_form":
		if s.ErrorForm = value; value != "nested" && value != "failed" {
			return fmt.Errorf("wants nested or failed")
		}
	case "usage_raw":
		if s.UsageRaw = value; !jsontext.Value(value).IsValid() {
			return fmt.Errorf("is no JSON")
		}
	case "usage":
		for field := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(field)
			if err != nil {
				return err
			}
			s.Usage = append(s.Usage, n)
		}
		if len(s.Usage) < 4 || len(s.Usage) > 5 {
			return fmt.Errorf("wants input,cached,written,output and perhaps reasoning")
		}
	case "retry_after", "retry_after_ms", "retry_after_date":
		return s.setRetry(name, value, now)
	default:
		return fmt.Errorf("is not known")
	}
	return nil
}

// setRetry sets when to try again, in one of the three forms of the header.
func (s *Script) setRetry(name, value string, now time.Time) error {
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return err
	}
	s.RetryDelay = time.Duration(number * float64(time.Second))
	switch name {
	case "retry_after":
		s.Header.Set("Retry-After", value)
	case "retry_after_ms":
		s.RetryDelay /= 1000
		s.Header.Set("Retry-After-Ms", value)
	case "retry_after_date":
		s.Header.Set("Retry-After", now.Add(s.RetryDelay).UTC().Format(http.TimeFormat))
	}
	return nil
}

// RemoveFaults takes the faults out: this try shall succeed.
func (s *Script) RemoveFaults() {
	s.Status, s.HTML, s.Redirect = 0, false, false
	s.Cut, s.End, s.ErrorAt, s.Hang, s.Garbage = Never, Never, Never, Never, Never
}

// ReportsUsage reports whether the answer is complete and has the usage that was counted.
func (s *Script) ReportsUsage() bool {
	return s.Cut == Never && s.End == Never && s.ErrorAt == Never && s.Hang == Never && s.Garbage == Never &&
		!s.NoUsage && s.UsageRaw == ""
}

// A Call call is a line "!call name arguments".
type Call struct{ Name, Args string }

// Extract divides a user's text into words of steering, the calls of each step,
// and what is left.
func Extract(text string, s *Script, now time.Time) (steps [][]Call, rest string, err error) {
	var said []string
	steps = [][]Call{nil}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch command, after, _ := strings.Cut(strings.TrimSpace(line), " "); command {
		case "!emu":
			if err := s.ReadWords(after, now); err != nil {
				return nil, "", err
			}
		case "!step":
			steps = append(steps, nil)
		case "!call":
			name, args, _ := strings.Cut(strings.TrimSpace(after), " ")
			steps[len(steps)-1] = append(steps[len(steps)-1], Call{name, strings.TrimSpace(args)})
		default:
			said = append(said, line)
		}
	}
	if len(steps) == 1 && steps[0] == nil {
		steps = nil
	}
	return steps, strings.TrimSpace(strings.Join(said, "\n")), nil
}
