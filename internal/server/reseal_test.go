package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/purserhq/purser/internal/base/db"
	"github.com/purserhq/purser/internal/base/seal"
	"github.com/purserhq/purser/internal/base/ui"
	"github.com/purserhq/purser/internal/config"
	"github.com/purserhq/purser/internal/gateway/policy"
	"github.com/purserhq/purser/internal/testkit/dbtest"
)

// sealedRows are statements that store one sealed value each, $1, in every column that has such values. The id is the
// last word of the value's place.
var sealedRows = map[string]struct{ id, query string }{
	"children": {"chd_1", `INSERT INTO children (id, connection_id, depth, label, amount_mc, features, models, key,
		fingerprint, token_hash, expires_us, created_us, ended_by, returned_mc, sealed)
		VALUES ('chd_1', 'conn_1', 1, '', 1, '[]', '[]', 'k', '', 'h', 1, 1, '', 0, $1)`},
	"mails": {"mail_1", `INSERT INTO mails (id, account_id, recipient, subject, text, html, unsubscribe, created_us,
		status, next_us, sealed) VALUES ('mail_1', 'wac_1', 'a@example.com', 's', '', '', '', 1, 'sent', 1, $1)`},
	"provider_keys": {"openai", `INSERT INTO provider_keys (account_id, provider, sealed, last4, created_us, tested_us)
		VALUES ('wac_1', 'openai', $1, '', 1, 1)`},
	"totp_seeds": {"wac_1", `INSERT INTO totp_seeds (account_id, sealed, active, last_step)
		VALUES ('wac_1', $1, 1, 0)`},
	"webhooks": {"wh_1", `INSERT INTO webhooks (id, app_id, url, events, status, sealed, created_us)
		VALUES ('wh_1', 'app_1', 'https://example.com', '[]', 'active', $1, 1)`},
}

// TestEnvelopeKeyIsReplaced replaces the envelope key as an operator would, node by node: at each step all secrets open
// and the node starts, and afterwards the old key opens nothing.
func TestEnvelopeKeyIsReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		url := dbtest.URL(t, d.Engine)
		before, after := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
		first := openWithKeys(t, url, before)
		accountIdentifier, logKey := first.identifiers.Identify("wac_1"), first.publisher.Key()
		places := storeSealed(t, first)
		closeServer(t, first)
		for _, keys := range [][][]byte{{before, after}, {after, before}} {
			s := openWithKeys(t, url, keys...)
			checkSealed(t, s, places)
			closeServer(t, s)
		}
		s := openWithKeys(t, url, after, before)
		done := reseal(t, s)
		if want := int64(len(places)); done.Resealed < want || done.Unreadable != 0 {
			t.Errorf("resealed %+v, want at least %d", done, want)
		}
		if again := reseal(t, s); again.Resealed != 0 || again.Unreadable != 0 {
			t.Errorf("once more: %+v", again)
		}
		closeServer(t, s)
		last := openWithKeys(t, url, after)
		checkSealed(t, last, places)
		if got := last.identifiers.Identify("wac_1"); got != accountIdentifier {
			t.Error("providers are told another identifier of the same account")
		}
		if got := last.publisher.Key(); got != logKey {
			t.Errorf("the public log's key is %s now", got)
		}
		closeServer(t, last)
		if s, err := open(t, url, before); err == nil {
			closeServer(t, s)
			t.Error("the old key still opens the database")
		}
	})
}

// A database of a version that kept no derivation key, and that is first opened when its key is already second, keeps
// its identifiers.
func TestIdentifiersOfAnOlderDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.SQLite)
	before, after := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	s := openWithKeys(t, url, before)
	want := s.identifiers.Identify("wac_1")
	if _, err := s.DB.ExecContext(t.Context(), `DELETE FROM settings WHERE name = 'derivation_key'`); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s = openWithKeys(t, url, after, before)
	defer closeServer(t, s)
	if got := s.identifiers.Identify("wac_1"); got != want {
		t.Error("providers are told another identifier of the same account")
	}
}

// A value that no key opens is counted, and the others are sealed again.
func TestUnreadableSecretIsCounted(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.SQLite)
	s := openWithKeys(t, url, bytes.Repeat([]byte{1}, 32))
	places := storeSealed(t, s)
	if _, err := s.DB.ExecContext(t.Context(), `UPDATE webhooks SET sealed = $1`, []byte("rubbish")); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s = openWithKeys(t, url, bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{1}, 32))
	defer closeServer(t, s)
	if done := reseal(t, s); done.Unreadable != 1 || done.Resealed < int64(len(places))-1 {
		t.Errorf("%+v", done)
	}
	if alone, err := open(t, url, bytes.Repeat([]byte{2}, 32)); err == nil {
		closeServer(t, alone)
		t.Error("a node starts without the key that a secret may be under")
	}
}

