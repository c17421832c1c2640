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

// SetLogo draws an app's logo from an uploaded file and stores it. That of a live app waits for review. An invalid file
// is 400 invalid_request with the reason.
func (s *Store) SetLogo(ctx context.Context, appID string, file []byte) error {
	picture, err := s.normalizeLogo(file)
	if err != nil {
		return apierr.InvalidRequest.Errorf("logo: %s", err)
	}
	sum := sha256.Sum256(picture)
	hash, nowUS := hex.EncodeToString(sum[:16]), s.now().UnixMicro()
	_, err = s.updateReviewed(ctx, appID, func(ctx context.Context, tx *db.Tx, a App) (App, error) {
		a.Proposed.LogoHash = nil
		if a.Tier == Sandbox || a.LogoHash == hash {
			a.LogoHash = hash
			return a, errors.Join(deleteLogoProposal(ctx, tx, appID), upsertLogo(ctx, tx, appID, hash, picture, nowUS))
		}
		a.Proposed.LogoHash = &hash
		return a, upsertLogoProposal(ctx, tx, appID, hash, picture, nowUS)
	})
	if err != nil {
		return fmt.Errorf("apps: logo: %w", err)
	}
	return nil
}

// normalizeLogo draws one logo at a time, because decoding a file may need much memory.
func (s *Store) normalizeLogo(file []byte) ([]byte, error) {
	s.drawing.Lock()
	defer s.drawing.Unlock()
	return images.DrawLogo(file)
}

// RemoveLogo deletes an app's logo, if it has one, and the one that waits for review.
func (s *Store) RemoveLogo(ctx context.Context, appID string) error {
	_, err := s.updateReviewed(ctx, appID, func(ctx context.Context, tx *db.Tx, a App) (App, error) {
		a.LogoHash, a.Proposed.LogoHash = "", nil
		return a, errors.Join(deleteLogoProposal(ctx, tx, appID), deleteLogo(ctx, tx, appID))
	})
	if err != nil {
		return fmt.Errorf("apps: remove logo: %w", err)
	}
	return nil
}

// LogoPath returns the path of the app's logo, "" if it has none.
func (a App) LogoPath() string {
	if a.LogoHash == "" {
		return ""
	}
	return "/assets/logos/" + a.LogoHash + ".png"
}

// serveLogo is GET /assets/logos/{file}. The response never changes, because the path contains the hash of the file.
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
	header := w.Header() // the router has set nosniff and a policy that forbids everything
	header.Set("Content-Type", "image/png")
	header.Set("Cache-Control", "public, max-age=31536000, immutable")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, err = w.Write(png)
	return err
}
