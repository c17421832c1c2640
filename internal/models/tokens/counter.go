package tokens

// A Counter counts a text that comes in parts, however long it grows: Count estimates long texts for holds, which would
// charge for tokens that no client got. It counts as Count does, but may be one token off in each windowBytes. The text
// must be UTF-8.
type Counter struct {
	n    int64
	tail []byte // not counted yet: its last piece may go on
}

const (
	// windowBytes is how much text is collected before it is counted.
	windowBytes = 4 << 10
	// lookaheadBytes is more than the splitter looks ahead of a piece.
	lookaheadBytes = 64
)

// Add adds the next part of the text.
func (c *Counter) Add(text string) {
	for len(text) > 0 {
		part := text[:min(len(text), windowBytes)]
		text = text[len(part):]
		if c.tail = append(c.tail, part...); len(c.tail) >= windowBytes {
			c.countTail(len(c.tail) - lookaheadBytes)
		}
	}
}

// Counted returns how many tokens are counted so far, without the last part of the text. It costs nothing.
func (c *Counter) Counted() int64 { return c.n }

// Count returns how many tokens the text has so far.
func (c *Counter) Count() int64 {
	return c.n + int64(Count(string(c.tail)))
}

// countTail counts the pieces of the tail that begin before until.
func (c *Counter) countTail(until int) {
	v, text, start := o200k(), string(c.tail), 0
	for start < until {
		end := pieceEnd(text, start)
		c.n += int64(v.count(text[start:end]))
		start = end
	}
	c.tail = append(c.tail[:0], text[start:]...)
}
