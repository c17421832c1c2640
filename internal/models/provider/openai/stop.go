package openai

import (
	"strings"

	"github.com/purserhq/purser/internal/models/conversation"
)

// The Responses API has no stop sequences. A reply that has some ends before the first one in a text of the model
// (decision 186). The provider goes on, and its usage is read at the end.

// A stopSearch looks for stop sequences in a text that comes in pieces.
type stopSearch struct {
	sequences []string
	held      string // the end of the text so far that may begin a sequence; it is not passed yet
	itemID    string // of the message that it is of
	found     bool   // nothing more is passed
}

// searchStop passes a piece of a message up to a stop sequence, which ends the answer, and holds back what may begin
// one.
func (y *reply) searchStop(itemID, piece string) {
	s := &y.stops
	if itemID != s.itemID { // no sequence goes on in another message
		y.passHeld()
		s.itemID = itemID
	}
	text := s.held + piece
	s.held = ""
	if at, sequence := findStop(text, s.sequences); sequence != "" {
		y.passText(conversation.Text, itemID, text[:at])
		end := conversation.Delta{Kind: conversation.End, Reason: conversation.Stopped, Text: quote(sequence)}
		if len(y.calls) > 0 { // before the text
			end.Reason, end.Text = conversation.Called, nil
		}
		y.pass(end)
		s.found = true
		return
	}
	n := len(text) - beginningOf(text, s.sequences)
	y.passText(conversation.Text, itemID, text[:n])
	s.held = text[n:]
}

// passHeld passes what was held back, because no more of its message comes.
func (y *reply) passHeld() {
	if text := y.stops.held; text != "" {
		y.stops.held = ""
		y.passText(conversation.Text, y.stops.itemID, text)
	}
}

// findStop returns where the first stop sequence of a text begins, and which it is; "" = there is none.
func findStop(text string, sequences []string) (at int, sequence string) {
	for _, s := range sequences {
		if i := strings.Index(text, s); i >= 0 && (sequence == "" || i < at) {
			at, sequence = i, s
		}
	}
	return at, sequence
}

// beginningOf returns how many bytes at the end of a text may be the beginning of a stop sequence.
func beginningOf(text string, sequences []string) (most int) {
	for _, s := range sequences {
		for n := min(len(s)-1, len(text)); n > most; n-- {
			if strings.HasSuffix(text, s[:n]) {
				most = n
			}
		}
	}
	return most
}
