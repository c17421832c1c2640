package purser

import (
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options are the settings of a [Client]. BaseURL and ClientID are required.
type Options struct {
	// BaseURL is the address for calls from server to server, such as https://purser.example.com.
	BaseURL string
	// ClientID and ClientSecret are the credentials of the app. A public client, which runs on its users' devices, has
	// no secret.
	ClientID     string
	ClientSecret string
	// RedirectURI is where users come back to. It is exactly a URI that the app has registered.
	RedirectURI string
	// Tokens keeps the tokens of the connections. Default: in memory, until the process ends.
	Tokens TokenStore
	// HTTPClient sends the requests, without following redirects. Default: a client of its own.
	HTTPClient *http.Client
	// MaxRetries is how often a request is sent again. Default: 2. A negative number means never.
	MaxRetries int
	// Timeout is how long one attempt may take until its answer is complete, or until a stream begins. Default: 10
	// minutes for calls to models, 30 seconds for everything else.
	Timeout time.Duration
}

// A Client speaks to one Purser as one app. It can be used by many goroutines.
type Client struct {
	options Options
	http    *http.Client
	clock   clock
	unsaved sync.Map // connection id to unsavedTokens

	exchangeLimit, firstTryLimit time.Duration

	// Connect lets users connect their balance in a browser.
	Connect ConnectService
	// Device lets users connect a command line or a device without a browser.
	Device DeviceService
	// Apps reads and changes the app.
	Apps AppService
	// Features reads and changes the features of the app.
	Features FeatureService
	// Webhooks reads and changes the webhook endpoints of the app.
	Webhooks WebhookService
	// Events reads the events of the app.
	Events EventService
	// TestAccounts reads and changes the developer's test accounts.
	TestAccounts TestAccountService
	// Connections reads and revokes the connections of the app.
	Connections ConnectionService
	// AllocationRequests reads the app's requests for higher spend caps.
	AllocationRequests AllocationRequestService
	// Holds ends the holds of the app's own work, also of connections that were revoked since.
	Holds HoldService
	// Models lists the models that can be called.
	Models ModelService
}

const (
	defaultMaxRetries  = 2
	defaultTimeout     = 30 * time.Second
	defaultCallTimeout = 10 * time.Minute
)

// New returns a client. It makes no request.
func New(o Options) *Client {
	o.BaseURL = strings.TrimRight(o.BaseURL, "/")
	if o.Tokens == nil {
		o.Tokens = NewMemoryTokenStore()
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = defaultMaxRetries
	}
	c := &Client{
		options:       o,
		clock:         systemClock,
		exchangeLimit: exchangeLimit,
		firstTryLimit: firstTryLimit,
	}
	own := http.Client{}
	if o.HTTPClient != nil {
		own = *o.HTTPClient
	}
	own.CheckRedirect, c.http = refuseRedirect, &own
	c.Connect, c.Device = ConnectService{c, &metadataCache{}}, DeviceService{c}
	c.Apps, c.Features, c.Webhooks, c.Events = AppService{c}, FeatureService{c}, WebhookService{c}, EventService{c}
	c.TestAccounts, c.Connections, c.Models = TestAccountService{c}, ConnectionService{c}, ModelService{c}
	c.AllocationRequests, c.Holds = AllocationRequestService{c}, HoldService{c}
	return c
}

// refuseRedirect makes a redirect an answer. The API never redirects, and credentials must not follow.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Connection returns the connection with an id, whose tokens are in the token store. It makes no request.
func (c *Client) Connection(connectionID string) *Connection {
	return &Connection{client: c, id: connectionID}
}

// WithToken returns a connection that uses one access token as long as it lasts: about 15 minutes, or until the end of
// the child whose token it is. Nothing refreshes it.
func (c *Client) WithToken(accessToken string) *Connection {
	return &Connection{client: c, fixedToken: accessToken}
}

// setClientCredentials adds the app's credentials to a request of the management API.
func (c *Client) setClientCredentials(header http.Header) {
	request := http.Request{Header: header}
	// RFC 6749 §2.3.1
	request.SetBasicAuth(url.QueryEscape(c.options.ClientID), url.QueryEscape(c.options.ClientSecret))
}

// timeout returns how long an attempt may take.
func (c *Client) timeout(standard time.Duration) time.Duration {
	if c.options.Timeout > 0 {
		return c.options.Timeout
	}
	return standard
}

var userAgent = "purser-go/" + Version + " " + runtime.Version()
