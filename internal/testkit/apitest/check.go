package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/purserhq/purser/internal/base/apierr"
)

// Check reports to t what the contract does not allow in the answer. body is the whole
// body of resp; for HEAD it is empty.
func Check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	if err := checkAnswer(req, resp, body, true); err != nil {
		t.Errorf("%s %s answered %d: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, shorten(body))
	}
}

// checkAnswer implements Check. Without whole, body is the part of a stream that was read.
func checkAnswer(req *http.Request, resp *http.Response, body []byte, whole bool) error {
	c, err := loadContract()
	if err != nil {
		return err
	}
	f, err := c.findOperation(req)
	if err != nil {
		return err
	}
	if f.operation == nil {
		return c.checkOther(req, resp, body, f.path != "")
	}
	documented, at := f.response(resp.StatusCode)
	if documented == nil {
		return fmt.Errorf("this status is not documented for %s %s", f.method, f.path)
	}
	if err := c.checkHeaders(documented, at, resp.Header); err != nil {
		return err
	}
	if req.Method == http.MethodHead {
		return nil
	}
	if err := c.checkBody(documented, at, &f, resp, body, whole); err != nil {
		return err
	}
	if resp.StatusCode >= 400 && isJSON(resp) && !isOAuthError(body) {
		return c.checkEnvelope(req.URL.Path, resp, body)
	}
	return nil
}

// isOAuthError reports whether the body, which matches the document, has the form of RFC 6749 in place of the envelope.
func isOAuthError(body []byte) bool {
	var e struct {
		Error string `json:"error"`
	}
	return json.Unmarshal(body, &e) == nil && e.Error != ""
}

// checkOther checks the answer to a request that the document does not have: the
// envelope of a 404 or 405. Pages for browsers, their assets, and what the script of
// one of them asks for, pass.
func (c *contract) checkOther(req *http.Request, resp *http.Response, body []byte, known bool) error {
	if resp.Header.Get("Svc-Version") == "" || resp.Header.Get("X-Request-Id") == "" {
		return fmt.Errorf("Svc-Version or X-Request-Id is missing")
	}
	switch {
	case req.Method == http.MethodHead:
		return nil
	case req.Method == http.MethodOptions && resp.StatusCode == http.StatusNoContent:
		return nil
	case strings.HasPrefix(req.URL.Path, "/developer/") && isJSON(resp):
		return nil
	case !isJSON(resp) && (resp.StatusCode < 400 || mediaType(resp) == "text/html"):
		return nil
	case resp.StatusCode < 400:
		return fmt.Errorf("openapi.yaml does not have this operation")
	case known && resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("openapi.yaml has this address")
	}
	return c.checkEnvelope(req.URL.Path, resp, body)
}

