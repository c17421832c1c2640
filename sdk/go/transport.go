package purser

import (
	"fmt"
	"net/http"
	"net/url"
)

// OpenAIBaseURL returns the base URL for clients of OpenAI's API.
func (c *Connection) OpenAIBaseURL() string { return c.client.options.BaseURL + "/openai/v1" }

// AnthropicBaseURL returns the base URL for clients of Anthropic's API.
func (c *Connection) AnthropicBaseURL() string { return c.client.options.BaseURL + "/anthropic" }

// HTTPClient returns a client that signs each request with a fresh access token. It makes the official SDKs of OpenAI
// and Anthropic work:
//
//	openai.NewClient(option.WithBaseURL(connection.OpenAIBaseURL()), option.WithHTTPClient(connection.HTTPClient()))
//	anthropic.NewClient(option.WithBaseURL(connection.AnthropicBaseURL()),
//		option.WithHTTPClient(connection.HTTPClient()))
//
// It has no time limit: use contexts.
func (c *Connection) HTTPClient() *http.Client {
	return &http.Client{Transport: c.Transport(nil), CheckRedirect: refuseRedirect}
}

// Transport returns a RoundTripper that signs each request with a fresh access token and sends it by base, or by
// http.DefaultTransport if that is nil. It sends requests to the service only, so that no token gets elsewhere. After a
// 401 it sends the request once more with a new token.
func (c *Connection) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &tokenTransport{connection: c, base: base}
}

type tokenTransport struct {
	connection *Connection
	base       http.RoundTripper
}

// RoundTrip sends a request.
func (t *tokenTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	service, err := url.Parse(t.connection.client.options.BaseURL)
	if err != nil || request.URL.Host != service.Host || request.URL.Scheme != service.Scheme {
		closeBody(request)
		return nil, fmt.Errorf("purser: a request to %s://%s would reveal the access token: the service is %s",
			request.URL.Scheme, request.URL.Host, t.connection.client.options.BaseURL)
	}
	response, token, err := t.sendSigned(request, "")
	if err != nil || response.StatusCode != http.StatusUnauthorized || token == "" {
		return response, err
	}
	again, err := copyRequest(request)
	if err != nil || again == nil {
		return response, err
	}
	fresh, _, err := t.sendSigned(again, token)
	if err != nil {
		return response, nil // the 401 says more than a failed refresh
	}
	_ = response.Body.Close()
	return fresh, nil
}

// sendSigned sends a request with an access token other than the rejected one. It returns the token.
func (t *tokenTransport) sendSigned(request *http.Request, rejected string) (*http.Response, string, error) {
	signed := request.Clone(request.Context()) // a RoundTripper must not change the request
	token, err := t.connection.authorize(request.Context(), signed.Header, rejected)
	if err != nil {
		closeBody(request)
		return nil, "", err
	}
	signed.Header.Del("X-Api-Key") // a key from the environment, which Anthropic's SDK reads
	response, err := t.base.RoundTrip(signed)
	return response, token, err
}

// copyRequest returns a request with its body from the start, or nil if the body can't be read twice.
func copyRequest(request *http.Request) (*http.Request, error) {
	again := request.Clone(request.Context())
	if request.Body == nil || request.Body == http.NoBody {
		return again, nil
	}
	if request.GetBody == nil {
		return nil, nil
	}
	body, err := request.GetBody()
	if err != nil {
		return nil, err
	}
	again.Body = body
	return again, nil
}

// closeBody closes the body of a request, as RoundTrip must.
func closeBody(request *http.Request) {
	if request.Body != nil {
		_ = request.Body.Close()
	}
}
