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

// encodeRequest writes the body of a call. If the provider may store the call, it adds the metadata by which the record
// can be found (provider notes A.9).
func (c *Client) encodeRequest(r *provider.Request) []byte {
	b := encodeChat(r)
	if !c.storesCalls {
		return b
	}
	b = append(b[:len(b)-1], `,"store":true,"metadata":{"request_id":`...)
	return append(provider.AppendQuote(b, upstream.HashRequestID(r.ID)), "}}"...)
}

type record struct {
	ID    string         `json:"id"`
	Usage jsontext.Value `json:"usage"`
}

// GetStoredUsage returns the usage of a stored call. It looks the record up by the provider's id of the completion or,
// if that is empty, by our request id. It returns false if there is no record yet, or none with usable usage.
func (c *Client) GetStoredUsage(ctx context.Context, completionID, requestID string) (*provider.Usage, bool, error) {
	if completionID == "" {
		var list struct {
			Data []record `json:"data"`
		}
		filter := url.Values{"metadata[request_id]": {upstream.HashRequestID(requestID)}}
		found, err := c.fetchRecord(ctx, path+"?limit=1&"+filter.Encode(), &list)
		if err != nil || !found || len(list.Data) == 0 {
			return nil, false, err
		}
		u := provider.ParseUsage(list.Data[0].Usage)
		return u, u != nil, nil
	}
	var one record
	found, err := c.fetchRecord(ctx, path+"/"+url.PathEscape(completionID), &one)
	if err != nil || !found {
		return nil, false, err
	}
	u := provider.ParseUsage(one.Usage)
	return u, u != nil, nil
}

// fetchRecord gets a JSON object into v. It returns false if the provider answers 404.
func (c *Client) fetchRecord(ctx context.Context, path string, v any) (bool, error) {
	x, err := c.Get(ctx, path)
	var e *provider.Error
	if errors.As(err, &e) && e.Status == http.StatusNotFound {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer x.End(false)
	text, err := x.ReadAll()
	if err == nil && json.Unmarshal(text, v) != nil {
		err = errors.New(upstream.Describe(text))
	}
	if err != nil {
		return false, upstream.NewFailure(x.StatusCode, fmt.Errorf("the record cannot be read: %w", err))
	}
	return true, nil
}
