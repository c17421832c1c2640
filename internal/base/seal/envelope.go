package seal

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
)

// OpenEnvelope returns the Box under envelope keys of KeySize bytes, and the key from which others of the database are
// derived: the envelope key that it had first, whatever replaced it. It refuses envelope keys of which none is that of
// the database's secrets: each of them would fail by itself, later.
func OpenEnvelope(ctx context.Context, d *db.DB, envelopeKeys [][]byte) (box *Box, derivationKey []byte, err error) {
	if box, err = New(envelopeKeys...); err != nil {
		return nil, nil, err
	}
	_, current, err := box.keep(ctx, d, "envelope", nil)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope_key: this database's secrets are sealed under another key: %w", err)
	}
	derivationKey, err = box.Keep(ctx, d, "derivation_key", envelopeKeys[current])
	return box, derivationKey, err
}

// keptNames are the names of settings that Keep seals. The value that OpenEnvelope looks at is resealed last of all:
// nodes refuse to start without the old key until no secret needs it any more.
var keptNames = []string{"derivation_key", "log_key", "envelope"}

// settingPlace is the place of a sealed setting.
func settingPlace(name string) Place { return Place{"settings", "value", name} }

// Keep stores a secret of the whole database under a name, sealed, unless it has one already, and returns the one that
// it has then.
func (b *Box) Keep(ctx context.Context, d *db.DB, name string, secret []byte) ([]byte, error) {
	secret, _, err := b.keep(ctx, d, name, secret)
	return secret, err
}

// keep also returns which envelope key has sealed the secret.
func (b *Box) keep(ctx context.Context, d *db.DB, name string, secret []byte) (kept []byte, key int, err error) {
	if !slices.Contains(keptNames, name) {
		panic("seal: " + name + " is not in the list of what Reseal must find")
	}
	sealed, err := b.Seal(secret, settingPlace(name))
	if err != nil {
		return nil, 0, err
	}
	text, err := settings.Keep(ctx, d, name, base64.StdEncoding.EncodeToString(sealed))
	if err != nil {
		return nil, 0, err
	}
	if sealed, err = base64.StdEncoding.DecodeString(text); err != nil {
		return nil, 0, fmt.Errorf("seal: %s: %w", name, err)
	}
	return b.open(sealed, settingPlace(name))
}

// Settings is the Column of what Keep has stored. It is resealed after all others, and only if all of them could be
// read.
func Settings(d *db.DB) Column {
	return Column{
		Name: "settings.value",
		List: func(ctx context.Context, _ string, _ int) (list []Item, err error) {
			for _, name := range keptNames {
				text, err := settings.Get(ctx, d, name)
				if err != nil {
					return nil, err
				}
				sealed, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if len(sealed) > 0 {
					list = append(list, Item{name, sealed, settingPlace(name)})
				}
			}
			return list, nil
		},
		Replace: func(ctx context.Context, item Item, sealed []byte) error {
			return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				before := base64.StdEncoding.EncodeToString(item.Sealed)
				if now, err := settings.Lock(ctx, tx, item.ID); err != nil || now != before {
					return err
				}
				return settings.Set(ctx, tx, item.ID, base64.StdEncoding.EncodeToString(sealed))
			})
		},
	}
}
