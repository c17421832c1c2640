package rules

import (
	"errors"
	"time"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/money"
)

// This file lowers the output cap of a call that does not fit (decision 066).

// An OutputCap is the output cap of a text call, and what the call costs with a lower one. A
// hold that is refused for its size names the cap that would have been admitted; with MinTokens it
// is made with that cap. The functions are pure.
type OutputCap struct {
	MaxTokens int64 // the cap that the hold's amounts and terms are for
	MinTokens int64 // the lowest cap to which it may be lowered; 0 = it is not lowered

	// Price returns the hold if the wallet pays, and at provider cost. More tokens cost as much
	// or more, and one amount rises where the other does.
	Price func(maxTokens int64) (holdMC, costMC money.MC, err error)

	// Terms returns the price terms of the call with another cap, by who pays.
	Terms func(maxTokens int64, paidBy string) string
}

// maxTokens returns the output cap of the hold; 0 = it has none.
func (c *Hold) maxTokens() int64 {
	if c.Output == nil {
		return 0
	}
	return c.Output.MaxTokens
}

// withCap returns the hold of the call with another output cap. Its terms are the old ones.
func (c Hold) withCap(maxTokens int64) (Hold, error) {
	holdMC, costMC, err := c.Output.Price(maxTokens)
	if err != nil {
		return Hold{}, err
	}
	output := *c.Output
	output.MaxTokens = maxTokens
	c.Output, c.HoldMC, c.CostMC = &output, holdMC, costMC
	if c.FreeCredit != nil {
		free := *c.FreeCredit
		free.HoldMC = costMC
		c.FreeCredit = &free
	}
	return c, nil
}

// lowerCap makes a hold that was refused for its size with the largest output cap that all
// limits leave, if the call allows that cap. The payer is chosen for that cap, as for any call:
// free credit if it covers the whole call, else the wallet. A call for which free credit was too
// small is refused for its size too, whatever the wallet was refused for. Otherwise the refusal
// names the cap; of a call whose cap may be lowered, it is the refusal of its lowest cap. Any
// other refusal is returned as it is.
func (s *State) lowerCap(
	c *Hold, conn *Connection, now time.Time, a admission, refusal error,
) (admission, error) {
	if c.Output == nil || sizeRefusal(refusal) == nil && c.FreeCredit == nil {
		return a, refusal
	}
	fits, least := s.findFittingCap(c, conn, now), c.Output.MinTokens
	lower := max(fits, least)
	if least > 0 && lower < c.Output.MaxTokens {
		next, err := c.withCap(lower)
		if err != nil {
			return a, refusal // cannot happen: a larger cap has a price
		}
		if a, refusal = s.choosePayer(&next, conn, now); refusal == nil {
			next.Terms = c.Output.Terms(lower, next.PaidBy)
			*c = next
			return a, nil
		}
	}
	if e := sizeRefusal(refusal); e != nil {
		e.Details["max_tokens_that_fit"] = fits
	}
	return a, refusal
}

// sizeRefusal returns a refusal that a smaller call may not get, or nil.
func sizeRefusal(err error) *apierr.Error {
	var e *apierr.Error
	if !errors.As(err, &e) || e.Details["required_mc"] == nil {
		return nil
	}
	return e
}

// findFittingCap returns the largest output cap below the call's with which the call would be
// admitted; 0 = none. A call is admitted if one with a larger cap is: every limit compares an
// amount that rises with the cap, and free credit is chosen before the wallet.
func (s *State) findFittingCap(c *Hold, conn *Connection, now time.Time) int64 {
	low, high := int64(0), c.Output.MaxTokens-1
	for low < high {
		mid := low + (high-low+1)/2
		lower, err := c.withCap(mid)
		if err == nil {
			_, err = s.choosePayer(&lower, conn, now)
		}
		if err == nil {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// capOf returns the output cap of the call as a row holds it: the largest that costs no more.
// It is exact, because caps of one price are admitted together.
func (c *Hold) capOf(row *HoldRow) int64 {
	low, high := int64(0), c.Output.MaxTokens
	for low < high {
		mid := low + (high-low+1)/2
		holdMC, costMC, err := c.Output.Price(mid)
		if row.PaidBy == PaidByFreeCredit {
			holdMC = costMC
		}
		if err == nil && holdMC <= row.HoldMC {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}
