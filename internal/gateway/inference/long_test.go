package inference

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/inference/plan"
	"github.com/purserhq/purser/internal/ledger/store"
	"github.com/purserhq/purser/internal/models/provider"
)

// longChunks returns a stream that is too long to be kept for replays, with that many tokens of output. Real chunks
// take some 300 bytes for one.
func longChunks(tokens int) (list []provider.Chunk) {
	padding := strings.Repeat("x", maxStoredResponse/(tokens-10))
	for range tokens {
		text := strings.Replace(delta(" word"), `"model":"m"`, `"model":"m","obfuscation":"`+padding+`"`, 1)
		list = append(list, provider.Chunk{Frames: []byte(text)})
	}
	return list
}

// TestLongStream bills a stream for all that it has delivered although it is too long to be kept, however it ends.
func TestLongStream(t *testing.T) {
	t.Parallel()
	const output = 40
	for _, tt := range []struct {
		name       string
		ended      error
		hangs      bool
		keeps      bool // the provider keeps a record, which never comes
		settlement string
	}{
		{name: "cut by the provider", ended: errCut, settlement: "estimated"},
		{name: "ended without usage", ended: io.EOF, settlement: "estimated"},
		{name: "stopped by its user", hangs: true, keeps: true, settlement: "estimated"},
		{name: "pending", ended: errCut, keeps: true, settlement: "pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, e db.Engine) {
				f := &fakeProvider{
					chunks:  longChunks(output),
					ended:   tt.ended,
					hangs:   tt.hangs,
					hanging: make(chan struct{}, 8),
				}
				b := newBundle(t, e, f)
				if !tt.keeps {
					b.Recorders = nil
				}
				resp := b.open(t.Context(), id.NewUUID())
				request := resp.Header.Get("X-Request-Id")
				if tt.hangs {
					go func() {
						<-f.hanging
						_ = b.StopCall(t.Context(), b.who.ConnectionID, request)
					}()
				}
				text := readRest(t, resp.Body)
				if n := strings.Count(text, `" word"`); n != output {
					t.Fatalf("%d words were delivered", n)
				}
				b.receipt(request, tt.settlement, tt.settlement == "estimated")
				if tt.settlement == "pending" {
					b.pass(11 * time.Minute)
					if n, err := b.ResolvePending(t.Context()); n != 1 || err != nil {
						t.Fatalf("resolved %d, %v", n, err)
					}
				}
				b.expectOutput(request, output)
				b.audit()
			})
		})
	}
}

// expectOutput checks that a call is billed as an estimate of that many output tokens.
func (b *bundle) expectOutput(requestID string, output int) {
	b.t.Helper()
	r := b.receipt(requestID, "estimated", true)
	if !strings.Contains(r, fmt.Sprintf(`"completion_tokens":%d,`, output)) {
		b.t.Errorf("not billed for %d tokens: %s", output, r)
	}
}

// TestCrashOfLongStream bills a stream whose node has died, and that was too long to be kept, for what its last
// checkpoint has counted.
func TestCrashOfLongStream(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		b := newBundle(t, e, &fakeProvider{})
		b.Recorders = nil
		planned := b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody)
		request := id.New(id.Request, b.Now())
		hold := planned.Demand
		hold.Key, hold.RequestID, hold.Fingerprint = id.NewUUID(), request, "print"
		hold.NodeID, hold.Claim = b.Node.ID, request
		b.do(hold)
		a := &attempt{call: &call{}, running: &runningCall{requestID: request, attempt: 1}}
		for _, frames := range longChunks(40) {
			text := strings.Replace(string(frames.Frames), " word", strings.Repeat(" word", 2000), 1)
			a.keepFrames([]byte(text))
			c, ok := a.running.checkpoint()
			if !ok {
				t.Fatal("nothing to save")
			}
			if err := b.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{c}); err != nil {
				t.Fatal(err)
			}
			a.running.noteSaved()
		}
		if c, ok := a.running.checkpoint(); ok {
			t.Errorf("saved again: %d bytes, %d tokens", len(c.Body), c.DeliveredTokens)
		}
		if n, err := store.GetDeliveredTokens(t.Context(), b.DB, request, 1); n < 79_000 || n > 80_000 || err != nil {
			t.Errorf("%d tokens were saved, %v", n, err)
		}
		swept := 0
		b.eventually("the hold is swept", func() bool {
			b.pass(time.Second) // on SQLite, the writer saves a hold by its own clock
			n, err := b.EndLostHolds(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			swept += n
			return swept > 0
		})
		b.expectOutput(request, 100) // the output cap
		b.audit()
	})
}
