package inference

import (
	"io"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/models/provider"
)

// TestDelivery keeps the times and the finish reason of a stream with its ledger row, and shows them on the receipt.
func TestDelivery(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, e db.Engine) {
		const last = `data: {"id":"chatcmpl-9","choices":[{"delta":{},"finish_reason":"length"}]}` + "\n\n"
		b := newBundle(t, e, &fakeProvider{
			chunks: []provider.Chunk{
				{Frames: []byte(delta("Hello"))},
				{Frames: []byte(last)},
				{UsageFrame: []byte(usageEvent), Usage: &provider.Usage{Input: 9, Output: 5}},
			},
			ended: io.EOF,
		})
		key := id.NewUUID()
		_, request, _ := b.call(key, "")
		b.expectOne(`SELECT COUNT(*) FROM ledger WHERE key = $1 AND first_byte_ms >= 1 AND duration_ms >= first_byte_ms
			AND finish_reason = 'length'`, key)
		receipt := b.receipt(request, "settled", true)
		if !strings.Contains(receipt, `"first_byte_ms":`) || !strings.Contains(receipt, `"finish_reason":"length"`) ||
			strings.Contains(receipt, `"duration_ms":null`) {
			t.Errorf("the receipt is %s", receipt)
		}
		b.audit()
	})
}
