package images

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// here is a fetcher that may go to 127.0.0.1, and nowhere else near.
func here() *Fetcher {
	return New(Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
}

func parsed(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := parseURL(raw)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return u
}

func write(t *testing.T, w io.Writer, b []byte) {
	if _, err := w.Write(b); err != nil && t.Context().Err() == nil {
		t.Logf("the client has gone: %v", err)
	}
}

// untilGone sends nothing more until the client closes.
func untilGone(w http.ResponseWriter, r *http.Request) {
	if err := http.NewResponseController(w).Flush(); err != nil {
		panic(err)
	}
	<-r.Context().Done()
}

func gzipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

// What a server may do, as seen by Fetch and by Probe.
var servers = []struct {
	name         string
	serve        func(t *testing.T, w http.ResponseWriter, r *http.Request)
	fetch, probe error // nil = an image of 3 x 5
	bytes        int   // what Probe says
}{
	{
		name:  "an image",
		bytes: 75,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { write(t, w, pngOf(3, 5)) },
	},
	{name: "with a wrong type", bytes: 75, serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		write(t, w, pngOf(3, 5))
	}},
	{
		name:  "said to be encoded as itself",
		bytes: 75,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "Identity")
			write(t, w, pngOf(3, 5))
		},
	},
	{name: "5 MB, chunked", serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		write(t, w, largest())
	}},
	{name: "5 MB, declared", bytes: MaxBytes, serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(MaxBytes))
		write(t, w, largest())
	}},
	{
		name:  "5 MB and a byte, chunked",
		fetch: errSize,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			write(t, w, padded(pngOf(3, 5), MaxBytes+1))
		},
	},
	{
		name:  "5 MB and a byte, declared",
		fetch: errSize,
		probe: errSize,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(MaxBytes+1))
			write(t, w, pngOf(3, 5))
		},
	},
	{name: "endless", fetch: errSize, serve: func(t *testing.T, w http.ResponseWriter, r *http.Request) {
		for block := padded(pngOf(3, 5), 1<<16); r.Context().Err() == nil; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}},
	{name: "more than declared", bytes: 75, serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		raw(t, w, "HTTP/1.1 200 OK\r\nContent-Length: 75\r\n\r\n"+string(padded(pngOf(3, 5), 1000)))
	}},
	{
		name:  "less than declared",
		fetch: errFetch,
		bytes: 1000,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			raw(t, w, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"+string(pngOf(3, 5)))
		},
	},
	{name: "cut behind the header, undeclared", serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		raw(t, w, "HTTP/1.1 200 OK\r\n\r\n"+string(pngOf(3, 5)[:40]))
	}},
	{
		name:  "cut in the header",
		fetch: errBroken,
		probe: errBroken,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { write(t, w, pngOf(3, 5)[:20]) },
	},
	{name: "nothing", fetch: errKind, probe: errKind, serve: func(*testing.T, http.ResponseWriter, *http.Request) {}},
	{
		name:  "HTML as an image",
		fetch: errKind,
		probe: errKind,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "image/png")
			write(t, w, []byte("<!doctype html><p>Not found</p>"))
		},
	},
	{name: "SVG", fetch: errKind, probe: errKind, serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "image/svg+xml")
		write(t, w, []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>`))
	}},
	{
		name:  "a bomb",
		fetch: errLarge,
		probe: errLarge,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { write(t, w, pngHeader(100_000, 100_000)) },
	},
	{
		name:  "gzip, declared",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			write(t, w, gzipped(pngOf(3, 5)))
		},
	},
	{
		name:  "gzip, undeclared",
		fetch: errKind,
		probe: errKind,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { write(t, w, gzipped(pngOf(3, 5))) },
	},
	{
		name:  "an unknown encoding",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "x-new")
			write(t, w, pngOf(3, 5))
		},
	},
	{
		name:  "404 with an image",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
			write(t, w, pngOf(3, 5))
		},
	},
	{
		name:  "204",
		fetch: errFetch,
		probe: errFetch,
		serve: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	},
	{name: "206", fetch: errFetch, probe: errFetch, serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPartialContent)
		write(t, w, pngOf(3, 5))
	}},
	{
		name:  "304",
		fetch: errFetch,
		probe: errFetch,
		serve: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) },
	},
	{name: "401", fetch: errFetch, probe: errFetch, serve: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", "Basic")
		w.WriteHeader(http.StatusUnauthorized)
	}},
	{name: "500", fetch: errFetch, probe: errFetch, serve: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	}},
	{
		name:  "no HTTP",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { raw(t, w, "SSH-2.0-OpenSSH_9.9\r\n") },
	},
	{
		name:  "closes at once",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) { raw(t, w, "") },
	},
	{
		name:  "a header of 1 MB",
		fetch: errFetch,
		probe: errFetch,
		serve: func(t *testing.T, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Long", strings.Repeat("x", 1<<20))
			write(t, w, pngOf(3, 5))
		},
	},
	{
		name:  "a redirect without location",
		fetch: errFetch,
		probe: errFetch,
		serve: func(_ *testing.T, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) },
	},
}

// raw answers with these bytes and closes the connection.
func raw(t *testing.T, w http.ResponseWriter, answer string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	write(t, conn, []byte(answer))
}

func TestServers(t *testing.T) {
	t.Parallel()
	for _, test := range servers {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				test.serve(t, w, r)
			}))
			defer server.Close()
			img, err := here().Fetch(t.Context(), parsed(t, server.URL), nil)
			same(t, "Fetch", err, test.fetch)
			if err == nil && (img.Width != 3 || img.Height != 5 || img.Bytes == 0 ||
				!strings.HasPrefix(img.url, "data:image/png;base64,iVBOR") || !strings.HasSuffix(img.url, img.Data)) {
				t.Errorf("Fetch: %s of %d x %d, %d bytes, %.40s…", img.MediaType, img.Width, img.Height, img.Bytes,
					img.url)
			}
			img, err = here().Probe(t.Context(), parsed(t, server.URL))
			same(t, "Probe", err, test.probe)
			if err == nil && (img.Width != 3 || img.Height != 5 || img.Bytes != test.bytes || img.Data != "" ||
				img.url != "") {
				t.Errorf("Probe: %+v, want %d bytes", img, test.bytes)
			}
		})
	}
}

// same compares what is shown, to the letter.
func same(t *testing.T, what string, err, want error) {
	t.Helper()
	if (err == nil) != (want == nil) || err != nil && (!errors.Is(err, want) || err.Error() != want.Error()) {
		t.Errorf("%s: error %v, want %v; because %v", what, err, want, errors.Unwrap(err))
	}
}

func TestSlowServers(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]http.HandlerFunc{
		"before the header": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"before the body":   untilGone,
		"in the first bytes": func(w http.ResponseWriter, r *http.Request) {
			write(t, w, pngOf(3, 5)[:9])
			untilGone(w, r)
		},
		"behind a redirect": func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/" {
				http.Redirect(w, r, "/slow", http.StatusFound)
				return
			}
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(serve)
			defer server.Close()
			f := here()
			f.timeout = 50 * time.Millisecond
			_, err := f.Fetch(t.Context(), parsed(t, server.URL), nil)
			same(t, "Fetch", err, errFetch)
			_, err = f.Probe(t.Context(), parsed(t, server.URL))
			same(t, "Probe", err, errFetch)
		})
	}
}

// Probe does not wait for what it does not need.
func TestProbeReadsOnlyTheStart(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000")
		write(t, w, pngOf(3, 5))
		untilGone(w, r)
	}))
	defer server.Close()
	if img, err := here().Probe(t.Context(), parsed(t, server.URL)); err != nil || img.Height != 5 ||
		img.Bytes != 1_000_000 {
		t.Errorf("%+v, error %v", img, err)
	}
}

func TestCancelEndsAFetch(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, err := here().Fetch(ctx, parsed(t, server.URL), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var private atomic.Int64
	secret, err := net.Listen("tcp", "127.0.0.2:0") // near, and not allowed
	if err != nil {
		t.Fatal(err)
	}
	inner := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		private.Add(1)
		write(t, w, pngOf(3, 5))
	})}
	defer inner.Close()
	go inner.Serve(secret)

	mux := http.NewServeMux()
	outer, secure := httptest.NewServer(mux), httptest.NewTLSServer(mux)
	defer outer.Close()
	defer secure.Close()
	mux.HandleFunc("/image", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			t.Errorf("sent along: %v", r.Header)
		}
		write(t, w, pngOf(3, 5))
	})
	mux.HandleFunc("/to", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
		status, err := strconv.Atoi(r.FormValue("status"))
		if err != nil {
			status = http.StatusFound
		}
		w.Header().Set("Location", r.FormValue("url"))
		w.WriteHeader(status)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/loop", http.StatusFound)
	})
	to := func(target string) string { return "/to?url=" + url.QueryEscape(target) }

	for _, test := range []struct {
		name, url string
		want      error
	}{
		{"one", outer.URL + to("/image"), nil},
		{"three", outer.URL + to(to(to("/image"))), nil},
		{"four", outer.URL + to(to(to(to("/image")))), errFetch},
		{"301", outer.URL + to("/image") + "&status=301", nil},
		{"308", outer.URL + to("/image") + "&status=308", nil},
		{"for ever", outer.URL + "/loop", errFetch},
		{"http to https", outer.URL + to(secure.URL+"/image"), nil},
		{"https to https", secure.URL + to("/image"), nil},
		{"https to http", secure.URL + to(outer.URL+"/image"), errFetch},
		{"to a private address", outer.URL + to("http://"+secret.Addr().String()+"/"), errFetch},
		{"to a private address, by 307", outer.URL + to("http://"+secret.Addr().String()+"/") + "&status=307",
			errFetch},
		{"to a private address, at the third", outer.URL + to(to(to("http://"+secret.Addr().String()+"/"))), errFetch},
		{"to a private address, mapped",
			outer.URL + to("http://[::ffff:127.0.0.2]:"+secret.Addr().String()[len("127.0.0.2:"):]+"/"), errFetch},
		{"to metadata", outer.URL + to("http://169.254.169.254/latest/meta-data/"), errFetch},
		{"to another port of a public address", outer.URL + to("http://93.184.215.14:6379/"), errFetch},
		{"without a scheme, to a private address", outer.URL + to("//"+secret.Addr().String()+"/"), errFetch},
		{"with a user", outer.URL + to("http://user@"+outer.Listener.Addr().String()+"/image"), errFetch},
		{"to a file", outer.URL + to("file:///etc/passwd"), errFetch},
		{"to gopher", outer.URL + to("gopher://127.0.0.1:6379/_INFO"), errFetch},
		{"to a data: URL", outer.URL + to(dataURL("image/png", pngOf(3, 5))), errFetch},
		{"to nowhere", outer.URL + to("http://"), errFetch},
		{"to rubbish", outer.URL + to("http://[::1"), errFetch},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := here()
			f.client.Transport.(*http.Transport).TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
			_, err := f.Fetch(t.Context(), parsed(t, test.url), nil)
			same(t, "Fetch", err, test.want)
		})
	}
	if private.Load() > 0 {
		t.Errorf("%d requests reached the private server", private.Load())
	}
}

// What goes out says who asks and nothing else.
func TestRequestHeader(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		if r.Method != "GET" || r.RequestURI != "/a%20b.png?c=d&e" || h.Get("User-Agent") != "Purser" ||
			h.Get("Accept-Encoding") != "identity" || h.Get("Connection") != "close" || len(h) != 4 {
			t.Errorf("%s %s %v", r.Method, r.RequestURI, h)
		}
		write(t, w, pngOf(3, 5))
	}))
	defer server.Close()
	if _, err := here().Fetch(t.Context(), parsed(t, server.URL+"/a%20b.png?c=d&e#fragment"), nil); err != nil {
		t.Error(err)
	}
}

func TestClosedPortAndUnknownName(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := listener.Addr().String()
	listener.Close()
	f := New(Config{Allow: []netip.Prefix{
		netip.MustParsePrefix("127.0.0.1/32"),
	}, Resolver: nameServer(t, func(string) []netip.Addr {
		return nil
	})})
	for _, raw := range []string{"http://" + closed + "/", "http://unknown.example.com/"} {
		_, err := f.Fetch(t.Context(), parsed(t, raw), nil)
		same(t, raw, err, errFetch)
	}
}
