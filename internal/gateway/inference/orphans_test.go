package inference

import (
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/models/provider"
)

func (b *bundle) orphaned() int {
	b.orphans.mu.Lock()
	defer b.orphans.mu.Unlock()
	return b.orphans.calls.Len()
}

func (b *bundle) billed(key string) bool {
	var n int
	if err := b.DB.QueryRowContext(b.t.Context(),
		`SELECT COUNT(*) FROM ledger WHERE key = $1 AND settlement = 'estimated'`, key).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n == 1
}

// TestOrphanedCalls bounds the calls whose clients have disconnected. Where there is one
// too many, the oldest is cut and billed for what it has delivered; the others go on until
// their time is over. A call that a follower has attached to is no orphan.
func TestOrphanedCalls(t *testing.T) {
	t.Parallel()
	f := &fakeProvider{
		chunks:  []provider.Chunk{{Frames: []byte(delta("Hello"))}},
		hangs:   true,
		hanging: make(chan struct{}, 8),
	}
	b := newBundle(t, db.SQLite, f)
	b.Recorders, b.orphans.max = nil, 2
	var keys []string
	disconnect := map[string]func(){}
	for range 4 {
		key := id.NewUUID()
		keys, disconnect[key] = append(keys, key), b.begin(key)
		<-f.hanging
	}
	if n := b.orphaned(); n != 0 {
		t.Fatalf("%d orphans, though all clients are there", n)
	}
	disconnect[keys[0]]()
	b.eventually("the first orphan", func() bool { return b.orphaned() == 1 })
	disconnectFollower := b.begin(keys[0])
	b.eventually("a call with a follower is no orphan", func() bool { return b.orphaned() == 0 })
	for n, key := range keys[1:3] {
		disconnect[key]()
		b.eventually("orphans", func() bool { return b.orphaned() == n+1 })
	}
	disconnect[keys[3]]()
	b.eventually("the oldest is cut and billed", func() bool { return b.billed(keys[1]) })
	if b.orphaned() != 2 || b.billed(keys[0]) || b.billed(keys[2]) || b.billed(keys[3]) {
		t.Errorf("%d orphans; billed %t %t %t",
			b.orphaned(), b.billed(keys[0]), b.billed(keys[2]), b.billed(keys[3]))
	}
	b.orphans.mu.Lock()
	b.orphans.timeout, b.orphans.max = time.Millisecond, 3
	b.orphans.mu.Unlock()
	disconnectFollower()
	b.eventually("an orphan again, whose time is over soon", func() bool { return b.billed(keys[0]) })
	for _, key := range keys[2:] {
		b.calls.mu.Lock()
		c := b.calls.calls[rules.Key{ConnectionID: b.who.ConnectionID, Key: key}]
		b.calls.mu.Unlock()
		b.orphans.cutCall(c)
		b.eventually("the others", func() bool { return b.billed(key) })
	}
	b.eventually("no orphan", func() bool { return b.orphaned() == 0 })
	b.audit()
}
