// Package id makes the identifiers and secrets of Purser (spec §2).
// Identifiers are prefixed, opaque and rise with time, so that rows written
// together lie together; secrets are 256 random bits, kept only as a hash.
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

// The prefixes of spec §2, and ours: Request is one inference call. Voice tickets, rtt_, are secrets.
const (
	Account      = "wac_"
	App          = "app_"
	Connection   = "conn_"
	Ledger       = "led_"
	AllocRequest = "acr_"
	Event        = "evt_"
	Request      = "req_"
	Client       = "cid_"
	Node         = "node_"
	Notice       = "ntc_"
	Webhook      = "whk_"
	Delivery     = "whd_"
	Payment      = "top_"
	Voice        = "rts_"
)

var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// New returns a fresh identifier: prefix, 48 bits of milliseconds, 80 random
// bits, in 26 lower-case characters.
func New(prefix string, now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(now.UnixMilli())<<16)
	rand.Read(b[6:])
	return prefix + encoding.EncodeToString(b[:])
}

// Swap returns the identifier with another prefix: the ledger row of request
// req_X is led_X, so either finds the other without an index.
func Swap(id, from, to string) string { return to + id[len(from):] }

// Secret returns 256 random bits as 43 URL-safe characters, without a prefix.
func Secret() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash returns what is stored of a secret: its SHA-256, URL-safe. Secrets are
// random, so a slow hash would add nothing.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Floor returns a text that sorts before every identifier of the prefix made at
// or after t, and behind those made earlier.
func Floor(prefix string, t time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], uint64(t.UnixMilli())<<16)
	return prefix + encoding.EncodeToString(b[:])
}

// Time returns when an identifier was made, to the millisecond; the zero time of
// what New did not make.
func Time(id string) time.Time {
	b, err := encoding.DecodeString(id[strings.LastIndexByte(id, '_')+1:])
	if err != nil || len(b) != 16 {
		return time.Time{}
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b) >> 16))
}

// UUID returns a fresh random UUID, the form of idempotency keys (spec §4.3).
func UUID() string {
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
