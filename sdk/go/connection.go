package purser

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
)

// A Connection is what one user has allowed the app to spend. It can be used by many goroutines.
type Connection struct {
	client       *Client
	id           string // "" with a fixed token
	fixedToken   string // used as it is; "" means that the store has the tokens
	allocationMC int64
}

// ID returns the id of the connection. Store it with your user. It is "" for a connection of Client.WithToken.
func (c *Connection) ID() string { return c.id }

// AllocationMC returns the spend cap that the user has just set, in micro-cents. It is 0 except in what
// ConnectService.Finish and DeviceService.Wait return; Get returns the present cap of every connection.
func (c *Connection) AllocationMC() int64 { return c.allocationMC }

// Token returns an access token that is valid for at least a minute. It refreshes the token where necessary. Use it for
// programs that take an API key.
func (c *Connection) Token(ctx context.Context) (string, error) { return c.freshToken(ctx, "") }

// freshToken returns an access token other than the rejected one.
func (c *Connection) freshToken(ctx context.Context, rejected string) (string, error) {
	if c.fixedToken != "" {
		return c.fixedToken, nil
	}
	tokens, err := c.client.loadTokens(ctx, c.id)
	if err != nil {
		return "", err
	}
	if tokens.isFresh(c.client.clock.now()) && tokens.AccessToken != rejected {
		return tokens.AccessToken, nil
	}
	return c.client.refresh(ctx, c.id, rejected)
}

// authorize adds a fresh access token to a request.
func (c *Connection) authorize(ctx context.Context, header http.Header, rejected string) (string, error) {
	token, err := c.freshToken(ctx, rejected)
	if err != nil {
		return "", err
	}
	header.Set("Authorization", "Bearer "+token)
	if c.fixedToken != "" {
		return "", nil // it can't be renewed
	}
	return token, nil
}

// Call calls a model and returns the whole answer.
func (c *Connection) Call(ctx context.Context, model string, chat ChatRequest) (Answer, error) {
	return c.call(ctx, pathOf("v1", "ai", model), chat)
}

// CallFeature calls the model that is set as the default_model of a feature, and returns the whole answer.
func (c *Connection) CallFeature(ctx context.Context, slug string, chat ChatRequest) (Answer, error) {
	chat.Feature = ""
	return c.call(ctx, pathOf("v1", "ai", "features", slug), chat)
}

func (c *Connection) call(ctx context.Context, path string, chat ChatRequest) (Answer, error) {
	r, err := c.chatRequest(path, chat, nil)
	if err != nil {
		return Answer{}, err
	}
	answer, err := c.client.send(ctx, r)
	if err != nil {
		return Answer{}, err
	}
	return readAnswer(answer)
}

// chatRequest returns the request of a call. members are added to its body.
func (c *Connection) chatRequest(path string, chat ChatRequest, members map[string]any) (request, error) {
	body, err := marshalWith(chat, members)
	if err != nil {
		return request{}, fmt.Errorf("purser: %w", err)
	}
	key := chat.IdempotencyKey
	if key == "" {
		key = newUUID()
	}
	r := request{
		method:     http.MethodPost,
		path:       path,
		header:     http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}},
		body:       body,
		timeout:    c.client.timeout(defaultCallTimeout),
		repeatable: true,
		authorize:  c.authorize,
	}
	if chat.Feature != "" {
		r.header.Set("X-Svc-Feature", chat.Feature)
	}
	if chat.Fit != nil && *chat.Fit {
		r.header.Set("X-Svc-Fit", "1")
	} else if chat.Fit != nil {
		r.header.Set("X-Svc-Fit", "0")
	}
	return r, nil
}

// Estimate says what a call would be held for, what it may cost, and whether it would be admitted now. It costs
// nothing.
func (c *Connection) Estimate(ctx context.Context, model string, chat ChatRequest) (Estimate, error) {
	r, err := c.chatRequest("/v1/estimate", chat, map[string]any{"model": model})
	if err != nil {
		return Estimate{}, err
	}
	r.header.Del("Idempotency-Key")
	return readOne[Estimate](c.client.send(ctx, r))
}

// Get returns the connection as it is now: its allocation, what is consumed and held, and its status.
func (c *Connection) Get(ctx context.Context) (ConnectionInfo, error) {
	return readOne[ConnectionInfo](c.get(ctx, "/v1/connection"))
}

// Receipt returns what a call cost and why, or why it was refused. requestID is Answer.RequestID or Error.RequestID.
func (c *Connection) Receipt(ctx context.Context, requestID string) (Receipt, error) {
	return readOne[Receipt](c.get(ctx, pathOf("v1", "requests", requestID)))
}

func (c *Connection) get(ctx context.Context, path string) (reply, error) {
	return c.client.send(ctx, request{
		method:     http.MethodGet,
		path:       path,
		timeout:    c.client.timeout(defaultTimeout),
		repeatable: true,
		authorize:  c.authorize,
	})
}

// An AllocationProposal is a higher spend cap that an app requests.
type AllocationProposal struct {
	AmountMC int64  // the requested total cap, in micro-cents
	Reason   string // for the user to read; may be ""
}

// RequestAllocation requests a higher spend cap. Send the user to the ApprovalURL of the result:
// only they can raise it. It needs the client secret.
func (c *Connection) RequestAllocation(ctx context.Context, p AllocationProposal) (AllocationRequest, error) {
	id, err := c.loadID(ctx)
	if err != nil {
		return AllocationRequest{}, err
	}
	body := map[string]any{"target_allocation_mc": p.AmountMC}
	if p.Reason != "" {
		body["reason"] = p.Reason
	}
	path := pathOf("v1", "connections", id, "allocation-requests")
	return readOne[AllocationRequest](c.client.manage(ctx, http.MethodPost, path, body))
}

// Revoke ends the connection and returns what it has not spent to the user. It can't be undone. The store keeps the
// tokens, so that later calls say connection_revoked. It needs the client secret.
func (c *Connection) Revoke(ctx context.Context) (Revocation, error) {
	id, err := c.loadID(ctx)
	if err != nil {
		return Revocation{}, err
	}
	return c.client.Connections.Revoke(ctx, id)
}

// SignOut ends the tokens of the connection and deletes them. The connection itself stays: its user ends it on the
// dashboard, or the app by Revoke. It needs no client secret.
func (c *Connection) SignOut(ctx context.Context) error {
	unlock, err := c.client.options.Tokens.Lock(ctx, c.id)
	if err != nil {
		return err
	}
	defer unlock()
	tokens, err := c.client.loadTokens(ctx, c.id)
	if err != nil {
		return err
	}
	r := c.client.formRequest("/oauth/revoke", url.Values{"token": {tokens.RefreshToken}})
	r.repeatable = true
	if _, err := c.client.send(ctx, r); err != nil {
		return err
	}
	c.client.unsaved.Delete(c.id)
	return c.client.options.Tokens.Delete(context.WithoutCancel(ctx), c.id)
}

// loadID returns the id of the connection. With a fixed token it asks the service.
func (c *Connection) loadID(ctx context.Context) (string, error) {
	if c.id != "" {
		return c.id, nil
	}
	info, err := c.Get(ctx)
	return info.ID, err
}

// readOne reads the object of an answer.
func readOne[T any](r reply, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return decode[T](r.body)
}

// readList reads the array of an answer.
func readList[T any](r reply, err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return decodeList[T](r.body)
}
