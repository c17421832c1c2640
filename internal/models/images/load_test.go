package images

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/models/conversation"
	"github.com/purserhq/purser/internal/models/provider"
)

// showing is a request with a text and these images in its second message.
func showing(urls ...string) *provider.Request {
	blocks := []conversation.Block{{Text: "Look:"}}
	for _, u := range urls {
		blocks = append(blocks, conversation.Block{
			Kind:    conversation.ImageBlock,
			Picture: &conversation.Picture{URL: u, Detail: "low"},
		})
	}
	return &provider.Request{Turns: []conversation.Turn{
		conversation.Say("system", "Be brief."),
		{Role: "user", Blocks: blocks},
	}}
}

// A gallery serves images by path and counts the requests.
type gallery struct {
	*httptest.Server
	hits sync.Map // path → *atomic.Int64
}

func newGallery(t *testing.T) *gallery {
	g := &gallery{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := g.hits.LoadOrStore(r.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		switch path := r.URL.Path; {
		case strings.HasPrefix(path, "/large"):
			w.Header().Set("Content-Length", strconv.Itoa(MaxBytes))
			write(t, w, largest())
		case strings.HasPrefix(path, "/wide"):
			write(t, w, pngHeader(8001, 5))
		case path == "/gif":
			write(t, w, gifOf(7, 9))
		case strings.HasPrefix(path, "/png"):
			write(t, w, pngOf(3, 5))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *gallery) count(path string) int64 {
	if n, ok := g.hits.Load(path); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func TestLoad(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	png, gif := dataURL("image/png", pngOf(3, 5)), dataURL("image/gif", gifOf(7, 9))
	for _, test := range []struct {
		provider string
		urls     []string
		want     []string // what goes on
	}{
		{"openai", []string{g.URL + "/png", g.URL + "/gif"}, []string{g.URL + "/png", g.URL + "/gif"}},
		{"anthropic", []string{g.URL + "/png", g.URL + "/gif"}, []string{png, gif}},
		{"google", []string{g.URL + "/png", g.URL + "/png"}, []string{png, png}},
		{"openai", []string{png, strings.Replace(gif, "image/gif", "image/jpeg", 1)}, []string{png, gif}},
		{"anthropic", []string{png, strings.Replace(gif, "image/gif", "image/jpeg", 1)}, []string{png, gif}},
		{"google", []string{g.URL + "/png",
			strings.Replace(png, "data:image/png;base64", "DATA:image/x-png;BASE64", 1)}, []string{png, png}},
		{"google", nil, nil},
	} {
		r := showing(test.urls...)
		if err := here().Load(t.Context(), r, test.provider, nil); err != nil {
			t.Errorf("%s, %.60q: %v", test.provider, test.urls, err)
			continue
		}
		if r.Turns[0].Blocks[0].Text != "Be brief." || r.Turns[1].Blocks[0].Text != "Look:" {
			t.Errorf("a text has changed: %+v", r.Turns)
		}
		for i, want := range test.want {
			picture := conversation.Picture{
				URL:       want,
				Detail:    "low",
				MediaType: "image/png",
				Width:     3,
				Height:    5,
			}
			if strings.HasSuffix(want, "gif") || want == gif {
				picture.MediaType, picture.Width, picture.Height = "image/gif", 7, 9
			}
			if got := *r.Turns[1].Blocks[i+1].Picture; got != picture {
				t.Errorf("%s: image %d became %+v, want %+v", test.provider, i, got, picture)
			}
		}
	}
}

func repeat(n int, url func(i int) string) (list []string) {
	for i := range n {
		list = append(list, url(i))
	}
	return list
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	png := dataURL("image/png", pngOf(3, 5))
	large := dataURL("image/png", largest())
	const first, second = "messages[1].content[1].image_url.url: ", "messages[1].content[2].image_url.url: "
	for _, test := range []struct {
		name, provider string
		urls           func(g *gallery) []string
		want           string // the error's message
		fetched        bool   // whether anything was asked for
	}{
		{"no URL", "openai", func(*gallery) []string { return []string{""} }, first + errForm.Error(), false},
		{"another scheme", "google", func(*gallery) []string {
			return []string{"ftp://example.com/a.png"}
		}, first + errForm.Error(), false},
		{"a data: URL of text, behind a remote image", "anthropic", func(g *gallery) []string {
			return []string{g.URL + "/png", dataURL("image/png", []byte("hello"))}
		}, second + errKind.Error(), false},
		{"a private address", "openai", func(*gallery) []string {
			return []string{"http://10.0.0.1/"}
		}, first + errFetch.Error(), false},
		{"not found", "openai", func(g *gallery) []string {
			return []string{g.URL + "/png", g.URL + "/none"}
		}, second + errFetch.Error(), true},
		{"the first of two errors, in order", "anthropic", func(g *gallery) []string {
			return []string{g.URL + "/none", "http://10.0.0.1/"}
		}, first + errFetch.Error(), true},
		{"a GIF for Google", "google", func(g *gallery) []string {
			return []string{png, g.URL + "/gif"}
		}, second + "this model's provider takes no GIF; use PNG, JPEG or WEBP", true},
		{"a GIF for Google in a data: URL", "google", func(g *gallery) []string {
			return []string{g.URL + "/png", dataURL("image/png", gifOf(3, 5))}
		}, second + "this model's provider takes no GIF; use PNG, JPEG or WEBP", false},
		{"more than 8000 pixels for Anthropic", "anthropic", func(g *gallery) []string {
			return []string{g.URL + "/wide"}
		},
			first + "this model's provider takes at most 8000 pixels a side in a request with 1 images; this one has 8001 x 5", true},
		{"21 images for Anthropic, one of 2001 pixels", "anthropic", func(*gallery) []string {
			return append([]string{png, dataURL("image/png", pngHeader(5, 2001))},
				repeat(19, func(int) string { return png })...)
		}, second + "this model's provider takes at most 2000 pixels a side in a request with 21 images; this one has 5 x 2001", false},
		{"21 remote images", "openai", func(g *gallery) []string {
			return repeat(21, func(i int) string { return fmt.Sprintf("%s/png%d", g.URL, i) })
		},
			"messages: at most 20 remote images in a request", false},
		{"20 data: URLs of 5 MB for Anthropic", "anthropic", func(*gallery) []string {
			return repeat(20, func(int) string { return large })
		},
			"messages: this model's provider takes at most 32 MB in a request, images in base64 included; use fewer or smaller images", false},
		{"20 remote images of 5 MB for Anthropic", "anthropic", func(g *gallery) []string {
			return repeat(20, func(i int) string { return fmt.Sprintf("%s/large%d", g.URL, i) })
		},
			"messages: this model's provider takes at most 32 MB in a request, images in base64 included; use fewer or smaller images", true},
		{"one image of 5 MB shown three times, for Google", "google", func(g *gallery) []string {
			return repeat(3, func(int) string { return g.URL + "/large" })
		},
			"messages: this model's provider takes at most 20 MB in a request, images in base64 included; use fewer or smaller images", true},
		{"10 remote images of 5 MB for OpenAI", "openai", func(g *gallery) []string {
			return repeat(10, func(i int) string { return fmt.Sprintf("%s/large%d", g.URL, i) })
		},
			"messages: this model's provider takes at most 50 MB of images in a request; use fewer or smaller ones",
			true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			g := newGallery(t)
			r := showing(test.urls(g)...)
			before := *showing(test.urls(g)...)
			err := here().Load(t.Context(), r, test.provider, nil)
			var e *apierr.Error
			if !errors.As(err, &e) || e.Code != apierr.InvalidRequest || e.Message != test.want {
				t.Errorf("error %v, want %s", err, test.want)
			}
			if diff := cmp.Diff(before.Turns, r.Turns); diff != "" {
				t.Errorf("the request has changed: %.300s", diff)
			}
			fetched := false
			g.hits.Range(func(any, any) bool { fetched = true; return false })
			if fetched != test.fetched {
				t.Errorf("fetched: %t", fetched)
			}
		})
	}
}

// The texts count where the images go in the same body.
func TestTextsCountInTheBody(t *testing.T) {
	t.Parallel()
	large := dataURL("image/png", largest())
	for chars, fits := range map[int]bool{1000: true, 7_000_000: false} {
		r := showing(large, large)
		r.Turns[0].Blocks[0].Text = strings.Repeat("a", chars)
		if err := here().Load(t.Context(), r, "google", nil); (err == nil) != fits {
			t.Errorf("%d characters of text: error %v", chars, err)
		}
	}
	r := showing(large, large)
	r.Turns[0].Blocks[0].Text = strings.Repeat("a", 7_000_000)
	if err := here().Load(t.Context(), r, "openai", nil); err != nil {
		t.Errorf("OpenAI limits the images alone: %v", err)
	}
}

func TestTheSameURLIsFetchedOnce(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	if err := here().Load(t.Context(), showing(g.URL+"/png", g.URL+"/png2", g.URL+"/png", g.URL+"/png"),
		"anthropic", nil); err != nil {
		t.Fatal(err)
	}
	if g.count("/png") != 1 || g.count("/png2") != 1 {
		t.Errorf("fetched %d and %d times", g.count("/png"), g.count("/png2"))
	}
}

// Four are fetched at a time: none is answered before four have come, and never
// are there five.
func TestFourAtATime(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, most := 0, 0
	four := make(chan bool)
	came := func() {
		mu.Lock()
		defer mu.Unlock()
		if now++; now > most {
			if most = now; most == maxParallel {
				close(four)
			}
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came()
		select {
		case <-four:
		case <-r.Context().Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		write(t, w, pngOf(3, 5))
	}))
	defer server.Close()
	if err := here().Load(t.Context(),
		showing(repeat(20, func(i int) string { return fmt.Sprintf("%s/%d", server.URL, i) })...),
		"google", nil); err != nil {
		t.Error(err)
	}
	if most != maxParallel {
		t.Errorf("%d at a time", most)
	}
}

func TestCancelEndsLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer server.Close()
	if err := here().Load(ctx, showing(repeat(9, func(i int) string { return fmt.Sprintf("%s/%d", server.URL, i) })...),
		"google", nil); err != context.Canceled {
		t.Errorf("error %v", err)
	}
}

// TestLoadReserves: each byte of a remote image is reserved as it arrives, and without room the request is refused with
// the error of reserve, which names no image.
func TestLoadReserves(t *testing.T) {
	t.Parallel()
	g := newGallery(t)
	var reserved atomic.Int64
	r := showing(g.URL+"/png", g.URL+"/png2")
	if err := here().Load(t.Context(), r, "google", func(n int) error {
		reserved.Add(int64(n))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, p := range listPictures(r) {
		img, err := ParseDataURL(p.of.URL)
		if err != nil {
			t.Fatal(err)
		}
		sum += img.Bytes
	}
	if reserved.Load() != int64(sum) || sum == 0 {
		t.Errorf("%d bytes are reserved for %d", reserved.Load(), sum)
	}
	full := errors.New("no room")
	if err := here().Load(t.Context(), showing(g.URL+"/png", g.URL+"/png2"), "google",
		func(int) error { return full }); err != full {
		t.Errorf("without room: %v", err)
	}
}
