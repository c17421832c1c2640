package conversation

// A Delta is a piece of an answer, which is a sequence of blocks. Its strings are raw JSON without the quotes, so that
// they are copied into what a client gets and never decoded. They are valid until the call that passes them returns.
type Delta struct {
	Kind  DeltaKind
	Block int    // the number of the block, in the order in which the blocks began
	Text  []byte // a piece of the block; of End the stop sequence, nil = none
	ID    []byte // of a Call; of Begin that of the answer, empty = ours
	Name  []byte // of the tool of a Call; of Begin that of the model, empty = as it was asked

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

// Origin names the provider of something opaque.
type Origin byte

// The providers whose models give something opaque.
const (
	Anthropic Origin = iota + 1 // a block of thinking or redacted_thinking
	OpenAI                      // an item of reasoning
	Google                      // a signature, a JSON string with its quotes
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
