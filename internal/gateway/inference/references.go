package inference

import (
	"context"
	"database/sql"
	"errors"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/id"
	"github.com/purserhq/purser/internal/gateway/shapes/responses"
	"github.com/purserhq/purser/internal/ledger/rules"
	"github.com/purserhq/purser/internal/ledger/store"
)

// maxReferenced bounds the answers to which the items of a request refer.
const maxReferenced = 256

// findItems returns a function that finds an item of an earlier answer of the caller's, as long as it is stored for
// replays (decision 178). What was read of an answer is kept for the other items of the request.
func (h *Handler) findItems(ctx context.Context, c *call) responses.Finder {
	answers := map[string]map[string][]byte{} // the items by their ids, by request
	read := int64(0)
	reserve := func(bytes int64) error {
		read += bytes
		return c.seat.reserveAnswer(read)
	}
	return func(itemID string) ([]byte, error) {
		requestID, ok := responses.RequestOf(itemID)
		if !ok {
			return nil, nil
		}
		items, ok := answers[requestID]
		if !ok {
			if len(answers) == maxReferenced {
				return nil, apierr.InvalidRequest.Errorf("input: its items may refer to those of %d answers at most; "+
					"send the items themselves, and set store to false", maxReferenced)
			}
			answer, err := h.findAnswer(ctx, c, requestID, reserve)
			if err != nil {
				return nil, err
			}
			items = responses.Items(answer)
			answers[requestID] = items
		}
		return items[itemID], nil
	}
}

// findAnswer returns the stored answer to an earlier request of the caller's; nil if there is none.
func (h *Handler) findAnswer(ctx context.Context, c *call, requestID string,
	reserve func(int64) error) ([]byte, error) {
	entry, err := store.GetEntry(ctx, h.DB, id.ReplacePrefix(requestID, id.Request, id.Ledger))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil || entry.ConnectionID != c.who.ConnectionID || rules.ChildOfKey(entry.Key) != c.who.ChildID() {
		return nil, err
	}
	stored, err := store.GetStoredResponse(ctx, h.DB, requestID)
	if errors.Is(err, sql.ErrNoRows) {
		return h.stored.findPromised(requestID), nil
	}
	if err != nil {
		return nil, err
	}
	return unpackResponse(stored, reserve)
}
