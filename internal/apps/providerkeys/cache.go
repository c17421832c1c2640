package providerkeys

import (
	"sync"
	"time"
)

// cacheTTL is how long a key that was read is used without another look.
const cacheTTL = 2 * time.Second

// maxCached bounds the cache; when it is full it begins anew.
const maxCached = 10_000

// cachedKey is what was found for a developer and provider, until it is too old.
type cachedKey struct {
	key   Secret
	found bool
	until time.Time
}

// A keyCache holds what was read a moment ago. The zero value is empty.
type keyCache struct {
	mu      sync.Mutex
	list    map[[2]string]cachedKey
	changes int // how often something was dropped: what was read before is not kept after
}

func (c *keyCache) getCached(accountID, provider string, now time.Time) (cachedKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.list[[2]string{accountID, provider}]
	return o, ok && now.Before(o.until)
}

// beginRead is called before the database is read, and keep with its result after it.
func (c *keyCache) beginRead() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

func (c *keyCache) putCached(accountID, provider string, o cachedKey, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	if c.list == nil || len(c.list) >= maxCached {
		c.list = map[[2]string]cachedKey{}
	}
	c.list[[2]string{accountID, provider}] = o
}

func (c *keyCache) dropCached(accountID, provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.list, [2]string{accountID, provider})
}
