package main

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	purser "github.com/purserhq/purser/sdk/go"
)

// A call is one operation with its arguments.
type call struct {
	client *purser.Client
	store  purser.TokenStore
	args   arguments
}

// arguments are those of all operations. Each uses some of them.
type arguments struct {
	ConnectionID string   `json:"connection_id"`
	Token        string   `json:"token"`
	AllocationMC int64    `json:"allocation_mc"`
	Features     []string `json:"features"`

	CallbackURL string            `json:"callback_url"`
	Attempt     purser.Attempt    `json:"attempt"`
	Device      purser.DeviceCode `json:"device"`
	Tokens      purser.Tokens     `json:"tokens"`

	Model      string          `json:"model"`
	Slug       string          `json:"slug"`
	Body       json.RawMessage `json:"body"` // an object, or the text of a delivery
	Options    callOptions     `json:"options"`
	BreakAfter int             `json:"break_after"`
	After      string          `json:"after"`
	Until      string          `json:"until"`
	Limit      int             `json:"limit"`
	AmountMC   int64           `json:"amount_mc"`
	Reason     string          `json:"reason"`
	HoldID     string          `json:"hold_id"`
	ChildID    string          `json:"child_id"`
	ExpiresIn  int64           `json:"expires_in"` // seconds
	Label      string          `json:"label"`
	Models     []string        `json:"models"`
	Text       string          `json:"description"`
	RequestID  string          `json:"request_id"`

	AppID      string            `json:"app_id"`
	PageSize   int               `json:"page_size"`
	Max        int               `json:"max"`
	Changes    purser.Changes    `json:"changes"`
	Feature    purser.NewFeature `json:"feature"`
	Webhook    purser.NewWebhook `json:"webhook"`
	WebhookID  string            `json:"webhook_id"`
	DeliveryID string            `json:"delivery_id"`
	AccountID  string            `json:"account_id"`
	Type       string            `json:"type"`

	Headers    map[string]string `json:"headers"`
	Secret     json.RawMessage   `json:"secret"` // a text or a list
	ToleranceS int               `json:"tolerance_s"`
}

type callOptions struct {
	Feature        string `json:"feature"`
	IdempotencyKey string `json:"idempotency_key"`
	Fit            *bool  `json:"fit"`
}

// connection returns the connection of the arguments.
func (c *call) connection() *purser.Connection {
	if c.args.Token != "" {
		return c.client.WithToken(c.args.Token)
	}
	return c.client.Connection(c.args.ConnectionID)
}

// chat returns the body and the options of a call.
func (c *call) chat() (chat purser.ChatRequest, err error) {
	if err := json.Unmarshal(c.args.Body, &chat.Extra); err != nil {
		return chat, err
	}
	text, err := json.Marshal(chat.Extra["messages"])
	if err != nil {
		return chat, err
	}
	if err := json.Unmarshal(text, &chat.Messages); err != nil {
		return chat, err
	}
	delete(chat.Extra, "messages")
	o := c.args.Options
	chat.Feature, chat.IdempotencyKey, chat.Fit = o.Feature, o.IdempotencyKey, o.Fit
	return chat, nil
}

func (c *call) page() purser.ListOptions { return purser.ListOptions{PageSize: c.args.PageSize} }

// An operation does what the driver asks for and returns what becomes JSON.
type operation func(ctx context.Context, c *call) (any, error)

