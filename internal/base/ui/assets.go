package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"io/fs"
	"net/http"
	"strings"
	"sync"

	"github.com/purserhq/purser/internal/base/web"
)

// The style sheet is base.css, then a file for each kind of component.
//
//go:embed assets/css
var styles embed.FS

//go:embed assets/icon.svg
var svg []byte

// The fonts are fetched as they are by make fonts. Their licence is the OFL.
//
//go:embed assets/inter.woff2
var interFont []byte

//go:embed assets/mono.woff2
var monoFont []byte

//go:embed assets/app.js
var appJS []byte

//go:embed assets/passkeys.js
var passkeysJS []byte

// htmx is fetched as it is by make htmx; its licence (0BSD) asks for nothing.
//
//go:embed assets/htmx.min.js
var htmxJS []byte

// uPlot is fetched as it is by make uplot.
//
//go:embed assets/uplot.min.js
var uplotJS []byte

//go:embed assets/charts.js
var chartsJS []byte

//go:embed assets/voice.js
var voiceJS []byte

//go:embed assets/consent.js
var consentJS []byte

//go:embed assets/playground.js
var playgroundJS []byte

//go:embed assets/prove.js
var proveJS []byte

//go:embed assets/table.js
var tableJS []byte

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
	kind string
	// content reads and hashes it once, when it is first named: most commands need none.
	content func() assetContent
	// packed returns the body compressed by gzip, or nil if that is not smaller, as for a font.
	packed func() []byte
}

type assetContent struct {
	path      string
	integrity string // for the element that names it
	body      []byte
}

var (
	inter = newAsset("inter", ".woff2", "font/woff2", of(interFont))
	mono  = newAsset("mono", ".woff2", "font/woff2", of(monoFont))
	sheet = newAsset("purser", ".css", "text/css; charset=utf-8", joinStyles)
	icon  = newAsset("icon", ".svg", "image/svg+xml", of(svg))
	// passkeys is needed for them: browsers use them for scripts alone. Its element names the relying party.
	passkeys = newScript("passkeys", passkeysJS)
	// The documentation has more to style than all other pages.
	docsSheet = newAsset("docs", ".css", "text/css; charset=utf-8", of(docsCSS))
)

// scripts are those that a page can name. Every page works without its scripts, except that for voice.
var scripts = map[string]asset{
	"app":    newScript("app", appJS),   // shows times in the reader's zone
	"htmx":   newScript("htmx", htmxJS), // refreshes live parts of pages
	"uplot":  newScript("uplot", uplotJS),
	"charts": newScript("charts", chartsJS),
	"voice":  newScript("voice", voiceJS),
	"docs":   newScript("docs", docsJS),
	// consent keeps the button's amount and what stays free in step with the chosen amount.
	"consent": newScript("consent", consentJS),
	// streams the answers of the playground
	"playground": newScript("playground", playgroundJS),
	"table":      newScript("table", tableJS), // keys and the drawer of lists
	"prove":      newScript("prove", proveJS), // checks the proof of an entry
}

// joinStyles returns the style sheet of all pages.
func joinStyles() []byte {
	sheet, err := styles.ReadFile("assets/css/base.css")
	if err != nil {
		panic("ui: the file is embedded: " + err.Error())
	}
	files, err := fs.Glob(styles, "assets/css/*.css")
	if err != nil {
		panic("ui: the pattern is valid: " + err.Error())
	}
	for _, file := range files {
		if file == "assets/css/base.css" {
			continue
		}
		part, err := styles.ReadFile(file)
		if err != nil {
			panic("ui: the file is embedded: " + err.Error())
		}
		sheet = append(sheet, part...)
	}
	return []byte(strings.NewReplacer("inter.woff2", inter.Path(), "mono.woff2", mono.Path()).Replace(string(sheet)))
}

func newScript(name string, body []byte) asset {
	return newAsset(name, ".js", "text/javascript; charset=utf-8", of(body))
}

func of(body []byte) func() []byte { return func() []byte { return body } }

func newAsset(name, suffix, kind string, read func() []byte) asset {
	content := sync.OnceValue(func() assetContent {
		body := read()
		sum := sha256.Sum256(body)
		return assetContent{
			path:      "/assets/" + name + "." + hex.EncodeToString(sum[:6]) + suffix,
			integrity: "sha256-" + base64.StdEncoding.EncodeToString(sum[:]),
			body:      body,
		}
	})
	return asset{
		kind:    kind,
		content: content,
		packed:  sync.OnceValue(func() []byte { return compress(content().body) }),
	}
}

// compress returns the body compressed by gzip, or nil if that saves less than a tenth.
func compress(body []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || b.Len() > len(body)*9/10 {
		return nil
	}
	return b.Bytes()
}

// Mount serves the style sheet, the icon and the scripts, and what browsers and crawlers ask for by themselves.
func Mount(rt *web.Router) {
	for _, a := range []asset{sheet, icon, iconSprite, inter, mono, passkeys, docsSheet} {
		rt.Handle("GET "+a.Path(), a.serve)
	}
	for _, a := range scripts {
		rt.Handle("GET "+a.Path(), a.serve)
	}
	rt.Handle("GET "+ComponentsPath, serveComponents)
	rt.Handle("GET /favicon.ico", serveFavicon)
	rt.Handle("GET /robots.txt", serveRobots)
}

// Path and Integrity are for templates.
func (a asset) Path() string { return a.content().path }

// Integrity returns the hash that a browser checks.
func (a asset) Integrity() string { return a.content().integrity }

func (a asset) serve(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	body := a.content().body
	if packed := a.packed(); packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		body = packed
	}
	_, err := w.Write(body)
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
