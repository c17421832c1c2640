package inference

import (
	"sync"

	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// What a call takes of the memory of its node (decision 131), in bytes. The factors are of measured figures, rounded
// up.
const (
	// callBytes is what every call takes: goroutines, buffers, and a request and an answer of usual length.
	callBytes = 128 << 10
	// bodyFactor is what a byte of a body takes until its call is planned: the body, the decoded values, their copies,
	// and a rest that was not collected yet.
	bodyFactor = 4
	// requestFactor is what a byte of a planned request takes while the call waits: its text, and the provider's body.
	requestFactor = 2
	// imageFactor is what a byte of a remote image takes while it is read: itself, twice while its buffer grows, and
	// its base64.
	imageFactor = 4
	imageStep   = 256 << 10 // how much more of them is reserved at a time
	// answerFactor is what a byte of a whole answer takes: itself, what the client gets, and what is stored.
	answerFactor = 3
	// numberBytes is what a number of an embedding takes: in binary, in base64, and as the client's text.
	numberBytes = 32
	// answerStep is how much of a stream is counted at a time.
	answerStep = 256 << 10
)

// A seat is what a call in flight takes of its node: one call of its app, and bytes of its developer. Small calls take
// callBytes, so that they count once. Only the goroutine of the call uses it. A nil seat counts nothing.
type seat struct {
	in              *callsInFlight
	app, developer  string
	appUser         string // names the user among those of the app; "" = users share nothing
	developerUser   string // the same of the developer
	bound           int64  // of the bytes of all calls; 0 = none
	request, answer int64  // bytes that the call needs for them
	counted         int64  // bytes that it takes
	handedOver      bool   // its bytes stay when it leaves
}

// reserve counts what a call needs for its request and its answer, or refuses it.
func (s *seat) reserve(request, answer int64) error {
	if s == nil {
		return nil
	}
	more := max(callBytes, request+answer) - s.counted
	if more > 0 {
		s.in.mu.Lock()
		err := s.in.checkBytes(s, more)
		if err == nil {
			s.in.addBytes(s, more)
		}
		s.in.mu.Unlock()
		if err != nil {
			return err
		}
		s.counted += more
	}
	s.count(request, answer)
	return nil
}

// count counts what a call needs for its request and its answer, also if the memory is used up: a call that was
// accepted does not fail for it, and new ones are refused meanwhile.
func (s *seat) count(request, answer int64) {
	if s == nil {
		return
	}
	s.request, s.answer = request, answer
	if more := max(callBytes, request+answer) - s.counted; more != 0 {
		s.in.mu.Lock()
		s.in.addBytes(s, more)
		s.in.mu.Unlock()
		s.counted += more
	}
}

// fits refuses a call whose request would not fit now.
func (s *seat) fits(request int64) error {
	if s == nil || request <= s.counted {
		return nil
	}
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	return s.in.checkBytes(s, request-s.counted)
}

// countAnswer counts the bytes of an answer that has come.
func (s *seat) countAnswer(answer int64) {
	if s != nil && answer != s.answer {
		s.count(s.request, answer)
	}
}

// countArrived counts the bytes of an answer that arrives, unless more is counted.
func (s *seat) countArrived(answer int64) {
	if s != nil && answer > s.answer {
		s.count(s.request, answer)
	}
}

// reserveAnswer counts the bytes of an answer that is to be read, or refuses it.
func (s *seat) reserveAnswer(answer int64) error {
	if s == nil {
		return nil
	}
	return s.reserve(s.request, answer)
}

// isLarge reports whether the request takes more than usual ones.
func (s *seat) isLarge() bool { return s != nil && s.request > callBytes }

// leave ends the call.
func (s *seat) leave() {
	s.in.mu.Lock()
	defer s.in.mu.Unlock()
	s.in.node.Add(s.app, -1)
	s.in.users.Add(s.appUser, -1)
	if !s.handedOver {
		s.in.giveBack(s)
	}
}

// handOver keeps the bytes of the call beyond its end, until the function that it returns is called.
func (s *seat) handOver() (giveBack func()) {
	if s == nil {
		return func() {}
	}
	s.handedOver = true
	return func() {
		s.in.mu.Lock()
		defer s.in.mu.Unlock()
		s.in.giveBack(s)
	}
}

// imageBytes reserves the bytes of the images of a call as they arrive.
type imageBytes struct {
	seat   *seat
	before int64 // what the request takes without them

	mu      sync.Mutex
	arrived int64
}

// reserve counts n more bytes, or refuses the call.
func (i *imageBytes) reserve(n int) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.arrived += int64(n)
	want := i.before + imageFactor*i.arrived
	if i.seat == nil || want <= i.seat.request {
		return nil
	}
	return i.seat.reserve(want+imageStep, 0)
}

// countRequest counts what a planned request takes while its call waits, and reserves its answer, if that is known to
// be large.
func (c *call) countRequest() error {
	var answer int64
	if e := c.plan.Request.Embedding; e != nil {
		answer = numberBytes * int64(len(e.Inputs)) * e.Dimensions
	}
	if answer == 0 && !c.seat.isLarge() {
		return nil
	}
	return c.seat.reserve(requestFactor*sumBytes(&c.plan.Request), answer)
}

// dropMessages lets go of the text of a large request that is not needed any more.
func (c *call) dropMessages() {
	if !c.seat.isLarge() {
		return
	}
	rest := *c.plan
	rest.Request.Turns = nil
	c.plan = &rest
	if c.shape != nil {
		c.shape.Request().Turns = nil
	}
	c.input.Request = nil
	c.seat.count(sumBytes(&rest.Request), c.seat.answer)
}

// Sizes of Go values without their texts, in bytes, rounded up.
const (
	turnBytes  = 64
	blockBytes = 256
	partBytes  = 128 // of other lists
)

// sumBytes returns the bytes of a request in memory.
func sumBytes(r *provider.Request) int64 {
	n := len(r.ResponseFormat)
	for i := range r.Turns {
		n += turnBytes + len(r.Turns[i].Name) + sumBlocks(r.Turns[i].Blocks)
	}
	for i := range r.Tools {
		n += partBytes + len(r.Tools[i].Name) + len(r.Tools[i].Description) + len(r.Tools[i].Parameters)
	}
	if r.Embedding != nil {
		for i := range r.Embedding.Inputs {
			n += partBytes + len(r.Embedding.Inputs[i].Text) + 8*len(r.Embedding.Inputs[i].IDs)
		}
	}
	return int64(n)
}

func sumBlocks(blocks []conversation.Block) (n int) {
	for i := range blocks {
		b := &blocks[i]
		n += blockBytes + len(b.Text) + len(b.ID) + len(b.Name) + len(b.Arguments) + len(b.Extra) + sumBlocks(b.Blocks)
		if b.Picture != nil {
			n += len(b.Picture.URL)
		}
	}
	return n
}
