package webhooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/purserhq/purser/internal/base/web"
)

const secretPrefix = "whsec_"

// NewSecret returns a new webhook secret: the prefix and 264 random bits in base64, which need no
// padding. Libraries for Standard Webhooks decode the part after the prefix.
func NewSecret() string {
	var b [33]byte
	rand.Read(b[:])
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// Sign sets the signature headers of both schemes (decision 039): Svc-Signature with the whole
// secret as key, and those of Standard Webhooks with the decoded one.
func Sign(h http.Header, secret, eventID string, body []byte, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil {
		return fmt.Errorf("webhooks: a stored secret is not in base64: %w", err)
	}
	t := strconv.FormatInt(now.Unix(), 10)
	h.Set(web.EventIDHeader, eventID)
	h.Set(web.SignatureHeader, "t="+t+",v1="+hex.EncodeToString(computeMAC([]byte(secret), t, ".", string(body))))
	h.Set("Webhook-Id", eventID)
	h.Set("Webhook-Timestamp", t)
	h.Set("Webhook-Signature",
		"v1,"+base64.StdEncoding.EncodeToString(computeMAC(key, eventID, ".", t, ".", string(body))))
	return nil
}

func computeMAC(key []byte, parts ...string) []byte {
	m := hmac.New(sha256.New, key)
	for _, p := range parts {
		m.Write([]byte(p)) // never fails
	}
	return m.Sum(nil)
}
