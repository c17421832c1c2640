package proofs

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/web"
)

// Handler serves the log to everybody, by the paths of C2SP's tlog-tiles.
type Handler struct {
	Log       *Log
	BaseURL   string
	Witnesses []*Witness
}

// Mount adds the routes.
func (h *Handler) Mount(rt *web.Router) {
	rt.Handle("GET /v1/log", h.describe)
	rt.Handle("GET /checkpoint", h.serveCheckpoint)
	rt.Handle("GET /tile/{path...}", h.serveTile)
}

// description is the answer of GET /v1/log.
type description struct {
	Object        string `json:"object"`
	Origin        string `json:"origin"`
	Key           string `json:"key"`
	CheckpointURL string `json:"checkpoint_url"`
	TileURL       string `json:"tile_url"`
	Size          int64  `json:"size"`

	Witnesses []string `json:"witnesses"` // the keys of those who are asked to cosign
}

func (h *Handler) describe(w http.ResponseWriter, r *http.Request) error {
	d := description{
		Object:        "log",
		Key:           h.Log.Key,
		CheckpointURL: h.BaseURL + "/checkpoint",
		TileURL:       h.BaseURL + "/tile",
		Witnesses:     []string{},
	}
	for _, w := range h.Witnesses {
		d.Witnesses = append(d.Witnesses, w.Key)
	}
	d.Origin, _, _ = strings.Cut(d.Key, "+")
	signed, err := selectState(r.Context(), h.Log.DB)
	if err != nil {
		return err
	}
	if signed != "" {
		c, err := OpenCheckpoint(signed, h.Log.Key)
		if err != nil {
			return err
		}
		d.Size = c.Tree.N
	}
	return web.WriteJSON(w, http.StatusOK, d)
}

func (h *Handler) serveCheckpoint(w http.ResponseWriter, r *http.Request) error {
	signed, err := selectState(r.Context(), h.Log.DB)
	if err != nil {
		return err
	}
	if signed == "" {
		return apierr.NotFound.Errorf("The log has no checkpoint yet. Try again in a minute.")
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, err = w.Write([]byte(signed))
	return err
}

// serveTile serves tile/<level>/<index> with an optional .p/<width>, and tile/entries/<index> likewise.
func (h *Handler) serveTile(w http.ResponseWriter, r *http.Request) error {
	errNoTile := apierr.NotFound.Errorf("The log has no such tile.")
	path, entries := strings.CutPrefix(r.PathValue("path"), "entries/")
	if entries {
		path = "data/" + path
	}
	tile, err := tlog.ParseTilePath("tile/8/" + path)
	if err != nil || (tile.L == -1) != entries {
		return errNoTile
	}
	var body []byte
	if entries {
		body, err = h.readEntries(r, tile)
	} else {
		body, err = readTile(r.Context(), h.Log.DB, tile)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return errNoTile
	} else if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, err = w.Write(body)
	return err
}

// readEntries returns a tile of entries, each after its length in two bytes.
func (h *Handler) readEntries(r *http.Request, tile tlog.Tile) ([]byte, error) {
	list, err := selectEntries(r.Context(), h.Log.DB, tile.N<<tileHeight, int64(tile.W))
	if err != nil {
		return nil, err
	}
	if len(list) < tile.W {
		return nil, sql.ErrNoRows
	}
	var body []byte
	for _, entry := range list {
		body = binary.BigEndian.AppendUint16(body, EntrySize)
		body = append(body, entry...)
	}
	return body, nil
}
