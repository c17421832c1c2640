package purser

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// ListOptions are how a list is read. Lists ask for their next page when it is needed.
type ListOptions struct {
	PageSize int // rows of a page, at most 100; 0: 100
}

const largestPage = 100

func pageSize(wanted int) int {
	if wanted <= 0 {
		return largestPage
	}
	return wanted
}

// nextLink finds the address of the next page in the header Link (RFC 8288).
var nextLink = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="?next"?`)

// list returns the rows of all pages of a list that the app's credentials read.
func list[T any](ctx context.Context, c *Client, path string, query url.Values, o ListOptions) iter.Seq2[T, error] {
	return listPages[T](path, query, o, func(path string) (reply, error) {
		return c.manage(ctx, http.MethodGet, path, nil)
	})
}

// listPages returns the rows of all pages of a list. get reads one page.
func listPages[T any](path string, query url.Values, o ListOptions,
	get func(path string) (reply, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query) // each loop begins at the first page
		if query == nil {
			query = url.Values{}
		}
		query.Set("limit", strconv.Itoa(pageSize(o.PageSize)))
		for {
			answer, err := get(path + "?" + query.Encode())
			rows, err := readList[T](answer, err)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			link := nextLink.FindStringSubmatch(answer.header.Get("Link"))
			if link == nil || len(rows) == 0 { // a list that grows always has a next page
				return
			}
			next, err := url.Parse(link[1])
			if err != nil {
				return
			}
			query = next.Query() // never the host: requests have credentials
		}
	}
}

// A ConnectionService reads and revokes the connections of an app. It needs the client secret.
type ConnectionService struct{ client *Client }

// List returns the connections of the app, newest first.
func (s ConnectionService) List(ctx context.Context, o ListOptions) iter.Seq2[ConnectionInfo, error] {
	return list[ConnectionInfo](ctx, s.client, "/v1/connections", nil, o)
}

// Get returns a connection with its newest ledger entries.
func (s ConnectionService) Get(ctx context.Context, connectionID string) (ConnectionInfo, error) {
	path := pathOf("v1", "connections", connectionID)
	return readOne[ConnectionInfo](s.client.manage(ctx, http.MethodGet, path, nil))
}

// Revoke ends a connection and returns what it has not spent to the user. It can't be undone.
func (s ConnectionService) Revoke(ctx context.Context, connectionID string) (Revocation, error) {
	r, err := s.client.manageRequest(http.MethodPost, pathOf("v1", "connections", connectionID, "revoke"), nil)
	if err != nil {
		return Revocation{}, err
	}
	r.repeatable = true // a second one changes nothing
	return readOne[Revocation](s.client.send(ctx, r))
}

// An AllocationRequestService reads the app's requests for higher spend caps. It needs the client secret.
type AllocationRequestService struct{ client *Client }

// List returns the allocation requests of a connection, newest first.
func (s AllocationRequestService) List(ctx context.Context, connectionID string,
	o ListOptions) iter.Seq2[AllocationRequest, error] {
	path := pathOf("v1", "connections", connectionID, "allocation-requests")
	return list[AllocationRequest](ctx, s.client, path, nil, o)
}

// Get returns an allocation request.
func (s AllocationRequestService) Get(ctx context.Context, connectionID, requestID string) (AllocationRequest, error) {
	path := pathOf("v1", "connections", connectionID, "allocation-requests", requestID)
	return readOne[AllocationRequest](s.client.manage(ctx, http.MethodGet, path, nil))
}

// A ModelService lists models.
type ModelService struct{ client *Client }

// List returns the models that can be called now. It needs no credentials.
func (s ModelService) List(ctx context.Context) ([]Model, error) {
	return readList[Model](s.client.send(ctx, request{
		method:     http.MethodGet,
		path:       "/v1/models",
		timeout:    s.client.timeout(defaultTimeout),
		repeatable: true,
	}))
}

// An AppService reads and changes an app. It needs the client secret.
type AppService struct{ client *Client }

// Get returns the app.
func (s AppService) Get(ctx context.Context, appID string) (App, error) {
	return readOne[App](s.client.manage(ctx, http.MethodGet, pathOf("v1", "apps", appID), nil))
}

// Changes are the members of an app, a feature or a webhook endpoint that an update changes, by their names in the API:
//
//	purser.Changes{"default_max_tokens": 4096, "dev_margin_rate": nil}
//
// An absent member stays as it is, nil clears an optional one, a list is replaced as a whole.
type Changes map[string]any

// Update changes the app.
func (s AppService) Update(ctx context.Context, appID string, changes Changes) (App, error) {
	return readOne[App](s.client.manage(ctx, http.MethodPatch, pathOf("v1", "apps", appID), changes))
}

// A FeatureService reads and changes the features of an app. It needs the client secret.
type FeatureService struct{ client *Client }

// List returns the features of the app, newest first.
func (s FeatureService) List(ctx context.Context, appID string, o ListOptions) iter.Seq2[Feature, error] {
	return list[Feature](ctx, s.client, pathOf("v1", "apps", appID, "features"), nil, o)
}

// Create registers a feature.
func (s FeatureService) Create(ctx context.Context, appID string, feature NewFeature) (Feature, error) {
	path := pathOf("v1", "apps", appID, "features")
	return readOne[Feature](s.client.manage(ctx, http.MethodPost, path, feature))
}

// Update changes a feature.
func (s FeatureService) Update(ctx context.Context, appID, slug string, changes Changes) (Feature, error) {
	path := pathOf("v1", "apps", appID, "features", slug)
	return readOne[Feature](s.client.manage(ctx, http.MethodPatch, path, changes))
}

// A WebhookService reads and changes the webhook endpoints of an app. It needs the client secret.
type WebhookService struct{ client *Client }

// List returns the endpoints of the app, newest first.
func (s WebhookService) List(ctx context.Context, appID string, o ListOptions) iter.Seq2[Webhook, error] {
	return list[Webhook](ctx, s.client, pathOf("v1", "apps", appID, "webhooks"), nil, o)
}

// Create adds an endpoint. The result has its signing secret, which is shown only now.
func (s WebhookService) Create(ctx context.Context, appID string, webhook NewWebhook) (Webhook, error) {
	path := pathOf("v1", "apps", appID, "webhooks")
	return readOne[Webhook](s.client.manage(ctx, http.MethodPost, path, webhook))
}

// Get returns an endpoint.
func (s WebhookService) Get(ctx context.Context, appID, webhookID string) (Webhook, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID)
	return readOne[Webhook](s.client.manage(ctx, http.MethodGet, path, nil))
}

// Update changes an endpoint: url, events or status.
func (s WebhookService) Update(ctx context.Context, appID, webhookID string, changes Changes) (Webhook, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID)
	return readOne[Webhook](s.client.manage(ctx, http.MethodPatch, path, changes))
}

// Delete deletes an endpoint with what waits for it.
func (s WebhookService) Delete(ctx context.Context, appID, webhookID string) error {
	_, err := s.client.manage(ctx, http.MethodDelete, pathOf("v1", "apps", appID, "webhooks", webhookID), nil)
	return err
}

// RotateSecret replaces the signing secret. The result has the new one, which is shown only now and
// signs all deliveries from now on. Give VerifyWebhook both while your servers change over.
func (s WebhookService) RotateSecret(ctx context.Context, appID, webhookID string) (Webhook, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "rotate-secret")
	return readOne[Webhook](s.client.manage(ctx, http.MethodPost, path, nil))
}

// Test sends a sample event of a type to one endpoint.
func (s WebhookService) Test(ctx context.Context, appID, webhookID, eventType string) (Delivery, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "test")
	body := map[string]string{"type": eventType}
	return readOne[Delivery](s.client.manage(ctx, http.MethodPost, path, body))
}

// DeliveryListOptions choose deliveries of an endpoint. The zero value chooses all.
type DeliveryListOptions struct {
	Status   string    // pending, delivered or failed
	Type     string    // of the event
	Since    time.Time // queued from then on
	PageSize int       // rows of a page, at most 100; 0: 100
}

// ListDeliveries returns the deliveries of an endpoint that are kept, newest first.
func (s WebhookService) ListDeliveries(ctx context.Context, appID, webhookID string,
	o DeliveryListOptions) iter.Seq2[Delivery, error] {
	query := url.Values{}
	if o.Status != "" {
		query.Set("status", o.Status)
	}
	if o.Type != "" {
		query.Set("type", o.Type)
	}
	if !o.Since.IsZero() {
		query.Set("since", o.Since.UTC().Format(time.RFC3339))
	}
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "deliveries")
	return list[Delivery](ctx, s.client, path, query, ListOptions{o.PageSize})
}

// Recover sends again what has failed or waits for a retry since a time, up to 1,000 events.
func (s WebhookService) Recover(ctx context.Context, appID, webhookID string, since time.Time) (Recovered, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "recover")
	body := map[string]string{"since": since.UTC().Format(time.RFC3339)}
	return readOne[Recovered](s.client.manage(ctx, http.MethodPost, path, body))
}

// Deliveries returns the latest 50 deliveries of an endpoint, newest first.
func (s WebhookService) Deliveries(ctx context.Context, appID, webhookID string) ([]Delivery, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "deliveries")
	return readList[Delivery](s.client.manage(ctx, http.MethodGet, path, nil))
}

// Redeliver sends an event again, with all its tries.
func (s WebhookService) Redeliver(ctx context.Context, appID, webhookID, deliveryID string) (Delivery, error) {
	path := pathOf("v1", "apps", appID, "webhooks", webhookID, "deliveries", deliveryID, "redeliver")
	return readOne[Delivery](s.client.manage(ctx, http.MethodPost, path, nil))
}

// An EventService reads the events of an app. It needs the client secret.
type EventService struct{ client *Client }

// EventListOptions are how events are read.
type EventListOptions struct {
	After    string // id of an event, or "0": all later ones, oldest first. "": the latest page, newest first
	PageSize int    // events of a page, at most 100; 0: 100
}

// List returns the events of the app, as webhooks get them. They are kept for 90 days,
// unless the operator keeps them otherwise. An error with status 400 says that events after After may be missed, such
// as after a restore of the service: read the connections again, and go on with the latest event.
func (s EventService) List(ctx context.Context, appID string, o EventListOptions) iter.Seq2[Event, error] {
	path, query := pathOf("v1", "apps", appID, "events"), url.Values{}
	if o.After != "" {
		query.Set("after", o.After)
		return list[Event](ctx, s.client, path, query, ListOptions{o.PageSize})
	}
	query.Set("limit", strconv.Itoa(pageSize(o.PageSize)))
	return func(yield func(Event, error) bool) { // the page after the latest events has those to come
		rows, err := readList[Event](s.client.manage(ctx, http.MethodGet, path+"?"+query.Encode(), nil))
		if err != nil {
			yield(Event{}, err)
			return
		}
		for _, event := range rows {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// Trigger sends a sample event of a type to the endpoints of the app.
func (s EventService) Trigger(ctx context.Context, appID, eventType string) (Event, error) {
	path := pathOf("v1", "apps", appID, "events")
	return readOne[Event](s.client.manage(ctx, http.MethodPost, path, map[string]string{"type": eventType}))
}

// A TestAccountService reads and changes the developer's test accounts. It needs the client secret of an app in the
// sandbox.
type TestAccountService struct{ client *Client }

// List returns the test accounts, oldest first. There are at most 25.
func (s TestAccountService) List(ctx context.Context, appID string) ([]TestAccount, error) {
	path := pathOf("v1", "apps", appID, "test-accounts")
	return readList[TestAccount](s.client.manage(ctx, http.MethodGet, path, nil))
}

// Create makes a test account. The result has its password, which is shown only now.
func (s TestAccountService) Create(ctx context.Context, appID string) (TestAccount, error) {
	path := pathOf("v1", "apps", appID, "test-accounts")
	return readOne[TestAccount](s.client.manage(ctx, http.MethodPost, path, nil))
}

// Fund adds fake money to the balance of a test account, in micro-cents.
func (s TestAccountService) Fund(ctx context.Context, appID, accountID string, amountMC int64) (TestAccount, error) {
	path := pathOf("v1", "apps", appID, "test-accounts", accountID, "fund")
	return readOne[TestAccount](s.client.manage(ctx, http.MethodPost, path, map[string]int64{"amount_mc": amountMC}))
}

// Delete deletes a test account and revokes its connections.
func (s TestAccountService) Delete(ctx context.Context, appID, accountID string) error {
	_, err := s.client.manage(ctx, http.MethodDelete, pathOf("v1", "apps", appID, "test-accounts", accountID), nil)
	return err
}
