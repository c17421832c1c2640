package docs

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/purserhq/purser/api"
	"github.com/purserhq/purser/internal/base/ui"
)

// scalar is the browser build of the reference, which make scalar fetches, compressed. Its licence is MIT.
//
//go:embed assets/scalar.js.gz
var scalar []byte

// scalarPath returns the path of the script, which holds the hash of its bytes.
func scalarPath() string {
	sum := sha256.Sum256(scalar)
	return "/assets/scalar." + hex.EncodeToString(sum[:6]) + ".js"
}

// serveScalar serves the script as it is stored, or unpacked for a client that does not take gzip. The response never
// changes, because the path contains the hash of the file.
func serveScalar(w http.ResponseWriter, r *http.Request) error {
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, err := w.Write(scalar)
		return err
	}
	plain, err := gzip.NewReader(bytes.NewReader(scalar))
	if err != nil {
		return fmt.Errorf("docs: scalar: %w", err)
	}
	_, err = io.Copy(w, plain)
	return err
}

// serveYAML is GET /openapi.yaml: the contract as it is written.
func serveYAML(w http.ResponseWriter, r *http.Request) error {
	return ui.WriteText(w, r, "application/yaml", api.Spec)
}

// serveJSON is GET /openapi.json.
func (h *Handler) serveJSON(w http.ResponseWriter, r *http.Request) error {
	c, err := h.contract()
	if err != nil {
		return err
	}
	return ui.WriteText(w, r, "application/json", c.json)
}

// showReference is GET /reference.
func (h *Handler) showReference(w http.ResponseWriter, r *http.Request) error {
	v, err := h.loadValues(r, r.URL.Query())
	if err != nil {
		return err
	}
	return h.renderReference(w, r, v)
}

// createReferenceToken is POST /reference: the page with a new access token, which its requests are sent with.
func (h *Handler) createReferenceToken(w http.ResponseWriter, r *http.Request, form url.Values) error {
	v, err := h.loadValues(r, form)
	if err != nil {
		return err
	}
	if err := h.createToken(r, &v, form); err != nil {
		return err
	}
	return h.renderReference(w, r, v)
}

func (h *Handler) renderReference(w http.ResponseWriter, r *http.Request, v values) error {
	l, err := h.library()
	if err != nil {
		return err
	}
	c, err := h.contract()
	if err != nil {
		return err
	}
	page := ui.Reference{Docs: newFrame(r, l, "/reference"), Groups: c.groups, Script: h.scalarPath}
	page.Values = &v.panel
	return ui.RenderDocs(w, r, page)
}
