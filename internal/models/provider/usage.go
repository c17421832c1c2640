package provider

import "strconv"

// ParseUsage reads OpenAI's usage object into disjoint token classes. It returns nil if the object cannot be true: a
// count is missing, negative, fractional, not a number, above 2^53, given twice or smaller than its parts. Such usage
// counts as missing (decision 019). Parts that are absent or null are 0. A total that is not the sum is noted, and not
// believed.
func ParseUsage(raw []byte) *Usage {
	prompt, completion, total := absent, absent, absent
	cached, written, reasoning := absent, absent, absent
	readTotal := true
	ok := Members(raw, func(name, value []byte) bool {
		switch string(name) {
		case "prompt_tokens":
			return prompt.read(value)
		case "completion_tokens":
			return completion.read(value)
		case "total_tokens":
			readTotal = total.read(value) && readTotal
		case "prompt_tokens_details":
			return readParts(value, "cached_tokens", &cached, "cache_write_tokens", &written)
		case "completion_tokens_details":
			return readParts(value, "reasoning_tokens", &reasoning, "", nil)
		}
		return true
	})
	if !ok || prompt < 0 || completion < 0 {
		return nil
	}
	u := &Usage{
		Cached:     cached.orZero(),
		CacheWrite: written.orZero(),
		Output:     int64(completion),
		Reasoning:  reasoning.orZero(),
		SumDiffers: !readTotal || total >= 0 && total != prompt+completion,
	}
	u.Input = int64(prompt) - u.Cached - u.CacheWrite
	if u.Input < 0 || u.Reasoning > u.Output {
		return nil
	}
	return u
}

// AppendUsage appends OpenAI's usage object, whose prompt_tokens include cached input.
func AppendUsage(b []byte, u *Usage) []byte {
	prompt := u.Input + u.Cached + u.CacheWrite
	b = strconv.AppendInt(append(b, `{"prompt_tokens":`...), prompt, 10)
	b = strconv.AppendInt(append(b, `,"completion_tokens":`...), u.Output, 10)
	b = strconv.AppendInt(append(b, `,"total_tokens":`...), prompt+u.Output, 10)
	b = strconv.AppendInt(append(b, `,"prompt_tokens_details":{"cached_tokens":`...), u.Cached, 10)
	b = strconv.AppendInt(append(b, `,"cache_write_tokens":`...), u.CacheWrite, 10)
	b = strconv.AppendInt(append(b, `},"completion_tokens_details":{"reasoning_tokens":`...), u.Reasoning, 10)
	return append(b, "}}"...)
}

// readParts reads the counts a and b of a details object, which may be null.
func readParts(raw []byte, a string, to *count, b string, to2 *count) bool {
	return string(raw) == "null" || Members(raw, func(name, value []byte) bool {
		switch {
		case string(name) == a:
			return to.read(value)
		case to2 != nil && string(name) == b:
			return to2.read(value)
		}
		return true
	})
}

// count is a number of tokens; absent is -1.
type count int64

const (
	absent   count = -1
	maxCount count = 1 << 53
)

// read reads a whole number from 0 to 2^53, or null for absent. It fails if the count was read before.
func (c *count) read(value []byte) bool {
	if string(value) == "null" {
		return *c == absent
	}
	if *c != absent || len(value) > 16 {
		return false
	}
	var n count
	for _, d := range value {
		if !isDigit(d) {
			return false
		}
		n = n*10 + count(d-'0')
	}
	*c = n
	return n <= maxCount
}

func (c count) orZero() int64 { return int64(max(c, 0)) }
