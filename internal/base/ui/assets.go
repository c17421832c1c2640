package ui

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"net/http"

	"github.com/purserhq/purser/internal/base/web"
)

//go:embed assets/purser.css
var css []byte

//go:embed assets/icon.svg
var svg []byte

//go:embed assets/passkeys.js
var passkeysJS []byte

// htmx is fetched as it is by make htmx; its licence (0BSD) asks for nothing.
//
//go:embed assets/htmx.min.js
var htmxJS []byte

//go:embed assets/voice.js
var voiceJS []byte

//go:embed assets/docs.css
var docsCSS []byte

//go:embed assets/docs.js
var docsJS []byte

// Components are the web components for pages of apps. Apps name them by this version, so its file only grows.
//
//go:embed assets/components.js
var Components []byte

// ComponentsPath is where apps load the web components.
const ComponentsPath = "/components/v1/purser.js"

// An asset is served under a path that holds the hash of its bytes, so that
// browsers may cache it forever.
type asset struct {
	path, kind string
	integrity  string // for the element that names it
	body       []byte
}

var (
	sheet = newAsset("purser", ".css", "text/css; charset=utf-8", css)
	icon  = newAsset("icon", ".svg", "image/svg+xml", svg)
	// passkeys is needed for them: browsers use them for scripts alone.
	passkeys = newAsset("passkeys", ".js", "text/javascript; charset=utf-8", passkeysJS)
	// htmx refreshes live parts of pages; every page works without it.
	htmx = newAsset("htmx", ".js", "text/javascript; charset=utf-8", htmxJS)
	// the page that needs it cannot do without
	voice = newAsset("voice", ".js", "text/javascript; charset=utf-8", voiceJS)
	// The documentation has more to style than all other pages, and is readable without its script.
	docsSheet  = newAsset("docs", ".css", "text/css; charset=utf-8", docsCSS)
	docsScript = newAsset("docs", ".js", "text/javascript; charset=utf-8", docsJS)
)

func newAsset(name, suffix, kind string, body []byte) asset {
	sum := sha256.Sum256(body)
	return asset{
		path:      "/assets/" + name + "." + hex.EncodeToString(sum[:6]) + suffix,
		kind:      kind,
		integrity: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
		body:      body,
	}
}

// Mount serves the style sheet, the icon and the scripts, and what browsers and crawlers ask for by themselves.
func Mount(rt *web.Router) {
	for _, a := range []asset{sheet, icon, passkeys, htmx, voice, docsSheet, docsScript} {
		rt.Handle("GET "+a.path, a.serve)
	}
	rt.Handle("GET "+ComponentsPath, serveComponents)
	rt.Handle("GET /favicon.ico", serveFavicon)
	rt.Handle("GET /robots.txt", serveRobots)
}

func (a asset) serve(w http.ResponseWriter, _ *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	_, err := w.Write(a.body)
	return err
}

// serveComponents serves the web components. A page of any origin may import them.
func serveComponents(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	return writeTagged(w, r, "public, max-age=3600, stale-while-revalidate=86400", Components)
}
