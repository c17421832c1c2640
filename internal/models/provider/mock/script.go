package mock

import (
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// maxWait bounds the waiting that a script may ask for; Provider.maxWords its words.
const maxWait = time.Minute // in all

// script has the settings of the last user message (see the package comment).
type script struct {
	status int
	cut    int // -1 = never
	usage  string
	delay  time.Duration
	pace   time.Duration
	words  int // 0 = not set
	chunks int // 0 = not set
}

// The words that begin the lines of a script. Two faults that apps have to handle have words of their own.
const (
	scriptWord = "!mock"
	slowWord   = "!slow" // !slow 200ms: pace=200ms
	cutWord    = "!cut"  // !cut 5: cut=5
)

// readScript reads the lines of the script in the last user message, or in the texts to embed.
func readScript(r *provider.Request) script {
	s := script{cut: -1}
	for _, words := range r.Commands(scriptWord) {
		for _, w := range strings.Fields(words) {
			s.setWord(w)
		}
	}
	for _, pace := range r.Commands(slowWord) {
		s.setWord("pace=" + pace)
	}
	for _, chunks := range r.Commands(cutWord) {
		s.setWord("cut=" + chunks)
	}
	return s
}

// setWord applies one word and ignores unknown ones.
func (s *script) setWord(word string) {
	name, value, _ := strings.Cut(word, "=")
	n, err := strconv.Atoi(value)
	isCount := err == nil && n >= 0
	d, err := time.ParseDuration(value)
	isTime := err == nil && d >= 0
	switch {
	case name == "status" && isCount && n >= 400 && n < 600:
		s.status = n
	case name == "cut" && isCount:
		s.cut = n
	case name == "words" && isCount:
		s.words = n
	case name == "chunks" && isCount:
		s.chunks = n
	case name == "delay" && isTime:
		s.delay = d
	case name == "pace" && isTime:
		s.pace = d
	case name == "usage":
		s.usage = value
	}
}
