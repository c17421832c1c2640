package seal

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
)

// OpenEnvelope returns the Box under an envelope key of KeySize bytes. It refuses
// a key which is not the one of the database's secrets: each of them would fail
// by itself, later.
func OpenEnvelope(ctx context.Context, d *db.DB, envelopeKey []byte) (*Box, error) {
	box, err := New(envelopeKey)
	if err != nil {
		return nil, err
	}
	place := Place{"settings", "value", "envelope"}
	sealed, err := box.Seal(nil, place)
	if err != nil {
		return nil, err
	}
	kept, err := settings.Keep(ctx, d, "envelope", base64.StdEncoding.EncodeToString(sealed))
	if err != nil {
		return nil, err
	}
	if sealed, err = base64.StdEncoding.DecodeString(kept); err == nil {
		_, err = box.Open(sealed, place)
	}
	if err != nil {
		return nil, fmt.Errorf("envelope_key: this database's secrets are sealed under another key: %w", err)
	}
	return box, nil
}
