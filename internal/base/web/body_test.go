package web_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/purserhq/purser/internal/base/web"
)

func post(contentType, body string) *http.Request {
	r := httptest.NewRequest("POST", "/v1/things?code=of-the-query", strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func TestReadJSONChecksTheRequest(t *testing.T) {
	t.Parallel()
	large := `{"name":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct {
		name string
		r    *http.Request
		want string
	}{
		{"plain", post("application/json", `{"name":"a"}`), ""},
		{"charset", post("Application/JSON; charset=UTF-8", `{"name":"a"}`), ""},
		{"identity", with(post("application/json", `{"name":"a"}`), "Content-Encoding", "identity"), ""},
		{"no type", post("", `{}`), "Content-Type: must be application/json"},
		{"form", post("application/x-www-form-urlencoded", `{}`), "Content-Type: must be application/json"},
		{"like JSON", post("application/json-seq", `{}`), "Content-Type: must be application/json"},
		{"other charset", post("application/json; charset=latin1", `{}`), "Content-Type: must be application/json"},
		{"two types", with(post("application/json", `{}`), "Content-Type", "application/json"),
			"Content-Type: must be application/json"},
		{"gzip", with(post("application/json", `{}`), "Content-Encoding", "gzip"),
			"Content-Encoding: must be absent, compressed bodies are not taken"},
		{"large", post("application/json", large), "body: must be at most 1048576 bytes"},
		{"large, length unknown", unknownLength(post("application/json", large)),
			"body: must be at most 1048576 bytes"},
		{"unknown member", post("application/json", `{"x":1}`), "x: is not a member that this request takes"},
	} {
		var dst struct {
			Name string `json:"name"`
		}
		err := web.ReadJSON(c.r, &dst)
		switch {
		case c.want != "":
			wantRefusal(t, err, c.want)
		case err != nil || dst.Name != "a":
			t.Errorf("%s: %v %v", c.name, dst, err)
		}
	}
}

func with(r *http.Request, name, value string) *http.Request {
	r.Header.Add(name, value)
	return r
}

func unknownLength(r *http.Request) *http.Request {
	r.ContentLength = -1
	return r
}

// A body that is cut, or chunked wrongly, is the client's error and is answered.
func TestABrokenBodyIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("POST /v1/things", func(w http.ResponseWriter, r *http.Request) error {
		var dst struct{}
		return web.ReadJSON(r, &dst)
	})
	head := "POST /v1/things HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
	resp := s.raw(t, head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
	e := wantEnvelope(t, resp, 400, "invalid_request")
	if e["message"] != "body: could not be read to its end" {
		t.Errorf("%v", e)
	}
	wantEnvelope(t, s.raw(t, head+"Content-Length: 99999999\r\n\r\n"), 400, "invalid_request")
}

// What follows a chunked body on its connection is no request: it may have been
// hidden from a proxy by a Content-Length.
func TestAChunkedBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	routes(s)
	head := "POST /v1/things HTTP/1.1\r\nHost: a\r\n"
	for _, c := range []struct {
		request string
		closes  bool
	}{
		{head + "Content-Length: 2\r\n\r\n{}", false},
		{head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", true},
		{head + "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", true},
	} {
		if resp := s.raw(t, c.request); resp.StatusCode != 200 || resp.Close != c.closes {
			t.Errorf("%q: %s, closes %t", c.request, resp.Status, resp.Close)
		}
	}
}

func TestReadFormTakesTheBodyOnlyAndEachParameterOnce(t *testing.T) {
	t.Parallel()
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct{ contentType, body, want string }{
		{form, "code=a%2Fb+c&grant_type=authorization_code", ""},
		{form + "; charset=utf-8", "code=a%2Fb+c", ""},
		{"application/json", "code=a", "Content-Type: must be application/x-www-form-urlencoded"},
		{"", "code=a", "Content-Type: must be application/x-www-form-urlencoded"},
		{form, "code=a&code=b", "code: must come once"},
		{form, "code=a&%63ode=a", "code: must come once"},
		{form, "code=%zz", "body: must be well-formed parameters, name=value joined by &"},
		{form, "code=a;b=c", "body: must be well-formed parameters, name=value joined by &"},
		{form, "code=%00", "code: must be UTF-8 text without control characters"},
		{form, "code=%ff", "code: must be UTF-8 text without control characters"},
		{form, "%00=1", "body: the names of parameters must be plain UTF-8 text"},
		{form, "code=" + strings.Repeat("x", 64<<10), "body: must be at most 65536 bytes"},
	} {
		v, err := web.ReadForm(post(c.contentType, c.body))
		if c.want != "" {
			wantRefusal(t, err, c.want)
			continue
		}
		if err != nil || v.Get("code") != "a/b c" || len(v["code"]) != 1 {
			t.Errorf("%s: %v %v", c.body, v, err)
		}
	}
}

// A form of a page that was shown to another account is not carried out for this one.
func TestFormsNameTheirAccount(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ signedIn, body, want string }{
		{"bob@example.com", "amount=5&signed_in_as=bob%40example.com", ""},
		{"bob@example.com", "amount=5", ""},
		{"", "amount=5&signed_in_as=bob%40example.com", ""}, // the page asks to sign in
		{"bob@example.com", "amount=5&signed_in_as=ann%40example.com",
			"You’re signed in as bob@example.com now, and this page was made for ann@example.com. Nothing was " +
				"changed. Go back and reload that page."},
	} {
		r := post("application/x-www-form-urlencoded", c.body)
		if c.signedIn != "" {
			r = r.WithContext(web.WithFormAccount(r.Context(), c.signedIn))
		}
		v, err := web.ReadForm(r)
		if c.want != "" {
			wantRefusal(t, err, c.want)
		} else if err != nil || v.Get("amount") != "5" {
			t.Errorf("%s: %v %v", c.body, v, err)
		}
	}
}

// FuzzReadForm: no panic; what is accepted is clean, single and means the same
// when it is written out and read again.
func FuzzReadForm(f *testing.F) {
	f.Add("code=a&grant_type=b")
	f.Add("a=1&a=2")
	f.Add("%zz=;&&=")
	f.Fuzz(func(t *testing.T, in string) {
		v, err := web.ReadForm(post("application/x-www-form-urlencoded", in))
		if err != nil {
			return
		}
		for name, all := range v {
			if len(all) != 1 || !utf8.ValidString(name+all[0]) || strings.ContainsRune(name+all[0], 0) {
				t.Errorf("%q: %q=%q", in, name, all)
			}
		}
		again, err := url.ParseQuery(v.Encode())
		if err != nil || !maps.EqualFunc(v, again, func(a, b []string) bool { return a[0] == b[0] }) {
			t.Errorf("%q: %v, then %v (%v)", in, v, again, err)
		}
	})
}

func TestReadPage(t *testing.T) {
	t.Parallel()
	const row = "conn_06f2k8m3q5t7w9y1b3d5f7h9j1"
	for _, c := range []struct {
		query string
		page  web.Page
		want  string
	}{
		{"", web.Page{Limit: 1000}, ""},
		{"status=4xx", web.Page{Limit: 1000}, ""},
		{"other=1", web.Page{}, "other: is not a parameter of this list, which takes limit, starting_after, status"},
		{"Limit=1", web.Page{}, "Limit: is not a parameter of this list, which takes limit, starting_after, status"},
		{"starting_after=app_" + row[5:], web.Page{}, "starting_after: must be the id of a row of this list"},
		{"starting_after=conn_nobody", web.Page{}, "starting_after: must be the id of a row of this list"},
		{"limit=1", web.Page{Limit: 1}, ""},
		{"limit=100&starting_after=" + row, web.Page{Limit: 100, StartingAfter: row}, ""},
		{"starting_after=" + row, web.Page{Limit: 100, StartingAfter: row}, ""},
		{"limit=0", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=101", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=-5", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=%2B5", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=5.0", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=99999999999999999999", web.Page{}, "limit: must be an integer from 1 to 100"},
		{"limit=5&limit=6", web.Page{}, "limit: must come once"},
		{"starting_after=", web.Page{}, "starting_after: must be the id of a row of this list"},
		{"starting_after=a'b", web.Page{}, "starting_after: must be the id of a row of this list"},
		{"starting_after=%00", web.Page{}, "starting_after: must be UTF-8 text without control characters"},
	} {
		p, err := web.ReadPage(httptest.NewRequest("GET", "/v1/things?"+c.query, nil), "conn_", "status")
		if c.want != "" {
			wantRefusal(t, err, c.want)
		} else if err != nil || p != c.page {
			t.Errorf("%s: %+v %v", c.query, p, err)
		}
	}
}

// Following rel="next" leads to the next page with the same size and filters.
func TestLinkNextLeadsOn(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	web.LinkNext(w, httptest.NewRequest("GET", "/v1/apps/app_1/features?limit=2&starting_after=a&q=x%26y", nil), "b")
	if got, want := w.Header().Get("Link"),
		`</v1/apps/app_1/features?limit=2&q=x%26y&starting_after=b>; rel="next"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The whole body is read before a handler goes on, also when it comes in pieces.
func TestReadBodyReadsWhatWasSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.Handle("POST /echo", func(w http.ResponseWriter, r *http.Request) error {
		data, err := web.ReadBody(r, "application/json", 1<<20)
		if err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	want := strings.Repeat("0123456789", 20_000)
	for name, r := range map[string]io.Reader{
		"length":  strings.NewReader(want),
		"chunked": io.MultiReader(strings.NewReader(want)),
	} {
		resp, err := s.srv.Client().Post(s.srv.URL+"/echo", "application/json", r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// A file is taken out of a form by its name, up to its size, and nothing else is.
func TestReadFile(t *testing.T) {
	t.Parallel()
	form := func(parts ...string) string { // pairs of headers and content
		s := ""
		for i := 0; i+1 < len(parts); i += 2 {
			s += "--b\r\nContent-Disposition: form-data; " + parts[i] + "\r\n\r\n" + parts[i+1] + "\r\n"
		}
		return s + "--b--\r\n"
	}
	const kind = "multipart/form-data; boundary=b"
	logo := `name="logo"; filename="../../a.png"`
	for _, c := range []struct {
		name, kind, body string
		want, refused    string
	}{
		{"a file", kind, form(logo, "\x89PNG\x00\r\n"), "\x89PNG\x00\r\n", ""},
		{"behind another", kind, form(`name="other"`, "x", logo, "here"), "here", ""},
		{"none chosen", kind, form(`name="logo"; filename=""`, ""), "", ""},
		{"as large as it may be", kind, form(logo, strings.Repeat("x", 100)), strings.Repeat("x", 100), ""},
		{"one byte too many", kind, form(logo, strings.Repeat("x", 101)), "", "logo: must be at most 0 kB"},
		{"far too many", kind, form(logo, strings.Repeat("x", 1<<20)), "", "logo: must be at most 0 kB"},
		{"another name", kind, form(`name="other"`, "x"), "", "body: must be a form with the file logo"},
		{"cut", kind, form(logo, "x")[:60], "", "body: must be a form with the file logo"},
		{"no boundary", "multipart/form-data", form(logo, "x"), "", "body: must be a form with the file logo"},
		{"another kind", "application/x-www-form-urlencoded", "logo=x", "",
			"Content-Type: must be multipart/form-data"},
	} {
		got, err := web.ReadFile(post(c.kind, c.body), "logo", 100)
		if c.refused != "" {
			wantRefusal(t, err, c.refused)
		} else if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}
