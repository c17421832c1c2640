package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
)

// Describe names a text that came from a provider, for the log: by its length and a hash, by which equal texts are
// found. The text itself may repeat what the user wrote, what the model answered, or a key, in any encoding.
func Describe[T ~string | ~[]byte](text T) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%d bytes, sha256 %x", len(text), sum[:6])
}

// word matches what providers use as a code: no sentence, and nothing that can be a key.
var word = regexp.MustCompile(`^[A-Za-z_]{1,40}$`)

// DescribeCode returns a code of a provider, such as an error type, for the log, and what Describe does of other texts.
func DescribeCode(code string) string {
	if word.MatchString(code) {
		return code
	}
	return Describe(code)
}

// explainExchange replaces an error that may quote what came instead of an HTTP response: it may be of any length.
func explainExchange(err error) error {
	_, isNetwork := errors.AsType[net.Error](err)
	if isNetwork || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errLongHead) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("the answer is not HTTP: %s", Describe(err.Error()))
}

// minSecret is the least length of a secret that is removed from texts. Providers' keys are much longer.
const minSecret = 8

// secretForms are the ways in which a text may contain a secret.
type secretForms []string

// newSecretForms returns the forms of a secret: as it is, in hexadecimal digits, and in base64 wherever it begins in
// what is encoded.
func newSecretForms(secret string) (forms secretForms) {
	if len(secret) < minSecret {
		return nil
	}
	digits := hex.EncodeToString([]byte(secret))
	forms = secretForms{secret, digits, strings.ToUpper(digits)}
	for skip := range 3 { // bytes before the first one that shares no digit with what comes before the secret
		part := []byte(secret[skip:])
		part = part[:len(part)/3*3]
		forms = append(forms, base64.RawStdEncoding.EncodeToString(part), base64.RawURLEncoding.EncodeToString(part))
	}
	return forms
}

// redact removes the secret from a text. Where it is escaped as in URLs or in JSON, the whole text is unescaped.
func (f secretForms) redact(text string) string {
	for _, form := range f {
		text = strings.ReplaceAll(text, form, "[removed]")
	}
	if len(f) == 0 || !strings.ContainsAny(text, `%\`) {
		return text
	}
	plain := escaped.ReplaceAllStringFunc(text, func(c string) string {
		b, _ := hex.DecodeString(c[len(c)-2:]) // the pattern matches nothing else
		return string(b)
	})
	if strings.Contains(plain, f[0]) {
		return f.redact(plain)
	}
	return text
}

// escaped matches a byte that is escaped as in URLs, or as in JSON within JSON.
var escaped = regexp.MustCompile(`%[0-9A-Fa-f]{2}|\\+u00[0-9A-Fa-f]{2}`)
