// Package id makes the identifiers and secrets of Purser (contract §2; decisions 006, 061). Identifiers have a
// prefix, are opaque and rise with time, so that rows written together are stored together. Secrets are 256 random
// bits, of which only a hash is stored.
package id

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"
)

// The prefixes of contract §2, and ours. Request is one inference call. Voice tickets, rtt_…, and tokens of children,
// cht_…, are secrets.
const (
	Account           = "wac_"
	App               = "app_"
	Connection        = "conn_"
	Ledger            = "led_"
	AllocationRequest = "acr_"
	Event             = "evt_"
	LogEntry          = "evl_"
	Request           = "req_"
	Client            = "cid_"
	Node              = "node_"
	Notice            = "ntc_"
	Webhook           = "whk_"
	Delivery          = "whd_"
	Payment           = "top_"
	Goodwill          = "gwc_"
	Settlement        = "stl_"
	Voice             = "rts_"
	Stop              = "stp_"
	Child             = "chd_"
	Database          = "db_"
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a new identifier: the prefix, then 48 bits of milliseconds and 80 random bits in 26 lower-case
// characters.
func New(prefix string, now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(now.UnixMilli())<<16)
	rand.Read(b[6:])
	return prefix + encoding.EncodeToString(b[:])
}

// ReplacePrefix returns an identifier with another prefix. The ledger row of request req_X is led_X, so either
// finds the other without an index.
func ReplacePrefix(id, from, to string) string { return to + id[len(from):] }

// NewSecret returns 256 random bits as 43 URL-safe characters, without a prefix.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash returns the hash that is stored of a secret: SHA-256, URL-safe. Secrets are random, so a slow hash would
// not make them safer.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Floor returns a lower bound in the sort order: identifiers with the prefix sort after it if they were made at or
// after t, and before it otherwise.
func Floor(prefix string, t time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli())<<16)
	return prefix + encoding.EncodeToString(b[:])
}

// Time returns when an identifier was made, in whole milliseconds. It returns the zero time if New did not make it.
func Time(id string) time.Time {
	b, err := encoding.DecodeString(id[strings.LastIndexByte(id, '_')+1:])
	if err != nil || len(b) != 16 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b) >> 16))
}

// IsValid reports whether a text has the form of New's identifiers with the prefix.
func IsValid(prefix, text string) bool {
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return false
	}
	b, err := encoding.DecodeString(rest)
	return err == nil && len(b) == 16
}

// NewUUID returns a random UUID (version 4), the form of idempotency keys (contract §4.3).
func NewUUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// ParseUUID returns a UUID in lower case. It accepts the one form 8-4-4-4-12 of
// RFC 9562, of any version and in any case, and nothing around it.
func ParseUUID(s string) (string, bool) {
	if len(s) != 36 {
		return "", false
	}
	for i, c := range []byte(s) {
		hex := '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (c == '-') || !dash && !hex {
			return "", false
		}
	}
	return strings.ToLower(s), true
}
