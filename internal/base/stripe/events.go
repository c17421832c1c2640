package stripe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// signatureTTL is how old a signature may be. Stripe signs each delivery of an event anew.
const signatureTTL = 5 * time.Minute

// An Event says that something has changed.
type Event struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Account  string `json:"account"` // a connected account that it is of; "" = ours
	Livemode bool   `json:"livemode"`
	Data     *struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

var (
	errSignature = errors.New("stripe: the event has no right signature")
	errOld       = errors.New("stripe: the signature of the event is too old")
	errNoEvent   = errors.New("stripe: what is signed is no event")
)

// ReadEvent reads an event that was signed with the secret of an endpoint. header is Stripe-Signature: a time, and a
// signature for each secret that the endpoint has, which are several while a secret is replaced.
func ReadEvent(body []byte, header, secret string, now time.Time) (e Event, err error) {
	if err := checkSignature(body, header, secret, now); err != nil {
		return e, err
	}
	var kind struct {
		Object string `json:"object"`
	}
	if err := json.Unmarshal(body, &kind); err != nil {
		return e, fmt.Errorf("%w: %w", errNoEvent, err)
	} else if kind.Object != "event" {
		return e, errNoEvent
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, fmt.Errorf("%w: %w", errNoEvent, err)
	} else if e.Data == nil {
		return e, errNoEvent
	}
	return e, nil
}

// checkSignature checks a header such as t=1495999758,v1=ab…,v1=cd…,v0=ef…. Only signatures of v1 count.
func checkSignature(body []byte, header, secret string, now time.Time) error {
	var signatures [][]byte
	signedAt := ""
	for part := range strings.SplitSeq(header, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok:
			return errSignature
		case name == "t":
			signedAt = value
		case name == "v1":
			if signature, err := hex.DecodeString(value); err == nil {
				signatures = append(signatures, signature)
			}
		}
	}
	seconds, err := strconv.ParseInt(signedAt, 10, 64)
	if err != nil || secret == "" {
		return errSignature
	}
	if now.Sub(time.Unix(seconds, 0)) > signatureTTL {
		return errOld
	}
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(signedAt + "."))
	m.Write(body)
	right := m.Sum(nil)
	for _, signature := range signatures {
		if hmac.Equal(signature, right) {
			return nil
		}
	}
	return errSignature
}
