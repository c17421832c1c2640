package providerkeys

import (
	"sync"
	"time"
)

// cacheTTL is how long a cached key is used.
const cacheTTL = 2 * time.Second

// maxCached bounds the cache. A full cache is cleared.
const maxCached = 10_000

// cachedKey is the key of a developer at a provider, or that there is none, until it expires.
type cachedKey struct {
	key   Secret
	found bool
	until time.Time
}

// A keyCache caches keys. The zero value is empty.
type keyCache struct {
	mu      sync.Mutex
	list    map[[2]string]cachedKey
	changes int // number of dropCached calls: a key that was read before such a call is not cached after it
}

func (c *keyCache) getCached(accountID, provider string, now time.Time) (cachedKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.list[[2]string{accountID, provider}]
	return o, ok && now.Before(o.until)
}

// beginRead returns the present number of changes. Call it before a read from the database, and putCached after it.
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
