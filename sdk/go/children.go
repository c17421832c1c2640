package purser

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"time"
)

// A NewChild is what a child gets.
type NewChild struct {
	AmountMC  int64         // in micro-cents; at most what remains of the connection
	ExpiresIn time.Duration // in whole seconds, from a minute to 30 days. Default: an hour
	Label     string        // who or what spends it, as the user reads it; at most 60 characters
	Features  []string      // slugs of the only features that its calls may name. Default: as the parent
	Models    []string      // the only models that it may call. Default: as the parent
	// IdempotencyKey is a UUID. A request with the key of an earlier one returns that child, with its token. Default: a
	// new one for each request.
	IdempotencyKey string
}

// CreateChild passes a part of the connection's budget on. The amount leaves what the connection can spend at once.
// Client.WithToken makes a connection of the child's Token, which no other answer has.
func (c *Connection) CreateChild(ctx context.Context, child NewChild) (Child, error) {
	key := child.IdempotencyKey
	if key == "" {
		key = newUUID()
	}
	body := map[string]any{"amount_mc": child.AmountMC}
	if child.ExpiresIn != 0 {
		body["expires_in"] = int64(child.ExpiresIn / time.Second)
	}
	if child.Label != "" {
		body["label"] = child.Label
	}
	if len(child.Features) > 0 {
		body["features"] = child.Features
	}
	if len(child.Models) > 0 {
		body["models"] = child.Models
	}
	text, err := marshalWith(body, nil)
	if err != nil {
		return Child{}, fmt.Errorf("purser: %w", err)
	}
	return readOne[Child](c.client.send(ctx, request{
		method:     http.MethodPost,
		path:       "/v1/connection/children",
		header:     http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}},
		body:       text,
		timeout:    c.client.timeout(defaultTimeout),
		repeatable: true,
		authorize:  c.authorize,
	}))
}

// Children returns the children of the connection and theirs, newest first, ended ones too.
func (c *Connection) Children(ctx context.Context, o ListOptions) iter.Seq2[Child, error] {
	return listPages[Child]("/v1/connection/children", nil, o, func(path string) (reply, error) {
		return c.get(ctx, path)
	})
}

// GetChild returns a child as it is now.
func (c *Connection) GetChild(ctx context.Context, childID string) (Child, error) {
	return readOne[Child](c.get(ctx, pathOf("v1", "connection", "children", childID)))
}

// EndChild ends a child and all below it. What they have neither spent nor held comes back.
func (c *Connection) EndChild(ctx context.Context, childID string) (Child, error) {
	return readOne[Child](c.client.send(ctx, request{
		method:     http.MethodPost,
		path:       pathOf("v1", "connection", "children", childID, "end"),
		timeout:    c.client.timeout(defaultTimeout),
		repeatable: true, // the same end answers the same
		authorize:  c.authorize,
	}))
}