// operations has every operation by its name.
var operations = map[string]operation{
	"connect.start": func(ctx context.Context, c *call) (any, error) {
		return c.client.Connect.Start(ctx, c.proposal())
	},
	"connect.finish": func(ctx context.Context, c *call) (any, error) {
		return connected(c.client.Connect.Finish(ctx, c.args.CallbackURL, c.args.Attempt))
	},
	"device.start": func(ctx context.Context, c *call) (any, error) {
		return c.client.Device.Start(ctx, c.proposal())
	},
	"device.wait": func(ctx context.Context, c *call) (any, error) {
		return connected(c.client.Device.Wait(ctx, c.args.Device))
	},
	"tokens.save": func(ctx context.Context, c *call) (any, error) {
		return nil, c.store.Save(ctx, c.args.ConnectionID, c.args.Tokens)
	},
	"tokens.load": func(ctx context.Context, c *call) (any, error) {
		tokens, err := c.store.Load(ctx, c.args.ConnectionID)
		if errors.Is(err, purser.ErrNoTokens) {
			return nil, nil
		}
		return tokens, err
	},
	"connection.access_token": func(ctx context.Context, c *call) (any, error) {
		token, err := c.connection().Token(ctx)
		return map[string]any{"access_token": token}, err
	},
	"connection.call": func(ctx context.Context, c *call) (any, error) {
		chat, err := c.chat()
		if err != nil {
			return nil, err
		}
		return answered(c.connection().Call(ctx, c.args.Model, chat))
	},
	"connection.call_feature": func(ctx context.Context, c *call) (any, error) {
		chat, err := c.chat()
		if err != nil {
			return nil, err
		}
		return answered(c.connection().CallFeature(ctx, c.args.Slug, chat))
	},
	"connection.stream": func(ctx context.Context, c *call) (any, error) {
		chat, err := c.chat()
		if err != nil {
			return nil, err
		}
		return c.readStream(c.connection().Stream(ctx, c.args.Model, chat))
	},
	"connection.stream_feature": func(ctx context.Context, c *call) (any, error) {
		chat, err := c.chat()
		if err != nil {
			return nil, err
		}
		return c.readStream(c.connection().StreamFeature(ctx, c.args.Slug, chat))
	},
	"connection.estimate": func(ctx context.Context, c *call) (any, error) {
		chat, err := c.chat()
		if err != nil {
			return nil, err
		}
		e, err := c.connection().Estimate(ctx, c.args.Model, chat)
		return e.Raw, err
	},
	"connection.get": func(ctx context.Context, c *call) (any, error) {
		info, err := c.connection().Get(ctx)
		return info.Raw, err
	},
	"connection.events": func(ctx context.Context, c *call) (any, error) { return c.readEvents(ctx) },
	"connection.request_allocation": func(ctx context.Context, c *call) (any, error) {
		proposal := purser.AllocationProposal{AmountMC: c.args.AmountMC, Reason: c.args.Reason}
		r, err := c.connection().RequestAllocation(ctx, proposal)
		return r.Raw, err
	},
	"connection.revoke": func(ctx context.Context, c *call) (any, error) {
		r, err := c.connection().Revoke(ctx)
		return r.Raw, err
	},
	"connection.receipt": func(ctx context.Context, c *call) (any, error) {
		r, err := c.connection().Receipt(ctx, c.args.RequestID)
		return r.Raw, err
	},
	"connection.hold": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.connection().Hold(ctx, purser.NewHold{
			AmountMC:       c.args.AmountMC,
			Description:    c.args.Text,
			Feature:        c.args.Options.Feature,
			IdempotencyKey: c.args.Options.IdempotencyKey,
		})
		return hold.Raw, err
	},
	"connection.get_hold": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.connection().GetHold(ctx, c.args.HoldID)
		return hold.Raw, err
	},
	"connection.capture_hold": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.connection().CaptureHold(ctx, c.args.HoldID, c.args.AmountMC)
		return hold.Raw, err
	},
	"connection.release_hold": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.connection().ReleaseHold(ctx, c.args.HoldID)
		return hold.Raw, err
	},
	"connection.create_child": func(ctx context.Context, c *call) (any, error) {
		child, err := c.connection().CreateChild(ctx, purser.NewChild{
			AmountMC:       c.args.AmountMC,
			ExpiresIn:      time.Duration(c.args.ExpiresIn) * time.Second,
			Label:          c.args.Label,
			Features:       c.args.Features,
			Models:         c.args.Models,
			IdempotencyKey: c.args.Options.IdempotencyKey,
		})
		return child.Raw, err
	},
	"connection.list_children": func(ctx context.Context, c *call) (any, error) {
		return readList(c, c.connection().Children(ctx, c.page()))
	},
	"connection.get_child": func(ctx context.Context, c *call) (any, error) {
		child, err := c.connection().GetChild(ctx, c.args.ChildID)
		return child.Raw, err
	},
	"connection.end_child": func(ctx context.Context, c *call) (any, error) {
		child, err := c.connection().EndChild(ctx, c.args.ChildID)
		return child.Raw, err
	},
	"holds.get": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.client.Holds.Get(ctx, c.args.HoldID)
		return hold.Raw, err
	},
	"holds.capture": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.client.Holds.Capture(ctx, c.args.HoldID, c.args.AmountMC)
		return hold.Raw, err
	},
	"holds.release": func(ctx context.Context, c *call) (any, error) {
		hold, err := c.client.Holds.Release(ctx, c.args.HoldID)
		return hold.Raw, err
	},
	"models.list": func(ctx context.Context, c *call) (any, error) {
		models, err := c.client.Models.List(ctx)
		return items(models, err)
	},
	"apps.get": func(ctx context.Context, c *call) (any, error) {
		app, err := c.client.Apps.Get(ctx, c.args.AppID)
		return app.Raw, err
	},
	"apps.update": func(ctx context.Context, c *call) (any, error) {
		app, err := c.client.Apps.Update(ctx, c.args.AppID, c.args.Changes)
		return app.Raw, err
	},
	"features.list": func(ctx context.Context, c *call) (any, error) {
		return readList(c, c.client.Features.List(ctx, c.args.AppID, c.page()))
	},
	"features.create": func(ctx context.Context, c *call) (any, error) {
		feature, err := c.client.Features.Create(ctx, c.args.AppID, c.args.Feature)
		return feature.Raw, err
	},
	"features.update": func(ctx context.Context, c *call) (any, error) {
		feature, err := c.client.Features.Update(ctx, c.args.AppID, c.args.Slug, c.args.Changes)
		return feature.Raw, err
	},
	"webhooks.list": func(ctx context.Context, c *call) (any, error) {
		return readList(c, c.client.Webhooks.List(ctx, c.args.AppID, c.page()))
	},
	"webhooks.create": func(ctx context.Context, c *call) (any, error) {
		webhook, err := c.client.Webhooks.Create(ctx, c.args.AppID, c.args.Webhook)
		return webhook.Raw, err
	},
	"webhooks.update": func(ctx context.Context, c *call) (any, error) {
		webhook, err := c.client.Webhooks.Update(ctx, c.args.AppID, c.args.WebhookID, c.args.Changes)
		return webhook.Raw, err
	},
	"webhooks.delete": func(ctx context.Context, c *call) (any, error) {
		err := c.client.Webhooks.Delete(ctx, c.args.AppID, c.args.WebhookID)
		return map[string]any{"ok": err == nil}, err
	},
	"webhooks.rotate_secret": func(ctx context.Context, c *call) (any, error) {
		webhook, err := c.client.Webhooks.RotateSecret(ctx, c.args.AppID, c.args.WebhookID)
		return webhook.Raw, err
	},
	"webhooks.test": func(ctx context.Context, c *call) (any, error) {
		delivery, err := c.client.Webhooks.Test(ctx, c.args.AppID, c.args.WebhookID, c.args.Type)
		return delivery.Raw, err
	},
	"webhooks.deliveries": func(ctx context.Context, c *call) (any, error) {
		deliveries, err := c.client.Webhooks.Deliveries(ctx, c.args.AppID, c.args.WebhookID)
		return items(deliveries, err)
	},
	"webhooks.redeliver": func(ctx context.Context, c *call) (any, error) {
		a := c.args
		delivery, err := c.client.Webhooks.Redeliver(ctx, a.AppID, a.WebhookID, a.DeliveryID)
		return delivery.Raw, err
	},
	"events.list": func(ctx context.Context, c *call) (any, error) {
		o := purser.EventListOptions{After: c.args.After, PageSize: c.args.PageSize}
		return readList(c, c.client.Events.List(ctx, c.args.AppID, o))
	},
	"events.trigger": func(ctx context.Context, c *call) (any, error) {
		event, err := c.client.Events.Trigger(ctx, c.args.AppID, c.args.Type)
		return event.Raw, err
	},
	"test_accounts.list": func(ctx context.Context, c *call) (any, error) {
		accounts, err := c.client.TestAccounts.List(ctx, c.args.AppID)
		return items(accounts, err)
	},
	"test_accounts.create": func(ctx context.Context, c *call) (any, error) {
		account, err := c.client.TestAccounts.Create(ctx, c.args.AppID)
		return account.Raw, err
	},
	"test_accounts.fund": func(ctx context.Context, c *call) (any, error) {
		account, err := c.client.TestAccounts.Fund(ctx, c.args.AppID, c.args.AccountID, c.args.AmountMC)
		return account.Raw, err
	},
	"test_accounts.delete": func(ctx context.Context, c *call) (any, error) {
		return nil, c.client.TestAccounts.Delete(ctx, c.args.AppID, c.args.AccountID)
	},
	"connections.list": func(ctx context.Context, c *call) (any, error) {
		return readList(c, c.client.Connections.List(ctx, c.page()))
	},
	"connections.get": func(ctx context.Context, c *call) (any, error) {
		info, err := c.client.Connections.Get(ctx, c.args.ConnectionID)
		return info.Raw, err
	},
	"connections.revoke": func(ctx context.Context, c *call) (any, error) {
		r, err := c.client.Connections.Revoke(ctx, c.args.ConnectionID)
		return r.Raw, err
	},
	"verify_webhook": func(_ context.Context, c *call) (any, error) { return c.verifyWebhook() },
}

