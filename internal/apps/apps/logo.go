package apps

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/purserhq/purser/internal/base/apierr"
	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/models/images"
)

// SetLogo gives an app the logo that is made from a file somebody sent. A file that
// cannot become one is 400 invalid_request, and says why.
func (s *Store) SetLogo(ctx context.Context, appID string, file []byte) error {
	picture, err := s.normalizeLogo(file)
	if err != nil {
		return apierr.InvalidRequest.Errorf("logo: %s", err)
	}
	sum := sha256.Sum256(picture)
	_, err = s.db.ExecContext(ctx, `INSERT INTO app_logos (app_id, hash, png, created_us) VALUES ($1, $2, $3, $4)
		ON CONFLICT (app_id) DO UPDATE SET hash = excluded.hash, png = excluded.png, created_us = excluded.created_us`,
		appID, hex.EncodeToString(sum[:16]), picture, s.now().UnixMicro())
	if err != nil {
		return fmt.Errorf("apps: logo: %w", err)
	}
	return nil
}

// normalizeLogo makes one logo at a time: a file may ask for much memory while it is read.
func (s *Store) normalizeLogo(file []byte) ([]byte, error) {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	return images.DrawLogo(file)
}

// RemoveLogo takes an app's logo away, if it has one.
func (s *Store) RemoveLogo(ctx context.Context, appID string) error {
	if _, err := s.db.ExecContext(ctx, `DELETE FROM app_logos WHERE app_id = $1`, appID); err != nil {
		return fmt.Errorf("apps: remove logo: %w", err)
	}
	return nil
}

// getLogo returns the picture with a hash.
func getLogo(ctx context.Context, q db.Queryer, hash string) (png []byte, err error) {
	err = q.QueryRowContext(ctx, `SELECT png FROM app_logos WHERE hash = $1 LIMIT 1`, hash).Scan(&png)
	return png, err
}

// LogoPath is where the app's logo is served; "" = it has none.
func (a App) LogoPath() string {
	if a.LogoHash == "" {
		return ""
	}
	return "/assets/logos/" + a.LogoHash + ".png"
}

// serveLogo is GET /assets/logos/{file}. What it answers never changes, since the
// address holds the hash of it.
func (h *Handler) serveLogo(w http.ResponseWriter, r *http.Request) error {
	hash, ok := strings.CutSuffix(r.PathValue("file"), ".png")
	if !ok {
		return apierr.NotFound.Errorf("no such logo")
	}
	png, err := getLogo(r.Context(), h.Store.db, hash)
	if errors.Is(err, sql.ErrNoRows) {
		return apierr.NotFound.Errorf("no such logo")
	} else if err != nil {
		return fmt.Errorf("apps: logo: %w", err)
	}
	header := w.Header() // the router has forbidden to guess another type, and to do anything
	header.Set("Content-Type", "image/png")
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, err = w.Write(png)
	return err
}
