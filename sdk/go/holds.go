package purser

import (
	"context"
	"fmt"
	"net/http"
)

// A NewHold is what an app holds for work of its own.
type NewHold struct {
	AmountMC    int64  // the most that the work may cost, in micro-cents
	Description string // what the user pays for, at most 120 characters; it stands on their receipt
	Feature     string // the slug of the feature that the work is for; may be ""
	// IdempotencyKey is a UUID. A hold with the key of an earlier one is that one. Default: a new one for each hold.
	IdempotencyKey string
}

// A HoldService ends the holds of an app's own work with the app's credentials, whatever has become of the connection:
// what was held before a user revoked it can still be captured. It needs the client secret.
type HoldService struct{ client *Client }

// Get returns a hold as it is now.
func (s HoldService) Get(ctx context.Context, holdID string) (Hold, error) {
	return readOne[Hold](s.client.manage(ctx, http.MethodGet, pathOf("v1", "holds", holdID), nil))
}

// Capture charges what the work came to, at most what is held, and gives the rest back. An amount of 0 is all of it.
func (s HoldService) Capture(ctx context.Context, holdID string, amountMC int64) (Hold, error) {
	return s.end(ctx, pathOf("v1", "holds", holdID, "capture"), captureBody(amountMC))
}

// Release gives all of a hold back, and charges nothing.
func (s HoldService) Release(ctx context.Context, holdID string) (Hold, error) {
	return s.end(ctx, pathOf("v1", "holds", holdID, "release"), nil)
}

func (s HoldService) end(ctx context.Context, path string, body any) (Hold, error) {
	r, err := s.client.manageRequest(http.MethodPost, path, body)
	if err != nil {
		return Hold{}, err
	}
	r.repeatable = true // the same end of a hold answers the same
	return readOne[Hold](s.client.send(ctx, r))
}

// captureBody returns the body of a capture; 0 is all that is held.
func captureBody(amountMC int64) any {
	if amountMC == 0 {
		return nil
	}
	return map[string]any{"amount_mc": amountMC}
}

// Hold holds money for work of the app itself, such as a search. Capture or release it within ten minutes. The app
// needs own_work, and its user must have connected since.
func (c *Connection) Hold(ctx context.Context, hold NewHold) (Hold, error) {
	key := hold.IdempotencyKey
	if key == "" {
		key = newUUID()
	}
	header := http.Header{"Idempotency-Key": {key}}
	if hold.Feature != "" {
		header.Set("X-Svc-Feature", hold.Feature)
	}
	body := map[string]any{"amount_mc": hold.AmountMC, "description": hold.Description}
	return c.sendHold(ctx, "/v1/holds", header, body)
}

// GetHold returns a hold of the connection as it is now.
func (c *Connection) GetHold(ctx context.Context, holdID string) (Hold, error) {
	return readOne[Hold](c.get(ctx, pathOf("v1", "holds", holdID)))
}

// CaptureHold charges what the work came to, at most what is held, and gives the rest back. An amount of 0 is all of
// it.
func (c *Connection) CaptureHold(ctx context.Context, holdID string, amountMC int64) (Hold, error) {
	return c.sendHold(ctx, pathOf("v1", "holds", holdID, "capture"), http.Header{}, captureBody(amountMC))
}

// ReleaseHold gives all of a hold back, and charges nothing.
func (c *Connection) ReleaseHold(ctx context.Context, holdID string) (Hold, error) {
	return c.sendHold(ctx, pathOf("v1", "holds", holdID, "release"), http.Header{}, nil)
}

// sendHold sends a step of a hold. Each may be repeated: a hold has its key, and the same end of one answers the same.
func (c *Connection) sendHold(ctx context.Context, path string, header http.Header, body any) (Hold, error) {
	r := request{
		method:     http.MethodPost,
		path:       path,
		header:     header,
		timeout:    c.client.timeout(defaultTimeout),
		repeatable: true,
		authorize:  c.authorize,
	}
	if body != nil {
		text, err := marshalWith(body, nil)
		if err != nil {
			return Hold{}, fmt.Errorf("purser: %w", err)
		}
		r.body = text
		header.Set("Content-Type", "application/json")
	}
	return readOne[Hold](c.client.send(ctx, r))
}