func (c *call) proposal() purser.ConnectOptions {
	return purser.ConnectOptions{AllocationMC: c.args.AllocationMC, Features: c.args.Features}
}

func connected(connection *purser.Connection, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return map[string]any{"connection_id": connection.ID(), "allocation_mc": connection.AllocationMC()}, nil
}

func answered(answer purser.Answer, err error) (any, error) {
	return map[string]any{
		"text":       answer.Text,
		"request_id": answer.RequestID,
		"replayed":   answer.Replayed,
		"bill":       answer.Bill.Raw,
		"raw":        answer.Raw,
	}, err
}

// readStream reads a stream to its end, or for some chunks only.
func (c *call) readStream(stream *purser.Stream) (any, error) {
	text, chunks := "", 0
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return nil, err
		}
		text += chunk.Text
		chunks++
		if chunks == c.args.BreakAfter {
			break
		}
	}
	result := map[string]any{"text": text, "chunks": chunks, "request_id": stream.RequestID(), "bill": nil}
	bill, err := stream.Bill()
	if err != nil {
		if chunks == c.args.BreakAfter {
			return result, nil
		}
		return nil, err
	}
	members := map[string]any{}
	if len(bill.Raw) > 0 {
		if err := json.Unmarshal(bill.Raw, &members); err != nil {
			return nil, err
		}
	}
	members["settlement"], members["usage"] = bill.Settlement, bill.Usage
	result["bill"] = members
	return result, nil
}

