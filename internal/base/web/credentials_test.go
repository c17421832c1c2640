package web_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

func authorized(values ...string) *http.Request {
	return &http.Request{Header: http.Header{"Authorization": values}}
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestBasic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ header, id, secret string }{
		{"Basic " + encode("cid_1:s3cret"), "cid_1", "s3cret"},
		{"bAsIC " + encode("cid_1:s3cret"), "cid_1", "s3cret"},
		{"Basic   " + encode("cid_1:s3cret"), "cid_1", "s3cret"},
		{"Basic " + encode("cid_1:a:b:"), "cid_1", "a:b:"},
		{"Basic " + encode("cid_1:%41é"), "cid_1", "%41é"},
		{"Basic " + encode("cid_1s3cret"), "", ""},
		{"Basic " + encode(":s3cret"), "", ""},
		{"Basic " + encode("cid_1:"), "", ""},
		{"Basic " + encode("cid_1:s\x00"), "", ""},
		{"Basic " + encode("cid_1:s\n"), "", ""},
		{"Basic " + encode("cid_1:\xff"), "", ""},
		{"Basic " + strings.TrimRight(encode("cid_1:s3"), "="), "", ""},
		{"Basic Y2lkXzE6cx==", "", ""}, // bits behind the last byte
		{"Basic " + encode("cid_1:s3cret") + " ", "", ""},
		{"Basic " + encode("cid_1:"+strings.Repeat("x", 2000)), "", ""},
		{"Basic", "", ""},
		{"Basic ", "", ""},
		{"Basic\t" + encode("cid_1:s3cret"), "", ""},
		{" Basic " + encode("cid_1:s3cret"), "", ""},
		{"Bearer " + encode("cid_1:s3cret"), "", ""},
		{"", "", ""},
	} {
		id, secret, err := web.Basic(authorized(c.header))
		if id != c.id || secret != c.secret || (err == nil) != (c.id != "") {
			t.Errorf("%q: %q %q %v", c.header, id, secret, err)
		}
		if err != nil && err.Error() != web.NewBasicRefusal().Error() {
			t.Errorf("%q: its refusal differs: %v", c.header, err)
		}
	}
	for _, r := range []*http.Request{{}, authorized("Basic "+encode("a:b"), "Basic "+encode("a:b"))} {
		if _, _, err := web.Basic(r); err == nil {
			t.Error("no header, or two, are accepted")
		}
	}
}

// F1: RFC 6749 §2.3.1 form-encodes id and secret before Basic; half of the libraries do.
func TestBasicClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ sent, id, secret string }{
		{"cid_1:s3-cr_et", "cid_1", "s3-cr_et"},
		{"cid%5F1:s3%2Dcr%5fet", "cid_1", "s3-cr_et"},
		{"cid_1:s3%2Dcr_et", "cid_1", "s3-cr_et"},
		{"%63%69%64%5F%31:a", "cid_1", "a"},
		{"my+app:a%3Ab%2Bc%25", "my app", "a:b+c%"},
		{"cid%5F1:50%", "cid%5F1", "50%"},       // not encoded
		{"cid%zz:s%2D", "cid%zz", "s%2D"},       // not encoded
		{"cid%00:s%2D", "cid%00", "s%2D"},       // control characters stay out
		{"cid%5F1:%FF", "cid%5F1", "%FF"},       // and what is not UTF-8
		{"cid%255F1:a%2525", "cid%5F1", "a%25"}, // decoded once
	} {
		id, secret, err := web.BasicClient(authorized("Basic " + encode(c.sent)))
		if id != c.id || secret != c.secret || err != nil {
			t.Errorf("%q: %q %q %v", c.sent, id, secret, err)
		}
	}
	if _, _, err := web.BasicClient(authorized("Basic " + encode("cid_1"))); err == nil {
		t.Error("accepted without a secret")
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	const invalid = `Bearer realm="purser", error="invalid_token"`
	for _, c := range []struct {
		headers          []string
		token, challenge string
	}{
		{[]string{"Bearer abc-._~+/123="}, "abc-._~+/123=", ""},
		{[]string{"BEARER abc"}, "abc", ""},
		{nil, "", `Bearer realm="purser"`},
		{[]string{"Bearer "}, "", invalid},
		{[]string{"Bearer ="}, "", invalid},
		{[]string{"Bearer a b"}, "", invalid},
		{[]string{"Bearer a=b"}, "", invalid},
		{[]string{"Bearer a\x00"}, "", invalid},
		{[]string{"Bearer é"}, "", invalid},
		{[]string{"Basic abc"}, "", invalid},
		{[]string{"Bearer a", "Bearer a"}, "", invalid},
		{[]string{"Bearer " + strings.Repeat("a", 2000)}, "", invalid},
	} {
		token, err := web.Bearer(authorized(c.headers...))
		if token != c.token || (err == nil) != (c.token != "") {
			t.Errorf("%q: %q %v", c.headers, token, err)
		}
		if e, ok := err.(*apierr.Error); err != nil && (!ok || e.Code != apierr.Unauthorized ||
			e.Challenge != c.challenge) {
			t.Errorf("%q: %+v", c.headers, err)
		}
	}
}

func TestA401CarriesItsChallenge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("GET /v1/account", func(_ http.ResponseWriter, r *http.Request) error {
		_, _, err := web.Basic(r)
		return err
	})
	resp := s.do(t, "GET", "/v1/account", nil)
	wantEnvelope(t, resp, 401, "unauthorized")
	if got := resp.Header.Get("WWW-Authenticate"); got != `Basic realm="purser", charset="UTF-8"` {
		t.Errorf("WWW-Authenticate: %s", got)
	}
}

func FuzzCredentials(f *testing.F) {
	f.Add("Basic " + encode("a:b"))
	f.Add("Bearer abc")
	f.Add("bearer  =")
	f.Fuzz(func(t *testing.T, header string) {
		r := authorized(header)
		if id, secret, err := web.Basic(r); err == nil {
			joined := id + ":" + secret
			if id == "" || secret == "" || strings.Contains(id, ":") || !utf8.ValidString(joined) ||
				strings.ContainsFunc(joined, func(c rune) bool { return c < ' ' || c == 0x7f }) {
				t.Errorf("%q: %q %q", header, id, secret)
			}
			if i, s, ok := (&http.Request{
				Header: http.Header{"Authorization": {"Basic " + encode(joined)}},
			}).BasicAuth(); !ok || i != id || s != secret {
				t.Errorf("%q: net/http reads %q %q", header, i, s)
			}
		}
		if token, err := web.Bearer(r); err == nil {
			if token == "" || !strings.HasSuffix(header, token) || strings.ContainsAny(token, " ,\"\x00") {
				t.Errorf("%q: %q", header, token)
			}
		}
	})
}
