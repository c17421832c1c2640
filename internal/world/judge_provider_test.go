package world

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/purserhq/purser/internal/base/db"
)

// A billed is a ledger row of a call that a provider has served.
type billed struct {
	id, connectionID, key, settlement, usage string
}

// tokens returns the tokens of the row, counted as usage is.
func (b *billed) tokens() (u usage, err error) {
	var of struct{ Input, Cached, CacheWrite, Output int64 }
	text := strings.ReplaceAll(b.usage, "cache_write", "cachewrite")
	err = json.Unmarshal([]byte(text), &of)
	return usage{of.Input + of.Cached + of.CacheWrite, of.Output}, err
}

// checkProviders compares the rows of calls with the book of those who served them: each row is of a request that has
// reached a provider, with what its answer reports or less, once; and each answer that has come is billed.
func (w *world) checkProviders() error {
	rows, err := db.QueryAll(context.Background(), w.Server.DB, db.ScanFields(func(b *billed) []any {
		return []any{&b.id, &b.connectionID, &b.key, &b.settlement, &b.usage}
	}), `SELECT l.id, l.connection_id, l.key, l.settlement, l.usage FROM ledger l JOIN apps a ON a.id = l.app_id
		WHERE l.type = 'spend' AND l.status = 'settled' AND a.provider_mode = 'live' AND l.key NOT LIKE 'key %'
			AND l.model <> 'own-work' AND l.model NOT LIKE '%realtime%' ORDER BY l.id`)
	if err != nil {
		return err
	}
	byName := map[string][]*asked{}
	for _, a := range w.providers.list(0) {
		byName[a.name] = append(byName[a.name], a)
	}
	var wrong []error
	isBilled, keys := map[string]bool{}, map[string]string{}
	for _, row := range rows {
		name := nameOf("req_" + strings.TrimPrefix(row.id, "led_"))
		isBilled[name] = true
		if other := keys[row.connectionID+" "+row.key]; other != "" {
			wrong = append(wrong, fmt.Errorf("providers: %s and %s bill one key", other, row.id))
		}
		keys[row.connectionID+" "+row.key] = row.id
		if err := checkRow(&row, byName[name]); err != nil {
			wrong = append(wrong, fmt.Errorf("providers: %s: %w", row.id, err))
		}
		w.api.drawn["a call in a provider's book: "+row.settlement]++
	}
	unbilled, err := db.QueryAll(context.Background(), w.Server.DB, db.ScanColumn[string],
		`SELECT request_id FROM unbilled_attempts`)
	if err != nil {
		return err
	}
	isCounted := map[string]bool{}
	for _, requestID := range unbilled {
		isCounted[nameOf(requestID)] = true
	}
	for _, a := range w.providers.list(0) {
		switch last := byName[a.name][len(byName[a.name])-1]; {
		case isBilled[a.name] || a.isDoubtful:
		case a.isWhole:
			wrong = append(wrong, fmt.Errorf("providers: an answer of %s that has come is not billed: %+v", a.at, a))
		case a == last && a.used != nil && !isCounted[a.name] && w.clock.Now().Sub(a.at) < 20*day:
			wrong = append(wrong, fmt.Errorf("providers: what was done at %s is neither billed nor counted: %+v", a.at,
				a))
		}
	}
	return errors.Join(wrong...)
}

// nameOf is the name by which providers know a request.
func nameOf(requestID string) string {
	sum := sha256.Sum256([]byte(requestID))
	return hex.EncodeToString(sum[:16])
}

// checkRow compares a row with what the provider was asked.
func checkRow(row *billed, asked []*asked) error {
	if len(asked) == 0 {
		return errors.New("it was billed and never asked")
	}
	is, err := row.tokens()
	if err != nil {
		return err
	}
	for _, a := range asked {
		switch {
		case row.settlement == "settled" && a.used != nil && *a.used == is:
			return nil
		case row.settlement == "estimated" && (is.Output == 0 || a.used != nil && is.Output <= a.used.Output):
			return nil
		}
	}
	last := asked[len(asked)-1]
	return fmt.Errorf("%+v is %s, the provider has %+v, %+v", is, row.settlement, *last, last.used)
}
