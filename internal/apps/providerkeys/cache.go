package providerkeys

import (
	"sync"
	"time"
)

// recent is how long a key that was read is used without another look.
const recent = 2 * time.Second

// maxOpened bounds the cache; when it is full it begins anew.
const maxOpened = 10_000

// opened is what was found for a developer and provider, until it is too old.
type opened struct {
	key   Secret
	found bool
	until time.Time
}

// A cache holds what was read a moment ago. The zero value is empty.
type cache struct {
	mu      sync.Mutex
	list    map[[2]string]opened
	changes int // how often something was dropped: what was read before is not kept after
}

func (c *cache) find(accountID, provider string, now time.Time) (opened, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.list[[2]string{accountID, provider}]
	return o, ok && now.Before(o.until)
}

// begin is called before the database is read, and keep with its result after it.
func (c *cache) begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

func (c *cache) keep(accountID, provider string, o opened, changes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes != changes {
		return
	}
	if c.list == nil || len(c.list) >= maxOpened {
		c.list = map[[2]string]opened{}
	}
	c.list[[2]string{accountID, provider}] = o
}

func (c *cache) drop(accountID, provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.list, [2]string{accountID, provider})
}
