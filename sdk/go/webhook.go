package purser

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultTolerance is how old a delivery may be, and how far ahead of the clock. An older one may be a replay.
const DefaultTolerance = 5 * time.Minute

// VerifyWebhook returns the event of a delivery, if the service has signed it with one of the secrets within the last
// five minutes. body has the bytes as they came. Give it two secrets while you rotate. The error has the code
// invalid_signature, also if one of the secrets is empty: anyone could sign with it.
func VerifyWebhook(body []byte, header http.Header, secrets ...string) (Event, error) {
	return WebhookVerifier{Secrets: secrets}.Verify(body, header)
}

// A WebhookVerifier verifies deliveries with settings other than those of VerifyWebhook.
type WebhookVerifier struct {
	Secrets   []string      // whsec_…; any of them may have signed
	Tolerance time.Duration // default: DefaultTolerance
	// Now returns the time. Default: time.Now.
	Now func() time.Time
}

// Verify returns the event of a delivery, if it is signed.
func (v WebhookVerifier) Verify(body []byte, header http.Header) (Event, error) {
	if len(v.Secrets) == 0 || slices.ContainsFunc(v.Secrets, isEmptySecret) {
		return Event{}, newOwnError(CodeInvalidSignature, nil, "the secret is empty: anyone could sign with it")
	}
	var valid bool
	if signature := header.Get("Svc-Signature"); signature != "" {
		valid = v.checkSvcSignature(signature, body)
	} else {
		valid = v.checkStandardSignature(header, body)
	}
	if !valid {
		return Event{}, newOwnError(CodeInvalidSignature, nil, "the signature is missing, wrong or too old")
	}
	return decode[Event](body)
}

// isEmptySecret reports whether a secret has no key.
func isEmptySecret(secret string) bool {
	return strings.TrimPrefix(strings.TrimSpace(secret), "whsec_") == ""
}

// checkSvcSignature checks t=<unix seconds>,v1=<hex>.
func (v WebhookVerifier) checkSvcSignature(signature string, body []byte) bool {
	seconds, given := "", [][]byte(nil)
	for _, part := range strings.Split(signature, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "t":
			seconds = value
		case "v1":
			if sum, err := hex.DecodeString(value); err == nil {
				given = append(given, sum)
			}
		}
	}
	if !v.isRecent(seconds) {
		return false
	}
	return v.matches(given, func(secret string) []byte { return sign([]byte(secret), seconds+".", body) })
}

// checkStandardSignature checks the headers of Standard Webhooks, whose key is what the secret encodes.
func (v WebhookVerifier) checkStandardSignature(header http.Header, body []byte) bool {
	id, seconds := header.Get("Webhook-Id"), header.Get("Webhook-Timestamp")
	var given [][]byte
	for _, part := range strings.Fields(header.Get("Webhook-Signature")) {
		version, value, _ := strings.Cut(part, ",")
		if sum, err := base64.StdEncoding.DecodeString(value); err == nil && version == "v1" {
			given = append(given, sum)
		}
	}
	if id == "" || !v.isRecent(seconds) {
		return false
	}
	return v.matches(given, func(secret string) []byte {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return nil
		}
		return sign(key, id+"."+seconds+".", body)
	})
}

// isRecent reports whether a time in Unix seconds is within the tolerance.
func (v WebhookVerifier) isRecent(seconds string) bool {
	signed, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return false
	}
	now, tolerance := time.Now, v.Tolerance
	if v.Now != nil {
		now = v.Now
	}
	if tolerance <= 0 {
		tolerance = DefaultTolerance
	}
	return now().Sub(time.Unix(signed, 0)).Abs() <= tolerance
}

// matches reports whether one of the given signatures is that of one of the secrets. It takes the same time whichever
// byte differs.
func (v WebhookVerifier) matches(given [][]byte, signatureOf func(secret string) []byte) bool {
	for _, secret := range v.Secrets {
		wanted := signatureOf(secret)
		for _, sum := range given {
			if wanted != nil && hmac.Equal(sum, wanted) {
				return true
			}
		}
	}
	return false
}

// sign returns the HMAC-SHA256 of a text and a body.
func sign(key []byte, text string, body []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	mac.Write(body)
	return mac.Sum(nil)
}
