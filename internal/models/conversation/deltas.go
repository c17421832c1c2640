package conversation

// A Delta is a piece of an answer, which is a sequence of blocks. Its strings are raw JSON without the quotes, so that
// they are copied into what a client gets and never decoded. They are valid until the call that passes them returns.
type Delta struct {
	Kind  DeltaKind
	Block int    // the number of the block, in the order in which the blocks began; a message with a refusal is one
	Text  []byte // a piece of the block; of End the stop sequence, nil = none
	ID    []byte // of a Call; of Begin that of the answer, empty = ours
	Name  []byte // of the tool of a Call; of Begin that of the model, empty = as it was asked

	Phase []byte // of Text: what the provider says the text is for, such as commentary; empty = it does not say

	// Opaque is what only the provider understands, and wants back with the next request: a block of thinking, an item
	// of reasoning, or a signature, quoted; nil = nothing. Origin says which.
	Opaque []byte
	Origin Origin

	Reason Reason // of End
}

// DeltaKind says what a Delta brings.
type DeltaKind byte

// The kinds of deltas, which follow each other as in this list, but that blocks come in any number and order.
const (
	Begin     DeltaKind = iota // the answer has begun
	Text                       // a piece of text, with an Opaque that belongs to it
	Refusal                    // a piece of a refusal
	Reasoning                  // a piece of readable reasoning
	Thought                    // the Opaque of reasoning, which ends its block
	Call                       // a call of a tool, with its Opaque; Text is the begin of its arguments
	Arguments                  // a piece of the arguments of a call
	End                        // the answer is complete
)

// A Sink takes the deltas of one answer. Begin forgets what came before it, because a provider may be asked again
// before it has said anything.
type Sink func(*Delta)

// Origin names the provider of something opaque.
type Origin byte

// The providers whose models give something opaque.
const (
	Unknown   Origin = iota // an object as clients return it, of a server that speaks Chat Completions
	Anthropic               // a block of thinking or redacted_thinking
	OpenAI                  // an item of reasoning
	Google                  // a signature, a JSON string with its quotes
)

// Reason is why an answer ended.
type Reason byte

// The reasons for which a model ends.
const (
	Stopped  Reason = iota // it has said what it had to say, or met a stop sequence
	Called                 // it waits for the results of tools
	Cut                    // the output cap, or the end of what the model can read
	Filtered               // the provider lets it say no more
)

// String returns the reason as finish_reason of Chat Completions, by which the ledger knows it.
func (r Reason) String() string {
	return [...]string{Stopped: "stop", Called: "tool_calls", Cut: "length", Filtered: "content_filter"}[r]
}

// wrappers are what stands around the opaque of a provider in extra_content (contract §4.3).
var wrappers = [...][2]string{
	Anthropic: {`{"anthropic":{"thinking":[`, `]}}`},
	OpenAI:    {`{"openai":{"reasoning":[`, `]}}`},
	Google:    {`{"google":{"thought_signature":`, `}}`},
}

// AppendExtra appends the object in which clients return something opaque unchanged. Of thoughts, opaque may be
// several, with commas between.
func (o Origin) AppendExtra(b, opaque []byte) []byte {
	return append(append(append(b, wrappers[o][0]...), opaque...), wrappers[o][1]...)
}

// A Summary is what is noted of an answer: how it ended, and whether it gave anything. Begin forgets all.
type Summary struct {
	Ended  bool
	Reason Reason
	Gave   bool // text, a refusal, a call or readable reasoning
}

// Note takes a delta.
func (s *Summary) Note(d *Delta) {
	switch d.Kind {
	case Begin:
		*s = Summary{}
	case Text, Refusal, Reasoning:
		s.Gave = s.Gave || len(d.Text) > 0
	case Call:
		s.Gave = true
	case End:
		s.Ended, s.Reason = true, d.Reason
	}
}

// FinishReason returns the finish_reason for the ledger; "" if the answer has not ended.
func (s *Summary) FinishReason() string {
	if !s.Ended {
		return ""
	}
	return s.Reason.String()
}
