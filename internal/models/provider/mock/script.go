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

// readInputScript reads the "!mock" lines of the texts to embed.
func readInputScript(inputs []provider.EmbeddingInput) script {
	s := script{cut: -1}
	for i := range inputs {
		s.read(inputs[i].Text)
	}
	return s
}

// readScript reads the "!mock" lines of the last user message.
func readScript(messages []provider.Message) script {
	s := script{cut: -1}
	for i := len(messages) - 1; i >= 0; i-- {
		m := &messages[i]
		if m.Role != "user" {
			continue
		}
		s.read(m.Text)
		for j := range m.Parts {
			s.read(m.Parts[j].Text)
		}
		break
	}
	return s
}

func (s *script) read(text string) {
	for line := range strings.Lines(text) {
		if words, ok := strings.CutPrefix(line, "!mock "); ok {
			for _, w := range strings.Fields(words) {
				s.setWord(w)
			}
		}
	}
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
