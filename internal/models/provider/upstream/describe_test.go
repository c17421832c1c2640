package upstream

import (
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/purserhq/purser/internal/models/provider"
)

// TestNothingOfAnAnswerIsLogged has a provider repeat our key, in many forms, and a user's text, in each kind of
// answer: the error that is logged has neither and is short, and the message for the app has no key.
func TestNothingOfAnAnswerIsLogged(t *testing.T) {
	t.Parallel()
	const key, prompt = "sk-proj-0Abc_dEf.ghi/JKL+mno-789xyz", "my secret diary entry"
	var forms []string
	for _, before := range []string{"", "B", "Be", "Bearer "} { // the key may begin anywhere in what is encoded
		raw := []byte(before + key + "\r\n")
		forms = append(forms, base64.StdEncoding.EncodeToString(raw), base64.URLEncoding.EncodeToString(raw))
	}
	forms = append(forms, key, url.QueryEscape(key), url.PathEscape(key), hex.EncodeToString([]byte(key)),
		strings.ReplaceAll(url.QueryEscape(key), "-", "%2D"), strings.ReplaceAll(key, "-", `\\u002d`))
	// The ends of a form may be encoded with what is beside it.
	inside := func(form string) string { return form[len(form)/3 : 2*len(form)/3] }
	parse := func(status int, _ http.Header, b []byte) *provider.Error {
		e := NewStatusError(status)
		if e.Kind == provider.Rejected {
			e.Message = string(b)
		}
		return e
	}
	for _, form := range forms {
		for _, body := range []string{
			`{"error":{"message":"Invalid: ` + form + ` in ` + prompt + `","code":"` + form + `"}}`,
			`{"error":{"message":"` + strings.Repeat(prompt+" ", 5000) + form + `","type":"` + prompt + `"}}`,
			prompt + form,
		} {
			for _, status := range []int{400, 401, 403, 404, 413, 429, 500} {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("X-Echo", form)
					w.WriteHeader(status)
					_, _ = w.Write([]byte(body))
				}))
				c := New(Config{BaseURL: s.URL, Secret: key, ParseError: parse})
				_, err := c.Post(t.Context(), "/x", []byte("{}"), "req_1")
				e, ok := err.(*provider.Error)
				if !ok {
					t.Fatalf("%v", err)
				}
				logged := e.Error()
				if strings.Contains(logged, prompt) || strings.Contains(logged, inside(form)) || len(logged) > 300 {
					t.Errorf("status %d: the log has %.400s", status, logged)
				}
				if e.Kind == provider.Rejected && strings.Contains(e.Message, inside(form)) {
					t.Errorf("status %d: the app gets %s", status, e.Message)
				}
				s.Close()
			}
		}
	}
}

// TestWhatIsNoHTTPIsNotLogged: an answer that is not HTTP may be long, and of any text.
func TestWhatIsNoHTTPIsNotLogged(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		strings.Repeat("my secret diary entry ", 2000) + "\r\n\r\n",
		"HTTP/1.1 two hundred my secret diary entry\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: my secret diary entry\r\n\r\n",
		"HTTP/1.1 200 OK\r\nmy secret diary entry\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write([]byte(answer))
				_ = conn.Close()
			}
		}()
		_, err = New(Config{BaseURL: "http://" + l.Addr().String()}).Post(t.Context(), "/x", []byte("{}"), "req_1")
		if err == nil || strings.Contains(err.Error(), "diary") || len(err.Error()) > 300 {
			t.Errorf("%.30q: the log has %.400v", answer, err)
		}
		_ = l.Close()
	}
}
