// Package stripe speaks the part of Stripe's API that Purser needs: form-encoded requests, JSON answers, lists, and
// signed events (decision 160). It says nothing about what an answer means for money: package stripeapi does.
package stripe

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/retry"
)

// APIVersion is the version of Stripe's API that every request asks for, whatever the version of the account is.
const APIVersion = "2026-03-25.dahlia"

// DefaultURL is the address of Stripe's API.
const DefaultURL = "https://api.stripe.com"

// maxAnswerBytes bounds an answer. A page of a hundred charges with their payments has less than one megabyte.
const maxAnswerBytes = 16 << 20

// Pauses before a request is repeated.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 5 * time.Second
)

// Client asks Stripe with one API key. It is safe for concurrent use.
type Client struct {
	Key     string
	BaseURL string // "" = DefaultURL
	Retries int    // how often a request is repeated whose answer did not come
	HTTP    *http.Client
}

// Params are the parameters of a request, by their names in Stripe's documentation, such as metadata[topup_id].
type Params map[string]string

// SetMetadata adds metadata. part is the part that it is of, such as payment_intent_data; "" = the object itself.
func (p Params) SetMetadata(part string, metadata map[string]string) {
	name := "metadata"
	if part != "" {
		name = part + "[metadata]"
	}
	for key, value := range metadata {
		p[name+"["+key+"]"] = value
	}
}

// Expand asks for members in full, of which an answer has the ids otherwise.
func (p Params) Expand(members ...string) {
	for i, name := range members {
		p["expand["+strconv.Itoa(i)+"]"] = name
	}
}

func (p Params) encode() string {
	values := url.Values{}
	for name, value := range p {
		values.Set(name, value)
	}
	return values.Encode()
}

// An Object is one of the kinds of objects of this package. resource is the path of all of its kind.
type Object interface {
	resource() string
	objectID() string
}

// Get fetches an object.
func Get[T Object](ctx context.Context, c *Client, id string, p Params) (*T, error) {
	o, err := do(ctx, c, request{method: http.MethodGet, path: pathOf[T](id), params: p}, isObject[T])
	if err == nil && (*o).objectID() != id {
		return nil, fmt.Errorf("stripe: GET %s: the answer is another object", pathOf[T](id))
	}
	return o, err
}

// Create makes an object. A request that is repeated with the same key makes one; "" = a key of its own.
func Create[T Object](ctx context.Context, c *Client, p Params, idempotencyKey string) (*T, error) {
	return do(ctx, c, request{method: http.MethodPost, path: pathOf[T](), params: p, key: idempotencyKey}, isObject[T])
}

// Act changes an object by one of its actions, such as cancel; "" = it sets what the parameters say.
func Act[T Object](ctx context.Context, c *Client, id, action string, p Params) (*T, error) {
	path := pathOf[T](id)
	if action != "" {
		path += "/" + action
	}
	return do(ctx, c, request{method: http.MethodPost, path: path, params: p}, isObject[T])
}

// Delete deletes an object.
func Delete[T Object](ctx context.Context, c *Client, id string) error {
	_, err := do(ctx, c, request{method: http.MethodDelete, path: pathOf[T](id)}, isObject[T])
	return err
}

// GetOwnAccount fetches the account that the key is of.
func GetOwnAccount(ctx context.Context, c *Client) (*Account, error) {
	return do(ctx, c, request{method: http.MethodGet, path: OwnAccountPath}, isObject[Account])
}

// OwnAccountPath is the path of GetOwnAccount.
const OwnAccountPath = "/v1/account"

// List lists objects, the newest first, page by page. It ends after the first error.
func List[T Object](ctx context.Context, c *Client, p Params) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		p := maps.Clone(p)
		for {
			page, err := do(ctx, c, request{method: http.MethodGet, path: pathOf[T](), params: p}, isPage[T])
			if err != nil {
				yield(nil, err)
				return
			}
			last := ""
			for i := range page.Data {
				last = page.Data[i].objectID()
				if !yield(&page.Data[i], nil) {
					return
				}
			}
			if !page.HasMore {
				return
			} else if last == "" || last == p["starting_after"] {
				yield(nil, errors.New("stripe: a list has more, and does not say after which object"))
				return
			}
			if p == nil {
				p = Params{}
			}
			p["starting_after"] = last
		}
	}
}

// A page of a list.
type page[T Object] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	HasMore bool   `json:"has_more"`
}

func isPage[T Object](p *page[T]) bool { return p.Object == "list" }

func isObject[T Object](o *T) bool { return (*o).objectID() != "" }

