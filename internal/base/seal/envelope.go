package seal

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/settings"
)

// OpenEnvelope returns the Box under envelope keys of KeySize bytes. It refuses keys of which none is that of the
// database's secrets: each of them would fail by itself, later.
func OpenEnvelope(ctx context.Context, d *db.DB, envelopeKeys [][]byte) (*Box, error) {
	box, err := New(envelopeKeys...)
	if err != nil {
		return nil, err
	}
	if _, err := box.Keep(ctx, d, "envelope", nil); err != nil {
		return nil, fmt.Errorf("envelope_key: this database's secrets are sealed under another key: %w", err)
	}
	return box, nil
}

// kept are the names of settings that Keep seals.
var kept = []string{"derivation_key", "envelope", "log_key"}

// settingPlace is the place of a sealed setting.
func settingPlace(name string) Place { return Place{"settings", "value", name} }

// Keep stores a secret of the whole database under a name, sealed, unless it has one already, and returns the one that
// it has then.
func (b *Box) Keep(ctx context.Context, d *db.DB, name string, secret []byte) ([]byte, error) {
	if !slices.Contains(kept, name) {
		panic("seal: " + name + " is not in the list of what Reseal must find")
	}
	sealed, err := b.Seal(secret, settingPlace(name))
	if err != nil {
		return nil, err
	}
	text, err := settings.Keep(ctx, d, name, base64.StdEncoding.EncodeToString(sealed))
	if err != nil {
		return nil, err
	}
	if sealed, err = base64.StdEncoding.DecodeString(text); err != nil {
		return nil, fmt.Errorf("seal: %s: %w", name, err)
	}
	return b.Open(sealed, settingPlace(name))
}

// Settings is the Column of what Keep has stored.
func Settings(d *db.DB) Column {
	return Column{
		Name: "settings.value",
		List: func(ctx context.Context, after string, _ int) (list []Item, err error) {
			for _, name := range kept {
				text, err := settings.Get(ctx, d, name)
				if err != nil {
					return nil, err
				}
				sealed, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				if name > after && len(sealed) > 0 {
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
