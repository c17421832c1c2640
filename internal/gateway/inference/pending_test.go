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

const pendingEnd = `data: {"svc_final":{"usage":null,"svc":null,"settlement":"pending"}}` + "\n\n" + "data: [DONE]\n\n"

// TestPendingStream cuts a stream of a provider that keeps a record: the call stays
// pending and a retry gets the same. When the record is there, the call is billed exactly,
// reported by one event, and replayed with its charge.
func TestPendingStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		query      string
		ended      error
		record     *provider.Usage
		err        error
		after      time.Duration // when it is resolved
		settlement string
		output     int64
	}{
		{
			name:       "cut, and the record comes",
			ended:      errCut,
			record:     &provider.Usage{Input: 9, Output: 5},
			after:      6 * time.Second,
			settlement: "settled",
			output:     5,
		},
		{
			name:       "cut on the OpenAI-compatible route",
			query:      "?chat",
			ended:      errCut,
			record:     &provider.Usage{Input: 9, Output: 5},
			after:      6 * time.Second,
			settlement: "settled",
			output:     5,
		},
		{
			name:       "whole, without usage",
			ended:      io.EOF,
			record:     &provider.Usage{Input: 9, Output: 5},
			after:      6 * time.Second,
			settlement: "settled",
			output:     5,
		},
		{
			name:       "the record never comes",
			ended:      errCut,
			after:      11 * time.Minute,
			settlement: "estimated",
			output:     2,
		},
		{
			name:       "the record can never be read",
			ended:      errCut,
			err:        errCut,
			after:      11 * time.Minute,
			settlement: "estimated",
			output:     2,
		},
		{
			name:       "the record is implausible",
			ended:      errCut,
			record:     &provider.Usage{Input: 9, Output: 5000},
			after:      6 * time.Second,
			settlement: "estimated",
			output:     2,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, e db.Engine) {
				f := &fakeProvider{
					chunks: []provider.Chunk{{Frames: []byte(delta("Hello"))}, {Frames: []byte(delta(" there"))}},
					ended:  tt.ended,
				}
				b := newBundle(t, e, f)
				key := id.NewUUID()
				body, request, _ := b.call(key, tt.query)
				end := pendingEnd
				if tt.query != "" {
					end = fmt.Sprintf(`data: {"id":"chatcmpl-9","object":"chat.completion.chunk","created":%d,"model":"%s",`+
						`"choices":[],"usage":null,`, id.Time(request).Unix(), testModel) +
						strings.TrimPrefix(pendingEnd, "data: {")
				}
				broke := ""
				if tt.ended == errCut {
					cut := brokenOff("openai", b.who.ConnectionID, errCut, true)
					broke = string(errorFrame(cut, b.Links))
				}
				frames := delta("Hello") + delta(" there")
				if body != frames+broke+end {
					t.Fatalf("the stream is\n%s", body)
				}
				again, request2, replayed := b.call(key, tt.query)
				if again != frames+broke+end || request2 != request || !replayed {
					t.Errorf("a retry got %s, replayed %t:\n%s", request2, replayed, again)
				}
				b.receipt(request, "pending", false)
				b.expectOne(`SELECT COUNT(*) FROM holds h JOIN connections c ON c.held_mc = h.amount_mc
					WHERE h.state = 'pending' AND h.request_id = $1`, request)
				if n, err := b.ResolvePending(t.Context()); n != 0 || err != nil {
					t.Errorf("resolved %d before anything can be known, %v", n, err)
				}
				f.mu.Lock()
				f.record, f.err = tt.record, tt.err
				f.mu.Unlock()
				b.pass(tt.after)
				if n, err := b.ResolvePending(t.Context()); n != 1 || err != nil {
					t.Fatalf("resolved %d, %v", n, err)
				}
				if n, err := b.ResolvePending(t.Context()); n != 0 || err != nil {
					t.Errorf("resolved %d again, %v", n, err)
				}
				if len(f.asked) != 1 || f.asked[0] != "chatcmpl-9 "+request {
					t.Errorf("asked for %q", f.asked)
				}
				r := b.receipt(request, tt.settlement, true)
				b.expectOne(`SELECT COUNT(*) FROM ledger WHERE type = 'spend' AND key = $1 AND settlement = $2`,
					key, tt.settlement)
				b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND first_byte_ms > 0
					AND duration_ms >= first_byte_ms AND finish_reason IS NULL`, key)
				b.expectOne(`SELECT COUNT(*) FROM connections
					WHERE held_mc = 0 AND consumed_mc = (SELECT user_charge_mc FROM ledger WHERE type = 'spend')`)
				var data string
				if err := b.DB.QueryRowContext(t.Context(), `SELECT data FROM events
					WHERE type = 'request.settled' AND connection_id = $1`,
					b.who.ConnectionID).Scan(&data); err != nil {
					t.Fatal(err)
				}
				if want := `{"request":` + r + `}`; data != want {
					t.Errorf("request.settled has\n%s, the receipt is\n%s", data, want)
				}
				end, _, replayed = b.call(key, tt.query)
				if !replayed || !strings.HasPrefix(end, frames) ||
					!strings.Contains(end, `"settlement":"`+tt.settlement+`"}}`) ||
					!strings.Contains(end, fmt.Sprintf(`"completion_tokens":%d,`, tt.output)) {
					t.Errorf("after it was settled a retry got, replayed %t,\n%s", replayed, end)
				}
				b.audit()
			})
		})
	}
}

// TestNotPending shows which calls do not wait for a record.
func TestNotPending(t *testing.T) {
	t.Parallel()
	usage := &provider.Usage{Input: 9, Output: 5}
	for _, tt := range []struct {
		name   string
		chunks []provider.Chunk
		ended  error
		keeps  bool
		want   string
	}{
		{
			"the usage came",
			[]provider.Chunk{{Frames: []byte(delta("Hello"))}, {UsageFrame: []byte(usageEvent), Usage: usage}},
			io.EOF, true, "settled",
		},
		{
			"cut after the usage",
			[]provider.Chunk{{Frames: []byte(delta("Hello"))}, {UsageFrame: []byte(usageEvent), Usage: usage}},
			errCut, true, "settled",
		},
		{"no provider keeps a record", []provider.Chunk{{Frames: []byte(delta("Hello"))}}, errCut, false, "estimated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, db.SQLite, &fakeProvider{chunks: tt.chunks, ended: tt.ended})
			if !tt.keeps {
				b.Recorders = nil
			}
			_, request, _ := b.call(id.NewUUID(), "")
			b.receipt(request, tt.want, true)
			b.expectOne(`SELECT 1 - COUNT(*) FROM events WHERE type = 'request.settled'`)
			b.audit()
		})
	}
}

// TestPendingAfterACrash sweeps the hold of a node that died within a stream: the record
// is asked for by the id that its chunks carry, less often each time, and the call is
// settled when the record comes.
func TestPendingAfterACrash(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		f := &fakeProvider{}
		b := newBundle(t, e, f)
		planned := b.plan(plan.Route{Path: "ai/" + testModel, Model: testModel}, testBody)
		request := id.New(id.Request, b.Now())
		hold := planned.Demand
		hold.Key, hold.RequestID, hold.Fingerprint = id.NewUUID(), request, "print"
		hold.NodeID, hold.Claim = b.Node.ID, request
		b.do(hold)
		if err := b.Node.SaveCheckpoints(t.Context(), []store.Checkpoint{{
			RequestID: request,
			Attempt:   1,
			Body:      []byte(delta("Hello")),
		}}); err != nil {
			t.Fatal(err)
		}
		swept := 0
		for deadline := time.Now().Add(10 * time.Second); swept == 0 && time.Now().Before(deadline); {
			b.pass(time.Second) // on SQLite, the writer saves a hold by its own clock
			var err error
			if swept, err = b.EndLostHolds(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-time.After(10 * time.Millisecond)
		}
		b.receipt(request, "pending", false)
		asks := 0
		for seconds := range 200 { // at 5, 20, 80, 140, 200 s
			if _, err := b.ResolvePending(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(f.asked) > asks {
				asks = len(f.asked)
				t.Logf("asked after %d s for %s", seconds, f.asked[asks-1])
			}
			b.pass(time.Second)
		}
		if asks != 4 || f.asked[0] != "chatcmpl-9 "+request {
			t.Errorf("asked for %q", f.asked)
		}
		f.record = &provider.Usage{Input: 9, Output: 1}
		b.pass(time.Minute)
		if n, err := b.ResolvePending(t.Context()); n != 1 || err != nil {
			t.Errorf("resolved %d, %v", n, err)
		}
		b.receipt(request, "settled", true)
		b.audit()
	})
}
