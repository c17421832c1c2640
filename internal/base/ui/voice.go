package ui

// Voice is the page where a developer talks to a realtime model. It is the one page
// that needs a script and a microphone.
type Voice struct {
	Console
	Playgrounds []Tab  // of the text and the voice playground
	Why         string // why it cannot be used; "" = it can
	Fields      []Field
	Sessions    []VoiceSession
}

func (Voice) name() string { return "developer/voice" }

func (v Voice) scripts() []string {
	if v.Why != "" {
		return nil
	}
	return []string{"voice"}
}

// A VoiceSession is a voice session in a list.
type VoiceSession struct {
	When, Shown string
	Model       string
	Mock        bool
	Status      string
	End         string // why it ended; "" = it has not
	Length      string
	Replies     string
	Cost        Amount
}