func pathOf[T Object](id ...string) string {
	var o T
	path := "/v1/" + o.resource()
	for _, name := range id {
		path += "/" + url.PathEscape(name)
	}
	return path
}

// keyHeader names the idempotency key. Names of headers have no case.
const keyHeader = "idempotency-key"

type request struct {
	method, path string
	params       Params
	key          string // idempotency key; "" = one of its own
}

// An Error is an error that Stripe's API answers with.
type Error struct {
	Type        string `json:"type"`
	Code        string `json:"code"`
	DeclineCode string `json:"decline_code"`
	Param       string `json:"param"`
	Message     string `json:"message"`
	// Payment is that which a declined card was to pay.
	Payment *PaymentIntent `json:"payment_intent"`

	Status   int  `json:"-"` // of HTTP
	Replayed bool `json:"-"` // Stripe has stored it for the idempotency key, and repeats it
}

// Error returns Stripe's words, or what else it says.
func (e *Error) Error() string {
	return cmp.Or(e.Message, fmt.Sprintf("stripe: %d %s %s", e.Status, e.Type, e.Code))
}

// canRetry reports whether a request that has failed may succeed when it is repeated. Of Stripe's own errors only a
// lock that was held by another request passes by itself; a rate limit gets worse.
func canRetry(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return !ok || e.Status == http.StatusTooManyRequests && e.Code == "lock_timeout"
}

// do sends a request, and repeats it with the same key while its answer does not come. isAnswer tells what was asked
// for from JSON of something in between.
func do[T any](ctx context.Context, c *Client, r request, isAnswer func(*T) bool) (*T, error) {
	if r.key == "" && r.method != http.MethodGet {
		r.key = rand.Text()
	}
	tries := 0
	return retry.Do(ctx, retry.Backoff{First: firstPause, Max: longestPause}, func(ctx context.Context) (*T, error) {
		tries++
		answer := new(T)
		if err := c.send(ctx, r, answer); err != nil {
			return nil, err
		}
		if !isAnswer(answer) {
			return nil, fmt.Errorf("stripe: %s %s: the answer is not what was asked for", r.method, r.path)
		}
		return answer, nil
	}, func(err error) bool { return tries <= c.Retries && ctx.Err() == nil && canRetry(err) })
}

// send sends a request once, and decodes its answer. An error that is no *Error does not say what Stripe has done.
func (c *Client) send(ctx context.Context, r request, answer any) error {
	address, body := cmp.Or(c.BaseURL, DefaultURL)+r.path, r.params.encode()
	if r.method != http.MethodPost && body != "" {
		address, body = address+"?"+body, ""
	}
	q, err := http.NewRequestWithContext(ctx, r.method, address, strings.NewReader(body))
	if err != nil {
		return fmt.Errorf("stripe: %w", err)
	}
	q.Header.Set("Authorization", "Bearer "+c.Key)
	q.Header.Set("Stripe-Version", APIVersion)
	q.Header.Set("User-Agent", "Purser")
	if r.method == http.MethodPost {
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if r.key != "" {
		// Under its usual name, net/http itself repeats a request whose connection was cut, also one that is tried
		// once.
		q.Header[keyHeader] = []string{r.key}
	}
	a, err := c.HTTP.Do(q)
	if err != nil {
		return fmt.Errorf("stripe: %w", err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(io.LimitReader(a.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("stripe: %s %s: %w", r.method, r.path, err)
	case len(text) > maxAnswerBytes:
		return fmt.Errorf("stripe: %s %s: the answer is larger than %d bytes", r.method, r.path, maxAnswerBytes)
	case a.StatusCode >= 400:
		return decodeError(r, a, text)
	case a.StatusCode >= 300:
		return fmt.Errorf("stripe: %s %s: status %d is no answer of Stripe's", r.method, r.path, a.StatusCode)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("stripe: %s %s: %w", r.method, r.path, err)
	}
	return nil
}

// decodeError decodes an error of the API. What has another form is an answer of something in between.
func decodeError(r request, a *http.Response, text []byte) error {
	var failed struct {
		Error *Error `json:"error"`
	}
	if err := json.Unmarshal(text, &failed); err != nil || failed.Error == nil || failed.Error.Type == "" {
		return fmt.Errorf("stripe: %s %s: status %d is no answer of Stripe's", r.method, r.path, a.StatusCode)
	}
	failed.Error.Status = a.StatusCode
	failed.Error.Replayed = a.Header.Get("Idempotent-Replayed") == "true"
	return failed.Error
}
