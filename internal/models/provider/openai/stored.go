package openai

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/purserhq/purser/internal/models/provider"
	"github.com/purserhq/purser/internal/models/provider/upstream"
)

// encode writes the body of a call, and where the operator lets the provider
// keep a record, how to find that again (provider notes A.9).
func (c *Client) encode(r *provider.Request) []byte {
	b := encode(r)
	if !c.store {
		return b
	}
	b = append(b[:len(b)-1], `,"store":true,"metadata":{"request_id":`...)
	return append(provider.AppendQuote(b, r.ID), "}}"...)
}

type record struct {
	ID    string         `json:"id"`
	Usage jsontext.Value `json:"usage"`
}

// Stored returns what a stored call used, found by the provider's id of the
// answer, or if that is empty by our request's. False means that there is no
// record, or not yet, or one without usage that can be true.
func (c *Client) Stored(ctx context.Context, completionID, requestID string) (*provider.Usage, bool, error) {
	if completionID == "" {
		var list struct {
			Data []record `json:"data"`
		}
		found, err := c.fetch(ctx, path+"?limit=1&"+url.Values{"metadata[request_id]": {requestID}}.Encode(), &list)
		if err != nil || !found || len(list.Data) == 0 {
			return nil, false, err
		}
		u := provider.ParseUsage(list.Data[0].Usage)
		return u, u != nil, nil
	}
	var one record
	found, err := c.fetch(ctx, path+"/"+url.PathEscape(completionID), &one)
	if err != nil || !found {
		return nil, false, err
	}
	u := provider.ParseUsage(one.Usage)
	return u, u != nil, nil
}

// fetch reads a JSON object; false if there is none.
func (c *Client) fetch(ctx context.Context, path string, v any) (bool, error) {
	x, err := c.Get(ctx, path)
	var e *provider.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer x.End(false)
	text, err := x.ReadAll()
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return false, upstream.Failed(x.StatusCode, fmt.Errorf("the record cannot be read: %w", err))
	}
	return true, nil
}
