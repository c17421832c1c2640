// Package shares divides what is scarce on a node among those who use it, by the rule of decision 100: slots for calls,
// event streams, bytes of memory. It holds nothing but counts, and is guarded by its user's mutex.
package shares

import "errors"

// factor is how much a key may use for each unit of the bound that is free. So one key alone leaves a ninth to keys
// that come later, and k keys that want more than there is settle at 8/(1+8k) each: equal shares, without a list of who
// is active and without a clock (decision 100).
const factor = 8

// Why something is refused.
var (
	ErrFull  = errors.New("the bound is used up")
	ErrShare = errors.New("the key has its share of the bound")
	ErrPart  = errors.New("the part has its share of what the key may use")
)

// Use counts what is used of a bound, in all and by key. It remembers nothing of keys that use nothing. The zero Use is
// ready.
type Use struct {
	all   int64
	byKey map[string]int64
}

// Check returns nil if a key may take n units more of a bound, and otherwise why not. A bound of 0 is none. Without a
// key, users share nothing.
func (u *Use) Check(key string, n, bound int64) error {
	free := bound - u.all
	switch {
	case bound <= 0:
		return nil
	case n > free:
		return ErrFull
	case key != "" && u.byKey[key]+n > factor*(free-n+1):
		return ErrShare
	}
	return nil
}

// CheckPart returns nil if a part of a key, such as one of its users, may take n units more, and otherwise why not.
// parts counts what each part uses. A part may use as much as it leaves of what the key could still take: one part
// alone takes half of the share of its key, and k parts that want more than there is settle at 1/(1+k) each. Without a
// name, or of a bound that is too small to leave something free, parts share nothing.
func (u *Use) CheckPart(key string, parts *Use, part string, n, bound int64) error {
	if bound <= factor || part == "" {
		return nil
	}
	used := u.byKey[key]
	left := factor*(bound-u.all+used+1)/(factor+1) - used
	if parts.byKey[part]+n > left-n+1 {
		return ErrPart
	}
	return nil
}

// Take counts n units more for a key, or returns the error of Check.
func (u *Use) Take(key string, n, bound int64) error {
	if err := u.Check(key, n, bound); err != nil {
		return err
	}
	u.Add(key, n)
	return nil
}

// Add counts n units more for a key, or fewer if n is negative, whatever the bound.
func (u *Use) Add(key string, n int64) {
	u.all += n
	if key == "" {
		return
	}
	if u.byKey == nil {
		u.byKey = map[string]int64{}
	}
	if u.byKey[key] += n; u.byKey[key] == 0 {
		delete(u.byKey, key)
	}
}

// All returns what is used in all.
func (u *Use) All() int64 { return u.all }

// Keys returns how many keys use something.
func (u *Use) Keys() int { return len(u.byKey) }
