// Package mock is the provider of mock mode (contract §4.3): it answers every model
// with canned text, the same for the same conversation, with real token counts,
// so that its calls cost what live ones would.
//
// With tools it calls the first one, or the forced one, with an empty arguments
// object, and answers in text once the last message is a tool result. A response
// format of JSON gets a small JSON text that fits the schema. An embedding is a vector
// of length 1 that follows from its input alone.
//
// Lines of the last user message, or of the inputs to embed, that begin with "!mock " ask for a fault or a
// shape. Their words:
//
//	status=502    fail with this status before the first byte: 400, 429, 500, …
//	cut=3         break a stream off after three chunks, a whole answer at once
//	usage=none    report no usage; or wrong (negative), fraction, huge
//	delay=200ms   wait before the answer
//	pace=50ms     wait between chunks
//	words=40      answer in so many words
//	chunks=5      stream the text in so many chunks
//
// Lines that begin with "!slow 50ms" and "!cut 3" are short for pace=50ms and cut=3. Other words
// are only text. All waiting together is bounded to a minute, and ends when the call does.
package mock

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/purserhq/purser/internal/models/provider"
)

// Provider answers in mock mode. It is safe for concurrent use.
type Provider struct {
	count    func(string) int
	input    func(*provider.Request) int64
	now      func() time.Time
	maxWords int // that a script may ask for
}

// MaxWords bounds the words that a script may ask for where strangers write scripts: the text is
// made as a whole, and stored.
const MaxWords = 2000

// New returns a provider that counts the tokens of its texts with count, and of
// a request with input, the way the hold's estimate does. A script may ask for at most
// maxWords words; the numbers of embeddings are bounded by it too.
func New(
	count func(string) int, input func(*provider.Request) int64, now func() time.Time, maxWords int,
) *Provider {
	return &Provider{count: count, input: input, now: now, maxWords: maxWords}
}

// Name is mock: it stands for all providers.
func (p *Provider) Name() string { return "mock" }

// Complete answers a whole request.
func (p *Provider) Complete(ctx context.Context, r *provider.Request) (*provider.Response, error) {
	if r.Embedding != nil {
		return p.embed(ctx, r)
	}
	a, err := p.startAnswer(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.cut >= 0 {
		return nil, makeCutError()
	}
	usage := a.makeUsageJSON()
	return &provider.Response{Body: a.makeBody(usage), Usage: provider.ParseUsage(usage)}, nil
}

// Stream answers a streamed request.
func (p *Provider) Stream(ctx context.Context, r *provider.Request) (provider.Stream, error) {
	a, err := p.startAnswer(ctx, r)
	if err != nil {
		return nil, err
	}
	if a.cut == 0 {
		return nil, makeCutError()
	}
	ctx, cancel := context.WithCancel(ctx)
	return &stream{ctx: ctx, cancel: cancel, answer: a, words: a.splitText()}, nil
}

// startAnswer composes the response, then waits or fails as the script says.
func (p *Provider) startAnswer(ctx context.Context, r *provider.Request) (*answer, error) {
	a := p.compose(r)
	if err := a.begin(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// begin waits or fails as the script says.
func (a *answer) begin(ctx context.Context) error {
	if err := a.wait(ctx, a.delay); err != nil {
		return err
	}
	switch a.status {
	case 0:
		return nil
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return &provider.Error{
			Kind:    provider.Rejected,
			Status:  a.status,
			Message: "the provider refused the request: as its script asked",
		}
	}
	err := makeFailure(fmt.Errorf("status %d, as the script asked", a.status))
	err.Status = a.status
	if a.status == http.StatusTooManyRequests {
		err.RetryAfter = time.Second
	}
	return err
}

// wait waits for d, at most until the script has used its minute.
func (a *answer) wait(ctx context.Context, d time.Duration) error {
	d = min(d, maxWait-a.waited)
	if a.waited += d; d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return makeFailure(err)
	}
	return nil
}

func makeFailure(cause error) *provider.Error {
	return &provider.Error{Message: "the provider failed", Cause: cause}
}

func makeCutError() error {
	return makeFailure(fmt.Errorf("cut off, as the script asked: %w", io.ErrUnexpectedEOF))
}

// A stream makes its chunks one at a time, so that it holds no more than its text.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	answer *answer
	words  []string
	sent   int
	frame  []byte
}

// Next returns one chunk, and at the end the usage.
func (s *stream) Next() (provider.Chunk, error) {
	a, n := s.answer, s.sent
	count := a.countChunks(s.words)
	switch {
	case n > count:
		return provider.Chunk{}, io.EOF
	case n == a.cut:
		return provider.Chunk{}, makeCutError()
	}
	pace := a.pace
	if n == 0 {
		pace = 0
	}
	if err := a.wait(s.ctx, pace); err != nil {
		return provider.Chunk{}, err
	}
	s.sent++
	if n < count {
		s.frame = provider.AppendFrame(s.frame[:0], a.makeNthChunk(s.words, n))
		return provider.Chunk{Frames: s.frame}, nil
	}
	usage := a.makeUsageJSON()
	if usage == nil {
		return provider.Chunk{}, io.EOF
	}
	return provider.Chunk{
		UsageFrame: provider.AppendFrame(nil, a.makeUsageChunk(usage)),
		Usage:      provider.ParseUsage(usage),
	}, nil
}

// BodyEnded is true: Close never waits.
func (s *stream) BodyEnded() bool { return true }

// Close ends the stream.
func (s *stream) Close() error {
	s.cancel()
	return nil
}