// readEvents reads live events until one of a type, or a number of them.
func (c *call) readEvents(ctx context.Context) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	events := []map[string]any{}
	for event, err := range c.connection().Events(ctx, c.args.After) {
		if err != nil {
			return nil, err
		}
		var data map[string]any
		if err := json.Unmarshal(event.Raw, &data); err != nil {
			return nil, err
		}
		if event.ID != "" {
			data["event_id"] = event.ID
		}
		events = append(events, data)
		if event.Type == c.args.Until || len(events) == c.args.Limit {
			break
		}
	}
	return map[string]any{"events": events}, nil
}

// readList reads a list, or some of its items only.
func readList[T any](c *call, rows iter.Seq2[T, error]) (any, error) {
	list := []any{}
	for row, err := range rows {
		if err != nil {
			return nil, err
		}
		list = append(list, rawOf(row))
		if len(list) == c.args.Max {
			break
		}
	}
	return map[string]any{"items": list}, nil
}

func items[T any](rows []T, err error) (any, error) {
	list := []any{}
	for _, row := range rows {
		list = append(list, rawOf(row))
	}
	return map[string]any{"items": list}, err
}

// rawOf returns the JSON of an object as the service sent it.
func rawOf[T any](row T) json.RawMessage {
	switch row := any(row).(type) {
	case purser.Model:
		return row.Raw
	case purser.Feature:
		return row.Raw
	case purser.Webhook:
		return row.Raw
	case purser.Delivery:
		return row.Raw
	case purser.Event:
		return row.Raw
	case purser.TestAccount:
		return row.Raw
	case purser.ConnectionInfo:
		return row.Raw
	case purser.Child:
		return row.Raw
	}
	return nil
}

func (c *call) verifyWebhook() (any, error) {
	var body string
	if err := json.Unmarshal(c.args.Body, &body); err != nil {
		return nil, err
	}
	var secrets []string
	var secret string
	if json.Unmarshal(c.args.Secret, &secret) == nil {
		secrets = []string{secret}
	} else if err := json.Unmarshal(c.args.Secret, &secrets); err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range c.args.Headers {
		header.Set(name, value)
	}
	verifier := purser.WebhookVerifier{Secrets: secrets, Tolerance: time.Duration(c.args.ToleranceS) * time.Second}
	event, err := verifier.Verify([]byte(body), header)
	return event.Raw, err
}