func (c *contract) checkHeaders(documented *openapi3.Response, at string, h http.Header) error {
	for name, ref := range documented.Headers {
		values := h.Values(name)
		if len(values) == 0 {
			if ref.Value.Required {
				return fmt.Errorf("header %s is missing", name)
			}
			continue
		}
		if len(values) > 1 {
			return fmt.Errorf("header %s comes %d times", name, len(values))
		}
		where := at + pointer("headers", name)
		if ref.Ref != "" {
			where = strings.TrimPrefix(ref.Ref, "#")
		}
		if err := c.validate(where+"/schema", headerValue(ref.Value.Schema, values[0])); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	return nil
}

// headerValue is the header's text, or a number where the schema wants one.
func headerValue(schema *openapi3.SchemaRef, text string) any {
	if _, err := strconv.ParseInt(text, 10, 64); err == nil && schema.Value.Type.Is("integer") {
		return json.Number(text)
	}
	return text
}

func (c *contract) checkBody(documented *openapi3.Response, at string, f *found, resp *http.Response, body []byte,
	whole bool) error {
	if len(documented.Content) == 0 {
		if len(body) > 0 {
			return fmt.Errorf("this answer has no body")
		}
		return nil
	}
	media := mediaType(resp)
	if documented.Content[media] == nil {
		return fmt.Errorf("content type %q is not documented", media)
	}
	switch media {
	case "application/json":
		value, err := parseJSON(body)
		if err != nil {
			return err
		}
		if err := c.validate(at+pointer("content", media, "schema"), value); err != nil {
			return err
		}
		return checkSums(value)
	case "text/event-stream":
		switch f.path {
		case "/openai/v1/responses":
			return c.checkResponseStream(body, whole)
		case "/v1/connection/events":
			return c.checkConnectionEvents(body)
		}
		if strings.HasPrefix(f.path, anthropicPrefix) {
			return c.checkMessageStream(body, whole)
		}
		if strings.HasPrefix(f.path, googlePrefix) {
			return c.checkContentStream(body, whole)
		}
		return c.checkStream(body, strings.HasSuffix(f.path, "/chat/completions"), whole)
	}
	return nil
}

// checkEnvelope checks an error against the table of package apierr.
func (c *contract) checkEnvelope(path string, resp *http.Response, body []byte) error {
	if !isJSON(resp) {
		return fmt.Errorf("content type %q is not the envelope's", mediaType(resp))
	}
	if strings.HasPrefix(path, googlePrefix) {
		var err error
		if body, err = c.unwrapGoogleError(resp.StatusCode, body); err != nil {
			return err
		}
	}
	value, err := parseJSON(body)
	if err != nil {
		return err
	}
	if err := c.validate(schemaOf("Error"), value); err != nil {
		return err
	}
	var e struct {
		Error struct {
			Code, Type string
			ReviewURL  *string `json:"review_url"`
			Increase   *string `json:"increase_url"`
			Details    refusalDetails
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return err
	}
	code, ok := apierr.ByName(e.Error.Code)
	if !ok {
		return fmt.Errorf("no such code: %s", e.Error.Code)
	}
	h, d := resp.Header, &e.Error.Details
	wait, hasWait := 0, h.Get("Retry-After") != ""
	if hasWait {
		if wait, err = strconv.Atoi(h.Get("Retry-After")); err != nil {
			return fmt.Errorf("Retry-After: %w", err)
		}
	}
	final := code.Final || d.final() || wait > 60
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{code.Status != resp.StatusCode, fmt.Sprintf("code %s belongs to status %d", code.Name, code.Status)},
		{errorType(path, code) != e.Error.Type, "type must be " + errorType(path, code)},
		{code.Review != (e.Error.ReviewURL != nil), "review_url is set exactly on connection_frozen"},
		{!code.Increase && e.Error.Increase != nil, "increase_url would not help here"},
		{final != (h.Get("X-Should-Retry") == "false"), fmt.Sprintf("x-should-retry: false must be there: %t", final)},
		{code.Status == http.StatusUnauthorized && h.Get("WWW-Authenticate") == "", "WWW-Authenticate is missing"},
		{code.Status == http.StatusMethodNotAllowed && h.Get("Allow") == "", "Allow is missing"},
		{code.Status == http.StatusServiceUnavailable && !hasWait, "Retry-After is missing"},
		{code.Status == http.StatusTooManyRequests && hasWait == d.largerThanWindow(),
			"Retry-After is set exactly where waiting helps"},
	} {
		if rule.broken {
			return fmt.Errorf("%s: %s", code.Name, rule.text)
		}
	}
	return nil
}

// errorType returns error.type of a code. Clients of other APIs get theirs.
func errorType(path string, code apierr.Code) string {
	if !strings.HasPrefix(path, anthropicPrefix) {
		return code.Type
	}
	return map[int]string{
		400: "invalid_request_error",
		401: "authentication_error",
		402: "billing_error",
		403: "permission_error",
		404: "not_found_error",
		405: "invalid_request_error",
		409: "invalid_request_error",
		429: "rate_limit_error",
		500: "api_error",
		502: "api_error",
		503: "overloaded_error",
	}[code.Status]
}

// refusalDetails is what error.details say of whether repeating the request helps (decisions
// 013, 014).
type refusalDetails struct {
	Required int64  `json:"required_mc"`
	Allowed  *int64 `json:"allowed_mc"`
	Reason   string
	Retry    *bool
}

// largerThanWindow reports whether the call alone is larger than the window of a limit.
func (d *refusalDetails) largerThanWindow() bool { return d.Allowed != nil && d.Required > *d.Allowed }

// final reports whether repeating the request cannot help.
func (d *refusalDetails) final() bool {
	return d.Reason == "exhausted" || d.Reason == "too_large" || d.Retry != nil && !*d.Retry || d.largerThanWindow()
}

func mediaType(resp *http.Response) string {
	m, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return resp.Header.Get("Content-Type")
	}
	return m
}

func isJSON(resp *http.Response) bool { return mediaType(resp) == "application/json" }

func shorten(body []byte) []byte {
	if len(body) > 2000 {
		return append(bytes.Clone(body[:2000]), "…"...)
	}
	return body
}
