package upstream

// probe lets no idle connection be used again: Windows has no read of a socket that does not wait.
func (c *conn) probe(uintptr) bool {
	c.alive = false
	return true
}
