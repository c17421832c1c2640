package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
)

// Body limits in bytes. Package inference passes its own to ReadBody.
const (
	maxJSONBytes = 1 << 20
	maxFormBytes = 64 << 10
)

// maxParams bounds the parameters of a form or a query. Each takes a hundred bytes and more, however short it is.
const maxParams = 1000

// ReadJSON reads a management request's JSON body of at most 1 MiB into dst, by
// the rules of DecodeSmall; members that dst does not know are refused. Errors are
// 400 invalid_request.
func ReadJSON(r *http.Request, dst any) error {
	data, err := ReadBody(r, "application/json", maxJSONBytes)
	if err != nil {
		return err
	}
	return DecodeSmall(data, dst, false)
}

// ReadBody reads the whole body of at most maxBytes, which must say that it is
// of mediaType, in UTF-8 if it says so at all, and not compressed. Errors are
// 400 invalid_request, or 503 unavailable while too many large bodies arrive;
// only a client that left is neither.
func ReadBody(r *http.Request, mediaType string, maxBytes int64) ([]byte, error) {
	if err := checkContent(r.Header, mediaType); err != nil {
		return nil, err
	}
	if r.ContentLength > maxBytes {
		return nil, errTooLarge(maxBytes)
	}
	data, err := readAll(r, maxBytes)
	switch e, refused := errors.AsType[*apierr.Error](err); {
	case err == nil:
	case refused:
		return nil, e
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, apierr.InvalidRequest.Errorf("body: did not arrive in time").WithCause(err)
	case r.Context().Err() != nil:
		return nil, r.Context().Err()
	default:
		return nil, apierr.InvalidRequest.Errorf("body: could not be read to its end").WithCause(err)
	}
	if int64(len(data)) > maxBytes {
		return nil, errTooLarge(maxBytes)
	}
	return data, nil
}

func errTooLarge(maxBytes int64) error {
	return apierr.InvalidRequest.Errorf("body: must be at most %d bytes", maxBytes)
}

// CheckJSON checks the headers of a JSON body, for handlers that read it
// themselves: application/json, UTF-8, not compressed.
func CheckJSON(r *http.Request) error { return checkContent(r.Header, "application/json") }

func checkContent(h http.Header, want string) error {
	for _, v := range h["Content-Encoding"] {
		if v != "" && !strings.EqualFold(v, "identity") {
			return apierr.InvalidRequest.Errorf("Content-Encoding: must be absent, compressed bodies are not taken")
		}
	}
	values := h["Content-Type"]
	if len(values) == 1 && values[0] == want {
		return nil
	}
	if len(values) == 1 {
		got, params, err := mime.ParseMediaType(values[0])
		charset, given := params["charset"]
		if err == nil && got == want && (!given || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return apierr.InvalidRequest.Errorf("Content-Type: must be %s", want)
}

// ReadForm reads an application/x-www-form-urlencoded body of at most 64 KiB.
// Parameters of the query are no part of it. A parameter that comes twice, or
// that is no UTF-8 text, is refused with 400 invalid_request, and so is a form
// that names another account than the one that is signed in.
func ReadForm(r *http.Request) (url.Values, error) {
	data, err := ReadBody(r, "application/x-www-form-urlencoded", maxFormBytes)
	if err != nil {
		return nil, err
	}
	form, err := parseParams(string(data), "body")
	if err != nil {
		return nil, err
	}
	if err := checkFormAccount(r.Context(), form); err != nil {
		return nil, err
	}
	return form, nil
}

// fieldAccount is the hidden field by which a form names the account whose page it is on, by its email.
const fieldAccount = "signed_in_as"

type formAccountKey struct{}

// WithFormAccount says whose forms ReadForm reads: the email of the account that is signed in.
func WithFormAccount(ctx context.Context, email string) context.Context {
	return context.WithValue(ctx, formAccountKey{}, email)
}

// checkFormAccount refuses a form of a page that was shown to another account. Another user has signed in since, in
// another tab of the browser, and would pay for what the page says. A form need not name an account.
func checkFormAccount(ctx context.Context, form url.Values) error {
	shown := form.Get(fieldAccount)
	email, ok := ctx.Value(formAccountKey{}).(string)
	if shown == "" || !ok || shown == email {
		return nil
	}
	return apierr.InvalidRequest.Errorf("You’re signed in as %s now, and this page was made for %s. Nothing was "+
		"changed. Go back and reload that page.", email, shown)
}

// ReadFile reads a multipart/form-data body whose field is a file of at most maxBytes.
// Nothing of it reaches the disk. Errors are 400 invalid_request.
func ReadFile(r *http.Request, field string, maxBytes int64) ([]byte, error) {
	const around = 8 << 10 // boundaries and headers of parts
	tooLarge := apierr.InvalidRequest.Errorf("%s: must be at most %d kB", field, maxBytes>>10)
	if r.ContentLength > maxBytes+around {
		// browsers show an answer only once they have sent all
		_, err := io.CopyN(io.Discard, r.Body, min(r.ContentLength, 32<<20))
		return nil, tooLarge.WithCause(err)
	}
	body, err := ReadBody(r, "multipart/form-data", maxBytes+around)
	if err != nil {
		return nil, err
	}
	malformed := apierr.InvalidRequest.Errorf("body: must be a form with the file %s", field)
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, malformed
	}
	for parts := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err != nil {
			return nil, malformed.WithCause(err)
		}
		if part.FormName() != field {
			continue
		}
		file, err := io.ReadAll(part) // no more than the body
		if err != nil {
			return nil, malformed.WithCause(err)
		}
		if int64(len(file)) > maxBytes {
			return nil, tooLarge
		}
		return file, nil
	}
}

// ReadQuery reads the parameters of the query by the same rules.
func ReadQuery(r *http.Request) (url.Values, error) {
	return parseParams(r.URL.RawQuery, "query")
}

func parseParams(raw, where string) (url.Values, error) {
	if strings.Count(raw, "&") >= maxParams {
		return nil, apierr.InvalidRequest.Errorf("%s: must have at most %d parameters", where, maxParams)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, apierr.InvalidRequest.Errorf("%s: must be well-formed parameters, name=value joined by &", where)
	}
	for name, all := range values {
		if !formText(name) {
			return nil, apierr.InvalidRequest.Errorf("%s: the names of parameters must be plain UTF-8 text", where)
		}
		if len(all) > 1 {
			return nil, apierr.InvalidRequest.Errorf("%s: must come once", shortName(name))
		}
		if !formText(all[0]) {
			return nil, apierr.InvalidRequest.Errorf("%s: must be UTF-8 text without control characters",
				shortName(name))
		}
	}
	return values, nil
}

// formText reports whether s is text that may break lines, as text areas do.
func formText(s string) bool { return plainExcept(s, "\r\n\t") }