// TestResealStopsMidway: until every secret is under the new key, no node starts without the old one, and the log says
// that it was begun.
func TestResealStopsMidway(t *testing.T) {
	t.Parallel()
	url := dbtest.URL(t, db.SQLite)
	before, after := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	first := openWithKeys(t, url, before)
	storeSealed(t, first)
	closeServer(t, first)
	s := openWithKeys(t, url, after, before)
	if _, err := s.DB.ExecContext(t.Context(), `CREATE TRIGGER stops BEFORE UPDATE ON webhooks
		BEGIN SELECT RAISE(ABORT, 'stopped'); END`); err != nil {
		t.Fatal(err)
	}
	if _, err := s.operators.Reseal(t.Context(), "operator"); err == nil {
		t.Fatal("nothing stopped it")
	}
	var entries int
	if err := s.DB.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM operator_log WHERE action = 'reseal_begun'`).
		Scan(&entries); err != nil || entries != 1 {
		t.Errorf("%d entries, %v", entries, err)
	}
	closeServer(t, s)
	if alone, err := open(t, url, after); err == nil {
		closeServer(t, alone)
		t.Error("a node starts without the key that secrets are under")
	}
}

// TestEachSealedColumnIsResealed compares the columns of the schema with those that the server names.
func TestEachSealedColumnIsResealed(t *testing.T) {
	t.Parallel()
	s := openWithKeys(t, dbtest.URL(t, db.SQLite), make([]byte, 32))
	defer closeServer(t, s)
	tables, err := db.QueryAll(t.Context(), s.DB, db.ScanColumn[string], `SELECT m.name FROM sqlite_master m
		JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'sealed' AND c.type = 'BYTEA' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, c := range s.listSealed() {
		if table, _, _ := strings.Cut(c.Name, "."); table != "settings" {
			named = append(named, table)
		}
	}
	if slices.Sort(named); !slices.Equal(named, tables) {
		t.Errorf("the schema has %q, the server reseals %q", tables, named)
	}
}

func open(t *testing.T, url string, keys ...[]byte) (*Server, error) {
	t.Helper()
	return Open(t.Context(), config.Config{
		Database:       url,
		Lease:          time.Minute,
		EnvelopeKeys:   keys,
		OperatorTokens: []string{strings.Repeat("x", 32), strings.Repeat("y", 32)},
		Policy:         policy.Default,
	}, slog.New(slog.DiscardHandler), false)
}

func openWithKeys(t *testing.T, url string, keys ...[]byte) *Server {
	t.Helper()
	s, err := open(t, url, keys...)
	if err != nil {
		t.Fatal(err)
	}
	s.Mount(ui.Home{})
	return s
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	if err := s.DB.Close(); err != nil {
		t.Error(err)
	}
}

// storeSealed stores a secret in each column, and returns their places by table.
func storeSealed(t *testing.T, s *Server) map[string]seal.Place {
	t.Helper()
	for _, query := range []string{
		`INSERT INTO accounts (id, email, password_hash, created_us) VALUES ('wac_1', 'a@example.com', 'x', 1)`,
		`INSERT INTO apps (id, owner_id, name, client_id, secret_hash, redirect_uris, allowed_models, tier,
			provider_mode, test_allowlist, dev_margin_ppm, created_us)
			VALUES ('app_1', 'wac_1', 'App', 'c', '', '[]', '[]', 'sandbox', 'mock', '[]', 0, 1)`,
	} {
		if _, err := s.DB.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	places := map[string]seal.Place{}
	for table, row := range sealedRows {
		places[table] = seal.Place{table, "sealed", row.id}
		if table == "provider_keys" {
			places[table] = seal.Place{table, "sealed", "wac_1", row.id}
		}
		sealed, err := s.box.Seal([]byte("secret of "+table), places[table])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.DB.ExecContext(t.Context(), row.query, sealed); err != nil {
			t.Fatal(err)
		}
	}
	return places
}

// checkSealed opens each secret.
func checkSealed(t *testing.T, s *Server, places map[string]seal.Place) {
	t.Helper()
	for table, place := range places {
		var sealed []byte
		if err := s.DB.QueryRowContext(t.Context(), `SELECT sealed FROM `+table).Scan(&sealed); err != nil {
			t.Fatal(err)
		}
		if plain, err := s.box.Open(sealed, place); err != nil || string(plain) != "secret of "+table {
			t.Errorf("%s: %q, %v", table, plain, err)
		}
	}
}

// reseal calls the operator's API by the second token.
func reseal(t *testing.T, s *Server) (done struct{ Resealed, Unreadable int64 }) {
	t.Helper()
	r, w := httptest.NewRequest("POST", "/v1/operator/secrets/reseal", nil), httptest.NewRecorder()
	r.Header.Set("Authorization", "Bearer "+strings.Repeat("y", 32))
	s.rootHandler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &done); err != nil {
		t.Fatal(err)
	}
	return done
}
